"""Set the width of prediction intervals by mixes: compare predicted with measured throughput.

Model families are never fitted to mixes, so their errors on mixes are those on a new mix: sensitivity model,
contentiousness profiles and composition contribute together. Responses to running neighbours are fitted to mixes too
(`slomo.training.mixes_fit`); the error on each mix is therefore that of a response fitted without this mix. Bias is
learned per NF and kind of neighbourhood; the remaining scores are pooled over the NFs of a machine
(`slomo.training.conformal_fit`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.models.base import Floats
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import PART_LOAD, beside
from slomo.models.nf_model import NFModel
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell, workload_from_columns
from slomo.records.schema import PACKED, isolated
from slomo.training.conformal_fit import HeldOutMixes, fit_calibrations

#: Least number of pooled scores; with fewer, cross-validation gives better widths.
ENOUGH_IN_ALL = 30
#: Mixes contradict intervals of this coverage if as few of them hold as happens with less than this probability.
_COVERAGE, _RARE = 0.9, 0.05
#: Columns of a row: target, competitors, outcome.
_COLUMNS = (
    "nf", "configuration", "packet_size_b", "flow_count", "flow_distribution", "zipf_exponent", "offered_mpps",
    "competitors", "throughput_mpps",
)  # fmt: skip


def mix_rows(dataset: ProfileDataset, models: Sequence[NFModel], machine: str) -> MixRows:
    """Return the measured mixes on `machine` whose NFs all have models."""
    frame = dataset.frame
    chosen = (frame["plan"] == "mix") & (frame["machine"] == machine) & ~isolated(frame)
    index = {model.workload.key: number for number, model in enumerate(models)}
    mixes: list[tuple[list[int], list[float], float]] = []
    records: list[dict[str, Any]] = frame.loc[chosen, list(_COLUMNS)].to_dict("records")  # type: ignore[assignment]
    for row in records:
        tenants = [workload_from_columns(row), *competitors_from_cell(str(row["competitors"]))]
        keys = [workload.saturated.key for workload in tenants]
        if all(key in index for key in keys):
            offered = [workload.traffic.offered_mpps or np.nan for workload in tenants]
            mixes.append(([index[key] for key in keys], offered, float(row["throughput_mpps"])))
    places = max((len(members) for members, _, _ in mixes), default=1)
    members, loads = np.full((len(mixes), places), -1, dtype=np.int64), np.full((len(mixes), places), np.nan)
    for number, (listed, offered, _) in enumerate(mixes):
        members[number, : len(listed)], loads[number, : len(offered)] = listed, offered
    keys, named = [*index], set(dataset.environment.get(PACKED, ()))
    packed = np.array(["+".join(sorted(keys[who] for who in listed)) in named for listed, _, _ in mixes], dtype=bool)
    return MixRows(members[:, 0], members[:, 1:], np.array([mpps for _, _, mpps in mixes]), loads, packed)


def calibrations(models: Sequence[NFModel], rows: MixRows) -> dict[int, dict[str, ConformalCalibration]]:
    """Return the known errors of each model and family on mixes; empty if there are too few mixes."""
    rows = rows.saturated()  # composition applies to full load only
    names = sorted({name for model in models for name in model.sensitivity})
    result: dict[int, dict[str, ConformalCalibration]] = {number: {} for number in range(len(models))}
    for name in names:
        predicted = predict_mixes(models, rows, name)
        for number, calibration in enumerate(calibrated_on(models, rows, predicted)):
            if name in models[number].sensitivity:
                result[number][name] = calibration
    return result


def calibrated_on(models: Sequence[NFModel], rows: MixRows, predicted_mpps: Floats) -> list[ConformalCalibration]:
    """Return the known errors of each model, from predictions of mixes; empty if there are too few."""
    if np.isfinite(predicted_mpps).sum() < ENOUGH_IN_ALL:
        return []
    once = distinct(rows)
    rows, predicted_mpps = rows.chosen(once), predicted_mpps[once]
    solo = np.array([model.solo_mpps for model in models])[rows.target]
    tenants = np.sort(np.column_stack([rows.target, rows.members]), axis=1)
    run = np.unique(tenants, axis=0, return_inverse=True)[1].ravel()
    kind = beside(rows.members)
    if rows.offered_mpps is not None:
        kind[np.isfinite(rows.offered_mpps[:, 1:]).any(axis=1)] = PART_LOAD
    held_out = HeldOutMixes(rows.mpps, predicted_mpps, solo, rows.target, kind, run, rows.packed)
    return fit_calibrations(held_out, len(models))


def distinct(rows: MixRows) -> NDArray[np.int64]:
    """Return the number of each distinct row once, so that seven equal NFs in one mix count as one row."""
    every = np.column_stack([rows.target, np.sort(rows.members, axis=1)])
    return np.unique(every, axis=0, return_index=True)[1]


def contradiction(
    calibration: ConformalCalibration, solo_mpps: float, rows: MixRows, predicted_mpps: Floats
) -> str | None:
    """Return a text if a few measured mixes contradict intervals set without any, which lack composition's error."""
    judged = np.isfinite(predicted_mpps)
    count, mpps, predicted = int(judged.sum()), rows.mpps[judged], predicted_mpps[judged]
    if calibration.source != "cross-validation" or not count or calibration.missing(_COVERAGE):
        return None
    low, high = calibration.interval_mpps(predicted, solo_mpps, _COVERAGE, beside(rows.members[judged]))
    held = int(((mpps >= low) & (mpps <= high)).sum())
    chance = sum(math.comb(count, k) * _COVERAGE**k * (1.0 - _COVERAGE) ** (count - k) for k in range(held + 1))
    if chance >= _RARE:
        return None
    error, width = np.abs(predicted - mpps).mean() / solo_mpps, (high - low).mean() / 2.0 / solo_mpps
    return (
        f"intervals of {100.0 * _COVERAGE:g} % hold {held} of {count}; it is off by {100.0 * error:.2g} % of solo, "
        f"the half width is {100.0 * width:.2g} %"
    )


def summary(calibration: Mapping[str, ConformalCalibration]) -> dict[str, dict[str, object]]:
    """Return the entries of a model's manifest about its intervals."""
    return {name: {"source": item.source, "scores": item.count} for name, item in calibration.items()}
