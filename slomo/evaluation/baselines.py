"""Baselines in their better form: a line or a monotone curve over one metric, whichever fits the judged mixes better.

SLOMO (SIGCOMM'20) section 7.2 fits lines; Dobrescu et al. (NSDI'12) figure 9 and Bubble-Up (MICRO'11) figure 3 draw
curves. The choice uses the measured answers, in the baseline's favour. Baselines can also learn mixes, as the default
does (:func:`mixes_as_runs`).
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from slomo.equilibrium.competition import mix_features
from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell
from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL, EQUILIBRIUM

#: Baseline -> names of its forms among the models.
FORMS = {"Dobrescu": ("dobrescu", "dobrescu-curve"), "Bubble-Up": ("bubbleup", "bubbleup-curve")}
#: Suffix of a baseline's better form in tables.
BETTER = " (better form)"
_DEFAULTS = (DEFAULT_MODEL, EQUILIBRIUM, COMPOSED)
Row = TypeVar("Row")


def better_forms(errors: Mapping[str, float]) -> dict[str, str]:
    """Return, for each baseline with a line and a curve, the form with the smaller mean error.

    Examples
    --------
    >>> better_forms({"dobrescu": 5.9, "dobrescu-curve": 2.3, "bubbleup": 3.6})
    {'Dobrescu': 'dobrescu-curve'}
    """
    return {
        name: min(forms, key=lambda form: errors[form])
        for name, forms in FORMS.items()
        if all(form in errors for form in forms)
    }


def in_better_form(rows: Mapping[str, Row], errors: Mapping[str, float]) -> dict[str, Row]:
    """Return the rows of a table without each baseline's worse form, the better one labelled.

    Examples
    --------
    >>> in_better_form({"mean": 1, "dobrescu": 2, "dobrescu-curve": 3}, {"dobrescu": 5.9, "dobrescu-curve": 2.3})
    {'mean': 1, 'dobrescu-curve (better form)': 3}
    """
    better = better_forms(errors)
    worse = {form for name in better for form in FORMS[name]} - set(better.values())
    labelled = {form: form + BETTER for form in better.values()}
    return {labelled.get(name, name): row for name, row in rows.items() if name not in worse}


def default_of(models: Mapping[str, Any]) -> str | None:
    """Return the row of an evaluation for the default model; None if it was not evaluated.

    Examples
    --------
    >>> default_of({"slomo-gp": 1, "composed": 2, "equilibrium": 3})
    'equilibrium'
    """
    return next((name for name in _DEFAULTS if name in models), None)


def beside_baselines(errors: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return each baseline's better form, its mean error [%], and that error over the default model's.

    Examples
    --------
    >>> beside_baselines({"equilibrium": 0.5, "dobrescu": 5.9, "dobrescu-curve": 2.0})
    {'Dobrescu': {'form': 'dobrescu-curve', 'mape': 2.0, 'default': 'equilibrium', 'times': 4.0}}
    """
    ours = default_of(errors)
    comparisons = {}
    for name, form in better_forms(errors).items():
        times = errors[form] / errors[ours] if ours is not None and errors[ours] > 0.0 else None
        comparisons[name] = {"form": form, "mape": errors[form], "default": ours, "times": times}
    return comparisons


def curves_in_better_form(curves: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Return learning curves with one row per baseline: at every number of runs its better form.

    Examples
    --------
    >>> curves_in_better_form({"dobrescu": {20: 5.0, 60: 4.0}, "dobrescu-curve": {20: 6.0, 60: 2.0}})
    {'dobrescu, better form': {20: 5.0, 60: 2.0}}
    """
    result: dict[str, dict[int, float]] = {}
    for name, points in curves.items():
        forms = next((each for each in FORMS.values() if name in each and all(form in curves for form in each)), None)
        if forms is None:
            result[name] = dict(points)
        elif name == forms[0]:
            result[f"{name}, better form"] = {runs: min(curves[form][runs] for form in forms) for runs in points}
    return result


def mixes_as_runs(library: ModelLibrary, dataset: ProfileDataset) -> ProfileDataset:
    """Return a dataset whose mixes are runs beside composed competition, so that families without an equilibrium learn.

    Parameters
    ----------
    library : ModelLibrary
        Models of the dataset's network functions; their solo vectors are composed.
    dataset : ProfileDataset
        Profile with mixes; those with other tenants are left out.
    """
    models = [library[key] for key in library]
    number = {model.workload.key: place for place, model in enumerate(models)}
    frame = dataset.frame.copy()
    known = {  # text of the competitors -> their numbers
        text: [number[each.key] for each in tenants]
        for text in set(frame["competitors"])
        if (tenants := competitors_from_cell(str(text))) and all(each.key in number for each in tenants)
    }
    mixes = frame.index[(frame["plan"] == "mix") & frame["competitors"].isin(known)]
    listed = [known[text] for text in frame.loc[mixes, "competitors"]]
    members = np.array([each + [-1] * (max(map(len, listed)) - len(each)) for each in listed])
    runs = frame[frame["plan"] == "pressure"].dropna(axis="columns", how="all")
    columns = [name for name in runs.columns if name.startswith("competition.")]
    names = [name.removeprefix("competition.") for name in columns]
    frame.loc[mixes, columns] = mix_features(models, members, names, capacities=models[0].capacities)
    frame.loc[mixes, "plan"] = "pressure"
    return ProfileDataset(frame[frame["plan"] != "mix"].reset_index(drop=True), dataset.environment)
