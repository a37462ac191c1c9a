"""Split-conformal prediction intervals: they cover new mixes with the stated probability, whatever the model.

Vovk et al., Algorithmic Learning in a Random World (2005). Scores are signed, so that one bound serves as a promise and
two as a report (Romano et al. 2019 for bounds at both ends), and normalised as in Papadopoulos et al. (2008): by bias
and size of this NF's errors at this predicted loss, and in this kind of neighbourhood. With calibration scores
exchangeable with the new one, coverage is at least nominal on average. With few scores, one draw of them may give less,
so ranks are moved outwards (training-conditional validity: Vovk 2012).
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.models.base import Floats, require
from slomo.models.error_shape import ErrorShape, proportional
from slomo.models.interval_ends import ends_mpps, interval_of_one, predicted_loss
from slomo.models.local_errors import LocalErrors
from slomo.models.neighbourhood import NEIGHBOURHOODS, UNKNOWN

#: Smallest scale of errors, as a share of solo throughput: even measurements of an NF without slowdown contain noise.
FLOOR = 0.02
#: Total weight of the scores of other kinds of neighbourhood, in units of one score of the asked kind.
POOLED = 20.0
#: Standard deviations by which ranks of few scores are moved outwards: bounds then hold in at least seven of ten draws
#: of calibration mixes instead of half. Chosen among 0, 0.5, 0.67 and 1 on held-out parts of calibration mixes.
SCATTER = 0.5
#: Grid of probabilities that a bound breaks; `ConformalCalibration.risks` returns one of them.
RISKS = np.geomspace(1e-3, 0.9, 400)

#: Where few errors are known.
_PROPORTIONAL = proportional(FLOOR)


@dataclass(frozen=True, eq=False)
class ConformalCalibration(Stored):
    """Known errors of held-out predictions, as scores, from which intervals of any coverage follow.

    An error is solo x (middle + size x (centre + spread x score)): middle and size depend on the predicted loss, centre
    and spread on the kind of neighbourhood.

    >>> calibration = ConformalCalibration(np.arange(-99, 100) / 100, "mixes")
    >>> low, high = calibration.interval_mpps(np.array([9.0]), 10.0, coverage=0.9)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([7.896], [10.104])
    """

    #: Standardised errors in ascending order; positive if the measurement exceeds the prediction, shape (n,).
    scores: Floats
    #: ``"mixes"`` if the scores come from whole composed predictions, ``"cross-validation"`` if they come from the
    #: sensitivity model alone (the width then lacks composition's share of the error), ``"none"`` without scores.
    source: str
    #: Bias and size of errors by predicted loss.
    shape: ErrorShape = _PROPORTIONAL
    #: Bias and size of scores by `slomo.models.neighbourhood.NEIGHBOURHOODS`, shape (neighbourhoods,).
    centre: Floats = field(default_factory=lambda: np.zeros(len(NEIGHBOURHOODS)))
    spread: Floats = field(default_factory=lambda: np.ones(len(NEIGHBOURHOODS)))
    #: Kind of neighbourhood of each score; scores of the asked kind count fully, all others together as :data:`POOLED`
    #: of them. None, the default, if unknown, shape (n,).
    kinds: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    #: Exponent for whole servers: if the bounds of different tenants are set so that, with independent errors, one of
    #: them breaks with probability p, servers break with p to this power. Measured on whole servers by their worst
    #: tenant.
    together: float = 1.0
    #: Mean absolute held-out error over all functions of the machine, as a share of solo throughput; 0 if unknown.
    average: float = 0.0
    #: Standard deviations by which ranks are moved outwards (:data:`SCATTER`).
    scatter: float = SCATTER
    #: Errors of this NF by pressure; none where pressures of held-out mixes are unknown.
    local: LocalErrors = field(default_factory=LocalErrors)

    @property
    def count(self) -> int:
        """Number of known errors."""
        return len(self.scores)

    def interval_mpps(
        self,
        predicted_mpps: Floats,
        solo_mpps: float | Floats,
        coverage: float,
        kind: NDArray[np.int64] | int = UNKNOWN,
    ) -> tuple[Floats, Floats]:
        """Return both ends of each prediction's interval [Mpps].

        With too few scores for the coverage, the interval is 0 to solo throughput.

        Raises InvalidValueError for a coverage outside 0 to 1.

        `predicted_mpps`: predictions. `solo_mpps`: solo throughput. `coverage`: probability to lie between the ends,
        above 0 and below 1. `kind`: kind of neighbourhood of each prediction (`slomo.models.neighbourhood`).
        """
        low, high = self.bounds(coverage)
        below, above = self._away(predicted_mpps, solo_mpps, low[kind], high[kind])
        return ends_mpps(predicted_mpps, solo_mpps, (below, above))

    def one_interval_mpps(
        self, predicted_mpps: float, solo_mpps: float, coverage: float, kind: int
    ) -> tuple[float, float]:
        """Return both ends of one prediction's interval [Mpps]; the bits equal those of :meth:`interval_mpps`."""
        low, high = scores_between(self, coverage)
        return interval_of_one(predicted_mpps, solo_mpps, self.shape, (low[kind], high[kind]))

    def _away(self, predicted_mpps: Floats, solo_mpps: float | Floats, *scores: Floats) -> tuple[Floats, ...]:
        """Convert scores back to errors, as shares of solo throughput."""
        middle, size = self.shape.at(predicted_loss(predicted_mpps, solo_mpps))
        return tuple([middle + size * score for score in scores])

    def lower_scores(self, confidence: float) -> Floats:
        """Return, for each kind of neighbourhood, the score that a new error exceeds with probability `confidence`.

        With too few scores of a kind, return the lowest of all kinds; minus infinity where :meth:`missing` says that
        even all together are too few. Raises InvalidValueError for a confidence outside 0 to 1.

        >>> few, enough = (ConformalCalibration(np.arange(count) / 100, "mixes") for count in (18, 19))
        >>> float(few.lower_scores(0.95)[0]), float(enough.lower_scores(0.95)[0])
        (-inf, 0.0)
        """
        _check(confidence, "confidence")
        below = _below(self, 1.0 - confidence)
        reach = -math.inf if self.missing(confidence) else float(self.scores[0])
        return self.centre + self.spread * np.where(np.isfinite(below), below, reach)

    def risks(self, scores: Floats, kind: NDArray[np.int64] | int = UNKNOWN) -> Floats:
        """Return, for each score, the probability (one of :data:`RISKS`, or 1) that a new error's score is lower.

        >>> calibration = ConformalCalibration(np.arange(-99, 100) / 100, "mixes")
        >>> calibration.risks(np.array([-0.99, 0.0, 0.99])).round(2).tolist()
        [0.01, 0.53, 1.0]
        """
        scores, kind = np.broadcast_arrays(np.asarray(scores, dtype=float), kind)
        ladder = _ladder(self)
        standard = (scores - self.centre[kind]) / self.spread[kind]
        quantiles = np.empty(standard.shape)
        for each in np.unique(kind):
            places = np.searchsorted(ladder[:, each], standard[kind == each], side="right")
            quantiles[kind == each] = np.append(RISKS, 1.0)[places]
        return quantiles

    def bounds(self, coverage: float) -> tuple[Floats, Floats]:
        """Return the lowest and highest score of a new mix at this `coverage`, by kind of neighbourhood.

        Infinite with too few scores; if they suffice for one side only, one bound on the absolute error serves for
        both. Raises InvalidValueError for a coverage outside 0 to 1.
        """
        _check(coverage, "coverage")
        below, above = _below(self, (1.0 - coverage) / 2.0), _above(self, (1.0 - coverage) / 2.0)
        if not (np.isfinite(below).all() and np.isfinite(above).all()):
            size = _size(self, coverage)
            below, above = -size, size
        return self.centre + self.spread * below, self.centre + self.spread * above

    def or_wider(self, other: "ConformalCalibration") -> "ConformalCalibration":
        """Return this calibration or `other`, whichever has the larger errors."""
        if not (self.count and other.count):
            return self if not other.count else other
        loss = np.union1d(self.shape.loss, other.shape.loss)[:-1]
        return self if self._reach(loss) >= other._reach(loss) else other

    def _reach(self, loss: Floats) -> float:
        """Return the 90 % quantile of absolute errors at the predicted losses `loss`."""
        middle, size = self.shape.at(loss)
        errors = middle + size * (self.centre[UNKNOWN] + self.spread[UNKNOWN] * self.scores)[:, None]
        return float(np.quantile(np.abs(errors), 0.9))

    def usual_error(self, loss: float, kind: int = UNKNOWN) -> float:
        """Return the mean known error at a predicted loss, as a share of solo throughput.

        >>> round(ConformalCalibration(np.array([-1.0, 1.0]), "mixes").usual_error(0.1), 3)
        0.12
        """
        middle, size = self.shape.at_one(loss)
        scores, sums, centres, spreads = self._sums
        shift, slope = middle + size * centres[kind], size * spreads[kind]
        at = bisect_left(scores, -shift / slope)  # below it, an error is negative
        return (shift * (len(scores) - 2 * at) + slope * (sums[-1] - 2.0 * sums[at])) / len(scores)

    def usual_errors(self, losses: Floats, kinds: NDArray[np.int64]) -> Floats:
        """Return :meth:`usual_error` for many predictions, shape ``(n,)``."""
        middle, size = self.shape.at(losses)
        shift, slope = middle + size * self.centre[kinds], size * self.spread[kinds]
        at, sums = np.searchsorted(self.scores, -shift / slope), np.array(self._sums[1])
        errors: Floats = (shift * (self.count - 2 * at) + slope * (sums[-1] - 2.0 * sums[at])) / self.count
        return errors

    @cached_property
    def _sums(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """Scores, their running sums, and centre and spread by kind of neighbourhood, as plain numbers."""
        scores = self.scores.tolist()
        return scores, [*accumulate(scores, initial=0.0)], self.centre.tolist(), self.spread.tolist()

    def missing(self, coverage: float) -> int:
        """Return the number of further held-out errors that a finite interval of this `coverage` needs."""
        return max(math.ceil(coverage / (1.0 - coverage) - 1e-9) - self.count, 0)

    def standardised(
        self,
        measured_mpps: Floats,
        predicted_mpps: Floats,
        solo_mpps: float | Floats,
        kind: NDArray[np.int64] | int = UNKNOWN,
    ) -> Floats:
        """Return each error as a score, on the scale of :attr:`scores`."""
        middle, size = self.shape.at(predicted_loss(predicted_mpps, solo_mpps))
        error = ((measured_mpps - predicted_mpps) / solo_mpps - middle) / size
        return (error - self.centre[kind]) / self.spread[kind]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ConformalCalibration":
        """Return the object that :meth:`to_dict` described; ConfigurationError for tables that do not fit."""
        made = super().from_dict(data)
        scores, centre, spread, kinds = made.scores, made.centre, made.spread, made.kinds
        ascend = scores.ndim == 1 and (np.diff(scores) >= 0).all()
        require(ascend, "conformal scores must be in ascending order")
        require(made.together > 0.0, f"'together' is {made.together}, needed above 0")
        belong = len(kinds) in (0, len(scores)) and np.isin(kinds, np.arange(len(NEIGHBOURHOODS))).all()
        require(belong, "kinds of neighbourhood do not belong to the scores")
        tables = centre.shape == spread.shape == (len(NEIGHBOURHOODS),) and (spread > 0).all()
        require(tables, f"conformal centres and spreads are no tables of {len(NEIGHBOURHOODS)} neighbourhoods, above 0")
        return replace(made, kinds=kinds.astype(np.int64))


def symmetric(sizes: Floats, source: str, shape: ErrorShape | None = None) -> ConformalCalibration:
    """Return a calibration from absolute errors, with equal intervals above and below."""
    sizes = np.sort(sizes)
    scores = np.concatenate([-sizes[::-1], sizes])
    return ConformalCalibration(scores, source, shape or _PROPORTIONAL)


def calibrate(
    measured_mpps: Floats, predicted_mpps: Floats, solo_mpps: float | Floats, source: str
) -> ConformalCalibration:
    """Return the calibration from held-out measurements and their predictions.

    `measured_mpps`, `predicted_mpps`, shape (n,): throughput [Mpps]; rows without a prediction (NaN) are left out.
    `solo_mpps`: solo throughput of each row's NF [Mpps]: scores are free of units and can be pooled over NFs. `source`:
    where the rows come from.

    >>> calibrate(np.array([9.0]), np.array([10.0]), 10.0, "mixes").scores.tolist()
    [-5.0]
    """
    measured, predicted, solo = np.broadcast_arrays(measured_mpps, predicted_mpps, solo_mpps)
    usable = np.isfinite(predicted) & np.isfinite(measured)
    unsorted = ConformalCalibration(np.zeros(0), source)
    scores = unsorted.standardised(measured[usable], predicted[usable], np.array(solo[usable]))
    return ConformalCalibration(np.sort(scores), source)


@lru_cache(maxsize=4096)
def scores_between(calibration: ConformalCalibration, coverage: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return :meth:`ConformalCalibration.bounds` as plain numbers; remembered, as many predictions need them."""
    low, high = calibration.bounds(coverage)
    return tuple(low.tolist()), tuple(high.tolist())


@lru_cache(maxsize=4096)
def _below(calibration: ConformalCalibration, share: float) -> Floats:
    """Return, by kind of neighbourhood, the score below which at most a given share of new scores lies."""
    return np.array([_quantile(calibration, calibration.scores, weights, share) for weights in _weights(calibration)])


@lru_cache(maxsize=64)
def _ladder(calibration: ConformalCalibration) -> Floats:
    """Return the score below which each share of :data:`RISKS` of new ones lies, shape ``(risks, neighbourhoods)``."""
    return np.maximum.accumulate([_below.__wrapped__(calibration, float(share)) for share in RISKS])


@lru_cache(maxsize=4096)
def _above(calibration: ConformalCalibration, share: float) -> Floats:
    turned = -calibration.scores[::-1]
    return np.array([-_quantile(calibration, turned, weights[::-1], share) for weights in _weights(calibration)])


def _size(calibration: ConformalCalibration, coverage: float) -> Floats:
    """Return the absolute score below which a share `coverage` of new errors lies; infinite if too few are known."""
    turned = -np.sort(np.abs(calibration.scores))[::-1]
    return np.full(len(NEIGHBOURHOODS), -_quantile(calibration, turned, np.ones(len(turned)), 1.0 - coverage))


def _weights(calibration: ConformalCalibration) -> list[Floats]:
    """Return the weight of each score in quantiles, one array per kind of neighbourhood."""
    everything = np.ones(calibration.count)
    if not len(calibration.kinds):
        return [everything] * len(NEIGHBOURHOODS)
    weights = []
    for kind in range(len(NEIGHBOURHOODS)):
        own = calibration.kinds == kind
        others = calibration.count - int(own.sum())
        weights.append(np.where(own, 1.0, min(POOLED / max(others, 1), 1.0)) if own.any() else everything)
    return weights


def _quantile(calibration: ConformalCalibration, ascending: Floats, weights: Floats, share: float) -> float:
    """Return the largest score below which a new one, of weight 1, lies with at most this probability.

    The probability is over all draws of calibration mixes. The rank is moved :func:`outwards`, but never beyond the
    last score.
    """
    whole = float(weights.sum())
    weight = (whole + 1.0) * share
    spared = max(weight - outwards(whole, share, calibration.scatter), 1.0) if weight >= 1.0 else weight
    rank = int(np.searchsorted(np.cumsum(weights), spared + 1e-9, side="right"))
    return float(ascending[rank - 1]) if rank >= 1 else -math.inf


def conformal_rank(count: int, coverage: float) -> int:
    """Return k: with probability `coverage`, a new error is at most the k-th smallest of `count` known errors.

    This is split-conformal prediction; if `count` errors are too few for the coverage, k is above `count`.
    """
    _check(coverage, "coverage")
    return math.ceil((count + 1) * coverage - 1e-9)


def outwards(count: float, share: float, scatter: float = SCATTER) -> float:
    """Return by how many ranks a quantile of `count` errors is moved outwards, as one draw of few errors scatters."""
    return scatter * math.sqrt(count * share * (1.0 - share))


def _check(share: float, what: str) -> None:
    if not 0.0 < share < 1.0:
        raise InvalidValueError(f"{what} is {share}, needed between 0 and 1", hint="0.9 is usual")
