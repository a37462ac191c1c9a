"""Predict every row of a measured table: memory from its vector, an accelerator from its match density, composed.

Yala (ASPLOS'25): one model per resource, each trained on runs where only that resource is competed for, composed by the
NF's execution pattern (`slomo.compose.resources`). No row of the table is trained on; its throughput, where it has one,
is only compared with.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.compose.resources import Pattern, checked_pattern
from slomo.errors import MissingMetricError, UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.nf_model import NFModel
from slomo.models.responses.service_time import DENSITY, ServiceTime

if TYPE_CHECKING:
    import pandas as pd

    from slomo.records.dataset import ProfileDataset

Floats = NDArray[np.float64]
#: Features of a row that say what others do at the accelerator.
COMPETITOR_DENSITY, COMPETITOR_TIME = "competitor_match_density", "competitor_service_us"


@dataclass(frozen=True, eq=False)
class RowPredictions:
    """Predictions of the rows of a table; all arrays of shape (n,).

    Attributes
    ----------
    model : str
        Sensitivity model that answered for memory.
    pattern : {"pipeline", "run-to-completion"}
        How the resources were composed.
    coverage : float
        Nominal coverage of the intervals, 0 to 1.
    throughput_mpps, low_mpps, high_mpps : ndarray
        Prediction and interval [Mpps]. The interval is that of the memory model: the accelerator's line has none.
    memory_mpps, accelerator_mpps : ndarray
        What each resource alone would allow [Mpps]; infinite where no accelerator is used.
    verdicts : tuple of str
        Whether what was measured supports each row; ``unsupported``, and no number, where a row lacks what is read.
    measured_mpps : ndarray
        Throughput of the row, where the table has one; else NaN.
    """

    model: str
    pattern: Pattern
    coverage: float
    throughput_mpps: Floats
    low_mpps: Floats
    high_mpps: Floats
    memory_mpps: Floats
    accelerator_mpps: Floats
    verdicts: tuple[str, ...]
    measured_mpps: Floats

    @property
    def error_percent(self) -> Floats:
        """Signed error relative to the measured throughput [%]; NaN where none was measured."""
        return np.asarray(100.0 * (self.throughput_mpps - self.measured_mpps) / self.measured_mpps)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per prediction."""
        import pandas as pd

        names = ("throughput_mpps", "low_mpps", "high_mpps", "memory_mpps", "accelerator_mpps", "measured_mpps")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        return pd.DataFrame({**columns, "error_percent": self.error_percent, "verdict": self.verdicts})


def best_family(model: NFModel) -> str:
    """Return the family with the smallest error in cross-validation on the rows the model was trained on.

    Raises
    ------
    UnsupportedPredictionError
        Where none was cross-validated.
    """
    errors = {
        str(name): found["mape_percent"]
        for name, found in model.manifest.get("cross_validation", {}).items()
        if name in model.sensitivity and "mape_percent" in found
    }
    if not errors:
        raise UnsupportedPredictionError(
            f"no model of '{model.workload.nf}' was cross-validated", hint="train again, on 8 rows or more"
        )
    return min(errors, key=lambda name: float(errors[name]))


def predict_rows(
    model: NFModel,
    rows: "ProfileDataset",
    accelerator: ServiceTime | None = None,
    *,
    pattern: Pattern = "pipeline",
    family: str | None = None,
    base_density: float | None = None,
    coverage: float = 0.9,
) -> RowPredictions:
    """Predict the rows of an imported table.

    Parameters
    ----------
    model : NFModel
        Trained on runs where only memory is competed for.
    rows : ProfileDataset
        Imported with the same features; ``match_density`` is the row's own, ``competitor_match_density`` (one NF that
        keeps the accelerator busy) or ``competitor_service_us`` (summed over all of them) what it shares with.
    accelerator : ServiceTime, optional
        Time per packet at the accelerator; without it only memory is predicted.
    pattern : {"pipeline", "run-to-completion"}
        The slower of both, or the sum of both times.
    family : str, optional
        Sensitivity model; by default the best in cross-validation on its own training rows.
    base_density : float, optional
        Run-to-completion only: match density at which the memory runs were made, whose time is part of them already;
        None where they did not use the accelerator.
    coverage : float
        Nominal coverage of the intervals, above 0 and below 1.

    Raises
    ------
    MissingMetricError
        Where the rows lack a feature that the model reads.
    UnsupportedPredictionError
        Where rows are of other NFs than the model.
    """
    checked_pattern(pattern)
    _check_target(model, rows)
    family = family or best_family(model)
    names = model.model(family).feature_names
    inputs = np.column_stack([_column(model, rows, name) for name in names]) if names else np.zeros((len(rows), 0))
    memory = model.model(family).predict_mpps(inputs)
    ends = model.calibration[family].interval_mpps(memory, model.solo_mpps, coverage)
    stage = np.full(len(rows), np.inf)
    if accelerator is not None:
        stage = accelerator.shared_mpps(_feature(rows, DENSITY), _others_us(rows, accelerator))
    base_us = 0.0 if accelerator is None or base_density is None else float(accelerator.time_us(base_density))
    bounds = (memory, np.maximum(ends[0], 1e-9), ends[1])
    middle, low, high = (_composed(each, stage, pattern, base_us) for each in bounds)
    checked = model.applicability.feature_names
    verdicts, _ = model.applicability.check(np.column_stack([_column(model, rows, name) for name in checked]))
    measured = rows.throughput
    judged = tuple(
        str(Verdict.UNSUPPORTED if lost else told) for told, lost in zip(verdicts, np.isnan(middle), strict=True)
    )
    return RowPredictions(family, pattern, coverage, middle, low, high, memory, stage, judged, measured)


def _check_target(model: NFModel, rows: "ProfileDataset") -> None:
    foreign = sorted(set(rows.frame["nf"]) - {model.workload.nf})
    if foreign:
        raise UnsupportedPredictionError(
            f"the table has rows of {', '.join(map(str, foreign))}, the model is of '{model.workload.nf}'",
            hint="import each network function's rows as a table of their own",
        )


def _composed(memory_mpps: Floats, stage_mpps: Floats, pattern: Pattern, base_us: float) -> Floats:
    if pattern == "pipeline":
        return np.minimum(memory_mpps, stage_mpps)
    return np.asarray(1.0 / (1.0 / memory_mpps + np.maximum(1.0 / stage_mpps - base_us, 0.0)))


def _others_us(rows: "ProfileDataset", accelerator: ServiceTime) -> Floats:
    """Return the time that others' turns take [us]; rows that say nothing are without others."""
    frame, total = rows.frame, np.zeros(len(rows))
    if TRAFFIC_PREFIX + COMPETITOR_DENSITY in frame:
        density = _feature(rows, COMPETITOR_DENSITY)
        total += np.where(density > 0.0, accelerator.time_us(np.nan_to_num(density)), 0.0)
    if TRAFFIC_PREFIX + COMPETITOR_TIME in frame:
        total += np.nan_to_num(_feature(rows, COMPETITOR_TIME))
    return total


def _feature(rows: "ProfileDataset", name: str) -> Floats:
    frame, column = rows.frame, TRAFFIC_PREFIX + name
    if column not in frame:
        raise MissingMetricError(
            f"the table has no feature '{name}'", hint=f"import it with 'feature: {name}' at its column"
        )
    return np.asarray(frame[column].to_numpy(dtype=float))


def _column(model: NFModel, rows: "ProfileDataset", name: str) -> Floats:
    """Return one feature of every row: of the row itself, else the traffic the model stands for."""
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
