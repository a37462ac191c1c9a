"""Let the models of whole servers also learn from calibration mixes.

Two situations of mixes hardly occur in runs beside the synthetic competitor: full memory channels that several cards
share, and packets that stay in the cache because queues are short. Each mix is also predicted by responses that have
not seen it (cross-fitting), so that its error is that of a new mix and sets the width of intervals.

A mix needs at least two runs to show how much runs differ. Since a few runs show it only roughly, the spread of a mix
is at least the pooled standard deviation of all such mixes of the machine. Its degrees of freedom are stored, since
bounds use a quantile of Student's t distribution.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.mixes import MixRows
from slomo.equilibrium.server import solve_joint
from slomo.models.base import Floats
from slomo.models.nf_model import MeasuredMix, NFModel
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell
from slomo.records.schema import isolated
from slomo.training.calibration import ENOUGH_IN_ALL
from slomo.training.cross_validation import folds
from slomo.training.features import PartLoadRows, Subject, limited_in_mixes
from slomo.training.holding_fit import fit_holdings

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 4


def learned_from_mixes(
    dataset: ProfileDataset,
    subjects: Mapping[str, Subject],
    models: Sequence[NFModel],
    rows: MixRows,
    fit: Callable[[Mapping[str, Subject]], Mapping[str, NFModel]],
    seed: int,
) -> tuple[list[NFModel], Floats]:
    """Return models that also learned from mixes, and predictions of each mix by models that did not learn from it.

    Saturated mixes are learned, if there are enough to calibrate on and the competition was measured there. `fit`
    returns the models of subjects to which mixes were added, by workload key. Equal mixes share a fold.

    Models without a response are returned unchanged. Predictions have one entry per row of `rows`, NaN for rows that
    were not learned.
    """
    predicted = np.full(len(rows.mpps), np.nan)
    knowing = {model.workload.key: place for place, model in enumerate(models) if model.response is not None}
    frame = _learnable(dataset, [models[place] for place in knowing.values()])
    if len(frame) < ENOUGH_IN_ALL:
        return list(models), predicted
    mixes, number = np.unique(frame["mix"], return_inverse=True)
    fold = folds(np.arange(len(mixes)), seed, _FOLDS)
    fold_of = dict(zip(mixes, fold, strict=True))
    keys = np.array([*(model.workload.key for model in models), ""])
    members = np.column_stack([rows.target, rows.members])
    asked = np.array([fold_of.get(_mix(keys[each[each >= 0]]), -1) for each in members])
    if rows.offered_mpps is not None:
        asked[np.isfinite(rows.offered_mpps).any(axis=1)] = -1
    limited = frame["limited"].to_numpy()

    def fitted(seen: NDArray[np.bool_]) -> list[NFModel]:
        of_target = {key: seen & (frame["target"] == key).to_numpy() for key in knowing if key in subjects}
        learned = fit(
            {
                key: _extended(subjects[key], frame[mine & ~limited], frame[mine & limited])
                for key, mine in of_target.items()
            }
        )
        holdings = fit_holdings({key: subjects[key] for key in of_target}, frame[seen])
        every = [learned.get(model.workload.key, model) for model in models]
        return [
            replace(each, response=replace(each.response, holding=holdings[key]))
            if (key := each.workload.key) in holdings and each.response is not None
            else each
            for each in every
        ]

    places = np.append(np.cumsum([model.response is not None for model in models]) - 1, -1)
    for left_out in np.unique(fold):
        here = asked == left_out
        part = [model for model in fitted(fold[number] != left_out) if model.response is not None]
        predicted[here] = solve_joint(part, places[members[here]], first_only=True).throughput_mpps[:, 0]
    return fitted(np.ones(len(frame), dtype=bool)), predicted


def _learnable(dataset: ProfileDataset, models: Sequence[NFModel]) -> "pd.DataFrame":
    """Return the mixes at full load with all counters, with columns ``mix`` (tenants) and ``limited`` (full ports)."""
    frame, keys = dataset.frame, {model.workload.key for model in models}
    responses = [model.response for model in models if model.response is not None]
    read = {f"beside.{name}" for response in responses for name in response.pressure_names}
    read |= {f"own.{name}" for response in responses for name in response.profile.metric_names}
    frame = frame[(frame["plan"] == "mix") & ~isolated(frame)]
    frame = frame.assign(limited=limited_in_mixes(frame, dataset.environment))
    frame = frame[frame["target"].isin(keys)]
    frame = frame[frame["machine"].isin([model.machine for model in models]) & (frame["throughput_mpps"] > 0.0)]
    frame = frame[np.isfinite(frame[sorted(read)].to_numpy(dtype=float)).all(axis=1)]
    frame = frame.drop_duplicates(["run_key", "target"])  # equal NFs of one run
    tenants = [
        (target, *(workload.key for workload in competitors_from_cell(str(cell))))
        for target, cell in zip(frame["target"], frame["competitors"], strict=True)
    ]
    known = np.array([keys.issuperset(each) for each in tenants], dtype=bool)
    learnable: pd.DataFrame = frame.assign(mix=[_mix(each) for each in tenants])[known]
    return learnable


def _mix(keys: Sequence[str]) -> str:
    return " + ".join(sorted(keys))


def _extended(subject: Subject, full: "pd.DataFrame", limited: "pd.DataFrame") -> Subject:
    """Return an NF's training rows with its runs in mixes added."""

    def parts(rows: "pd.DataFrame") -> tuple[Floats, Floats, Floats]:
        own = rows[[f"own.{name}" for name in subject.own_names]].to_numpy(dtype=float)
        beside = rows[[f"beside.{name}" for name in subject.beside_names]].to_numpy(dtype=float)
        return rows["throughput_mpps"].to_numpy(dtype=float), own, beside

    (mpps, own, beside), idle = parts(full), subject.part_load
    if idle is not None and len(limited):
        more = parts(limited)
        idle = PartLoadRows(
            np.append(idle.mpps, more[0]),
            np.append(idle.offered_mpps, np.full(len(limited), np.nan)),
            np.vstack([idle.own, more[1]]),
            np.vstack([idle.beside, more[2]]),
        )
    return replace(
        subject,
        mpps=np.append(subject.mpps, mpps),
        own=np.vstack([subject.own, own]),
        beside=np.vstack([subject.beside, beside]),
        counts=np.append(subject.counts, full["competitor_count"].to_numpy(dtype=np.int64)),
        part_load=idle,
    )


