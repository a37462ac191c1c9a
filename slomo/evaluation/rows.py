"""Predict every row of a measured table, by a model of memory contention and perhaps one of an accelerator.

Yala (ASPLOS'25): one model per resource, each trained on runs with contention for that resource only, composed by the
NF's execution pattern (`slomo.compose.uncertain`). No row of the table is used for training; its throughput, if
present, is only compared.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slomo.compose.uncertain import LEVELS, VALUES, Pattern, checked_pattern, composed_values, quantile
from slomo.errors import MissingMetricError, UnsupportedPredictionError
from slomo.models.applicability import FAR, SLACK, VERDICTS, Verdict, worst
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.evidence import groundless, too_few
from slomo.models.intervals import ConformalCalibration
from slomo.models.nf_model import NFModel
from slomo.models.responses.service_time import DENSITY, ServiceTime
from slomo.prediction.options import check_coverage
from slomo.records.dataset import ProfileDataset
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.identity import require_same, stated_fingerprint
from slomo.vocabulary.vector import Floats

#: Columns of a row that describe competitors' use of the accelerator.
COMPETITOR_DENSITY, COMPETITOR_TIME = "competitor_match_density", "competitor_service_us"
_MIDDLE = 0.5
#: Quantile levels on both sides of the median.
_BESIDE = tuple(level for level in LEVELS.tolist() if level != _MIDDLE)
#: Nothing stands still [Mpps].
_LEAST_MPPS = 1e-9


@dataclass(frozen=True, eq=False)
class RowPredictions:
    """Predictions of the rows of a table; all arrays of shape (n,)."""

    #: Sensitivity model that answered for memory.
    model: str
    #: How the resources were composed: "pipeline" or "run-to-completion".
    pattern: Pattern
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float
    #: Prediction and interval [Mpps], with the errors of both resources in it (`slomo.compose.uncertain`).
    throughput_mpps: Floats
    low_mpps: Floats
    high_mpps: Floats
    #: What each resource alone would allow [Mpps]; infinite where no accelerator is used.
    memory_mpps: Floats
    accelerator_mpps: Floats
    #: Whether what was measured supports each row, match densities and traffic included; ``unsupported``, and no
    #: number, where a row lacks what is read.
    verdicts: tuple[str, ...]
    #: Reasons against each row's answer.
    reasons: tuple[tuple[str, ...], ...]
    #: Throughput of the row, where the table has one; else NaN.
    measured_mpps: Floats

    @property
    def error_percent(self) -> Floats:
        """Signed error relative to the measured throughput [%]; NaN where none was measured."""
        return np.asarray(100.0 * (self.throughput_mpps - self.measured_mpps) / self.measured_mpps)

    def to_frame(self) -> pd.DataFrame:
        """Return the predictions as a data frame, one row each."""
        names = ("throughput_mpps", "low_mpps", "high_mpps", "memory_mpps", "accelerator_mpps", "measured_mpps")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        reasons = ["; ".join(each) for each in self.reasons]
        return pd.DataFrame(
            {**columns, "error_percent": self.error_percent, "verdict": self.verdicts, "reasons": reasons}
        )


@dataclass(frozen=True)
class RowsOptions:
    """Options for predicting the rows of a table."""

    #: The slower of both resources, or the sum of both times: "pipeline" or "run-to-completion".
    pattern: Pattern = "pipeline"
    #: Sensitivity model; by default the one that training chose.
    family: str | None = None
    #: Run-to-completion only: match density at which the memory runs were made, whose time is part of them already;
    #: None where they did not use the accelerator.
    base_density: float | None = None
    #: Nominal coverage of the intervals, above 0 and below 1.
    coverage: float = 0.9
    #: Refuse a table with a row that what was measured does not support.
    strict: bool = False


def predict_rows(
    model: NFModel,
    rows: ProfileDataset,
    accelerator: ServiceTime | None = None,
    **options: Any,
) -> RowPredictions:
    """Predict the rows of an imported table.

    `model`: trained on runs where only memory is competed for. `rows`: imported with the same features;
    ``match_density`` is the row's own, ``competitor_match_density`` (one NF that keeps the accelerator busy) or
    ``competitor_service_us`` (summed over all of them) what it shares with. `accelerator`: time per packet there;
    without it only memory is predicted. `options`: those of :class:`RowsOptions`.
    """
    how = RowsOptions(**options)
    checked_pattern(how.pattern)
    check_coverage(how.coverage)
    _check_target(model, rows)
    stated = stated_fingerprint(rows.environment, model.machine)
    require_same(model.machine, model.machine_fingerprint, stated, "the table")
    family = how.family or model.named(DEFAULT_MODEL)
    names = model.model(family).feature_names
    inputs = np.column_stack([_column(model, rows, name) for name in names]) if names else np.zeros((len(rows), 0))
    memory = model.model(family).predict_mpps(inputs)
    stage = np.full(len(rows), np.inf)
    if accelerator is not None:
        stage = accelerator.shared_mpps(_feature(rows, DENSITY), _others_us(rows, accelerator))
    base_us = 0.0 if accelerator is None or how.base_density is None else float(accelerator.time_us(how.base_density))
    with np.errstate(divide="ignore"):
        rest = stage if how.pattern == "pipeline" else 1.0 / np.maximum(1.0 / stage - base_us, 0.0)
    ends = _both(model, family, (memory, rest), accelerator, how)
    verdicts, reasons = _judged(model, rows, accelerator)
    calibration = model.calibration[family]
    why = groundless(model, family, calibration) or too_few(family, calibration, how.coverage)
    if why is not None:
        verdicts, reasons = [Verdict.UNKNOWN] * len(rows), tuple((why, *each) for each in reasons)
    lost = np.isnan(ends[0])
    judged = tuple(str(Verdict.UNSUPPORTED if gone else verdict) for verdict, gone in zip(verdicts, lost, strict=True))
    predictions = RowPredictions(
        family, how.pattern, how.coverage, *ends, memory, stage, judged, reasons, rows.throughput
    )
    if how.strict:
        _require_supported(model, predictions)
    return predictions


def _both(
    model: NFModel, family: str, parts: tuple[Floats, Floats], accelerator: ServiceTime | None, how: RowsOptions
) -> tuple[Floats, Floats, Floats]:
    """Return the throughput that memory and accelerator together allow, and its interval [Mpps]."""
    memory, stage = parts
    calibration, solo = model.calibration[family], model.solo_mpps
    if accelerator is None:
        low, high = calibration.interval_mpps(memory, solo, how.coverage)
        return memory, np.maximum(low, _LEAST_MPPS), high
    spread = [_spread_of_memory(calibration, solo, memory), _spread_of_stage(stage, _error(model, family, accelerator))]
    values = composed_values(spread, how.pattern)
    sides = (1.0 - how.coverage) / 2.0
    low, high = (quantile(values, level) for level in (sides, 1.0 - sides))
    # sums of times have no bias near balance; the sum is their middle
    middle = quantile(values, 0.5) if how.pattern == "pipeline" else 1.0 / (1.0 / memory + 1.0 / stage)
    unknown = np.isnan(memory) | np.isnan(stage)
    return np.where(unknown, np.nan, middle), np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def _spread_of_memory(calibration: ConformalCalibration, solo_mpps: float, middle: Floats) -> Floats:
    """Return, for each prediction, equally likely throughputs drawn from the calibration errors [Mpps]."""
    centre = np.where(np.isfinite(middle), middle, solo_mpps)
    ends = {level: calibration.interval_mpps(centre, solo_mpps, abs(2.0 * level - 1.0)) for level in _BESIDE}
    values = np.column_stack([centre if lv == _MIDDLE else ends[lv][int(lv > _MIDDLE)] for lv in LEVELS.tolist()])
    nearest = values[:, [VALUES // 2 - 1, VALUES // 2 + 1]].mean(axis=1)
    beside = np.arange(VALUES) != VALUES // 2
    values[:, beside] += (centre - nearest)[:, np.newaxis]  # what is predicted is the middle
    return np.asarray(np.maximum(values, _LEAST_MPPS))


def _spread_of_stage(middle: Floats, error: float) -> Floats:
    """Return equally likely throughputs around each prediction; `error` is the relative standard deviation."""
    away = np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()])
    centre = np.where(np.isfinite(middle), middle, 1.0)[:, np.newaxis]
    values = np.maximum(centre * (1.0 + error * away), _LEAST_MPPS)
    values[np.isposinf(middle)] = np.inf
    return values


def _error(model: NFModel, family: str, accelerator: ServiceTime) -> float:
    """Return the relative standard deviation of runs around an accelerator's fitted line.

    A line through as many runs as parameters has no residuals. Its error is then assumed to be that of the memory model
    on held-out rows: same NF, same machine.
    """
    if accelerator.error > 0.0:
        return accelerator.error
    mape_percent = model.manifest.get("cross_validation", {}).get(family, {}).get("mape_percent", 0.0)
    return math.sqrt(math.pi / 2.0) * float(mape_percent) / 100.0  # deviation over mean size of normal errors


@dataclass(frozen=True, eq=False)
class _Check:
    """The verdict on one input of every row, and the range that measurements cover."""

    name: str
    values: Floats
    code: NDArray[np.int64]
    covered: str


def _judged(
    model: NFModel, rows: ProfileDataset, accelerator: ServiceTime | None
) -> tuple[list[Verdict], tuple[tuple[str, ...], ...]]:
    """Return the verdict on every row, with reasons: pressures, traffic, match densities."""
    checked = model.applicability.feature_names
    verdicts, reasons = model.applicability.check(np.column_stack([_column(model, rows, name) for name in checked]))
    verdict, reasons_by_row = list(verdicts), [list(each) for each in reasons]
    for check in (*_of_traffic(model, rows), *_of_densities(rows, accelerator), *_unread(model, rows, accelerator)):
        for row in np.flatnonzero(check.code).tolist():
            verdict[row] = worst((verdict[row], VERDICTS[check.code[row]]))
            reasons_by_row[row].append(f"{check.name} {check.values[row]:g}; {check.covered}")
    return verdict, tuple(tuple(each) for each in reasons_by_row)


def _of_traffic(model: NFModel, rows: ProfileDataset) -> Iterator[_Check]:
    """Yield a check of rows whose traffic is not among the model's inputs."""
    for name in ("packet_size_b", "flow_count"):
        column = TRAFFIC_PREFIX + name
        if column in model.traffic:
            continue
        frame, modelled = rows.frame, float(getattr(model.workload.traffic, name))
        values = np.asarray(frame[column if column in frame else name].to_numpy(dtype=float))
        code = np.where(np.abs(values - modelled) > SLACK * modelled, 2, 0)
        yield _Check(name, values, code, f"the model knows {modelled:g} only, and does not read it")


