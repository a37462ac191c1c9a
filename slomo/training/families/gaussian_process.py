"""Family ``slomo-gp``: a Gaussian process over pressures and traffic, smooth and good with few rows.

Trees need many rows to follow a slope; measured tables have fifty. Rasmussen and Williams, Gaussian Processes for
Machine Learning (2006), chapters 2, 4.2 (Matern 3/2: continuous, with kinks where a cache is full) and 5.4 (marginal
likelihood). Rates and bytes are scaled linearly near 0 and logarithmically above the typical value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from slomo.models.base import CompositionKind, Floats
from slomo.models.functions.smooth import SmoothSensitivity, matern
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.features import typical_values

#: Rows for choosing the length scales; all rows are used afterwards. Choosing takes cubic time.
_CHOOSING_ROWS = 128
#: Bounds of length scales (of standardised features), of the signal and of the noise (shares of its variance).
_EFFORT = {"maxiter": 60}
_LENGTH, _SIGNAL, _NOISE = (0.1, 100.0), (1e-2, 1e3), (1e-5, 1.0)


class SmoothRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression with one length scale per column, fitted by marginal likelihood.

    Parameters
    ----------
    rows : int
        Most rows the length scales are chosen on.
    seed : int
        Seed of the choice of these rows.

    Attributes
    ----------
    points_ : ndarray of shape (n, features)
        Standardised rows.
    weights_ : ndarray of shape (n,)
        What each row's kernel is multiplied with.
    center_, spread_ : ndarray of shape (features,)
        Of the rows; a column that never changes has an infinite spread.
    length_ : ndarray of shape (features,)
        Length scales.
    mean_, scale_ : float
        Of the response.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> model = SmoothRegression().fit(X, np.sin(3 * X[:, 0]))
    >>> round(float(model.predict([[0.51]])[0]), 2), round(float(np.sin(1.53)), 2)
    (1.0, 1.0)
    """

    def __init__(self, rows: int = _CHOOSING_ROWS, seed: int = 0) -> None:
        self.rows = rows
        self.seed = seed

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "SmoothRegression":
        """Fit response `y` over vectors `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        with threadpool_limits(1):  # the same numbers everywhere; and small matrices are slower on several threads
            return self._fitted(X, y, np.ones(len(y)) if row_weights is None else np.asarray(row_weights, dtype=float))

    def _fitted(self, X: Floats, y: Floats, weights: Floats) -> "SmoothRegression":
        y = y.astype(np.float64)
        self.center_, spread = X.mean(axis=0), X.std(axis=0)
        self.spread_ = np.where(spread > 1e-12 * np.maximum(np.abs(self.center_), 1e-300), spread, np.inf)
        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        self.points_ = (X - self.center_) / self.spread_
        response = (y - self.mean_) / self.scale_
        signal, self.length_, noise = self._chosen(response)
        distance = matern(self.points_ / self.length_, self.points_ / self.length_)
        covariance = signal * distance + noise * np.diag(1.0 / weights)
        self.weights_ = signal * np.linalg.solve(covariance, response)
        return self

    def _chosen(self, response: Floats) -> tuple[float, Floats, float]:
        """Return the signal variance, length scales and noise variance with the largest marginal likelihood."""
        live = np.isfinite(self.spread_)
        picked = np.random.default_rng(self.seed).permutation(len(response))[: self.rows]
        points, values = self.points_[np.ix_(picked, live)], response[picked]
        count = points.shape[1]
        bounds = np.log([_SIGNAL, *[_LENGTH] * count, _NOISE])
        start = np.log([1.0, *[1.0] * count, 1e-2])
        optimum = minimize(
            _likelihood, start, args=(points, values), jac=True, method="L-BFGS-B", bounds=bounds, options=_EFFORT
        )
        numbers = np.exp(optimum.x)
        length = np.ones(len(live))
        length[live] = numbers[1:-1]
        return float(numbers[0]), length, float(numbers[-1])

    def predict(self, X: Any) -> Any:
        """Return the response for vectors `X`."""
        check_is_fitted(self)
        rows = (validate_data(self, X, reset=False, dtype=np.float64) - self.center_) / self.spread_
        kernel = matern(rows / self.length_, self.points_ / self.length_)
        return self.mean_ + self.scale_ * (kernel * self.weights_).sum(axis=1)


def _likelihood(logarithms: Floats, points: Floats, values: Floats) -> tuple[float, Floats]:
    """Return the negative log marginal likelihood and its gradient (Rasmussen and Williams, equations 2.30 and 5.9)."""
    signal, length, noise = np.exp(logarithms[0]), np.exp(logarithms[1:-1]), np.exp(logarithms[-1])
    scaled = points / length
    squares = (scaled**2).sum(axis=1)
    root = np.sqrt(3.0 * np.maximum(squares[:, None] + squares[None, :] - 2.0 * scaled @ scaled.T, 0.0))
    decay = np.exp(-root)
    kernel = signal * (1.0 + root) * decay
    lower = np.linalg.cholesky(kernel + (noise + 1e-10) * np.eye(len(values)))
    inverse = np.linalg.inv(lower)
    precision = inverse.T @ inverse
    alpha = precision @ values
    value = 0.5 * values @ alpha + np.log(np.diag(lower)).sum()
    outer = precision - np.outer(alpha, alpha)
    shape = 3.0 * signal * decay * outer
    slopes = [
        ((points[:, i, None] - points[None, :, i]) ** 2 * shape).sum() / length[i] ** 2 for i in range(len(length))
    ]
    gradient = 0.5 * np.array([(outer * kernel).sum(), *slopes, noise * np.trace(outer)])
    return float(value), gradient


@dataclass(frozen=True)
class SmoothFamily(WeightedFamily[SmoothSensitivity]):
    """Family ``slomo-gp``: a Gaussian process."""

    name: str = "slomo-gp"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> SmoothSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        typical = typical_values(rows.vectors)
        fitted = SmoothRegression(seed=rows.seed).fit(
            np.log1p(np.maximum(rows.vectors, 0.0) / typical), rows.mpps / rows.solo_mpps, rows.weights
        )
        return SmoothSensitivity(
            name=self.name,
            feature_names=rows.names,
            composition=self.composition,
            solo_mpps=rows.solo_mpps,
            typical=typical,
            low=rows.vectors.min(axis=0),
            high=rows.vectors.max(axis=0),
            center=fitted.center_,
            # a constant column has no effect
            width=np.where(np.isfinite(fitted.spread_), fitted.spread_ * fitted.length_, 1e50),
            points=fitted.points_ / fitted.length_,
            weights=np.asarray(fitted.scale_ * fitted.weights_, dtype=np.float64),
            mean=fitted.mean_,
        )
