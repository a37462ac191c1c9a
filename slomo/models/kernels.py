"""Compiled loops for big batches: sums of trees and the equilibrium of competitors; numba is imported on first use.

Blocks of 64 rows keep a tree's nodes in the first-level cache while all rows of the block pass through it. The numbers
are those of the numpy path: the same additions in the same order, without fast-math.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from slomo.models.trees import TreeEnsemble

_BLOCK = 64


def sum_of_trees(ensemble: "TreeEnsemble", rows: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Evaluate an ensemble on rows without NaN, or return None where numba is not installed.

    Examples
    --------
    >>> from slomo.models.trees import grow
    >>> nothing = grow([], start=1.0, n_features=1, dtype=np.float64)
    >>> sum_of_trees(nothing, np.zeros((1, 1), dtype=np.float32)) in (None, np.array([1.0]))
    True
    """
    kernel = _compiled("trees")
    if kernel is None:
        return None
    out = np.full(len(rows), ensemble.start, dtype=ensemble.leaf.dtype)
    kernel(rows, ensemble.feature, ensemble.threshold, ensemble.leaf, ensemble.depth, out)
    return out.astype(np.float64)


def equilibrium(*arguments: Any) -> bool:
    """Run the compiled equilibrium (see `slomo.models.mixture`); False where numba is not installed."""
    kernel = _compiled("equilibrium")
    if kernel is None:
        return False
    kernel(*arguments)
    return True


@functools.cache
def _compiled(which: str) -> Callable[..., None] | None:
    try:
        import numba
    except ImportError:
        return None
    function = {"trees": _trees, "equilibrium": _equilibrium}[which]
    try:
        compiled: Callable[..., None] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to cache in can be written; compile each time instead
        compiled = numba.njit(nogil=True)(function)
    return compiled


def _trees(rows, feature, threshold, leaf, depth, out):  # type: ignore[no-untyped-def]
    splits = feature.shape[1]
    node = np.zeros(64, dtype=np.int64)
    for begin in range(0, rows.shape[0], 64):
        end = min(begin + 64, rows.shape[0])
        for tree in range(feature.shape[0]):
            node[:] = 0
            for _ in range(depth):
                for row in range(begin, end):
                    at = node[row - begin]
                    node[row - begin] = 2 * at + 1 + (rows[row, feature[tree, at]] > threshold[tree, at])
            for row in range(begin, end):
                out[row] += leaf[tree, node[row - begin] - splits]


def _equilibrium(members, inner, caps, rounds, outer, out):  # type: ignore[no-untyped-def]
    """Damped fixed point of all competitors of each mix; arguments as `mixture._Stack` lays them out."""
    start, scale, limit, weight, low, high = inner
    outer_weight, outer_low, outer_high = outer
    slots, metrics, terms = members.shape[1], start.shape[1], weight.shape[1]
    vector = np.zeros((slots, metrics))
    fresh = np.zeros((slots, metrics))
    basis = np.zeros(terms)
    shares = np.zeros(metrics)
    total = np.zeros(metrics)
    answer = np.zeros(metrics)
    for mix in range(members.shape[0]):
        present = 0
        for slot in range(slots):
            vector[slot] = 0.0
            if members[mix, slot] >= 0:
                vector[slot] = start[members[mix, slot]]
                present += 1
        for turn in range(rounds + 1):
            total[:] = 0.0
            for slot in range(slots):
                total += vector[slot]
            for slot in range(slots):
                who = members[mix, slot]
                if who < 0:
                    continue
                for k in range(metrics):
                    pressure = min(max(total[k] - vector[slot, k], 0.0), caps[k], limit[who, k])
                    if present == 1:
                        pressure = 0.0
                    shares[k] = pressure / (pressure + scale[who, k])
                at = 1 + metrics
                basis[0] = 1.0
                for k in range(metrics):
                    basis[1 + k] = shares[k]
                    for m in range(k + 1):
                        basis[at] = shares[k] * shares[m]
                        at += 1
                if turn < rounds:
                    answer[:] = 0.0
                    for term in range(terms):
                        for k in range(metrics):
                            answer[k] += basis[term] * weight[who, term, k]
                    for k in range(metrics):
                        bounded = min(max(answer[k], low[who, k]), high[who, k])
                        fresh[slot, k] = 0.5 * (vector[slot, k] + bounded)
                else:
                    out[mix, slot, :] = 0.0
                    for term in range(terms):
                        for k in range(out.shape[2]):
                            out[mix, slot, k] += basis[term] * outer_weight[who, term, k]
                    for k in range(out.shape[2]):
                        out[mix, slot, k] = min(max(out[mix, slot, k], outer_low[who, k]), outer_high[who, k])
            if turn < rounds:
                for slot in range(slots):
                    if members[mix, slot] >= 0:
                        vector[slot] = fresh[slot]
