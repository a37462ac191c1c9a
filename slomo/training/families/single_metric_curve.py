"""Baselines ``dobrescu-curve`` and ``bubbleup-curve``: a falling curve over one counter, as their authors used.

Dobrescu et al. (NSDI'12) figure 9 and Bubble-Up (MICRO'11) figure 3 draw measured curves, not lines; SLOMO (SIGCOMM'20)
section 7.2 fits lines. Isotonic regression (Barlow et al. 1972) gives the best falling step function; each level
becomes one knot in the middle of its points, so that the curve is continuous.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.isotonic import isotonic_regression
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.models.responses.sensitivity import CurveSensitivity
from slomo.training.families.single_metric import SingleMetricFamily, SingleMetricRegressor
from slomo.training.families.weighted import WeightedRows


class SingleMetricCurve(SingleMetricRegressor):
    """The falling curve over one column that fits best; other columns are ignored.

    Parameters
    ----------
    column : int
        Column that is read.

    Attributes
    ----------
    knots_, levels_ : ndarray
        The curve.

    Examples
    --------
    >>> curve = SingleMetricCurve().fit([[0.0], [1.0], [2.0], [9.0]], [5.0, 3.0, 4.0, 2.0])
    >>> curve.knots_.tolist(), curve.levels_.tolist()
    ([0.0, 1.5, 9.0], [5.0, 3.5, 2.0])
    """

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "SingleMetricCurve":
        """Fit response `y` over column `column` of `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        x, place = np.unique(X[:, self.column], return_inverse=True)
        own = np.ones(len(y)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        weight = np.bincount(place.ravel(), weights=own)
        mean = np.bincount(place.ravel(), weights=own * y) / weight
        fitted = isotonic_regression(mean, sample_weight=weight.astype(float), increasing=False)
        levels, level = np.unique(-fitted, return_inverse=True)
        knots = np.bincount(level.ravel(), weights=weight * x) / np.bincount(level.ravel(), weights=weight)
        # readings that differ in their last bit may have means in the other order: the first of them stays
        self.knots_, first = np.unique(np.maximum.accumulate(knots), return_index=True)
        self.levels_ = -levels[first]
        return self

    def predict(self, X: Any) -> Any:
        """Return the curve's value for `X`."""
        check_is_fitted(self)
        return np.interp(
            validate_data(self, X, reset=False, dtype=np.float64)[:, self.column], self.knots_, self.levels_
        )


@dataclass(frozen=True)
class CurveFamily(SingleMetricFamily):
    """A baseline that fits a curve over one metric of the competitors' solo runs."""

    def fit_weighted(self, rows: WeightedRows) -> CurveSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        curve = SingleMetricCurve().fit(rows.vectors, rows.mpps, rows.weights)
        return CurveSensitivity(self.name, rows.names, self.composition, curve.knots_, curve.levels_)


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
