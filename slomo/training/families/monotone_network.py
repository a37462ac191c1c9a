"""Family ``slomo-smooth``: a small neural network whose throughput never rises with pressure.

Monotone networks (Sill 1998; Archer and Wang 1993), fitted by L-BFGS (Byrd et al. 1995) to throughput as a share of
solo. Trees can be monotone too, but their steps exceed the loss at mild pressure; a Gaussian process is smooth but not
monotone. The mean of a few networks from different starts is smoother than each.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from slomo.models.base import TRAFFIC_PREFIX, Floats
from slomo.models.functions.monotone import MonotoneSensitivity, sigmoid
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.features import typical_values

#: Slope over features from 0 to 1 whose penalty equals that of a height as large as the response's spread.
_USUAL_SLOPE = 6.0
#: Sigmoids per network; networks from different starts, of which the mean answers; most steps of L-BFGS.
_UNITS, _NETWORKS, _STEPS = 16, 2, 300
#: Weight of squared slopes and heights relative to the mean squared error divided by the variance.
_PENALTY = 1e-4


#: Slope, offset and height of the hidden units (sigmoids) of a network, and its top.
Units = tuple[Floats, Floats, Floats, float]


def _fitted(
    rows: Floats, responses: tuple[Floats, Floats], free: NDArray[np.bool_], generator: np.random.Generator
) -> Units:
    """Return one network from a random start: of rows scaled to 0 to 1, their responses and weights."""
    y, weights = responses
    features = rows.shape[1]
    center, spread = float(y.mean()), float(y.std()) or 1.0
    slope = generator.exponential(_USUAL_SLOPE, (_UNITS, features)) * (generator.random((_UNITS, features)) < 0.5)
    at = rows[generator.integers(len(rows), size=_UNITS)]
    start = [
        np.where(free, slope, _softplus_inverse(slope + 0.05)).ravel(),
        -(slope * at).sum(axis=1),
        np.full(_UNITS, _softplus_inverse(np.array(2.0 / _UNITS))),
        np.ones(1),
    ]
    problem, gradients = _Problem(rows, (y - center) / spread, weights, free), [np.empty(0)]

    def error(numbers: Floats) -> float:
        value, gradients[0] = problem(numbers)
        return value

    # asked after each error; with jac=True scipy would compare and copy all parameters twice for this
    optimum = minimize(
        error,
        np.concatenate(start),
        jac=lambda _: gradients[0],
        method="L-BFGS-B",
        options={"maxiter": _STEPS, "maxcor": 20},
    )
    raw, offset, raw_height, top = problem.parts(optimum.x)
    return problem.slope(raw), offset, _softplus(raw_height) * spread, center + top * spread


@dataclass(frozen=True, eq=False)
class _Problem:
    """The error to minimise, with its gradient, over parameters that are kept positive."""

    rows: Floats
    response: Floats
    weights: Floats
    free: NDArray[np.bool_]

    def parts(self, numbers: Floats) -> Units:
        """Return the units that a parameter vector describes, slopes and heights before they are made positive."""
        slopes = self.free.size * _UNITS
        raw, (offset, raw_height) = numbers[:slopes].reshape(_UNITS, -1), numbers[slopes:-1].reshape(2, -1)
        return raw, offset, raw_height, float(numbers[-1])

    def slope(self, raw: Floats) -> Floats:
        """Return slopes, positive but for the features that may raise throughput."""
        return np.where(self.free, raw, _softplus(raw)) if self.free.any() else _softplus(raw)

    def __call__(self, numbers: Floats) -> tuple[float, Floats]:
        raw, offset, raw_height, top = self.parts(numbers)
        slope, height, n = self.slope(raw), _softplus(raw_height), len(self.rows)
        on = sigmoid(self.rows @ slope.T + offset)
        error = top - on @ height - self.response
        weighted = self.weights * error
        slope_penalty = _PENALTY / _USUAL_SLOPE**2
        value = float(weighted @ error) / n + slope_penalty * float(np.add.reduce(slope**2, axis=None))
        value += _PENALTY * float(np.add.reduce(height**2))
        outer = 2.0 * weighted / n
        inner = np.multiply.outer(-outer, height)
        inner *= on
        inner *= 1.0 - on
        by_slope = inner.T @ self.rows + 2.0 * slope_penalty * slope
        by_slope *= np.where(self.free, 1.0, sigmoid(raw)) if self.free.any() else sigmoid(raw)
        by_height = (2.0 * _PENALTY * height - on.T @ outer) * sigmoid(raw_height)
        parts = by_slope.ravel(), np.add.reduce(inner), by_height, (np.add.reduce(outer),)
        return value, np.concatenate(parts)


def _softplus(values: Floats) -> Floats:
    return np.logaddexp(0.0, values)


def _softplus_inverse(values: Floats) -> Floats:
    return np.log(np.expm1(values))


@dataclass(frozen=True)
class MonotoneFamily(WeightedFamily[MonotoneSensitivity]):
    """Family ``slomo-smooth``: a monotone neural network."""

    name: str = "slomo-smooth"

    def fit_weighted(self, rows: WeightedRows) -> MonotoneSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        typical = typical_values(rows.vectors)
        free = np.array([name.startswith(TRAFFIC_PREFIX) for name in rows.names], dtype=bool)
        features, share = np.log1p(np.maximum(rows.vectors, 0.0) / typical), rows.mpps / rows.solo_mpps
        weights = np.ones(len(share)) if rows.weights is None else rows.weights / rows.weights.mean()
        start, span = features.min(axis=0), np.ptp(features, axis=0)
        width = np.where(span > 1e-12 * np.maximum(np.abs(start), 1e-300), span, 1.0)
        scaled = (features - start) / width
        with threadpool_limits(1):  # the same numbers everywhere; and small matrices are slower on several threads
            draws = [np.random.default_rng([rows.seed, k]) for k in range(_NETWORKS)]
            networks = [_fitted(scaled, (share, weights), free, draw) for draw in draws]
        slopes, offsets, heights, tops = zip(*networks, strict=True)
        return MonotoneSensitivity(
            name=self.name,
            feature_names=rows.names,
            composition=self.composition,
            solo_mpps=rows.solo_mpps,
            typical=typical,
            low=rows.vectors.min(axis=0),
            high=rows.vectors.max(axis=0),
            start=start,
            width=width,
            slope=np.concatenate(slopes),
            offset=np.concatenate(offsets),
            height=np.concatenate(heights) / _NETWORKS,
            top=float(np.mean(tops)),
        )
