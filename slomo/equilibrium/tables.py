"""Several NFs' server responses side by side as arrays, kept per set of NFs: laying them out costs more than solving.

Serves `slomo.equilibrium.server`; the first axis of every table is the NF.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.models.applicability import FAR, SLACK
from slomo.models.base import Floats
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.models.responses.server_response import ServerResponse
from slomo.vocabulary.metrics import METRICS, Kind

#: Metrics that busy polling fills up at less than full load, so that they cannot be told from served packets.
POLLED = frozenset({"IPC", "INST", "EXEC", "L2MPI", "L3MPI"})


@dataclass(frozen=True, eq=False)
class Tables:
    """Pressures (and, last, speed) of each NF: start, basis, weights over pairs of its terms, and range."""

    start: Floats
    scale: Floats
    limit: Floats
    weight: Floats
    low: Floats
    high: Floats


def _bilinear(weights: Floats, pressures: int) -> Floats:
    """Return weights over 1, u and u u' (`pressure_basis`) as weights over pairs of (1, u).

    Examples
    --------
    >>> _bilinear(np.array([[7.0], [2.0], [3.0]]), 1).ravel().tolist()
    [7.0, 0.0, 2.0, 3.0]
    """
    table = np.zeros((1 + pressures, 1 + pressures, weights.shape[1]))
    row, column = np.tril_indices(pressures)
    table[0, 0], table[1:, 0] = weights[0], weights[1 : 1 + pressures]
    table[row + 1, column + 1] = weights[1 + pressures :]
    return table.reshape(-1, weights.shape[1])


@lru_cache(maxsize=128)
def tables(responses: tuple[ServerResponse, ...]) -> Tables:
    """Return what the rounds of the fixed point need."""
    rows = []
    for response in responses:
        profile, names = response.profile, response.pressure_names
        at = [profile.metric_names.index(name) for name in names]
        weight = np.column_stack([profile.weights[:, at], response.speed])
        low = np.append(profile.low[at], response.slowest_mpps)
        high = np.append(profile.high[at], response.fastest_mpps)
        rows.append(
            (profile.solo.to_array(names), profile.scale, profile.limit, _bilinear(weight, len(names)), low, high)
        )
    return Tables(*(np.array([row[part] for row in rows]) for part in range(6)))


@lru_cache(maxsize=128)
def vector_tables(responses: tuple[ServerResponse, ...], names: tuple[str, ...]) -> tuple[Floats, ...]:
    """Return solo values, weights, low and high of the metrics `names`; NaN where an NF does not report one."""
    rows = []
    for response in responses:
        profile = response.profile
        known = profile.metric_names
        at = [known.index(name) if name in known else -1 for name in names]
        table = np.vstack([profile.solo.to_array(known), profile.weights, profile.low, profile.high])
        rows.append(np.column_stack([table, np.full(len(table), np.nan)])[:, at])
    stack = np.array(rows)
    return stack[:, 0], stack[:, 1:-2], stack[:, -2], stack[:, -1]


@lru_cache(maxsize=256)
def kinds(names: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which metrics scale with served packets, and which polling fills up.

    Examples
    --------
    >>> rates, polled = kinds(("L2MISS", "L3OCC", "INST"))
    >>> rates.tolist(), polled.tolist()
    ([True, False, False], [False, False, True])
    """
    flows = {Kind.RATE, Kind.BANDWIDTH}
    return (
        np.array([METRICS[name].kind in flows and name not in POLLED for name in names], dtype=bool),
        np.array([name in POLLED for name in names], dtype=bool),
    )


@lru_cache(maxsize=128)
def _ranges(responses: tuple[ServerResponse, ...]) -> tuple[Floats, ...]:
    found = [response.applicability for response in responses]
    low, high = np.array([item.low for item in found]), np.array([item.high for item in found])
    centre, precision = np.array([item.centre for item in found]), np.array([item.precision for item in found])
    return low, high, centre, precision, np.array([item.reach for item in found])


