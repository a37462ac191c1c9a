"""Family ``slomo-xgb``: xgboost's trees over pressures that are sums, whose throughput never rises with pressure.

Refines SLOMO (SIGCOMM'20) section 5.1 in three ways. More pressure never speeds up an NF, so the trees are monotone.
Rates and occupancies compose exactly while ratios do not, so only the former are inputs. The response is throughput as
a share of solo: with its logarithm or inverse, the few settings that starve an NF would dominate the fit. Defaults were
chosen by leaving competitor configurations out, on pressure rows only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.models.base import CompositionKind
from slomo.models.functions.tree_formats import xgboost_from_json
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.vocabulary.metrics import METRICS


class MonotoneBoosting(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Trees of xgboost whose prediction is monotone in each column.

    Parameters
    ----------
    monotone : sequence of int or None
        Per column 1 (rising), -1 (falling) or 0; None leaves all columns free.
    n_estimators, learning_rate, max_depth, min_child_weight, reg_lambda, subsample, colsample_bytree
        As in xgboost.
    seed : int
        Seed of the row samples.

    Attributes
    ----------
    booster_ : xgboost.Booster
        The fitted trees.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> model = MonotoneBoosting(monotone=(1,)).fit(X, np.sin(3 * X[:, 0]))
    >>> bool((np.diff(model.predict(X)) >= 0).all())
    True
    """

    def __init__(
        self,
        monotone: Sequence[int] | None = None,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        max_depth: int = 4,
        min_child_weight: float = 2.0,
        reg_lambda: float = 0.3,
        subsample: float = 0.7,
        colsample_bytree: float = 0.7,
        seed: int = 0,
    ) -> None:
        self.monotone = monotone
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.min_child_weight = min_child_weight
        self.reg_lambda = reg_lambda
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.seed = seed

    def fit(self, X: Any, y: Any, row_weights: Any = None) -> "MonotoneBoosting":
        """Fit response `y` over vectors `X`, shape ``(n, features)``."""
        import xgboost

        X, y = validate_data(self, X, y, y_numeric=True)
        settings: dict[str, Any] = {
            "objective": "reg:squarederror",
            "tree_method": "exact",
            "nthread": 1,  # the same trees everywhere
            "base_score": float(np.mean(y)),
            "seed": self.seed,
            "verbosity": 0,
        }
        names = ("learning_rate", "max_depth", "min_child_weight", "reg_lambda", "subsample", "colsample_bytree")
        settings |= {name: getattr(self, name) for name in names}
        if self.monotone is not None:
            settings["monotone_constraints"] = tuple(self.monotone)
        rows = xgboost.DMatrix(X, label=y, weight=row_weights, nthread=1)
        self.booster_ = xgboost.train(settings, rows, num_boost_round=self.n_estimators)
        return self

    def predict(self, X: Any) -> Any:
        """Return the predicted response (throughput, or what was trained in its place) for vectors `X`."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False)
        return np.asarray(self.booster_.inplace_predict(rows.astype(np.float32)), dtype=np.float64)


@dataclass(frozen=True)
class XgbFamily(WeightedFamily[TreeSensitivity]):
    """Family ``slomo-xgb``: xgboost's trees, monotone in each pressure."""

    name: str = "slomo-xgb"
    composition: CompositionKind = "pressure"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        monotone = [-int(name in METRICS and METRICS[name].pressure) for name in rows.names]
        estimator = MonotoneBoosting(monotone, seed=rows.seed).fit(
            rows.vectors, rows.mpps / rows.solo_mpps, rows.weights
        )
        return sensitivity_of(self.name, rows.names, estimator, rows.solo_mpps)


def sensitivity_of(name: str, names: tuple[str, ...], fitted: MonotoneBoosting, solo_mpps: float) -> TreeSensitivity:
    """Convert xgboost's trees to a model that needs only numpy."""
    source = bytes(fitted.booster_.save_raw("json")).decode("utf-8")
    ensemble = xgboost_from_json(source, len(names))
    return TreeSensitivity(name, names, "pressure", ensemble, "relative throughput", solo_mpps, source)
