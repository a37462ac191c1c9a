"""Lines that network cards miss in the DDIO ways, as packets are evicted before they are read (leaky DMA).

ResQ (NSDI'18, section 4.2). Packets of all functions share the ways, so that runs of functions with large packets tell
at which demand those of others are evicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from slomo.models.base import Floats
from slomo.training.features import LINE_B

#: Lines that a card can miss for each line of a packet: one when it receives, one when it sends the packet.
_MOST_MISSED = 2.0
#: Least room that neighbours leave in the DDIO ways, as a share of these ways.
_LEAST_ROOM = 0.05
_MIB_PER_MILLION_LINES = LINE_B * 1e6 / 2**20


class Leak(NamedTuple):
    """When cards miss lines, by demand over the room in the DDIO ways."""

    #: Demand at which they begin to, and additional demand until they miss every line.
    start: float
    over: float

    def missed(self, demand: Floats) -> Floats:
        """Return the number of lines that a card misses for each line of a packet.

        >>> Leak(0.75, 1.0).missed(np.array([0.5, 1.0, 1.5, 9.0])).tolist()
        [0.0, 0.5, 1.5, 2.0]
        """
        return _MOST_MISSED * np.clip((demand - self.start) / self.over, 0.0, 1.0)


#: Where the search for a :class:`Leak` begins, and its bounds.
_FIRST, _BOUNDS = Leak(0.8, 1.5), (Leak(0.4, 0.5), Leak(1.2, 4.0))


@dataclass(frozen=True, eq=False)
class Card:
    """What is known about one function's card, per packet: alone, and in its runs beside others."""

    #: Lines of a packet; what its packets hold in the DDIO ways alone, as a share of them; lines missed alone.
    packet_lines: float
    held_alone: float
    missed_alone: float
    #: Shares of the DDIO ways that neighbours hold in the runs; lines missed there: measured, and converted.
    beside: Floats
    measured: Floats
    converted: Floats

    def added(self, beside: Floats, leak: Leak) -> Floats:
        """Return the lines that the card misses beyond those alone, where neighbours hold `beside` of the ways."""
        demand = self.held_alone / np.maximum(1.0 - np.append(beside, 0.0), _LEAST_ROOM)
        missed = self.packet_lines * leak.missed(demand)
        more: Floats = missed[:-1] - missed[-1]
        return more

    def corrected(self, names: Sequence[str], own: Floats, beside: Floats, leak: Leak) -> Floats:
        """Return converted counters with the lines that the card misses; each is also moved over the memory channel."""
        own, missing, moved = own.copy(), names.index("PCIEMISS"), names.index("LMB")
        missed = self.missed_alone + self.added(beside, leak)
        own[:, moved] = np.maximum(own[:, moved] + _MIB_PER_MILLION_LINES * (missed - own[:, missing]), 0.0)
        own[:, missing] = missed
        return own


def leak_of(cards: Sequence[Card]) -> Leak | None:
    """Return the :class:`Leak` with the least squared error over all runs, in lines; None if conversion is as good."""
    if not cards:
        return None
    fit = least_squares(
        lambda leak: np.concatenate([
            card.missed_alone + card.added(card.beside, Leak(*leak)) - card.measured for card in cards
        ]),
        _FIRST, bounds=_BOUNDS,
    )  # fmt: skip
    before = sum(float(np.square(card.converted - card.measured).sum()) for card in cards)
    return Leak(*fit.x.tolist()) if 2.0 * fit.cost < before else None
