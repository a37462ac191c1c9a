"""Decision trees as plain arrays; numpy evaluates them to the same numbers as the library that trained them.

Both scikit-learn and xgboost convert features to float32, so every split can be stated as "right if x > threshold" with
a float32 threshold. Trees are stored as complete binary trees (node i has children 2i+1 and 2i+2), the layout of the
branch-free kernels measured by Lucchese et al., QuickScorer (SIGIR'15) and their successors.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.models.functions.tree_kernel import sum_of_trees

#: Limits that keep an untrusted file from exhausting memory.
MAX_DEPTH, MAX_TREES, MAX_CELLS = 10, 20_000, 1 << 22
#: Number of rows from which compiling (or loading) the numba kernel pays; far fewer once it is loaded.
KERNEL_ROWS, LOADED_KERNEL_ROWS = 16_384, 256
_CHUNK_ROWS = 1024
#: Number of rows predicted one by one after which loading the kernel pays, if numba is already imported.
SPENT_ROWS = 1024


class _RowsSpent:
    """Number of rows predicted by this process."""

    rows = 0


@dataclass(frozen=True)
class TreeNode:
    """The nodes of one tree, as columns: children (-1 at a leaf), feature, threshold, value."""

    #: Child indices; -1 marks a leaf.
    left: Sequence[int]
    right: Sequence[int]
    #: Column of the row that a split reads.
    feature: Sequence[int]
    #: Threshold of a split: a row goes right if its float32 feature is greater.
    threshold: Sequence[float]
    #: Number that a leaf adds to the sum of the trees.
    value: Sequence[float]
    #: Child to which a row goes if its feature is NaN.
    missing_left: Sequence[bool]


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A start value plus the sum of many trees."""

    #: Splits of the complete trees, breadth first, shape (trees, 2**depth - 1).
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]
    #: Leaf values; their type is the type of the sum, float32 for xgboost and float64 for scikit-learn, shape (trees,
    #: 2**depth).
    leaf: NDArray[np.floating]
    #: Start value of the sum.
    start: float
    #: Number of columns in a row.
    n_features: int

    @property
    def depth(self) -> int:
        """Number of splits on the way from a tree's root to a leaf."""
        return int(self.leaf.shape[1]).bit_length() - 1

    def predict(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the sum of all trees for each of `rows`, shape ``(n, n_features)`` -> ``(n,)``."""
        small = np.ascontiguousarray(rows, dtype=np.float32)
        _RowsSpent.rows += len(small)
        loaded = "numba" in sys.modules
        enough = (1 if _RowsSpent.rows >= SPENT_ROWS else LOADED_KERNEL_ROWS) if loaded else KERNEL_ROWS
        if len(small) >= enough and not np.isnan(small).any():
            swift = sum_of_trees(small, self.feature, self.threshold, self.leaf, self.start)
            if swift is not None:
                return swift
        parts = [self._predict_chunk(small[i : i + _CHUNK_ROWS]) for i in range(0, len(small), _CHUNK_ROWS)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _predict_chunk(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        feature, threshold, missing_left, leaf, first, below = self._flat
        node = np.zeros((len(rows), len(first)), dtype=np.intp)
        flat, row_base = rows.ravel(), (np.arange(len(rows)) * self.n_features)[:, None]
        gaps = bool(np.isnan(flat).any())
        for _ in range(self.depth):
            at = node + first
            x = flat.take(feature.take(at) + row_base)
            right = x > threshold.take(at)
            if gaps:
                right |= np.isnan(x) & ~missing_left.take(at)
            node = 2 * node + 1 + right
        picked = leaf.take(node + below)
        # accumulate adds strictly in order, as the libraries do; sum() adds pairwise and differs in the last bits
        terms = np.concatenate([np.full((len(rows), 1), self.start, dtype=leaf.dtype), picked], axis=1)
        return np.add.accumulate(terms, axis=1)[:, -1].astype(np.float64)

    @cached_property
    def _flat(self) -> tuple[NDArray, ...]:  # type: ignore[type-arg]
        """Splits and leaves of all trees in one array, with the offset of each tree's first split and leaf."""
        trees, splits = self.feature.shape
        ravelled = (self.feature.ravel(), self.threshold.ravel(), self.missing_left.ravel(), self.leaf.ravel())
        return (*ravelled, np.arange(trees) * splits, np.arange(trees) * (splits + 1) - splits)


def grow(trees: Sequence[TreeNode], *, start: float, n_features: int, dtype: type[np.floating]) -> TreeEnsemble:
    """Convert the trees of a model file to complete binary trees, after checking them.

    Raises ConfigurationError for children out of range, cycles, nodes with two parents, features out of range, values
    that are not finite, or an ensemble beyond the limits of depth or size.
    """
    if len(trees) > MAX_TREES:
        raise _damaged(f"{len(trees)} trees, needed at most {MAX_TREES}")
    if not np.isfinite(start):
        raise _damaged(f"the start value is {start}, needed a finite number")
    depth = max((_check(number, tree, n_features) for number, tree in enumerate(trees)), default=0)
    if len(trees) << depth > MAX_CELLS:
        raise _damaged(f"{len(trees)} trees of depth {depth} are more than slomo ever writes")
    splits = (1 << depth) - 1
    feature = np.zeros((len(trees), splits), dtype=np.int32)
    threshold = np.full((len(trees), splits), np.inf, dtype=np.float32)
    missing_left = np.ones((len(trees), splits), dtype=bool)
    leaf = np.zeros((len(trees), splits + 1), dtype=dtype)
    for number, tree in enumerate(trees):
        _place(tree, 0, 0, depth, (feature[number], threshold[number], missing_left[number], leaf[number]))
    return TreeEnsemble(feature, threshold, missing_left, leaf, float(start), n_features)


def _place(tree: TreeNode, node: int, slot: int, depth: int, into: tuple[NDArray, ...]) -> None:  # type: ignore[type-arg]
    """Copy `node` and its subtree to place `slot` of the complete tree; a leaf above the last level fills all below."""
    feature, threshold, missing_left, leaf = into
    left, right = tree.left[node], tree.right[node]
    level = (slot + 1).bit_length() - 1
    if left == -1:
        width = 1 << (depth - level)
        first = (slot + 1) * width - 1 - len(feature)
        leaf[first : first + width] = tree.value[node]
        return
    feature[slot], threshold[slot], missing_left[slot] = (
        tree.feature[node],
        tree.threshold[node],
        tree.missing_left[node],
    )
    _place(tree, left, 2 * slot + 1, depth, into)
    _place(tree, right, 2 * slot + 2, depth, into)


def _check(number: int, tree: TreeNode, n_features: int) -> int:
    """Return the depth of a tree after checking that its nodes form a tree."""
    size = len(tree.left)
    columns = (tree.right, tree.feature, tree.threshold, tree.value, tree.missing_left)
    if size == 0 or any(len(column) != size for column in columns):
        raise _damaged(f"tree {number}: its columns differ in length")
    seen, todo, depth = set(), [(0, 0)], 0
    while todo:
        node, level = todo.pop()
        if node in seen:
            raise _damaged(f"tree {number}: node {node} is reached twice, so it is no tree")
        seen.add(node)
        depth = max(depth, level)
        if level > MAX_DEPTH:
            raise _damaged(f"tree {number} is deeper than {MAX_DEPTH}")
        todo += [(child, level + 1) for child in _children(number, node, tree, n_features)]
    return depth


def _children(number: int, node: int, tree: TreeNode, n_features: int) -> tuple[int, ...]:
    """Return the children of a node, none for a leaf, after checking its fields."""
    left, right, size = tree.left[node], tree.right[node], len(tree.left)
    if (left == -1) != (right == -1) or not (-1 <= left < size and -1 <= right < size):
        raise _damaged(f"tree {number}: node {node} has children {left} and {right}, needed 0 to {size - 1} or both -1")
    number_at = tree.value[node] if left == -1 else tree.threshold[node]
    if not np.isfinite(number_at):
        raise _damaged(f"tree {number}: node {node} holds {number_at}, needed a finite number")
    if left == -1:
        return ()
    if not 0 <= tree.feature[node] < n_features:
        raise _damaged(f"tree {number}: node {node} reads column {tree.feature[node]}, needed 0 to {n_features - 1}")
    return left, right


def _damaged(message: str) -> ConfigurationError:
    return ConfigurationError(message, hint="the model file was damaged or not written by slomo; train it again")
