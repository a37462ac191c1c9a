"""Compiled loops for big batches: sums of trees and the equilibrium of competitors; numba is imported on first use.

Blocks of 64 rows keep a tree's nodes in the first-level cache while all rows of the block pass through it. The numbers
are those of the numpy path: the same additions in the same order, without fast-math.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from slomo.models.trees import TreeEnsemble

Floats = NDArray[np.float64]

#: Sums the compiled loops keep side by side.
_LANES = 8


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
    if ensemble.depth == 0:  # no split to evaluate: add the single leaves, in order
        for value in ensemble.leaf[:, 0]:
            out += value
        return out.astype(np.float64)
    kernel(rows, ensemble.feature, ensemble.threshold, ensemble.leaf, out)
    return out.astype(np.float64)


def equilibrium(
    members: NDArray[np.int64],
    inner: tuple[Floats, ...],
    caps: Floats,
    rounds: int,
    outer: tuple[Floats, ...],
    out: Floats,
) -> bool:
    """Run the compiled equilibrium (see `slomo.models.mixture`); False where numba is not installed."""
    kernel = _compiled("equilibrium")
    if kernel is None:
        return False
    answers = tuple(_in_lanes(table) for table in inner[3:])
    kernel(members, (*inner[:3], *answers), caps, rounds, tuple(_in_lanes(table) for table in outer), out)
    return True


def _in_lanes(table: Floats) -> Floats:
    """Pad the last axis with zeros to whole groups of lanes."""
    gap = -table.shape[-1] % _LANES
    return np.ascontiguousarray(np.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, gap)]))


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


def _trees(rows, feature, threshold, leaf, out):  # type: ignore[no-untyped-def]
    """Add all trees to `out`: from the leaves up, every split chooses between two values for 64 rows at once.

    Choosing everywhere costs more comparisons than walking down, but needs neither branches nor scattered reads.
    """
    last = feature.shape[1] // 2  # first node of the lowest level of splits
    columns = np.zeros((rows.shape[1], 64), dtype=rows.dtype)
    value = np.zeros((last + 1, 64), dtype=leaf.dtype)
    total = np.zeros(64, dtype=leaf.dtype)
    for begin in range(0, rows.shape[0], 64):
        count = min(64, rows.shape[0] - begin)
        for row in range(count):
            total[row] = out[begin + row]
            for k in range(rows.shape[1]):
                columns[k, row] = rows[begin + row, k]
        for tree in range(feature.shape[0]):
            for i in range(last + 1):
                low, high = leaf[tree, 2 * i], leaf[tree, 2 * i + 1]
                x, t, chosen = columns[feature[tree, last + i]], threshold[tree, last + i], value[i]
                for row in range(64):
                    chosen[row] = high if x[row] > t else low
            width = (last + 1) // 2
            while width > 0:
                for i in range(width):
                    x, t = columns[feature[tree, width - 1 + i]], threshold[tree, width - 1 + i]
                    left, right, chosen = value[2 * i], value[2 * i + 1], value[i]
                    for row in range(64):
                        chosen[row] = right[row] if x[row] > t else left[row]
                width //= 2
            for row in range(64):
                total[row] += value[0, row]
        for row in range(count):
            out[begin + row] = total[row]


def _equilibrium(members, inner, caps, rounds, outer, out):  # type: ignore[no-untyped-def]
    """Damped fixed point of all competitors of each mix; arguments as `mixture._Stack` lays them out, padded."""
    start, scale, limit, weight, low, high = inner
    outer_weight, outer_low, outer_high = outer
    slots, metrics, terms = members.shape[1], start.shape[1], weight.shape[1]
    vector = np.zeros((slots, metrics))
    fresh = np.zeros((slots, max(weight.shape[2], outer_weight.shape[2])))
    basis = np.zeros(terms)
    total = np.zeros(metrics)
    for mix in range(members.shape[0]):
        present = 0
        for slot in range(slots):
            if members[mix, slot] >= 0:
                vector[slot] = start[members[mix, slot]]
                present += 1
            else:
                vector[slot] = 0.0
        for turn in range(rounds + 1):
            answers, least, most = (weight, low, high) if turn < rounds else (outer_weight, outer_low, outer_high)
            total[:] = 0.0
            for slot in range(slots):
                total += vector[slot]
            for slot in range(slots):
                if members[mix, slot] < 0:
                    continue
                who = np.uint64(members[mix, slot])
                basis[0] = 1.0
                for k in range(metrics):
                    pressure = total[k] - vector[slot, k] if present > 1 else 0.0
                    pressure = min(max(pressure, 0.0), caps[k], limit[who, k])
                    basis[1 + k] = pressure / (pressure + scale[who, k])
                at = 1 + metrics
                for k in range(metrics):
                    for m in range(k + 1):
                        basis[at] = basis[1 + k] * basis[1 + m]
                        at += 1
                # eight sums side by side: they stay in one register, and the processor adds them at once
                for k in range(0, answers.shape[2], 8):
                    a = b = c = d = e = f = g = h = 0.0
                    for term in range(terms):
                        x = basis[term]
                        a += x * answers[who, term, k]
                        b += x * answers[who, term, k + 1]
                        c += x * answers[who, term, k + 2]
                        d += x * answers[who, term, k + 3]
                        e += x * answers[who, term, k + 4]
                        f += x * answers[who, term, k + 5]
                        g += x * answers[who, term, k + 6]
                        h += x * answers[who, term, k + 7]
                    for m, value in enumerate((a, b, c, d, e, f, g, h)):
                        fresh[slot, k + m] = min(max(value, least[who, k + m]), most[who, k + m])
            for slot in range(slots):
                if members[mix, slot] >= 0 and turn < rounds:
                    for k in range(metrics):
                        vector[slot, k] = 0.5 * (vector[slot, k] + fresh[slot, k])
                elif turn == rounds:
                    for k in range(out.shape[2]):
                        out[mix, slot, k] = fresh[slot, k] if members[mix, slot] >= 0 else 0.0
