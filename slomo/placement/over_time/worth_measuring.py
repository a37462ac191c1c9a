"""Find the mixes whose measurement would save most servers: those that only a less cautious plan uses.

A mix that may keep all promises, but whose lower bound does not, is refused at the confidence asked for. Placing once
more by the upper ends of predictions shows how many servers hang on each (optimism in the face of uncertainty, as in
Lai and Robbins, 1985). Trained on its measurement, the models no longer need a bound for that mix.
"""

from collections import Counter
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.placement.feasibility.kinds import without_load
from slomo.placement.feasibility.mixes import tenants_of
from slomo.placement.online.placer import Placer
from slomo.units import plural
from slomo.vocabulary.workload_text import counted


@dataclass(frozen=True)
class WorthMeasuring(Stored):
    """One mix that is worth measuring."""

    #: Machine type.
    machine: str
    #: The mix, in the form that `slomo profile --mix` reads.
    mix: str
    #: Servers of the bolder plan that hold it.
    servers: int


@dataclass(frozen=True)
class Measurements(Stored):
    """Mixes to measure, and how many servers that can save.

    >>> print(Measurements(12, 9, (WorthMeasuring("e5-2620v4", "2 x lpm", 3),)).text)
    measure 1 mix: saves up to 3 of 12 servers
    """

    #: Number of servers at the confidence that was asked for.
    servers: int
    #: Number of servers if every mix served the upper end of its predicted interval.
    bold: int
    #: Mixes to measure; the one used on most servers is first.
    mixes: tuple[WorthMeasuring, ...]

    @property
    def text(self) -> str:
        """One line that describes the measurements, for display."""
        if not self.mixes:
            return "no measurement of a mix would save a server"
        what = plural(len(self.mixes), "mix", "mixes")
        return f"measure {what}: saves up to {self.servers - self.bold} of {self.servers} servers"


def worth_measuring(placer: Placer, most: int = 6) -> Measurements:
    """Return the mixes whose measurement would save most servers of a placement.

    `placer`: the placement, by a policy that predicts. `most`: mixes to name, 1 or more. Raises InvalidValueError for
    fewer than one mix, and a policy that does not predict.
    """
    if most < 1 or not placer.policy.predicts:
        raise InvalidValueError(
            f"{most} mixes to measure for policy '{placer.policy.name}', needed 1 or more and a policy that predicts",
            hint="--policy predicted",
        )
    bold = Placer(placer.estimates.library, placer.cluster, type(placer.policy), **vars(placer.settings))
    bold.estimates.bold = True
    bold.placed_again(placer.requests)
    pieces, seen = bold._core.pieces, Counter[tuple[str, tuple[str, ...]]]()
    for place in bold._core.state.sockets:
        mix = tuple(sorted(tenants_of(pieces.of(place.signature))))
        if len(mix) > 1 and all(without_load(key) == key for key in mix):  # others seldom occur again
            ours = tuple(sorted(placer._core.pieces.number(pieces[number]) for number in place.signature))
            if not placer.policy.oracle.verdict(place.host, ours).ok:
                seen[place.host.machine, mix] += 1
    if bold.servers_used >= placer.servers_used:
        return Measurements(placer.servers_used, bold.servers_used, ())
    named = sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:most]
    mixes = tuple(WorthMeasuring(machine, counted(mix), count) for (machine, mix), count in named)
    return Measurements(placer.servers_used, bold.servers_used, mixes)
