"""Learn the pressure that an NF puts on others, as a function of the pressure on the NF (ridge regression).

The basis (1, u, u u' with u = p / (p + scale)) rises and saturates, as caches and channels do. Strength and degree are
chosen per NF by cross-validation that leaves out whole competitor configurations.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.contentiousness import ContentiousnessProfile, basis_size, constant_profile, pressure_basis
from slomo.models.functions.regression import ridge
from slomo.training.cross_validation import folds
from slomo.training.features import Subject, typical_values
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Pressures to which neighbours respond, all additive: cache occupancy and accesses, occupancy of the DDIO ways, and
#: all memory traffic, read and write, of cores and devices.
PRESSURES = ("L3OCC", "L2MISS", "LMB", "DDIOOCC")
_STRENGTHS = (1e-4, 1e-2, 1.0)
#: Least number of rows for fitting a function.
_FEWEST_ROWS = 12


def fit_profile(subject: Subject, seed: int) -> ContentiousnessProfile:
    """Return the pressure of an NF on others: solo, by number of competitors, and over the pressure on the NF."""
    solo = solo_vector(subject)
    pressures = tuple(name for name in PRESSURES if name in subject.names)
    whole = np.isfinite(subject.columns(pressures)).all(axis=1) & np.isfinite(subject.own).all(axis=1)
    if not pressures or not subject.own_names or whole.sum() < _FEWEST_ROWS:
        return constant_profile(solo)
    pressure, own = subject.columns(pressures)[whole], subject.own[whole]
    scale, limit = typical_values(pressure), pressure.max(axis=0)
    basis = pressure_basis(pressure, scale, limit)
    weights = _chosen(basis, own, folds(subject.groups[whole], seed), len(pressures))
    by_count = {
        int(count): _median(subject, subject.counts == count) for count in np.unique(subject.counts) if count > 0
    }
    low, high = own.min(axis=0), own.max(axis=0)
    return ContentiousnessProfile(subject.own_names, pressures, solo, by_count, scale, limit, weights, low, high)


def solo_vector(subject: Subject) -> MetricVector:
    """Return the median counters of the NF's core in solo runs; empty without such runs."""
    alone = subject.counts == 0
    return _median(subject, alone) if alone.any() else MetricVector({}, scope=Scope.CORE)


def _median(subject: Subject, rows: NDArray[np.bool_]) -> MetricVector:
    values = np.median(subject.own[rows], axis=0)
    return MetricVector(dict(zip(subject.own_names, values.tolist(), strict=True)), scope=Scope.CORE)


def _chosen(basis: Floats, own: Floats, fold: NDArray[np.int64], pressures: int) -> Floats:
    """Return the ridge weights of the strength and degree with the least held-out error over all metrics."""
    spread = np.maximum(own.std(axis=0), 1e-12 * np.maximum(np.abs(own).max(axis=0), 1.0))
    scaled, parts = own / spread, [fold == number for number in np.unique(fold)]
    best, chosen = np.inf, (0, 0.0)
    for terms, strength in itertools.product((1 + pressures, basis_size(pressures)), _STRENGTHS):
        error = 0.0
        for out in parts:
            weights = _fitted(basis, own, ~out if not out.all() else out, terms, strength)
            error += float((((basis[out] @ weights) / spread - scaled[out]) ** 2).sum())
        if error < 0.99 * best:
            best, chosen = error, (terms, strength)
    return _fitted(basis, own, np.ones(len(basis), dtype=bool), *chosen)


def _fitted(basis: Floats, own: Floats, seen: NDArray[np.bool_], terms: int, strength: float) -> Floats:
    weights = np.zeros((basis.shape[1], own.shape[1]))
    weights[:terms] = ridge(basis[seen, :terms], own[seen], strength)
    return weights