def covered(responses: tuple[ServerResponse, ...], who: NDArray[np.int64], pressure: Floats) -> NDArray[np.bool_]:
    """Return where the profile of NF `who[i]` covers `pressure[i]`, as `Applicability.codes` says 0; for one pass."""
    low, high, centre, precision, reach = (part[who] for part in _ranges(responses))
    span = np.maximum(high - low, 1e-9 * np.maximum(np.abs(high), 1.0))
    outside = (np.maximum(np.maximum(pressure - high, low - pressure), 0.0) / span).max(axis=1, initial=0.0)
    away = (pressure - low) / span - centre
    squared = (np.matmul(away[:, np.newaxis, :], precision)[:, 0, :] * away).sum(axis=1)
    inside: NDArray[np.bool_] = (outside <= SLACK) & (np.sqrt(np.maximum(squared, 0.0)) <= reach * (1.0 + FAR))
    return inside


@lru_cache(maxsize=128)
def bound_tables(responses: tuple[ServerResponse, ...], coverage: float) -> tuple[Floats, Floats, Floats]:
    """Return each NF's scores at both ends of an interval, shape (NFs, neighbourhoods), and its floor.

    Infinite where there are too few scores for `coverage`.
    """
    found = [response.calibration for response in responses]
    ends = np.array([item.bounds(coverage) for item in found])
    return ends[:, 0], ends[:, 1], np.array([item.floor for item in found])


@dataclass(frozen=True, eq=False)
class Forest:
    """The trees of several NFs, all of one shape, walked together."""

    feature: NDArray[np.intp]
    threshold: NDArray[np.float32]
    leaf: Floats
    start: Floats
    solo_mpps: Floats
    depth: int

    def predict_mpps(self, who: NDArray[np.int64], rows: Floats) -> Floats:
        """Return throughput [Mpps] of NF `who[i]` under `rows[i]`; the same bits as each NF's own trees."""
        _, trees, splits = self.feature.shape
        small = rows.astype(np.float32).ravel()
        row_base = (np.arange(len(rows)) * rows.shape[1])[:, None]
        base = ((who * trees)[:, None] + np.arange(trees)) * splits
        feature, threshold = self.feature.ravel(), self.threshold.ravel()
        node = np.zeros((len(rows), trees), dtype=np.intp)
        for _ in range(self.depth):
            at = node + base
            node = 2 * node + 1 + (small[feature[at] + row_base] > threshold[at])
        picked = self.leaf.ravel()[node - splits + ((who * trees)[:, None] + np.arange(trees)) * (splits + 1)]
        terms = np.concatenate([self.start[who][:, None], picked], axis=1)
        raw = np.add.accumulate(terms, axis=1)[:, -1].astype(np.float64)
        mpps: Floats = self.solo_mpps[who] * np.minimum(np.maximum(raw, 0.0), 1.0)
        return mpps


@lru_cache(maxsize=128)
def forest(responses: tuple[ServerResponse, ...]) -> Forest | None:
    """Return the NFs' trees as one forest; None where they are not trees of one shape over relative throughput."""
    models = [response.sensitivity for response in responses]
    trees = [model for model in models if isinstance(model, TreeSensitivity) and model.response != "throughput"]
    shapes = {(tree.ensemble.leaf.shape, tree.ensemble.leaf.dtype) for tree in trees}
    if len(trees) < len(models) or len(shapes) != 1:
        return None
    grown = [tree.ensemble for tree in trees]
    return Forest(
        np.array([item.feature for item in grown], dtype=np.intp),
        np.array([item.threshold for item in grown]),
        np.array([item.leaf for item in grown]),
        np.array([item.start for item in grown], dtype=grown[0].leaf.dtype),
        np.array([tree.solo_mpps for tree in trees]),
        grown[0].depth,
    )


def read_mpps(responses: Sequence[ServerResponse], who: NDArray[np.int64], pressure: Floats) -> Floats:
    """Return throughput [Mpps] of NF `who[i]` under `pressure[i]`: one walk for few, NF by NF for many."""
    together = forest(tuple(responses)) if len(who) <= 256 else None
    if together is not None:
        return together.predict_mpps(who, pressure)
    mpps = np.zeros(len(who))
    for number in np.unique(who):
        mpps[who == number] = responses[number].sensitivity.predict_mpps(pressure[who == number])
    return mpps
