"""Baselines ``dobrescu`` and ``bubbleup``: a straight line over one counter of the competitors.

SLOMO (SIGCOMM'20) section 7.2 fits Dobrescu's and Bubble-Up's predictors as linear regressions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.errors import MissingMetricError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows


class SingleMetricRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Least squares over one column; other columns are ignored.

    Parameters
    ----------
    column : int
        Column that is read.

    Attributes
    ----------
    slope_, intercept_ : float
        The line.

    Examples
    --------
    >>> line = SingleMetricRegressor().fit([[0.0], [100.0]], [5.0, 4.0])
    >>> round(line.slope_, 6), round(line.intercept_, 6)
    (-0.01, 5.0)
    """

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "SingleMetricRegressor":
        """Fit response `y` over column `column` of `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        x = X[:, self.column]
        if row_weights is not None:
            return self._weighted(x, y, np.asarray(row_weights, dtype=np.float64))
        away = x - x.mean()
        spread = float(away @ away)
        self.slope_ = float(away @ (y - y.mean())) / spread if spread > 0.0 else 0.0
        self.intercept_ = float(y.mean() - self.slope_ * x.mean())
        return self

    def _weighted(self, x: Floats, y: Floats, weights: Floats) -> "SingleMetricRegressor":
        share = weights / weights.sum()
        middle, mean = float(share @ x), float(share @ y)
        spread = float(share @ (x - middle) ** 2)
        self.slope_ = float(share @ ((x - middle) * (y - mean))) / spread if spread > 0.0 else 0.0
        self.intercept_ = mean - self.slope_ * middle
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it ignores columns by intent
        return tags

    def predict(self, X: Any) -> Any:
        """Return the line's value for `X`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.intercept_ + self.slope_ * X[:, self.column]


@dataclass(frozen=True)
class SingleMetricFamily(WeightedFamily[SensitivityModel]):
    """A baseline that uses one metric of the competitors' solo runs, or that resource's reporter (probe program)."""

    name: str
    metric: str
    felt: str
    composition: CompositionKind = "solo"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the counter that the baseline reads, or the reporter (probe program) for this resource."""
        if self.metric not in available and self.felt in available:
            return (self.felt,)
        if self.metric not in available:
            raise MissingMetricError(
                f"model '{self.name}' reads {self.metric} or {self.felt} of the competition, neither was reported",
                hint="missing is not zero; measure it, or leave the model out with models=[...]",
            )
        return (self.metric,)

    def fit_weighted(self, rows: WeightedRows) -> SensitivityModel:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        line = SingleMetricRegressor().fit(rows.vectors, rows.mpps, rows.weights)
        return LinearSensitivity(self.name, rows.names, self.composition, line.intercept_, line.slope_)


def dobrescu() -> SingleMetricFamily:
    """Return the baseline ``dobrescu``: throughput as a line over the competitors' cache access rate.

    Dobrescu's predictor: throughput as a function of the competitors' summed solo cache access rate alone.

    Dobrescu, Argyraki and Ratnasamy (NSDI'12) section 5: throughput depends on the competing references per second, and
    a competitor's references are those of its solo run. Linear, as SLOMO (SIGCOMM'20) section 7.2 evaluates it.

    Examples
    --------
    >>> dobrescu().select_features(["L2MISS", "L3OCC"])
    ('L2MISS',)
    """
    return SingleMetricFamily("dobrescu", "L2MISS", "FELTL3")


def bubbleup() -> SingleMetricFamily:
    """Return the baseline ``bubbleup``: throughput as a line over one counter, as SLOMO evaluated Bubble-Up.

    Bubble-Up's predictor: throughput as a function of the competitors' summed cache occupancy alone.

    Mars et al. (MICRO'11): a bubble with growing working set represents the competitors. Linear in L3OCC, as SLOMO
    (SIGCOMM'20) section 7.2 evaluates it.

    Examples
    --------
    >>> bubbleup().select_features(["L2MISS", "L3OCC"])
    ('L3OCC',)
    """
    return SingleMetricFamily("bubbleup", "L3OCC", "FELTLLC")
