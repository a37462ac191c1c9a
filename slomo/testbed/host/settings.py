"""Settings of measurements on a real machine: durations, repetitions, limits.

Defaults from runs on a two-core machine: single ratios scatter by about 5 %, windows below 0.3 s add noise of their
own, and a window in which the NF had a third of its core gives ratios anywhere from 0.2 to 2.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from slomo.errors import InvalidValueError
from slomo.files.ranges import PositiveCount, Share
from slomo.files.stored import Stored

_Positive = Annotated[float, Meta(gt=0.0, le=3600.0)]


@dataclass(frozen=True)
class HostSettings(Stored):
    """Durations, repetitions and limits of measurements on a real machine."""

    #: Length of one window [s].
    window_s: _Positive = 0.4
    #: Left out after pausing or resuming, while cache contents change [s].
    settle_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 0.06
    #: Windows with and without competitors: at least, at most.
    pairs: PositiveCount = 4
    most_pairs: Annotated[int, Meta(ge=1, le=1000)] = 12
    #: Relative standard error of the median at which no more windows are taken.
    precision: _Positive = 0.015
    #: Relative standard error above which the run is declared unstable.
    limit: _Positive = 0.05
    #: Share of its cores a polling NF must get for a window to count.
    minimum_cpu_share: Share = 0.95
    #: How often a rejected window is taken again.
    attempts: Annotated[int, Meta(ge=0, le=1000)] = 4
    #: Form the slowdown inside one process by pausing the competitors, instead of comparing separate runs.
    interleaved: bool = True
    #: Windows with and without the competition per reporter probe, at least.
    probe_pairs: Annotated[int, Meta(ge=1, le=1000)] = 3
    #: Length of one such window [s].
    probe_window_s: _Positive = 0.2
    #: Width of the 90 % interval of what a reporter keeps at which no more windows are taken.
    probe_precision: _Positive = 0.02
    #: Time after which a competition is not probed further, however wide the intervals are [s].
    probe_budget_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 8.0
    #: Age at which what reporters felt is found again [s].
    probe_fresh_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 60.0
    #: Relative change of the machine itself during a run at which the run is repeated.
    drift_limit: _Positive = 0.1
    #: How often it is repeated.
    drift_attempts: Annotated[int, Meta(ge=0, le=100)] = 2

    def __post_init__(self) -> None:
        self.check_ranges("host testbed")
        if self.most_pairs < self.pairs:
            raise InvalidValueError(
                f"HostSettings: most_pairs is {self.most_pairs}, needed {self.pairs} (`pairs`) or more"
            )
