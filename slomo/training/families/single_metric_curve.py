"""Baselines ``dobrescu-curve`` and ``bubbleup-curve``: a falling curve over one counter, as their authors used.

Dobrescu et al. (NSDI'12) figure 9 and Bubble-Up (MICRO'11) figure 3 draw measured curves, not lines; SLOMO (SIGCOMM'20)
section 7.2 fits lines. Isotonic regression (Barlow et al. 1972) gives the best falling step function; each level
becomes one knot in the middle of its points, so that the curve is continuous.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from slomo.models.base import Floats
from slomo.models.responses.sensitivity import CurveSensitivity
from slomo.training.families.single_metric import SingleMetricFamily
from slomo.training.families.weighted import WeightedRows


def falling_curve(x: Floats, y: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Return knots and levels of the falling curve that fits best.

    Examples
    --------
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


def dobrescu() -> CurveFamily:
    """Return the baseline ``dobrescu-curve``: throughput as a curve over the competitors' cache access rate.

    Examples
    --------
    >>> dobrescu().metric
    'L2MISS'
    """
    return CurveFamily("dobrescu-curve", "L2MISS", "FELTL3")


def bubbleup() -> CurveFamily:
    """Return the baseline ``bubbleup-curve``: throughput as a curve over one counter of the competitors.

    Examples
    --------
    >>> bubbleup().metric
    'L3OCC'
    """
    return CurveFamily("bubbleup-curve", "L3OCC", "FELTLLC")