def _of_densities(rows: ProfileDataset, accelerator: ServiceTime | None) -> Iterator[_Check]:
    """Yield a check of rows whose match density is outside the accelerator's runs."""
    if accelerator is None:
        return
    low, high = accelerator.low, accelerator.high
    span = max(high - low, 1e-9 * max(abs(high), 1.0))
    for name in (DENSITY, COMPETITOR_DENSITY):
        if TRAFFIC_PREFIX + name not in rows.frame:
            continue
        values = _feature(rows, name)
        away = np.maximum(np.maximum(values - high, low - values), 0.0) / span
        code = np.where(away > SLACK, 1, 0) + np.where(away > FAR, 1, 0)
        # a row without its own density has no answer; one without competitors' density has no competitors
        code = np.where(np.isnan(values), 2, code) if name == DENSITY else np.where(values > 0.0, code, 0)
        yield _Check(
            name, values, code, f"accelerator '{accelerator.accelerator}' was measured from {low:g} to {high:g}"
        )


def _unread(model: NFModel, rows: ProfileDataset, accelerator: ServiceTime | None) -> Iterator[_Check]:
    """Yield a check of columns that neither the model nor the accelerator's runs cover."""
    read = {*model.traffic, TRAFFIC_PREFIX + "packet_size_b", TRAFFIC_PREFIX + "flow_count"}
    if accelerator is not None:
        read |= {TRAFFIC_PREFIX + name for name in (DENSITY, COMPETITOR_DENSITY, COMPETITOR_TIME)}
    for column in (str(name) for name in rows.frame.columns if str(name).startswith(TRAFFIC_PREFIX)):
        if column not in read:
            values = np.asarray(rows.frame[column].to_numpy(dtype=float))
            code = np.where(np.isnan(values), 0, 1)
            yield _Check(column.removeprefix(TRAFFIC_PREFIX), values, code, "no resource was measured over it")


