"""Choose, for each network function, the family that answers where none is named.

Errors on calibration mixes say most, for they are errors of model and composition together, and nothing is fitted to
mixes. Few mixes of one function are drawn towards those of all functions of the machine, and these towards its own
pressure rows, left out by competitor setting (a hierarchical mean, as in `slomo.training.conformal_fit`): without any
mixes the rows decide. Families whose throughput falls along every pressure go first, unless they are materially worse.
Where replicates say that rows are noisy, a family answers only if it surely gains on the mean (`slomo.training.noise`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.models.nf_model import NFModel
from slomo.training.noise import noise_aware_defaults
from slomo.vocabulary.defaults import PUBLISHED_MODEL

#: Monotone families before others, smooth ones before those that step.
ORDER = ("slomo-smooth", "slomo-xgb", "slomo-gp", PUBLISHED_MODEL)
#: Never chosen where there is anything else: baselines.
BASELINES = ("dobrescu", "bubbleup", "dobrescu-curve", "bubbleup-curve", "mean", "none")
#: Where rows are noisy, all families compete, baselines and the mean among them, but the one that learns nothing.
NEVER_BY_NOISE = ("none",)
#: What an estimate is drawn towards counts as much as this many mixes of its own.
PRIOR_MIXES = 20.0
#: A family this much worse than the best is materially worse, unless it is within so much of solo throughput [%].
MATERIAL, NEGLIGIBLE_PERCENT = 0.1, 0.03


def with_choice(models: Sequence[NFModel], rows: MixRows) -> list[NFModel]:
    """Return the models of one machine, each with the family that answers by default; the manifest says why.

    Parameters
    ----------
    models : sequence of NFModel
        All of one machine, cross-validated.
    rows : MixRows
        Its calibration mixes, none where there are none.
    """
    rows = rows.saturated()
    names = list(dict.fromkeys(name for model in models for name in candidates(model)))
    solo = np.array([model.solo_mpps for model in models])
    away = {name: 100.0 * np.abs(predict_mixes(models, rows, name) - rows.mpps) / solo[rows.target] for name in names}
    surely = noise_aware_defaults(models, NEVER_BY_NOISE)
    result = []
    for number, model in enumerate(models):
        own = rows.target == number
        estimates = {name: _estimate(away[name], own, _on_rows(model, name)) for name in candidates(model)}
        errors = {name: error for name, error in estimates.items() if error is not None}
        # columns of a table have no known shape: no family goes first
        best = min(errors, key=errors.__getitem__, default="") if model.manifest.get("table") else chosen_of(errors)
        chosen = best or next(iter(candidates(model)), "")
        if model.manifest.get("noise"):
            chosen = surely[number]
        told = {
            "family": chosen,
            "error_percent_of_solo": {name: round(error, 4) for name, error in errors.items()},
            "mixes": int(own.sum()),
            "mixes_of_machine": len(rows.mpps),
        }
        result.append(replace(model, chosen=chosen, manifest={**model.manifest, "default": told}))
    return result


def candidates(model: NFModel) -> list[str]:
    """Return the families that may be the default, preferred ones first; baselines only where there is nothing else."""
    ours = [name for name in model.sensitivity if name not in BASELINES]
    preferred = [name for name in ORDER if name in ours]
    return [*preferred, *(name for name in ours if name not in ORDER)] or list(model.sensitivity)


def chosen_of(errors: Mapping[str, float]) -> str:
    """Return the first family that is not materially worse than the best; empty without errors.

    Parameters
    ----------
    errors : mapping of str to float
        Family -> mean error [% of solo throughput], preferred families first.

    Examples
    --------
    >>> chosen_of({"slomo-smooth": 0.52, "slomo-xgb": 0.9, "slomo-gp": 0.5})
    'slomo-smooth'
    >>> chosen_of({"slomo-smooth": 1.2, "slomo-xgb": 0.9, "slomo-gp": 0.5})
    'slomo-gp'
    """
    best = min(errors.values(), default=0.0)
    enough = max(best * (1.0 + MATERIAL), best + NEGLIGIBLE_PERCENT)
    return next((name for name, error in errors.items() if error <= enough), "")


def _estimate(away: Any, own: Any, on_rows: float | None) -> float | None:
    """Return the mean error of a family [% of solo]: own mixes, drawn to those of all, drawn to its pressure rows."""
    judged = np.isfinite(away)
    total, count = float(away[judged].sum()), int(judged.sum())
    if on_rows is not None:
        everybody: float | None = (total + PRIOR_MIXES * on_rows) / (count + PRIOR_MIXES)
    else:
        everybody = total / count if count else None
    if everybody is None:
        return None
    mine = judged & own
    return (float(away[mine].sum()) + PRIOR_MIXES * everybody) / (int(mine.sum()) + PRIOR_MIXES)


def _on_rows(model: NFModel, name: str) -> float | None:
    percent = model.manifest.get("cross_validation", {}).get(name, {}).get("mean_percent_of_solo")
    return None if percent is None else float(percent)
