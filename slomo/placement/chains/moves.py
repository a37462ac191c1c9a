"""Estimate what moving a network function to another NUMA node costs: a pause, a cold cache, remote pages.

NUMASFP (COMSNETS'22) migrates by cpuset and sees "minimal performance impact in the immediate second". Here the parts
are separate. Rings are unserved during the hand-over (make before break; `slomo chain run --move` measured 0.4 and 3.4
ms in an emulated machine with two nodes). The function's part of the last-level cache is read from memory again, line
by line. Its memory is remote until the kernel has copied the pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.placement.problem.chain import RatedChain
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.packet_buffers import LINE_B

#: Length of a placement interval in NUMASFP [s].
INTERVAL_S = 10.0
#: A chain, the nodes of its stages before and after -> share of an interval's service lost to moving, 0 to 1.
Moving = Callable[[RatedChain, Sequence[int], Sequence[int]], float]


@dataclass(frozen=True)
class Mover:
    """Cached lines and memory of a network function that move with it to another node."""

    #: Memory of the function's tables [MiB].
    memory_mib: float
    #: Time to read its cached data from memory again [s], see :func:`refill_s`.
    refill_s: float = 0.0
    #: Share of throughput kept while its memory is on the old node, 0 to 1.
    away: float = 1.0


@dataclass(frozen=True)
class MoveCost:
    """The time that moving a function between nodes costs on one machine.

    Raises InvalidValueError for a negative time, or a rate that is not above 0.
    """

    #: Time for which the moved function's rings are unserved [s]; default: the longer of the two measured.
    handover_s: float = 0.0034
    #: Rate at which the kernel copies pages to the new node [GB/s]; the default, about 8 us for 4 KiB, is an
    #: assumption.
    copy_gb_s: float = 0.5

    def __post_init__(self) -> None:
        if not (0.0 <= self.handover_s < float("inf") and 0.0 < self.copy_gb_s < float("inf")):
            raise InvalidValueError(
                f"a move with {self.handover_s} s of hand-over and pages at {self.copy_gb_s} GB/s, "
                "needed a time from 0 and a rate above 0"
            )

    def pause_s(self, mover: Mover) -> float:
        """Return the time for which a moved function does not serve: hand-over plus cold cache [s]."""
        return self.handover_s + mover.refill_s

    def copy_s(self, mover: Mover) -> float:
        """Return the time for which a moved function's memory is on the old node [s]."""
        return mover.memory_mib * 2**20 / (self.copy_gb_s * 1e9)

    def lost_s(self, mover: Mover) -> float:
        """Return the cost of a move: the length of a pause that loses as many packets as the move does [s]."""
        return self.pause_s(mover) + (1.0 - mover.away) * self.copy_s(mover)


def refill_s(machine: Machine, held_kib: float) -> float:
    """Return how long a function takes to read its part of the last-level cache from memory again [s].

    >>> from slomo.vocabulary.machine import load_machine
    >>> 0.0005 < refill_s(load_machine("e5-2620v4"), 1024.0) < 0.002
    True
    """
    return held_kib * 1024 / LINE_B * max(machine.dram_local_ns - machine.llc_hit_ns, 0.0) * 1e-9
