"""Families for imported tables: trees and a linear model over every column, which may rise or fall with it.

A table measured elsewhere contains the counters available there. No column is known to be additive or harmful: extra
trees (Geurts et al., Machine Learning 63, 2006), boosted trees (xgboost) and a plane use them all. They are fitted only
to imported tables, in addition to the other families, and averaged with them (`slomo.training.averaging`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from slomo.errors import MissingMetricError
from slomo.models.functions.trees import MAX_DEPTH, grow
from slomo.models.responses.sensitivity import PlaneSensitivity, TreeSensitivity
from slomo.training.families.gradient_boosting import node_of
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.families.xgb import XGBOOST_DEFAULTS, boosted

_TREES = 100


class _EveryColumn:
    """Base class of families whose inputs are all measured columns."""

    name: str

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return all columns that were measured."""
        if not available:
            raise MissingMetricError(f"model '{self.name}' needs a column beside the throughput, none was reported")
        return tuple(available)


@dataclass(frozen=True)
class ExtraTreesFamily(_EveryColumn, WeightedFamily[TreeSensitivity]):
    """Family ``extra-trees``: trees with randomly drawn splits."""

    name: str = "extra-trees"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on measured rows; all weigh the same unless weights are given."""
        forest = ExtraTreesRegressor(_TREES, max_depth=MAX_DEPTH, random_state=rows.seed, n_jobs=1)
        forest.fit(rows.vectors, rows.mpps, rows.weights)
        count = len(forest.estimators_)
        trees = [node_of(tree.tree_, tree.tree_.value[:, 0, 0] / count) for tree in forest.estimators_]
        ensemble = grow(trees, start=0.0, n_features=len(rows.names), dtype=np.float64)
        return TreeSensitivity(self.name, rows.names, self.composition, ensemble, "throughput", rows.solo_mpps)


@dataclass(frozen=True)
class BoostedTreesFamily(_EveryColumn, WeightedFamily[TreeSensitivity]):
    """Family ``boosted-trees``: gradient-boosted trees."""

    name: str = "boosted-trees"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on measured rows; all weigh the same unless weights are given."""
        return boosted(self.name, rows, XGBOOST_DEFAULTS)


@dataclass(frozen=True)
class LinearFamily(_EveryColumn, WeightedFamily[PlaneSensitivity]):
    """Family ``linear``: least squares, with shrinkage for collinear columns."""

    name: str = "linear"

    def fit_weighted(self, rows: WeightedRows) -> PlaneSensitivity:
        """Train a model of one NF on measured rows; all weigh the same unless weights are given."""
        count = np.ones(len(rows.mpps)) if rows.weights is None else rows.weights
        centre, middle = np.average(rows.vectors, axis=0, weights=count), float(np.average(rows.mpps, weights=count))
        spread = np.maximum(rows.vectors.std(axis=0), 1e-12 * np.maximum(np.abs(rows.vectors).max(axis=0), 1e-12))
        root = np.sqrt(count)
        scaled = (rows.vectors - centre) / spread
        slopes = np.linalg.lstsq(scaled * root[:, None], (rows.mpps - middle) * root, rcond=1e-6)[0]
        slopes = slopes / spread
        return PlaneSensitivity(self.name, rows.names, self.composition, middle - float(centre @ slopes), slopes)
