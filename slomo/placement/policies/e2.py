"""`e2`: dynamic scaling; packs without regard to contention, and starts one more instance where an SLO is not met.

E2 (Palkar et al., SOSP'15) as ResQ (NSDI'18) section 6.2 compares with it: demand that is not met adds an instance,
the traffic is split evenly. It can promise no latency, and every SLO is broken until its instances are up.
"""

from slomo.placement.policies.base import Policy


class DynamicScaling(Policy):
    """First fit, then more instances for whoever is seen to fall short."""

    name = "e2"
    scales = True
