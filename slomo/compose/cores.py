"""How NFs share a core under a fair scheduler.

A fair scheduler divides a core's time; NFVnice (SIGCOMM'17) divides it by need. A chain is as fast as its slowest core.
With a share s of a core, a packet takes 1 / s times its time on a whole core.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import InvalidValueError

_NS_PER_PACKET_AT_1_MPPS = 1e3
#: CFS runs every task once in 6 ms, or for 0.75 ms each if they are many, times 1 + log2 of at most eight processors
#: (kernel/sched/fair.c, sched_latency and sched_min_granularity).
CFS_PERIOD_MS, CFS_LEAST_MS = 24.0, 3.0
#: A turn lasts one time slice or two: a task that is behind continues when its slice ends.
_SLICES_PER_TURN = 1.5
#: Phases and lengths of windows that are tried, and the share of them that an error holds for.
_PHASES, _HELD = 64, 0.9


@dataclass(frozen=True)
class CoreUser:
    """An NF on a shared core.

    Raises InvalidValueError for a time or weight not above 0, or a negative load.
    """

    #: Time per packet on a core of its own, beside the other NFs of the server [ns], above 0.
    time_ns: float
    #: Offered load [Mpps], 0 or more; None saturates it.
    offered_mpps: float | None = None
    #: Its weight on the core (CPU shares), above 0.
    weight: float = 1.0

    def __post_init__(self) -> None:
        offered = self.offered_mpps
        if not (0.0 < self.time_ns < np.inf and 0.0 < self.weight < np.inf) or (offered is not None and offered < 0.0):
            raise InvalidValueError(
                f"NF on a shared core: {self.time_ns:g} ns per packet, weight {self.weight:g}, {offered} Mpps offered, "
                "needed above 0, above 0, and 0 or more"
            )

    @property
    def demand(self) -> float:
        """Share of a core that the NF would use without other NFs on the core; infinite if saturated."""
        return np.inf if self.offered_mpps is None else self.offered_mpps * self.time_ns / _NS_PER_PACKET_AT_1_MPPS


def core_shares(users: Sequence[CoreUser]) -> tuple[float, ...]:
    """Return the share of a core that each of its NFs gets under a fair scheduler: max-min fair by weight.

    CFS divides a core by weight among those that want it (kernel/sched/fair.c); max-min: Bertsekas and Gallager, 6.5.
    """
    shares = [0.0] * len(users)
    left, waiting = 1.0, list(range(len(users)))
    while waiting:
        total = sum(users[i].weight for i in waiting)
        content = [i for i in waiting if users[i].demand <= left * users[i].weight / total]
        if not content:
            return tuple(left * user.weight / total if i in waiting else shares[i] for i, user in enumerate(users))
        for i in content:
            shares[i] = users[i].demand
        left -= sum(shares[i] for i in content)
        waiting = [i for i in waiting if i not in content]
    return tuple(shares)


def shared_core_mpps(users: Sequence[CoreUser]) -> tuple[float, ...]:
    """Return the throughput of each NF of a core [Mpps]; the offered load if its share suffices for that."""
    return tuple(
        user.offered_mpps
        if user.offered_mpps is not None and share == user.demand
        else _NS_PER_PACKET_AT_1_MPPS / (user.time_ns / share)
        if share > 0.0
        else 0.0
        for user, share in zip(users, core_shares(users), strict=True)
    )


def cut_turns(share: float, users: int, window_s: float) -> float:
    """Return the error of a measurement that begins and ends in the middle of scheduler turns.

    `share`: the NF's of the core, 0 to 1, among `users` NFs. `window_s`: length of the measurement [s], above 0 (else
    InvalidValueError). Of the windows that begin at any time, 90 % are off by less. In every period the NF runs once.
    Whole periods count as they should; of the rest, of any length and phase, the NF has more or less than its share.
    """
    if not window_s > 0.0:
        raise InvalidValueError(f"a measurement of {window_s:g} s, needed above 0")
    if not 0.0 < share < 1.0:
        return 0.0
    period_ms = _SLICES_PER_TURN * max(CFS_PERIOD_MS, CFS_LEAST_MS * users)
    phase, rest = np.meshgrid(*[(np.arange(_PHASES) + 0.5) / _PHASES] * 2)
    end = phase + rest
    ran = np.minimum(end, share) + np.maximum(end - 1.0, 0.0).clip(max=share) - np.minimum(phase, share)
    off_ms = period_ms * float(np.quantile(np.abs(ran - share * rest), _HELD))
    return off_ms / (1e3 * share * window_s)
