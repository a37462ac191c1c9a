"""Compare with baselines in their better form: a line or a curve over one metric.

SLOMO (SIGCOMM'20) section 7.2 fits lines; Dobrescu et al. (NSDI'12) figure 9 and Bubble-Up (MICRO'11) figure 3 draw
curves. The choice uses the measured answers, in the baseline's favour.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL, EQUILIBRIUM

#: Baseline -> names of its forms among the models.
FORMS = {"Dobrescu": ("dobrescu", "dobrescu-curve"), "Bubble-Up": ("bubbleup", "bubbleup-curve")}
#: Suffix of a baseline's better form in tables.
BETTER = " (better form)"
_DEFAULTS = (DEFAULT_MODEL, EQUILIBRIUM, COMPOSED)
Row = TypeVar("Row")


def better_forms(errors: Mapping[str, float]) -> dict[str, str]:
    """Return, for each baseline with a line and a curve, the form with the smaller mean error.

    >>> better_forms({"dobrescu": 5.9, "dobrescu-curve": 2.3, "bubbleup": 3.6})
    {'Dobrescu': 'dobrescu-curve'}
    """
    return {
        name: min(forms, key=lambda form: errors[form])
        for name, forms in FORMS.items()
        if all(form in errors for form in forms)
    }


def in_better_form(rows: Mapping[str, Row], errors: Mapping[str, float]) -> dict[str, Row]:
    """Return the rows of a table without each baseline's worse form, the better one labelled."""
    better = better_forms(errors)
    worse = {form for name in better for form in FORMS[name]} - set(better.values())
    labelled = {form: form + BETTER for form in better.values()}
    return {labelled.get(name, name): row for name, row in rows.items() if name not in worse}


def default_of(models: Mapping[str, Any]) -> str | None:
    """Return the row of an evaluation for the default model; None if it was not evaluated.

    >>> default_of({"slomo-gp": 1, "composed": 2, "equilibrium": 3})
    'equilibrium'
    """
    return next((name for name in _DEFAULTS if name in models), None)


def beside_baselines(errors: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return each baseline's better form, its mean error [%], and the ratio to the default model's."""
    ours = default_of(errors)
    comparisons = {}
    for name, form in better_forms(errors).items():
        times = errors[form] / errors[ours] if ours is not None and errors[ours] > 0.0 else None
        comparisons[name] = {"form": form, "mape": errors[form], "default": ours, "times": times}
    return comparisons


def curves_in_better_form(curves: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Return learning curves with one row per baseline: at every number of runs its better form."""
    result: dict[str, dict[int, float]] = {}
    for name, points in curves.items():
        forms = next((each for each in FORMS.values() if name in each and all(form in curves for form in each)), None)
        if forms is None:
            result[name] = dict(points)
        elif name == forms[0]:
            result[f"{name}, better form"] = {runs: min(curves[form][runs] for form in forms) for runs in points}
    return result