#: Least relative error, since an emulated testbed gives exactly equal runs.
_LEAST = 1e-6
#: Columns of a row: mean, spread between its runs, number of runs.
_COLUMNS = ("machine", "target", "competitors", "throughput_mpps", "throughput_cv", "replicates")


def with_measured(dataset: ProfileDataset, models: Sequence[NFModel]) -> list[NFModel]:
    """Return the models with those mixes at full load that were run at least twice."""
    frame = dataset.frame
    chosen = (frame["plan"] == "mix") & frame["offered_mpps"].isna() & ~isolated(frame)
    frame = frame.loc[chosen & (frame["replicates"] > 1), list(_COLUMNS)].dropna()
    spread, freedom = {}, {}
    for machine, rows in frame.groupby("machine"):
        freedom[str(machine)] = int((rows["replicates"] - 1).sum())
        spread[str(machine)] = math.sqrt(np.average(rows["throughput_cv"] ** 2, weights=rows["replicates"] - 1))
    measured: dict[tuple[str, str], dict[tuple[str, ...], list[tuple[float, float]]]] = {}
    for row in frame.to_dict("records"):
        key, machine, mpps = _neighbours(row), str(row["machine"]), float(row["throughput_mpps"])
        if key is not None:  # of one more run: the spread of this run and that of the mean
            share = max(float(row["throughput_cv"]), spread[machine], _LEAST)
            error = mpps * share * math.sqrt(1.0 + 1.0 / row["replicates"])
            measured.setdefault((machine, str(row["target"])), {}).setdefault(key, []).append((mpps, error))
    return [
        replace(
            model, measured=tuple([_mean(key, rows, freedom[model.machine]) for key, rows in sorted(mixes.items())])
        )
        if (mixes := measured.get((model.machine, model.workload.key)))
        else model
        for model in models
    ]


def _neighbours(row: dict[Any, Any]) -> tuple[str, ...] | None:
    """Return the sorted keys of a row's neighbours; None if one is below full load."""
    workloads = competitors_from_cell(str(row["competitors"]))
    keys = tuple(sorted(workload.key for workload in workloads))
    return None if any(workload.traffic.offered_mpps is not None for workload in workloads) else keys


def _mean(key: tuple[str, ...], rows: Sequence[tuple[float, float]], freedom: int) -> MeasuredMix:
    """Return the mean throughput of a workload in a mix, and its standard error."""
    mpps, errors = np.array(rows).T
    apart = float(mpps.std(ddof=1)) if len(mpps) > 1 else 0.0
    return MeasuredMix(key, float(mpps.mean()), math.hypot(float(errors.max()), apart), freedom)
