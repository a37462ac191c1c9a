"""The pressure that an NF puts on others (its contentiousness), as a function of the pressure on the NF itself.

SLOMO (SIGCOMM'20) section 4.1: contentiousness is measured while the NF runs against each synthetic setting, because a
solo run overstates the pressure of an NF that is slowed down itself. The published medians per number of competitors
are stored too; the function of the pressure is this project's refinement.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.base import Floats, require
from slomo.models.functions.regression import ridge
from slomo.vocabulary.metrics import Scope, canonical_names
from slomo.vocabulary.vector import MetricVector

#: Number of sampled pressures for fitting a blend of two profiles onto one basis; six per term of the largest basis.
_SAMPLES = 128


@dataclass(frozen=True, eq=False)
class ContentiousnessProfile(Stored):
    """Counters of an NF's core: alone, by number of competitors, and under any pressure."""

    #: Metrics that were measured for the NF.
    metric_names: tuple[str, ...]
    #: Metrics of the competitors' composed vector that the NF responds to.
    pressure_names: tuple[str, ...]
    #: Counters of the NF's core without competitors.
    solo: MetricVector
    #: Number of competitors -> median of the NF's counters beside that many, as published.
    by_count: Mapping[int, MetricVector]
    #: Value of each pressure at which its effect is half saturated, and the largest one measured, shape
    #: (pressure_names,).
    scale: Floats
    limit: Floats
    #: Coefficients over the basis 1, u, u u', where u = p / (p + scale), shape (1 + p + p (p + 1) / 2, metric_names).
    weights: Floats
    #: Lowest and highest measured value of each counter; answers are clipped to them, shape (metric_names,).
    low: Floats
    high: Floats

    def at_count(self, count: int) -> MetricVector:
        """Return the median counters beside `count` competitors (as published), or the nearest measured count."""
        if count <= 0 or not self.by_count:
            return self.solo
        return self.by_count[
            min(self.by_count, key=lambda measured_count: (abs(measured_count - count), measured_count))
        ]

    def under(self, pressure: Floats) -> Floats:
        """Return the NF's counters, shape ``(n, len(metric_names))``, under pressures ``(n, len(pressure_names))``."""
        return np.clip(pressure_basis(pressure, self.scale, self.limit) @ self.weights, self.low, self.high)

    def blended_with(self, other: "ContentiousnessProfile", share: float) -> "ContentiousnessProfile":
        """Return a mixture of this profile and another one.

        If the two have different metrics, return the nearer one.
        """
        if self.pressure_names != other.pressure_names or self.metric_names != other.metric_names:
            return self if share < 0.5 else other
        scale, limit = np.sqrt(self.scale * other.scale), np.maximum(self.limit, other.limit)
        pressure = pressures_up_to(limit)
        target = (1.0 - share) * self.under(pressure) + share * other.under(pressure)
        weights = ridge(pressure_basis(pressure, scale, limit), target, 1e-6)
        counts = [count for count in self.by_count if count in other.by_count]
        return ContentiousnessProfile(
            self.metric_names,
            self.pressure_names,
            self.solo.towards(other.solo, share),
            {count: self.by_count[count].towards(other.by_count[count], share) for count in counts},
            scale,
            limit,
            weights,
            (1.0 - share) * self.low + share * other.low,
            (1.0 - share) * self.high + share * other.high,
        )

    def scaled(self, factors: Mapping[str, float], added: Mapping[str, float]) -> "ContentiousnessProfile":
        """Return the profile with counters multiplied by their factors, then increased by an amount, never below 0."""
        factor = np.array([factors.get(name, 1.0) for name in self.metric_names])
        more = np.array([added.get(name, 0.0) for name in self.metric_names])
        weights = self.weights * factor
        weights[0] += more
        return replace(
            self,
            solo=self.solo.scaled(factors, added),
            by_count={count: vector.scaled(factors, added) for count, vector in self.by_count.items()},
            weights=weights,
            low=np.maximum(self.low * factor + more, 0.0),
            high=np.maximum(self.high * factor + more, 0.0),
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContentiousnessProfile":
        """Return the profile that :meth:`to_dict` described; ConfigurationError if tables do not fit names."""
        made = super().from_dict(data)
        names, pressures = len(made.metric_names), len(made.pressure_names)
        weights = made.weights if names else np.zeros((basis_size(pressures), 0))
        canonical_names((*made.metric_names, *made.pressure_names))
        fits = made.scale.shape == made.limit.shape == (pressures,) and made.low.shape == made.high.shape == (names,)
        fitting = weights.shape == (basis_size(pressures), names) and (made.scale > 0).all()
        require(fits and fitting, "a contentiousness profile whose tables do not fit its names")
        return replace(made, weights=weights)


def basis_size(pressures: int) -> int:
    """Return the number of functions in :func:`pressure_basis` for this many pressures."""
    return 1 + pressures + pressures * (pressures + 1) // 2


def pressure_basis(pressure: Floats, scale: Floats, limit: Floats) -> Floats:
    """Return 1, the saturating shares u = p / (p + scale), and their products u_j u_k for k <= j, along the last axis.

    Pressures above the measured range count as the largest measured one.

    >>> pressure_basis(np.array([[1.0, 9.0]]), np.array([1.0, 1.0]), np.array([5.0, 1.0])).tolist()
    [[1.0, 0.5, 0.5, 0.25, 0.25, 0.25]]
    """
    bounded = np.minimum(np.maximum(pressure, 0.0), limit)
    share = bounded / (bounded + scale)
    single = 1 + pressure.shape[-1]
    row, column = _pairs(pressure.shape[-1])
    basis = np.empty((*share.shape[:-1], basis_size(pressure.shape[-1])))
    basis[..., 0], basis[..., 1:single] = 1.0, share
    np.multiply(share.take(row, axis=-1), share.take(column, axis=-1), out=basis[..., single:])
    return basis


@functools.cache
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices j and k of all pairs k <= j below `count`."""
    return np.tril_indices(count)


def pressures_up_to(limit: Floats) -> Floats:
    """Return sample pressures, one row each, spread over the range from 0 to `limit`."""
    inside = np.random.default_rng(0).uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2
    return np.vstack([np.zeros(len(limit)), np.ones(len(limit)), inside]) * limit


def constant_profile(solo: MetricVector) -> ContentiousnessProfile:
    """Return a profile with the same counters under any pressure, for NFs that were measured only alone."""
    names = tuple(solo)
    values = solo.to_array(names)
    nothing = np.zeros(0)
    vector = MetricVector(dict(solo), scope=Scope.CORE)
    return ContentiousnessProfile(names, (), vector, {}, nothing, nothing, values[None, :], values, values)
