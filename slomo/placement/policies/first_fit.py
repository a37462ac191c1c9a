"""First fit that knows nothing of contention: what current schedulers do (ResQ, NSDI'18, section 6.1, Figure 8).

Each network function runs on a dedicated server to learn its throughput; instances are packed on the first server with
a free core.
"""

from slomo.placement.policies.base import Policy


class FirstFit(Policy):
    """Pack on the first server with free cores."""

    name = "first-fit"
