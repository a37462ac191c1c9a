"""Raw event counts of some cores, and the metrics derived from them.

Counts are added before ratios are formed, as PCM does for a socket (src/cpucounters.h, getIPC). An event missing on any
core is missing from the sum: unknown is not zero.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Events:
    """Numbers of events over one span of time; None if a counter could not be read."""

    #: Retired instructions and unhalted cycles.
    instructions: float | None = None
    cycles: float | None = None
    #: Unhalted cycles at nominal frequency.
    reference_cycles: float | None = None
    #: Cycles at nominal frequency, halted or not (time-stamp counter), summed over the cores.
    nominal_cycles: float | None = None
    #: Cache accesses, by level and outcome.
    l3_misses: float | None = None
    l3_hits: float | None = None
    l2_misses: float | None = None
    l2_hits: float | None = None

    def __add__(self, other: "Events") -> "Events":
        return Events(*(_sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))

    def metrics(self, duration_s: float) -> dict[str, float]:
        """Return the metrics that can be derived from these counts of a time span of `duration_s`."""
        values = {
            "INST": _per_second(self.instructions, duration_s),
            "IPC": _quotient(self.instructions, self.cycles),
            "EXEC": _quotient(self.instructions, self.nominal_cycles),
            "FREQ": _quotient(self.cycles, self.nominal_cycles),
            "AFREQ": _quotient(self.cycles, self.reference_cycles),
            "L3MISS": _per_second(self.l3_misses, duration_s),
            "L3MPI": _quotient(self.l3_misses, self.instructions),
            "L3HIT": _quotient(self.l3_hits, _sum(self.l3_hits, self.l3_misses)),
            "L2MISS": _per_second(self.l2_misses, duration_s),
            "L2MPI": _quotient(self.l2_misses, self.instructions),
            "L2HIT": _quotient(self.l2_hits, _sum(self.l2_hits, self.l2_misses)),
        }
        return {name: value for name, value in values.items() if value is not None}


def total(members: Iterable[Events]) -> Events:
    """Return the sums of several event counts.

    >>> total([Events(cycles=1.0, l3_misses=2.0), Events(cycles=2.0)])
    Events(instructions=None, cycles=3.0, reference_cycles=None, ...)
    """
    member_events = list(members)
    return functools.reduce(Events.__add__, member_events) if member_events else Events()


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _per_second(count: float | None, duration_s: float) -> float | None:
    return None if count is None or duration_s <= 0.0 else count / duration_s / 1e6


def _quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None or below <= 0.0 else above / below
