"""Family ``slomo-smooth``: a small neural network whose throughput never rises with pressure.

Monotone networks (Sill 1998; Archer and Wang 1993), fitted by L-BFGS (Byrd et al. 1995) to throughput as a share of
solo. Trees can be monotone too, but their steps exceed the loss at mild pressure; a Gaussian process is smooth but not
monotone. The mean of a few networks from different starts is smoother than each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from slomo.models.base import TRAFFIC_PREFIX, CompositionKind, Floats
from slomo.models.functions.monotone import MonotoneSensitivity, sigmoid
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.features import typical_values

#: Slope, over features from 0 to 1, at which the penalty equals that of a height of the response's spread.
_USUAL_SLOPE = 6.0


@dataclass(frozen=True, eq=False)
class Units:
    """Hidden units (sigmoids) of one or more networks."""

    slope: Floats
    offset: Floats
    height: Floats
    top: float


class MonotoneNetwork(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A network with one hidden layer, each unit of which lowers the throughput.

    Parameters
    ----------
    free : sequence of int
        Columns along which the response may also rise.
    units : int
        Sigmoids per network.
    networks : int
        Networks from different starts, of which the mean answers.
    penalty : float
        Weight of squared slopes and heights beside the mean squared error over the variance.
    steps : int
        Most steps of L-BFGS.
    seed : int
        Seed of the starts.

    Attributes
    ----------
    units_ : Units
        The fitted network, over features scaled to 0 to 1.
    start_, width_ : ndarray of shape (features,)
        The scaling of the features.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> model = MonotoneNetwork().fit(X, 1.0 - 0.5 * X[:, 0] ** 2)
    >>> round(float(model.predict([[0.5]])[0]), 1), bool((np.diff(model.predict(X)) <= 0.0).all())
    (0.9, True)
    """

    def __init__(
        self,
        free: Sequence[int] = (),
        units: int = 16,
        networks: int = 2,
        penalty: float = 1e-4,
        steps: int = 300,
        seed: int = 0,
    ) -> None:
        self.free = free
        self.units = units
        self.networks = networks
        self.penalty = penalty
        self.steps = steps
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        """Return tags by which scikit-learn's own tests expect a lower score on rising data."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "MonotoneNetwork":
        """Fit response `y` over vectors `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        y, weights = y.astype(np.float64), _per_row(len(y), row_weights)
        self.start_, span = X.min(axis=0), np.ptp(X, axis=0)
        self.width_ = np.where(span > 1e-12 * np.maximum(np.abs(self.start_), 1e-300), span, 1.0)
        rows = (X - self.start_) / self.width_
        free = np.zeros(X.shape[1], dtype=bool)
        free[list(self.free)] = True
        with threadpool_limits(1):  # the same numbers everywhere; and small matrices are slower on several threads
            each = [
                self._fitted(rows, (y, weights), free, np.random.default_rng([self.seed, k]))
                for k in range(self.networks)
            ]
        self.units_ = Units(
            np.concatenate([item.slope for item in each]),
            np.concatenate([item.offset for item in each]),
            np.concatenate([item.height for item in each]) / self.networks,
            float(np.mean([item.top for item in each])),
        )
        return self

    def _fitted(
        self, rows: Floats, responses: tuple[Floats, Floats], free: NDArray[np.bool_], generator: np.random.Generator
    ) -> Units:
        y, weights = responses
        count, features = self.units, rows.shape[1]
        center, spread = float(y.mean()), float(y.std()) or 1.0
        slope = generator.exponential(_USUAL_SLOPE, (count, features)) * (generator.random((count, features)) < 0.5)
        at = rows[generator.integers(len(rows), size=count)]
        start = [
            np.where(free, slope, _softplus_inverse(slope + 0.05)).ravel(),
            -(slope * at).sum(axis=1),
            np.full(count, _softplus_inverse(np.array(2.0 / count))),
            np.ones(1),
        ]
        problem = _Problem(rows, (y - center) / spread, weights, free, count, self.penalty)
        options = {"maxiter": self.steps, "maxcor": 20}
        numbers = minimize(problem, np.concatenate(start), jac=True, method="L-BFGS-B", options=options).x
        units = problem.units(numbers)
        return Units(units.slope, units.offset, units.height * spread, center + units.top * spread)

    def predict(self, X: Any) -> Any:
        """Return the predicted response (throughput, or what was trained in its place) for vectors `X`."""
        check_is_fitted(self)
        rows = (validate_data(self, X, reset=False, dtype=np.float64) - self.start_) / self.width_
        inner = self.units_.offset + (rows[:, None, :] * self.units_.slope).sum(axis=2)
        return self.units_.top - (sigmoid(inner) * self.units_.height).sum(axis=1)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The error to minimise, with its gradient, over parameters that are kept positive."""

    rows: Floats
    response: Floats
    weights: Floats
    free: NDArray[np.bool_]
    count: int
    penalty: float

    def units(self, numbers: Floats) -> Units:
        """Return the hidden units that a parameter vector describes."""
        raw, offset, raw_height, top = self._parts(numbers)
        return Units(self._slope(raw), offset, _softplus(raw_height), top)

    def _parts(self, numbers: Floats) -> tuple[Floats, Floats, Floats, float]:
        slopes = self.free.size * self.count
        raw, (offset, raw_height) = numbers[:slopes].reshape(self.count, -1), numbers[slopes:-1].reshape(2, -1)
        return raw, offset, raw_height, float(numbers[-1])

    def _slope(self, raw: Floats) -> Floats:
        return np.where(self.free, raw, _softplus(raw)) if self.free.any() else _softplus(raw)

    def __call__(self, numbers: Floats) -> tuple[float, Floats]:
        raw, offset, raw_height, top = self._parts(numbers)
        slope, height, n = self._slope(raw), _softplus(raw_height), len(self.rows)
        on = sigmoid(self.rows @ slope.T + offset)
        error = top - on @ height - self.response
        weighted = self.weights * error
        slope_penalty = self.penalty / _USUAL_SLOPE**2
        value = float(weighted @ error) / n + slope_penalty * float(np.add.reduce(slope**2, axis=None))
        value += self.penalty * float(np.add.reduce(height**2))
        outer = 2.0 * weighted / n
        inner = -(outer[:, None] * height) * on * (1.0 - on)
        by_slope = inner.T @ self.rows + 2.0 * slope_penalty * slope
        by_slope *= np.where(self.free, 1.0, sigmoid(raw)) if self.free.any() else sigmoid(raw)
        by_height = (2.0 * self.penalty * height - on.T @ outer) * sigmoid(raw_height)
        parts = by_slope.ravel(), np.add.reduce(inner), by_height, (np.add.reduce(outer),)
        return value, np.concatenate(parts)


def _per_row(count: int, weights: Any) -> Floats:
    """Return the weight of each row, 1 on average."""
    if weights is None:
        return np.ones(count)
    array = np.asarray(weights, dtype=np.float64)
    answer: Floats = array / array.mean()
    return answer


def _softplus(values: Floats) -> Floats:
    softened: Floats = np.logaddexp(0.0, values)
    return softened


def _softplus_inverse(values: Floats) -> Floats:
    hardened: Floats = np.log(np.expm1(values))
    return hardened


@dataclass(frozen=True)
class MonotoneFamily(WeightedFamily[MonotoneSensitivity]):
    """Family ``slomo-smooth``: a monotone neural network."""

    name: str = "slomo-smooth"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> MonotoneSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        typical = typical_values(rows.vectors)
        free = [i for i, name in enumerate(rows.names) if name.startswith(TRAFFIC_PREFIX)]
        scaled = np.log1p(np.maximum(rows.vectors, 0.0) / typical)
        fitted = MonotoneNetwork(free, seed=rows.seed).fit(scaled, rows.mpps / rows.solo_mpps, rows.weights)
        return MonotoneSensitivity(
            name=self.name,
            feature_names=rows.names,
            composition=self.composition,
            solo_mpps=rows.solo_mpps,
            typical=typical,
            low=rows.vectors.min(axis=0),
            high=rows.vectors.max(axis=0),
            start=fitted.start_,
            width=fitted.width_,
            slope=fitted.units_.slope,
            offset=fitted.units_.offset,
            height=fitted.units_.height,
            top=fitted.units_.top,
        )
