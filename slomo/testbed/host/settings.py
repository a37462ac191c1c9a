"""Settings of measurements on a real machine: durations, repetitions, limits.

The defaults follow from runs on a two-core machine: single ratios scatter by about 5 %, windows below 0.3 s add noise,
and windows in which the NF had a third of its core give ratios anywhere from 0.2 to 2.
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
    #: Time after pausing or resuming that is not measured, while cache contents change [s].
    settle_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 0.06
    #: Least and largest number of pairs of windows (with and without competitors).
    pairs: PositiveCount = 4
    most_pairs: Annotated[int, Meta(ge=1, le=1000)] = 12
    #: Relative standard error of the median ratio at which measuring stops.
    precision: _Positive = 0.015
    #: Relative standard error of the median ratio above which the run counts as unstable.
    limit: _Positive = 0.05
    #: Least share of its cores' time that a polling NF must get for a window to be valid.
    minimum_cpu_share: Share = 0.95
    #: How often an invalid window is repeated.
    attempts: Annotated[int, Meta(ge=0, le=1000)] = 4
    #: Whether to measure the slowdown by pausing the competitors, instead of comparing separate runs.
    interleaved: bool = True
    #: Least number of pairs of windows (with and without competitors) per reporter.
    probe_pairs: Annotated[int, Meta(ge=1, le=1000)] = 3
    #: Length of one such window [s].
    probe_window_s: _Positive = 0.2
    #: Width of the 90 % interval of a reporter's throughput ratio at which measuring stops.
    probe_precision: _Positive = 0.02
    #: Time limit for measuring one set of competitors by reporters, whatever the width of the intervals [s].
    probe_budget_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 8.0
    #: Age at which a pressure measured by reporters is measured again [s].
    probe_fresh_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 60.0
    #: Relative change of the machine's speed during a run at which the run is repeated.
    drift_limit: _Positive = 0.1
    #: Largest number of repetitions of such a run.
    drift_attempts: Annotated[int, Meta(ge=0, le=100)] = 2

    def __post_init__(self) -> None:
        self.check_ranges("host testbed")
        if self.most_pairs < self.pairs:
            raise InvalidValueError(
                f"HostSettings: most_pairs is {self.most_pairs}, needed {self.pairs} (`pairs`) or more"
            )
