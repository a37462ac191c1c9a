"""Settings of measurements on a real machine: durations, repetitions, limits.

Defaults from runs on a two-core machine: single ratios scatter by about 5 %, windows below 0.3 s add noise of their
own, and a window in which the NF had a third of its core gives ratios anywhere from 0.2 to 2.
"""

import math
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored


@dataclass(frozen=True)
class HostSettings(Stored):
    """Measurement settings.

    Attributes
    ----------
    window_s : float
        Length of one window [s].
    settle_s : float
        Left out after pausing or resuming, while cache contents change [s].
    pairs, most_pairs : int
        Windows with and without competitors: at least, at most.
    precision : float
        Relative standard error of the median at which no more windows are taken.
    limit : float
        Relative standard error above which the run is declared unstable.
    minimum_cpu_share : float
        Share of its cores a polling NF must get for a window to count.
    attempts : int
        How often a rejected window is taken again.
    interleaved : bool
        Form the slowdown inside one process by pausing the competitors, instead of comparing separate runs.
    probe_pairs : int
        Windows with and without the competition per reporter probe, at least.
    probe_window_s : float
        Length of one such window [s].
    probe_precision : float
        Width of the 90 % interval of what a reporter keeps at which no more windows are taken.
    probe_budget_s : float
        Time after which a competition is not probed further, however wide the intervals are [s].
    probe_fresh_s : float
        Age at which what reporters felt is found again [s].
    drift_limit : float
        Relative change of the machine itself during a run at which the run is repeated.
    drift_attempts : int
        How often it is repeated.
    """

    window_s: float = 0.4
    settle_s: float = 0.06
    pairs: int = 4
    most_pairs: int = 12
    precision: float = 0.015
    limit: float = 0.05
    minimum_cpu_share: float = 0.95
    attempts: int = 4
    interleaved: bool = True
    probe_pairs: int = 3
    probe_window_s: float = 0.2
    probe_precision: float = 0.02
    probe_budget_s: float = 8.0
    probe_fresh_s: float = 60.0
    drift_limit: float = 0.1
    drift_attempts: int = 2

    def __post_init__(self) -> None:
        for name in ("window_s", "precision", "limit", "probe_window_s", "probe_precision", "drift_limit"):
            self._require(name, 0.0 < getattr(self, name) <= 3600.0, "a number above 0")
        self._require("settle_s", 0.0 <= self.settle_s <= 60.0, "0 to 60 s")
        self._require("pairs", self.pairs >= 1, "1 or more")
        self._require("most_pairs", self.pairs <= self.most_pairs <= 1000, f"{self.pairs} (`pairs`) to 1000")
        self._require("minimum_cpu_share", 0.0 <= self.minimum_cpu_share <= 1.0, "a share of 0 to 1")
        self._require("attempts", 0 <= self.attempts <= 1000, "0 to 1000")
        for name in ("probe_budget_s", "probe_fresh_s"):
            self._require(name, 0.0 <= getattr(self, name) <= 3600.0, "0 to 3600 s")
        self._require("drift_attempts", 0 <= self.drift_attempts <= 100, "0 to 100")
        self._require("probe_pairs", 1 <= self.probe_pairs <= 1000, "1 to 1000")

    def _require(self, name: str, condition: bool, needed: str) -> None:
        value = getattr(self, name)
        if not condition or not math.isfinite(value):
            raise InvalidValueError(f"host testbed: {name} is {value!r}, needed {needed}")