def _require_supported(model: NFModel, predictions: RowPredictions) -> None:
    bad = [row for row, verdict in enumerate(predictions.verdicts) if Verdict(verdict).is_refused]
    if bad:
        why = "; ".join(predictions.reasons[bad[0]]) or "it lacks what the models read"
        raise UnsupportedPredictionError(
            f"{len(bad)} of {len(predictions.verdicts)} rows of '{model.workload.nf}' are not supported, "
            f"row {bad[0] + 1} first: {why}",
            hint="profile the target, or the accelerator, where these rows are; or leave --strict out",
        )


def _check_target(model: NFModel, rows: ProfileDataset) -> None:
    foreign = sorted(set(rows.frame["nf"]) - {model.workload.nf})
    if foreign:
        raise UnsupportedPredictionError(
            f"the table has rows of {', '.join(map(str, foreign))}, the model is of '{model.workload.nf}'",
            hint="import each network function's rows as a table of their own",
        )


def _others_us(rows: ProfileDataset, accelerator: ServiceTime) -> Floats:
    """Return the time of competitors' turns at the accelerator [us]; 0 if the table does not state it."""
    frame, total = rows.frame, np.zeros(len(rows))
    if TRAFFIC_PREFIX + COMPETITOR_DENSITY in frame:
        density = _feature(rows, COMPETITOR_DENSITY)
        total += np.where(density > 0.0, accelerator.time_us(np.nan_to_num(density)), 0.0)
    if TRAFFIC_PREFIX + COMPETITOR_TIME in frame:
        total += np.nan_to_num(_feature(rows, COMPETITOR_TIME))
    return total


def _feature(rows: ProfileDataset, name: str) -> Floats:
    frame, column = rows.frame, TRAFFIC_PREFIX + name
    if column not in frame:
        raise MissingMetricError(
            f"the table has no feature '{name}'", hint=f"import it with 'feature: {name}' at its column"
        )
    return np.asarray(frame[column].to_numpy(dtype=float))


def _column(model: NFModel, rows: ProfileDataset, name: str) -> Floats:
    """Return one feature of every row: its own column, else the model's traffic."""
    frame = rows.frame
    plain = name.removeprefix(TRAFFIC_PREFIX)
    for column in (name, plain) if name.startswith(TRAFFIC_PREFIX) else (f"competition.{name}",):
        if column in frame and frame[column].notna().any():
            return np.asarray(frame[column].to_numpy(dtype=float))
    if name in model.traffic:
        return np.full(len(rows), model.traffic[name])
    raise MissingMetricError(
        f"the table lacks {name}, which the model of '{model.workload.nf}' reads",
        hint="import it with the mapping of the training table, and the accelerator's columns added",
    )
