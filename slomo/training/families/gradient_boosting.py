"""Family ``slomo-gbr``, SLOMO's model as published: gradient-boosted trees over every counter of the socket.

SLOMO (SIGCOMM'20) section 5.1: scikit-learn's GradientBoostingRegressor with its defaults, throughput as the response,
all PCM columns as features. Only the seed is fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.ensemble import GradientBoostingRegressor

from slomo.errors import MissingMetricError
from slomo.models.base import TRAFFIC_PREFIX, Floats
from slomo.models.functions.trees import TreeEnsemble, TreeNode, grow
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.vocabulary.defaults import PUBLISHED_MODEL
from slomo.vocabulary.metrics import METRICS, Kind


@dataclass(frozen=True)
class PublishedFamily(WeightedFamily[TreeSensitivity]):
    """Family ``slomo-gbr``: gradient boosting as SLOMO published it."""

    name: str = PUBLISHED_MODEL

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return every counter that Intel PCM prints, reporters' metrics, and traffic attributes."""
        names = tuple(
            name
            for name in available
            if name.startswith(TRAFFIC_PREFIX) or METRICS[name].pcm_columns or METRICS[name].kind is Kind.FELT
        )
        if not names:
            raise MissingMetricError(
                f"model '{self.name}' needs socket-level metrics of the competition, none was reported"
            )
        return names

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        # rows are finite; scikit-learn's checks for each tree would double the time
        with config_context(assume_finite=True, skip_parameter_validation=True):
            booster = GradientBoostingRegressor(random_state=rows.seed).fit(rows.vectors, rows.mpps, rows.weights)
        ensemble = ensemble_of(booster)
        return TreeSensitivity(self.name, rows.names, self.composition, ensemble, "throughput", rows.solo_mpps)


def ensemble_of(booster: GradientBoostingRegressor) -> TreeEnsemble:
    """Convert scikit-learn's trained trees to arrays that give the same predictions to the last bit."""
    rate = booster.learning_rate
    trees = [node_of(stage.tree_, rate * stage.tree_.value[:, 0, 0]) for (stage,) in booster.estimators_]
    start = float(np.asarray(booster.init_.constant_).ravel()[0])
    return grow(trees, start=start, n_features=booster.n_features_in_, dtype=np.float64)


def node_of(tree: Any, values: Floats) -> TreeNode:
    """Convert one of scikit-learn's trees; `values` are its nodes' values.

    scikit-learn compares float32 features with float64 thresholds; slomo's trees compare in float32. x <= t is
    equivalent to x <= the largest float32 up to t.
    """
    cut = tree.threshold.astype(np.float32)
    cuts = np.where(cut > tree.threshold, np.nextafter(cut, np.float32(-np.inf)), cut)
    return TreeNode(
        tree.children_left.tolist(),
        tree.children_right.tolist(),
        np.maximum(tree.feature, 0).tolist(),
        cuts.tolist(),
        values.tolist(),
        [True] * tree.node_count,
    )
