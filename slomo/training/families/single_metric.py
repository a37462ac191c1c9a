"""Baselines ``dobrescu`` and ``bubbleup``: a line over one counter of the competitors, or a falling curve.

Dobrescu et al. (NSDI'12, section 5): throughput depends on the references per second of the competitors, which are
those of their solo runs. Bubble-Up (Mars et al., MICRO'11): a bubble with growing working set represents the
competitors. SLOMO (SIGCOMM'20) section 7.2 fits both predictors as linear regressions. Dobrescu's figure 9 and
Bubble-Up's figure 3 draw measured curves, which ``dobrescu-curve`` and ``bubbleup-curve`` fit: isotonic regression
(Barlow et al. 1972) gives the best falling step function, and each level becomes one knot in the middle of its points,
so that the curve is continuous.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from slomo.errors import MissingMetricError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.responses.sensitivity import CurveSensitivity, LinearSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows


def _line(x: Floats, y: Floats, weights: Floats | None) -> tuple[float, float]:
    """Return intercept and slope of the least squares line.

    >>> _line(np.array([0.0, 100.0]), np.array([5.0, 4.0]), None)
    (5.0, -0.01)
    """
    if weights is None:
        middle, mean = float(x.mean()), float(y.mean())
        away = x - middle
        spread, rise = float(away @ away), float(away @ (y - mean))
    else:
        share = weights / weights.sum()
        middle, mean = float(share @ x), float(share @ y)
        spread, rise = float(share @ (x - middle) ** 2), float(share @ ((x - middle) * (y - mean)))
    slope = rise / spread if spread > 0.0 else 0.0
    return mean - slope * middle, slope


@dataclass(frozen=True)
class SingleMetricFamily(WeightedFamily[SensitivityModel]):
    """A baseline that uses one metric of the competitors' solo runs, or that resource's reporter (probe program)."""

    name: str
    metric: str
    reporter: str
    composition: CompositionKind = "solo"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the counter that the baseline reads, or the reporter (probe program) for this resource."""
        if self.metric not in available and self.reporter in available:
            return (self.reporter,)
        if self.metric not in available:
            raise MissingMetricError(
                f"model '{self.name}' reads {self.metric} or {self.reporter} of the competition, neither was reported",
                hint="missing is not zero; measure it, or leave the model out with models=[...]",
            )
        return (self.metric,)

    def fit_weighted(self, rows: WeightedRows) -> SensitivityModel:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        line = _line(rows.vectors[:, 0], rows.mpps, rows.weights)
        return LinearSensitivity(self.name, rows.names, self.composition, *line)


def falling_curve(x: Floats, y: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Return knots and levels of the falling curve that fits best.

    >>> knots, levels = falling_curve(np.array([0.0, 1.0, 2.0, 9.0]), np.array([5.0, 3.0, 4.0, 2.0]))
    >>> knots.tolist(), levels.tolist()
    ([0.0, 1.5, 9.0], [5.0, 3.5, 2.0])
    """
    x, place = np.unique(x, return_inverse=True)
    own = np.ones(len(y)) if weights is None else weights
    weight = np.bincount(place.ravel(), weights=own)
    mean = np.bincount(place.ravel(), weights=own * y) / weight
    fitted = isotonic_regression(mean, sample_weight=weight.astype(float), increasing=False)
    levels, level = np.unique(-fitted, return_inverse=True)
    knots = np.bincount(level.ravel(), weights=weight * x) / np.bincount(level.ravel(), weights=weight)
    # readings that differ in their last bit may have means in the other order: the first of them stays
    knots, first = np.unique(np.maximum.accumulate(knots), return_index=True)
    return knots, -levels[first]


@dataclass(frozen=True)
class CurveFamily(SingleMetricFamily):
    """A baseline that fits a curve over one metric of the competitors' solo runs."""

    def fit_weighted(self, rows: WeightedRows) -> CurveSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        curve = falling_curve(rows.vectors[:, 0], rows.mpps, rows.weights)
        return CurveSensitivity(self.name, rows.names, self.composition, *curve)
