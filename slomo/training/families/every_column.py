"""Families for imported tables: trees and a linear model over every column, which may rise or fall with it.

A table measured elsewhere contains the counters available there. No column is known to be additive or harmful: extra
trees (Geurts et al., Machine Learning 63, 2006), boosted trees (xgboost) and a plane use them all. They are fitted only
to imported tables, in addition to the other families, and cross-validation chooses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.errors import MissingMetricError
from slomo.models.base import CompositionKind
from slomo.models.functions.plane import PlaneSensitivity
from slomo.models.functions.trees import MAX_DEPTH, grow
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.training.families.gradient_boosting import node_of
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.training.families.xgb import MonotoneBoosting, sensitivity_of

_TREES = 100


class ExtraTrees(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Extra trees, limited to the depth that stored trees may have.

    Parameters
    ----------
    seed : int
        Seed of the splits.

    Attributes
    ----------
    forest_ : ExtraTreesRegressor
        The fitted forest.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> round(float(ExtraTrees().fit(X, 5.0 - X[:, 0]).predict(X[:1])[0]), 1)
    5.0
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "ExtraTrees":
        """Fit throughput `y` over vectors `X`, shape ``(n, features)``."""
        X, y = validate_data(self, X, y, y_numeric=True)
        forest = ExtraTreesRegressor(_TREES, max_depth=MAX_DEPTH, random_state=self.seed, n_jobs=1)
        self.forest_ = forest.fit(X, y, row_weights)
        return self

    def predict(self, X: Any) -> Any:
        """Return the throughput for each row of `X`."""
        check_is_fitted(self)
        return self.forest_.predict(validate_data(self, X, reset=False))


class _EveryColumn:
    """Base class of families that read every measured column."""

    name: str

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return all columns that were measured.

        Raises MissingMetricError where there is none.
        """
        if not available:
            raise MissingMetricError(f"model '{self.name}' needs a column beside the throughput, none was reported")
        return tuple(available)


@dataclass(frozen=True)
class ExtraTreesFamily(_EveryColumn, WeightedFamily[TreeSensitivity]):
    """Family ``extra-trees``: trees with randomly drawn splits."""

    name: str = "extra-trees"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        forest = ExtraTrees(rows.seed).fit(rows.vectors, rows.mpps, rows.weights).forest_
        count = len(forest.estimators_)
        trees = [node_of(each.tree_, each.tree_.value[:, 0, 0] / count) for each in forest.estimators_]
        ensemble = grow(trees, start=0.0, n_features=len(rows.names), dtype=np.float64)
        return TreeSensitivity(self.name, rows.names, self.composition, ensemble, "throughput", rows.solo_mpps)


@dataclass(frozen=True)
class BoostedTreesFamily(_EveryColumn, WeightedFamily[TreeSensitivity]):
    """Family ``boosted-trees``: gradient-boosted trees."""

    name: str = "boosted-trees"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        booster = MonotoneBoosting(None, 100, 0.3, 6, 1.0, 1.0, 1.0, 1.0, rows.seed)  # as xgboost does it by default
        fitted = booster.fit(rows.vectors, rows.mpps / rows.solo_mpps, rows.weights)
        return sensitivity_of(self.name, rows.names, fitted, rows.solo_mpps)


@dataclass(frozen=True)
class LinearFamily(_EveryColumn, WeightedFamily[PlaneSensitivity]):
    """Family ``linear``: least squares, with shrinkage for collinear columns."""

    name: str = "linear"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> PlaneSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        count = np.ones(len(rows.mpps)) if rows.weights is None else rows.weights
        centre, middle = np.average(rows.vectors, axis=0, weights=count), float(np.average(rows.mpps, weights=count))
        spread = np.maximum(rows.vectors.std(axis=0), 1e-12 * np.maximum(np.abs(rows.vectors).max(axis=0), 1e-12))
        root = np.sqrt(count)
        scaled = (rows.vectors - centre) / spread
        slopes = np.linalg.lstsq(scaled * root[:, None], (rows.mpps - middle) * root, rcond=1e-6)[0]
        slopes = slopes / spread
        return PlaneSensitivity(self.name, rows.names, self.composition, middle - float(centre @ slopes), slopes)
