"""Family ``slomo-xgb``: xgboost's trees over pressures that are sums, whose throughput never rises with pressure.

Refines SLOMO (SIGCOMM'20) section 5.1 in three ways. More pressure never speeds up an NF, so the trees are monotone.
Rates and occupancies compose exactly while ratios do not, so only the former are inputs. The response is throughput as
a share of solo: with its logarithm or inverse, the few settings that starve an NF would dominate the fit. Defaults were
chosen by leaving competitor configurations out, on pressure rows only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.models.functions.tree_formats import xgboost_from_json
from slomo.models.responses.sensitivity import TreeSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.vocabulary.metrics import METRICS

#: Settings chosen by leaving competitor configurations out, and xgboost's own defaults.
_CHOSEN = {
    "learning_rate": 0.1,
    "max_depth": 4,
    "min_child_weight": 2.0,
    "reg_lambda": 0.3,
    "subsample": 0.7,
    "colsample_bytree": 0.7,
}
XGBOOST_DEFAULTS = {"max_depth": 6, "learning_rate": 0.3}
_TREES = 100


def boosted(name: str, rows: WeightedRows, settings: Mapping[str, Any]) -> TreeSensitivity:
    """Train xgboost's trees on throughput as a share of solo; the model that holds them needs only numpy."""
    import xgboost

    share = rows.mpps / rows.solo_mpps
    fixed = {
        "objective": "reg:squarederror",
        "tree_method": "exact",
        "nthread": 1,  # the same trees everywhere
        "base_score": float(np.mean(share)),
        "seed": rows.seed,
        "verbosity": 0,
    }
    matrix = xgboost.DMatrix(rows.vectors, label=share, weight=rows.weights, nthread=1)
    booster = xgboost.train({**fixed, **settings}, matrix, num_boost_round=_TREES)
    source = bytes(booster.save_raw("json")).decode("utf-8")
    ensemble = xgboost_from_json(source, len(rows.names))
    return TreeSensitivity(name, rows.names, "pressure", ensemble, "relative throughput", rows.solo_mpps, source)


@dataclass(frozen=True)
class XgbFamily(WeightedFamily[TreeSensitivity]):
    """Family ``slomo-xgb``: xgboost's trees, monotone in each pressure."""

    name: str = "slomo-xgb"

    def fit_weighted(self, rows: WeightedRows) -> TreeSensitivity:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        falling = tuple(-int(name in METRICS and METRICS[name].pressure) for name in rows.names)
        return boosted(self.name, rows, {**_CHOSEN, "monotone_constraints": falling})
