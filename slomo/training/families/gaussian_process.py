"""Family ``slomo-gp``: a Gaussian process over pressures and traffic, which is smooth and needs few rows.

Trees need many rows to follow a slope; measured tables have fifty. Rasmussen and Williams, Gaussian Processes for
Machine Learning (2006), chapters 2, 4.2 (Matern 3/2: continuous, with kinks where a cache is full) and 5.4 (marginal
likelihood). Rates and bytes are scaled linearly near 0 and logarithmically above the typical value.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from slomo.models.base import Floats
from slomo.models.functions.smooth import SmoothSensitivity, matern
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.features import typical_values

#: Largest number of rows on which length scales are chosen, which takes cubic time; the fit uses all rows.
_CHOOSING_ROWS = 128
#: Bounds of length scales (of standardised features), of the signal and of the noise (shares of its variance).
_EFFORT = {"maxiter": 60}
_LENGTH, _SIGNAL, _NOISE = (0.1, 100.0), (1e-2, 1e3), (1e-5, 1.0)


def _chosen(points: Floats, response: Floats, live: NDArray[np.bool_], seed: int) -> tuple[float, Floats, float]:
    """Return the signal variance, length scales and noise variance with the largest marginal likelihood."""
    picked = np.random.default_rng(seed).permutation(len(response))[:_CHOOSING_ROWS]
    points, values = points[np.ix_(picked, live)], response[picked]
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

    def fit_weighted(self, rows: WeightedRows) -> SmoothSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        typical = typical_values(rows.vectors)
        features, share = np.log1p(np.maximum(rows.vectors, 0.0) / typical), rows.mpps / rows.solo_mpps
        center, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-12 * np.maximum(np.abs(center), 1e-300), spread, np.inf)  # inf: it never changes
        mean, scale = float(share.mean()), float(share.std()) or 1.0
        points, response = (features - center) / spread, (share - mean) / scale
        with threadpool_limits(1):  # the same numbers everywhere; and small matrices are slower on several threads
            signal, length, noise = _chosen(points, response, np.isfinite(spread), rows.seed)
            weights = np.ones(len(share)) if rows.weights is None else rows.weights
            covariance = signal * matern(points / length, points / length) + noise * np.diag(1.0 / weights)
            solved = signal * np.linalg.solve(covariance, response)
        return SmoothSensitivity(
            name=self.name,
            feature_names=rows.names,
            composition=self.composition,
            solo_mpps=rows.solo_mpps,
            typical=typical,
            low=rows.vectors.min(axis=0),
            high=rows.vectors.max(axis=0),
            center=center,
            # a constant column has no effect
            width=np.where(np.isfinite(spread), spread * length, 1e50),
            points=points / length,
            weights=np.asarray(scale * solved, dtype=np.float64),
            mean=mean,
        )
