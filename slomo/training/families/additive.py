"""Family ``slomo-additive``, for few noisy rows: each pressure adds a time per packet, never below 0.

Non-negative least squares (Lawson and Hanson 1974, chapter 23) with a ridge penalty on the slopes alone: fully shrunk
it gives the mean extra time, so it deviates from the mean only as far as the rows support. Its strength is chosen by
cross-validation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.errors import MissingMetricError
from slomo.models.base import CompositionKind, Floats
from slomo.models.functions.additive import AdditiveSensitivity
from slomo.training.cross_validation import folds
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.vocabulary.metrics import METRICS

#: Strengths tried, as multiples of the number of rows; the last one gives the mean.
STRENGTHS = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e6)
_FOLDS = 10
_JITTER = 1e-10


class AdditiveRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Non-negative least squares with an intercept and shrunk slopes.

    Parameters
    ----------
    seed : int
        Seed of the folds.

    Attributes
    ----------
    base_ : float
        Intercept, at least 0.
    slopes_ : ndarray of shape (features,)
        At least 0.
    strength_ : float
        Shrinkage chosen.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> fitted = AdditiveRegressor().fit(X, 0.1 + 0.5 * X[:, 0])
    >>> round(fitted.base_, 2), fitted.slopes_.round(2).tolist()
    (0.1, [0.5])
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "AdditiveRegressor":
        """Fit additional times `y` over pressures `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        weights = np.ones(len(y)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        spread = X.std(axis=0)
        scale = np.where(spread > 1e-12 * np.maximum(np.abs(X).max(axis=0, initial=0.0), 1e-300), spread, np.inf)
        scaled, y = X / scale, y.astype(np.float64)
        self.strength_ = _strength(scaled, y, weights, self.seed)
        design = np.column_stack([np.ones(len(y)), scaled])
        answer = _solved(*_normal(design, y, weights), self.strength_)
        self.base_, self.slopes_ = float(answer[0]), answer[1:] / scale
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it never falls, by intent
        return tags

    def predict(self, X: Any) -> Any:
        """Return the additional time for pressures `X`."""
        check_is_fitted(self)
        return self.base_ + validate_data(self, X, reset=False, dtype=np.float64) @ self.slopes_


def _strength(scaled: Floats, y: Floats, weights: Floats, seed: int) -> float:
    """Return the shrinkage with the least weighted held-out error; among equal ones, the strongest."""
    fold = folds(np.arange(len(y)), seed, _FOLDS)
    numbers = np.unique(fold)
    if len(numbers) < 2:
        return STRENGTHS[-1]
    design = np.column_stack([np.ones(len(y)), scaled])
    parts = [_normal(design[fold == number], y[fold == number], weights[fold == number]) for number in numbers]
    whole = [sum(part[i] for part in parts) for i in range(2)]
    errors = []
    for strength in STRENGTHS:
        total = 0.0
        for number, (gram, moment) in zip(numbers, parts, strict=True):
            left_out = fold == number
            answer = _solved(whole[0] - gram, whole[1] - moment, strength)
            total += float(weights[left_out] @ np.square(design[left_out] @ answer - y[left_out]))
        errors.append(total)
    best = min(errors) * (1.0 + 1e-9)
    return max(strength for strength, error in zip(STRENGTHS, errors, strict=True) if error <= best)


def _normal(design: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the normal equations of weighted least squares."""
    return (design * weights[:, None]).T @ design, (design * weights[:, None]).T @ y


def _solved(gram: Floats, moment: Floats, strength: float) -> Floats:
    """Solve normal equations with shrinkage; return intercept and slopes, none of them below 0."""
    penalty = np.full(len(gram), strength * max(gram[0, 0], 1.0))
    penalty[0] = _JITTER * max(gram[0, 0], 1.0)
    lower = np.linalg.cholesky(gram + np.diag(penalty))
    answer: Floats = nnls(lower.T, np.linalg.solve(lower, moment))[0]
    return answer


@dataclass(frozen=True)
class AdditiveFamily(WeightedFamily[AdditiveSensitivity]):
    """A family in which every pressure adds extra time per packet."""

    name: str = "slomo-additive"
    composition: CompositionKind = "pressure"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the pressures that are sums over competitors, without traffic attributes."""
        names = tuple(name for name in available if name in METRICS and METRICS[name].pressure)
        if not names:
            pressures = ", ".join(name for name, item in METRICS.items() if item.pressure)
            raise MissingMetricError(f"model '{self.name}' needs at least one pressure of the competition: {pressures}")
        return names

    def fit_weighted(self, rows: WeightedRows) -> AdditiveSensitivity:
        """Fit one NF to weighted rows; rows without competitors are ignored."""
        weights = np.ones(len(rows.mpps)) if rows.weights is None else rows.weights
        pressed = (rows.vectors > 0.0).any(axis=1) & (rows.mpps > 0.0)
        if not pressed.any():
            slopes = np.zeros(len(rows.names))
            return AdditiveSensitivity(self.name, rows.names, self.composition, rows.solo_mpps, 0.0, slopes)
        share = np.minimum(rows.mpps[pressed] / rows.solo_mpps, 1.0)
        # a relative error of the throughput is one of 1 + extra time, so extra times of slow rows are less certain
        extra = rows.solo_mpps / rows.mpps[pressed] - 1.0
        fitted = AdditiveRegressor(rows.seed).fit(
            np.maximum(rows.vectors[pressed], 0.0), extra, weights[pressed] * share**2
        )
        return AdditiveSensitivity(
            self.name, rows.names, self.composition, rows.solo_mpps, fitted.base_, fitted.slopes_
        )
