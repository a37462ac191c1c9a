"""Compiled loops for big batches: sums of trees and the equilibrium of competitors; numba is imported on first use.

Blocks of 64 rows keep a tree's nodes in the first-level cache while all rows of the block pass through it. The numbers
are those of the numpy path: the same additions in the same order, without fast-math.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Terms the compiled sums take at a time; the loop below spells them out.
_GROUP = 4


class Trees(Protocol):
    """What the kernel reads of a `slomo.models.trees.TreeEnsemble`, whose file imports this one."""

    @property
    def feature(self) -> NDArray[np.int32]:
        """Column each split reads."""
        ...

    @property
    def threshold(self) -> NDArray[np.float32]:
        """What each split compares with."""
        ...

    @property
    def leaf(self) -> NDArray[Any]:
        """What each leaf adds."""
        ...

    @property
    def start(self) -> float:
        """What the sum starts from."""
        ...

    @property
    def depth(self) -> int:
        """Levels of splits."""
        ...


def sum_of_trees(ensemble: "Trees", rows: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Evaluate an ensemble on rows without NaN, or return None where numba is not installed or stumps need no kernel.

    Examples
    --------
    >>> from slomo.models.trees import grow
    >>> nothing = grow([], start=1.0, n_features=1, dtype=np.float64)
    >>> sum_of_trees(nothing, np.zeros((1, 1), dtype=np.float32)) in (None, np.array([1.0]))
    True
    """
    kernel = _compiled("trees") if ensemble.depth > 1 else None
    if kernel is None:
        return None
    out = np.full(len(rows), ensemble.start, dtype=ensemble.leaf.dtype)
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
    weights = _by_metric(inner[3]), _by_metric(outer[0])
    kernel(members, inner[:3], caps, rounds, (weights[0], *inner[4:]), (weights[1], *outer[1:]), out)
    return True


def _by_metric(weight: Floats) -> Floats:
    """Turn weights (NF, term, metric) to (NF, metric, term), with terms of weight 0 up to whole groups."""
    return np.ascontiguousarray(np.pad(weight, [(0, 0), (0, -weight.shape[1] % _GROUP), (0, 0)]).transpose(0, 2, 1))


@functools.cache
def _compiled(which: str) -> Callable[..., None] | None:
    try:
        import numba
    except ImportError:
        return None
    kernels: dict[str, Callable[..., None]] = {"trees": _trees, "equilibrium": _equilibrium}
    function = kernels[which]
    try:
        compiled: Callable[..., None] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to cache in can be written; compile each time instead
        compiled = numba.njit(nogil=True)(function)
    return compiled


def _trees(rows, feature, threshold, leaf, out):  # type: ignore[no-untyped-def]
    """Add all trees, of two levels or more, to `out`: from the leaves up, every split chooses for 64 rows at once.

    Choosing everywhere costs more comparisons than walking down, but needs neither branches nor scattered reads. The
    two lowest levels, three quarters of all splits, are decided together in registers.
    """
    last = feature.shape[1] // 2  # first split of the lowest level; upper: of the level above it
    upper = last // 2
    columns = np.zeros((rows.shape[1], 64), dtype=rows.dtype)
    value, spare = np.zeros((last + 1, 64), dtype=leaf.dtype), np.zeros((last + 1, 64), dtype=leaf.dtype)
    total = np.zeros(64, dtype=leaf.dtype)
    for begin in range(0, rows.shape[0], 64):
        count = min(64, rows.shape[0] - begin)
        for row in range(count):
            total[row] = out[begin + row]
            for k in range(rows.shape[1]):
                columns[k, row] = rows[begin + row, k]
        for tree in range(feature.shape[0]):
            for i in range(upper + 1):
                a, b, c, d = leaf[tree, 4 * i], leaf[tree, 4 * i + 1], leaf[tree, 4 * i + 2], leaf[tree, 4 * i + 3]
                x, t = np.uint64(feature[tree, upper + i]), threshold[tree, upper + i]
                y, u = np.uint64(feature[tree, last + 2 * i]), threshold[tree, last + 2 * i]
                z, v = np.uint64(feature[tree, last + 2 * i + 1]), threshold[tree, last + 2 * i + 1]
                for row in range(64):
                    left = b if columns[y, row] > u else a
                    right = d if columns[z, row] > v else c
                    value[i, row] = right if columns[x, row] > t else left
            width = (upper + 1) // 2
            while width > 0:
                for i in range(width):
                    x, t = np.uint64(feature[tree, width - 1 + i]), threshold[tree, width - 1 + i]
                    for row in range(64):
                        spare[i, row] = value[2 * i + 1, row] if columns[x, row] > t else value[2 * i, row]
                value, spare = spare, value
                width //= 2
            for row in range(64):
                total[row] += value[0, row]
        for row in range(count):
            out[begin + row] = total[row]


