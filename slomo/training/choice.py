"""Choose the model family with which slomo predicts each network function.

Errors on calibration mixes are the best criterion: they include model and composition, and no family is fitted to
mixes. The mean error on a function's few mixes is shrunk towards that of all functions of the machine, and this towards
the error on the function's own held-out pressure rows (a hierarchical mean, as in `slomo.training.conformal_fit`).
Without mixes, the held-out pressure rows alone decide. Families that are monotone in every pressure are preferred,
unless they are materially worse. If replicates show that rows are noisy, a family is chosen only if it surely has a
smaller error than the mean of the rows (`slomo.training.noise`). For an imported table the average of families answers
(`slomo.training.averaging`), or else the one with the smallest error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.models.nf_model import NFModel
from slomo.models.responses.sensitivity import AVERAGED
from slomo.training.noise import noise_aware_defaults
from slomo.vocabulary.defaults import PUBLISHED_MODEL

#: Order of preference: monotone families before others, smooth ones before step functions.
ORDER = ("slomo-smooth", "slomo-xgb", "slomo-gp", PUBLISHED_MODEL)
#: Baselines, chosen only if no other family is available.
BASELINES = ("dobrescu", "bubbleup", "dobrescu-curve", "bubbleup-curve", "mean", "none")
#: Families that force throughput to fall with every pressure. For imported tables they are used only if no other family
#: is available, since the direction of a table's columns is unknown, and with 40 rows each further candidate makes the
#: choice less certain.
FORCED = ("slomo-smooth", "slomo-xgb", "slomo-additive")
#: With noisy rows, all families are candidates, including baselines and the mean, but not the one without learning.
NEVER_BY_NOISE = ("none",)
#: Weight of the prior, expressed as a number of the function's own mixes.
PRIOR_MIXES = 20.0
#: Relative excess over the best error above which a family is materially worse, and difference [% of solo throughput]
#: below which it never is.
MATERIAL, NEGLIGIBLE_PERCENT = 0.1, 0.03


def with_choice(models: Sequence[NFModel], rows: MixRows) -> list[NFModel]:
    """Return one machine's cross-validated models with the chosen family and the reason; `rows`: its mixes."""
    rows = rows.saturated()
    names = list(dict.fromkeys(name for model in models for name in candidates(model)))
    solo = np.array([model.solo_mpps for model in models])
    away = {name: 100.0 * np.abs(predict_mixes(models, rows, name) - rows.mpps) / solo[rows.target] for name in names}
    surely = noise_aware_defaults(models, NEVER_BY_NOISE)
    result = []
    for number, model in enumerate(models):
        own = rows.target == number
        on_rows = model.manifest.get("cross_validation", {})
        estimates = {
            name: _estimate(away[name], own, on_rows.get(name, {}).get("mean_percent_of_solo"))
            for name in candidates(model)
        }
        errors = {name: error for name, error in estimates.items() if error is not None}
        if model.manifest.get("table"):
            free = {name: error for name, error in errors.items() if name not in FORCED} or errors
            best = AVERAGED if AVERAGED in model.sensitivity else min(free, key=free.__getitem__, default="")
        else:
            best = chosen_of(errors)
        chosen = best or next(iter(candidates(model)), "")
        if model.manifest.get("noise"):
            chosen = surely[number]
        choice = {
            "family": chosen,
            "error_percent_of_solo": {name: round(error, 4) for name, error in errors.items()},
            "mixes": int(own.sum()),
            "mixes_of_machine": len(rows.mpps),
        }
        result.append(replace(model, chosen=chosen, manifest={**model.manifest, "default": choice}))
    return result


def candidates(model: NFModel) -> list[str]:
    """Return the candidate families, preferred ones first."""
    ours = [name for name in model.sensitivity if name not in BASELINES]
    preferred = [name for name in ORDER if name in ours]
    return [*preferred, *(name for name in ours if name not in ORDER)] or list(model.sensitivity)


def chosen_of(errors: Mapping[str, float]) -> str:
    """Return the first family whose error is not much larger than the smallest; empty if there are no errors.

    Errors are means [% of solo throughput], preferred families first.
    """
    best = min(errors.values(), default=0.0)
    enough = max(best * (1.0 + MATERIAL), best + NEGLIGIBLE_PERCENT)
    return next((name for name, error in errors.items() if error <= enough), "")


def _estimate(away: Any, own: Any, on_rows: float | None) -> float | None:
    """Return a family's mean error [% of solo], estimated from its own mixes, all mixes and its own runs."""
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
