"""Predict a pair of applications without counters, from run times beside a bubble and of a reporter.

Bubble-Up (MICRO'11) section 3 takes the pressure level (bubble size) at which the probe program, called reporter, slows
down as much as beside the application. But an application has phases. The reporter's run time determines only the
*mean* over the levels of these phases, since run times per unit of work add up. Several mixtures of levels have this
mean. The target's run times under them lie on a slice of the convex hull of the curve (reporter's time, target's time);
the slice's ends are the uncertainty due to phases. The prediction is the mixture of maximum entropy with that mean
(Jaynes, Phys. Rev. 106, 1957).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from slomo.errors import UnknownNameError
from slomo.models.applicability import Verdict
from slomo.models.functions.regression import rising
from slomo.models.intervals import ConformalCalibration, calibrate
from slomo.models.neighbourhood import UNKNOWN
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.probe_tables import ProbeTables
from slomo.vocabulary.vector import Floats

#: Largest log-ratio of neighbouring levels' weights; bisection stops at the precision of a double.
_STEEPEST = 1e6
_HALVINGS = 80
#: Probability with which the interval of a prediction contains the measured performance.
COVERAGE = 0.9
_NO_PAIRS = ConformalCalibration(np.zeros(0), "none")


@dataclass(frozen=True)
class ProbePrediction:
    """Predicted performance of a target beside one competitor, from run times of probes (dial and reporter)."""

    #: Names.
    target: str
    competitor: str
    #: Speed over its speed alone, at most 1, beside the mixture of levels of most entropy.
    performance: float
    #: Range that phases of the competitor leave open; measurement noise comes on top.
    low: float
    high: float
    #: Level of the dial that the reporter takes the competitor for, in the dial's unit.
    level: float
    #: Lower and upper end of the interval at :data:`COVERAGE`, from errors in measured pairs; 0 to 1 with too few.
    interval: tuple[float, float]
    #: Unknown with too few measured pairs; extrapolated if the competitor presses harder than the dial ever did.
    verdict: Verdict
    #: Why the verdict is not `supported`; empty if it is.
    reason: str = ""


@dataclass(frozen=True, eq=False)
class ProbeModel:
    """For each application, a curve of its run time over the slowdown of the reporter, Bubble-Up's probe program.

    >>> from slomo.records.importing.probe_tables import ProbeTables
    >>> levels = np.array([0.0, 8.0, 16.0])
    >>> curve = (levels, np.array([40.0, 42.0, 80.0]))
    >>> model = ProbeModel(ProbeTables("m", levels, np.array([10.0, 15.0, 20.0]), {"lbm": 15.0}, {"lbm": curve}))
    >>> found = model.predict("lbm", "lbm")
    >>> round(found.low, 3), round(found.performance, 3), round(found.high, 3), found.level
    (0.667, 0.741, 0.952, 8.0)
    """

    tables: ProbeTables
    #: Errors of these predictions in measured pairs.
    calibration: ConformalCalibration = _NO_PAIRS

    def calibrated(self, measured: Mapping[tuple[str, str], float]) -> "ProbeModel":
        """Return the model with intervals as wide as its errors in measured pairs of probed applications.

        `measured`: target and competitor -> performance beside it, as a share of the target's speed alone.
        """
        known = {pair: share for pair, share in measured.items() if set(pair) <= self.tables.sensitivity.keys()}
        foretold = np.array([self.predict(*pair).performance for pair in known])
        return replace(self, calibration=calibrate(np.array(list(known.values())), foretold, 1.0, "pairs"))

    def predict(self, target: str, competitor: str) -> ProbePrediction:
        """Return the performance of `target` beside `competitor`."""
        for name in (target, competitor):
            if name not in self.tables.sensitivity:
                raise UnknownNameError("probed application", name, self.tables.names)
        reporter = rising(self.tables.reporter)
        extra_time = self.tables.beside[competitor]
        levels, times = self.tables.sensitivity[target]
        slowdown = rising(times)
        slowdown = np.interp(self.tables.levels, levels, slowdown / slowdown[0])
        fastest, slowest = hull_slice(reporter, slowdown, extra_time)
        performance, verdict, reason = 1.0 / likeliest(reporter, slowdown, extra_time), Verdict.SUPPORTED, ""
        if extra_time > reporter[-1]:
            verdict, reason = Verdict.EXTRAPOLATED, "the competitor presses harder than the dial ever did"
        if lacking := self.calibration.missing(COVERAGE):
            count = self.calibration.count
            verdict, reason = Verdict.UNKNOWN, f"{count} measured pairs tell its error, needed {count + lacking}"
        increasing = np.concatenate([[True], np.diff(reporter) > 0.0])
        return ProbePrediction(
            target=target,
            competitor=competitor,
            performance=performance,
            low=1.0 / slowest,
            high=1.0 / fastest,
            level=float(np.interp(extra_time, reporter[increasing], self.tables.levels[increasing])),
            interval=self.calibration.one_interval_mpps(performance, 1.0, COVERAGE, UNKNOWN),
            verdict=verdict,
            reason=reason,
        )


def measured_pairs(dataset: ProfileDataset) -> dict[tuple[str, str], float]:
    """Return the mean performance of every function beside one other, as a share of its speed alone."""
    frame, by_pair = dataset.frame, dict[tuple[str, str], list[float]]()
    for row in np.flatnonzero((frame["competitor_count"] == 1).to_numpy()).tolist():
        target, solo = str(frame["nf"].iloc[row]), dataset.solo_mpps(str(frame["target"].iloc[row]))
        by_pair.setdefault((target, dataset.competitors(row)[0].nf), []).append(float(dataset.throughput[row]) / solo)
    return {pair: float(np.mean(shares)) for pair, shares in by_pair.items()}


def hull_slice(x: Floats, y: Floats, at: float) -> tuple[float, float]:
    """Return the lowest and highest y of all mixtures of the points (x, y) with mean x `at`, clipped to their range."""
    at = float(np.clip(at, x.min(), x.max()))
    first, second = np.triu_indices(len(x))
    low, high = np.minimum(x[first], x[second]), np.maximum(x[first], x[second])
    around = (low <= at) & (at <= high)
    first, second = first[around], second[around]
    width = x[second] - x[first]
    share = np.divide(at - x[first], width, out=np.zeros(len(width)), where=width != 0.0)
    mixed_y = y[first] + share * (y[second] - y[first])
    return float(mixed_y.min()), float(mixed_y.max())


def likeliest(x: Floats, y: Floats, at: float) -> float:
    """Return the mean y of the maximum-entropy mixture of points (x, y) with mean x `at`, clipped to their range.

    Its weights are exponential in x, so bisection over one number finds them.
    """
    at = float(np.clip(at, x.min(), x.max()))
    if at in (x.min(), x.max()):
        return float(y[x == at].mean())
    place = (x - x.min()) / (x.max() - x.min())
    share = (at - x.min()) / (x.max() - x.min())
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_HALVINGS):
        steepness = 0.5 * (low + high)
        if _weights(place, steepness) @ place < share:
            low = steepness
        else:
            high = steepness
    return float(_weights(place, 0.5 * (low + high)) @ y)


def _weights(place: Floats, steepness: float) -> Floats:
    exponent = steepness * place
    weights: Floats = np.exp(exponent - exponent.max())
    weights /= weights.sum()
    return weights