def _equilibrium(members, state, caps, rounds, inner, outer, out):  # type: ignore[no-untyped-def] # noqa: C901
    """Damped fixed point of all competitors of each mix; arguments as `mixture._Stack` lays them out.

    Places are taken NF by NF, 64 at a time: they share their weights, so that the processor computes several at once.
    """
    start, scale, limit = state
    slots, metrics, kinds, terms = members.shape[1], start.shape[1], start.shape[0], inner[0].shape[2]
    mixes = 4096  # at a time: what is kept of them stays in the second-level cache
    vector, total = np.zeros((metrics, mixes * slots)), np.zeros((metrics, mixes))
    share, basis, answer = np.zeros((metrics, 64)), np.zeros((terms, 64)), np.zeros(64)
    place, first, cursor = np.zeros(mixes * slots, np.int64), np.zeros(kinds + 1, np.int64), np.zeros(kinds, np.int64)
    basis[0] = 1.0
    for begin in range(0, members.shape[0], mixes):
        count = min(mixes, members.shape[0] - begin)
        flat = members[begin : begin + count].ravel()
        first[:] = 0
        for at in range(len(flat)):
            for k in range(metrics):
                vector[k, at] = start[flat[at], k] if flat[at] >= 0 else 0.0
            if flat[at] >= 0:
                first[flat[at] + 1] += 1
        for who in range(kinds):
            first[who + 1] += first[who]
            cursor[who] = first[who]
        for at in range(len(flat)):
            if flat[at] >= 0:
                place[cursor[flat[at]]] = at
                cursor[flat[at]] += 1
        for turn in range(rounds + 1):
            weight, low, high = inner if turn < rounds else outer
            for k in range(metrics):
                for mix in range(count):
                    total[k, mix] = 0.0
                    for slot in range(slots):
                        total[k, mix] += vector[k, mix * slots + slot]
            for who in range(kinds):
                for block in range(first[who], first[who + 1], 64):
                    size = min(64, first[who + 1] - block)
                    for k in range(metrics):
                        most, half, one = min(caps[k], limit[who, k]), scale[who, k], share[k]
                        for i in range(size):
                            at = place[block + i]
                            one[i] = total[k, at // slots] - vector[k, at]
                        for i in range(64):
                            pressure = min(max(one[i], 0.0), most)
                            one[i] = pressure / (pressure + half)
                    at = 1
                    for k in range(metrics):
                        basis[at] = share[k]
                        at += 1
                    for k in range(metrics):
                        for m in range(k + 1):
                            one, two, product = share[k], share[m], basis[at]
                            for i in range(64):
                                product[i] = one[i] * two[i]
                            at += 1
                    for k in range(weight.shape[1]):
                        answer[:] = 0.0
                        for term in range(0, terms, 4):
                            p, q, r, s = basis[term], basis[term + 1], basis[term + 2], basis[term + 3]
                            a, b = weight[who, k, term], weight[who, k, term + 1]
                            c, d = weight[who, k, term + 2], weight[who, k, term + 3]
                            for i in range(64):
                                answer[i] += (a * p[i] + b * q[i]) + (c * r[i] + d * s[i])
                        for i in range(size):
                            at = place[block + i]
                            value = min(max(answer[i], low[who, k]), high[who, k])
                            if turn < rounds:
                                vector[k, at] = 0.5 * (vector[k, at] + value)
                            else:
                                out[begin + at // slots, at % slots, k] = value
