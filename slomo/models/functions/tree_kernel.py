"""Compiled loops that sum many trees for large batches; numba is imported on first use.

Blocks of 64 rows keep a tree's nodes in the L1 cache while all rows of the block pass through it. Results equal those
of the numpy code: the same additions in the same order, without fast-math.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.models.functions.compilation import compiled

#: Number of rows up to which each is walked down its trees; evaluating every split pays only for blocks.
FEW_ROWS = 64


def sum_of_trees(
    rows: NDArray[np.float32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    leaf: NDArray[Any],
    start: float,
) -> NDArray[np.float64] | None:
    """Return the sum of the trees of a `slomo.models.functions.trees.TreeEnsemble`, for rows without NaN.

    None without numba, or for trees of one level, which need no kernel.
    """
    few = len(rows) < FEW_ROWS
    kernel = compiled(_walked if few else _trees) if few or feature.shape[1] > 1 else None
    if kernel is None:
        return None
    out = np.full(len(rows), start, dtype=leaf.dtype)
    kernel(rows, feature, threshold, leaf, out)
    return out.astype(np.float64)


def _walked(rows, feature, threshold, leaf, out):  # type: ignore[no-untyped-def]
    """Add the sum of all trees to `out`, one row after the other; fast for few rows."""
    splits = feature.shape[1]
    for row in range(rows.shape[0]):
        total = out[row]
        for tree in range(feature.shape[0]):
            node = 0
            while node < splits:
                right = rows[row, feature[tree, node]] > threshold[tree, node]
                node = 2 * node + (2 if right else 1)
            total += leaf[tree, node - splits]
        out[row] = total


def _trees(rows, feature, threshold, leaf, out):  # type: ignore[no-untyped-def]
    """Add the sum of all trees of two levels or more to `out`, 64 rows at once.

    Evaluating every split needs more comparisons than walking down, but neither branches nor scattered reads. The two
    lowest levels, three quarters of all splits, are evaluated together in registers.
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
