"""Read and write trees: in slomo's plain JSON (trees of scikit-learn) or in xgboost's own JSON.

Neither format needs the library that grew the trees. xgboost's format: doc/model.schema of the xgboost repository
(fields `learner.gradient_booster.model.trees`, `learner.learner_model_param.base_score`).
"""

import math
from typing import Any

import numpy as np
from msgspec import Struct

from slomo.errors import ConfigurationError
from slomo.files.documents import convert
from slomo.files.json_text import parse_json
from slomo.models.base import HINT, MOST, Floats
from slomo.models.functions.trees import MAX_CELLS, MAX_TREES, TreeEnsemble, TreeNode, grow


class _PlainTrees(Struct):
    """Trees in slomo's own format: one row per tree, each a complete tree stored level by level."""

    feature: Floats
    threshold: Floats
    leaf: Floats
    start: float


class _Tree(Struct):
    """A tree as xgboost writes it, node by node."""

    left_children: list[int]
    right_children: list[int]
    split_indices: list[int]
    split_conditions: Floats
    default_left: list[int | bool]
    categories: list[Any] = []


class _Objective(Struct):
    name: str


class _Forest(Struct):
    trees: list[_Tree]


class _Booster(Struct):
    name: str
    model: _Forest


class _Parameters(Struct):
    num_feature: str
    base_score: str


class _Learner(Struct):
    gradient_booster: _Booster
    objective: _Objective
    learner_model_param: _Parameters


class _XgboostFile(Struct):
    learner: _Learner


def plain_to_dict(ensemble: TreeEnsemble) -> dict[str, Any]:
    """Return the arrays of trees as JSON-ready lists."""
    # unused slots hold +inf, which JSON cannot express: they are written as the largest float32
    threshold = np.minimum(ensemble.threshold, np.finfo(np.float32).max)
    return {
        "start": ensemble.start,
        "depth": ensemble.depth,
        "feature": ensemble.feature.tolist(),
        "threshold": threshold.astype(np.float64).tolist(),
        "leaf": ensemble.leaf.astype(np.float64).tolist(),
    }


def plain_from_dict(data: object, n_features: int) -> TreeEnsemble:
    """Return the trees that :func:`plain_to_dict` described."""
    stored = convert(data, _PlainTrees, "trees", HINT)
    feature, threshold, leaf = stored.feature, stored.threshold, stored.leaf
    if any(table.size and table.ndim != 2 for table in (feature, threshold, leaf)):
        raise ConfigurationError("trees are no tables of one row each", hint=HINT)
    trees = len(feature)
    splits = feature.shape[1] if trees else 0
    # the number of splits of a complete tree plus one is the number of leaves, a power of two
    if (
        threshold.shape != feature.shape
        or leaf.shape != ((trees, splits + 1) if trees else leaf.shape)
        or splits & (splits + 1)
    ):
        raise ConfigurationError(
            f"trees of shape {feature.shape}, {threshold.shape}, {leaf.shape} do not belong together", hint=HINT
        )
    if trees > MAX_TREES or leaf.size > MAX_CELLS:
        raise ConfigurationError(f"{trees} trees are more than slomo ever writes", hint=HINT)
    if feature.size and (feature.min() < 0 or feature.max() >= n_features or (feature % 1).any()):
        raise ConfigurationError(
            f"trees read columns {feature.min():g} to {feature.max():g}, needed whole numbers 0 to {n_features - 1}",
            hint=HINT,
        )
    shape = (trees, splits)
    with np.errstate(over="ignore"):
        cut = threshold.reshape(shape).astype(np.float32)
    return TreeEnsemble(
        feature.reshape(shape).astype(np.int32),
        cut,
        np.ones(shape, dtype=bool),
        leaf.reshape(trees, splits + 1),
        stored.start,
        n_features,
    )


def xgboost_from_json(content: str, n_features: int) -> TreeEnsemble:
    """Read a model that xgboost saved as JSON, without xgboost."""
    learner = convert(parse_json(content, "xgboost model", HINT, MOST), _XgboostFile, "xgboost model", HINT).learner
    booster, objective = learner.gradient_booster, learner.objective.name
    if booster.name != "gbtree" or objective != "reg:squarederror":
        raise ConfigurationError(
            f"xgboost model '{booster.name}' for {objective}, needed gbtree for reg:squarederror", hint=HINT
        )
    if (read := learner.learner_model_param.num_feature) != str(n_features):
        raise ConfigurationError(
            f"xgboost model reads {read[:20]} features, its manifest names {n_features}", hint=HINT
        )
    trees = booster.model.trees
    if len(trees) > MAX_TREES:
        raise ConfigurationError(f"xgboost model has {len(trees)} trees, needed at most {MAX_TREES}", hint=HINT)
    nodes = [_xgboost_tree(number, tree) for number, tree in enumerate(trees)]
    start = _base_score(learner.learner_model_param.base_score)
    return grow(nodes, start=start, n_features=n_features, dtype=np.float32)


def _base_score(value: str) -> float:
    """Read xgboost's start value from text; since version 3 it is a list of one."""
    try:
        number = float(np.float32(value.strip("[]")))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigurationError(f"xgboost model has the base score '{value[:40]}', needed a finite number", hint=HINT)
    return number


def _xgboost_tree(number: int, tree: _Tree) -> TreeNode:
    if tree.categories:
        raise ConfigurationError(f"tree {number} of the xgboost model splits on categories, needed numbers", hint=HINT)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        condition = tree.split_conditions.astype(np.float32)
    if condition.ndim != 1 or not np.isfinite(condition).all():
        raise ConfigurationError(f"tree {number} of the xgboost model holds a number beyond float32", hint=HINT)
    # xgboost goes left if x < c; for float32 that is x <= the next smaller number
    below = np.nextafter(condition, np.float32(-np.inf))
    default_left = [bool(value) for value in tree.default_left]
    return TreeNode(
        tree.left_children, tree.right_children, tree.split_indices, below.tolist(), condition.tolist(), default_left
    )
