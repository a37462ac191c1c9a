"""Learn latency over load and pressure from runs in which an NF is offered less than it can serve.

The runs are those of ResQ (NSDI'18) section 5.2. The load of a run is its offered load divided by the throughput
measured at saturation beside the same competitors. Utilisation is computed from the NF's response to pressure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.models.responses.latency import (
    PERCENTILES,
    LatencyCurve,
    LatencyModel,
    busy_share,
    busyness,
    error_scale,
    load_basis,
)
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import isolated
from slomo.training.cross_validation import folds, held_out
from slomo.training.features import reduced_rows, saturated_key

if TYPE_CHECKING:
    import pandas as pd


#: Least numbers of runs and of loads for a curve.
FEWEST_RUNS, FEWEST_LOADS = 8, 3
#: Share of lost packets above which a run had no stable queue.
MOST_LOSS = 0.01
#: Largest number of pieces of a curve; fewer with fewer loads.
_PIECES = 7
#: Difference below which two loads measured under different pressures count as one.
_APART = 0.04
#: Relative error below which percentiles of a finite run are not more precise.
_LEAST_ERROR = 0.005


@dataclass(frozen=True, eq=False)
class LatencyRows:
    """Runs at reduced load, as arrays ``(n,)``.

    Utilisation, packets per unit of busy time [Mpps], latencies [us], and the number of the pressure setting.
    """

    busy: Floats
    mpps: Floats
    latency_us: dict[str, Floats]
    setting: NDArray[np.int64]


def with_latency(dataset: ProfileDataset, models: Sequence[NFModel], seed: int = 0) -> list[NFModel]:
    """Return the models, each with a latency model if the dataset has runs at several loads.

    Rows of plans ``solo`` and ``pressure`` are used; the models must be trained on the same dataset.
    """
    frame = reduced_rows(dataset.frame)
    if not len(frame):
        return list(models)
    every = dataset.frame
    return [replace(model, latency=fit_latency(_rows(every, frame, model), model.solo_mpps, seed)) for model in models]


def _rows(everything: "pd.DataFrame", reduced: "pd.DataFrame", model: NFModel) -> LatencyRows:
    """Return a model's runs below full load, with the share of time in which the NF is busy."""
    here = (everything["machine"] == model.machine) & (everything["target"] == model.workload.key)
    here &= everything["plan"].isin(["solo", "pressure"]) & ~isolated(everything)
    possible = everything[here].groupby("competitors")["throughput_mpps"].median()
    chosen = reduced[(reduced["machine"] == model.machine) & (saturated_key(reduced) == model.workload.key)]
    most = chosen["competitors"].map(possible).to_numpy(dtype=float)
    load = chosen["offered_mpps"].to_numpy(dtype=float) / np.where(most > 0.0, most, np.nan)
    times = {name: chosen[f"latency_{name}_us"].to_numpy(dtype=float) for name in PERCENTILES}
    loss = chosen["loss"].fillna(0.0).to_numpy(dtype=float)
    good = np.isfinite(load) & (load < 1.0) & (loss <= MOST_LOSS)
    good &= np.all([np.isfinite(values) & (values > 0.0) for values in times.values()], axis=0)
    settings = np.unique(chosen["competitors"].to_numpy(dtype=str)[good], return_inverse=True)[1]
    names = () if model.response is None else model.response.pressure_names
    pressure = chosen[[f"beside.{name}" for name in names]].to_numpy(dtype=float)[good]
    busy = busy_share(model.response, pressure, load[good], chosen["competitor_count"].to_numpy(dtype=float)[good])
    times = {name: values[good] for name, values in times.items()}
    return LatencyRows(busy, most[good] * load[good] / busy, times, settings.astype(np.int64))


def fit_latency(rows: LatencyRows, solo_mpps: float, seed: int = 0) -> LatencyModel | None:
    """Return the latency model of one NF; None if there are too few runs or loads."""
    knots = _knots(rows.busy)
    if len(rows.busy) < FEWEST_RUNS or len(knots) < FEWEST_LOADS:
        return None
    basis = load_basis(rows.busy, rows.mpps, solo_mpps, knots)
    groups = rows.setting if len(np.unique(rows.setting)) >= 3 else np.arange(len(rows.busy))
    fold = folds(groups, seed)
    curves = {name: _curve(basis, times * rows.mpps, rows.busy, fold) for name, times in rows.latency_us.items()}
    ends = (float(rows.busy.min()), float(rows.busy.max()))
    return LatencyModel(solo_mpps, knots, curves, ends, float(min(solo_mpps, rows.mpps.min())))


def _curve(basis: Floats, factor: Floats, load: Floats, fold: NDArray[np.int64]) -> LatencyCurve:
    """Fit one latency percentile as a multiple of the time per packet."""
    response = np.log(factor)

    def fit(seen: NDArray[np.bool_]):  # type: ignore[no-untyped-def]
        weights = _weights(basis[seen], response[seen])
        return lambda left_out: basis[left_out] @ weights

    away, slower = np.abs(response - held_out(fit, fold)), basis[:, -1]
    judged = np.isfinite(away)
    scale = _scale(load[judged], slower[judged], away[judged])
    scores = np.sort(away[judged] / error_scale(scale, load[judged], slower[judged]))
    return LatencyCurve(_weights(basis, response), scores, scale)


def _weights(basis: Floats, response: Floats) -> Floats:
    """Return least-squares weights of a curve that falls neither with load nor with slowness."""
    columns = basis.shape[1]
    low = np.concatenate([[-np.inf], np.zeros(columns - 2), [-1.0]])
    if basis[:, -1].std() < 1e-9:  # only solo runs: the effect of pressure on the curve is unknown
        flat = lsq_linear(basis[:, :-1], response, (low[:-1], np.full(columns - 1, np.inf)), method="bvls").x
        return np.append(flat, 0.0)
    weights: Floats = lsq_linear(basis, response, (low, np.full(columns, np.inf)), method="bvls").x
    return weights


def _scale(load: Floats, slower: Floats, away: Floats) -> Floats:
    """Return the size of the latency model's errors: a constant part, and parts that grow with load and slowdown.

    The hardest settings are the hardest to predict: without the last part, their errors widen all intervals.
    """
    coefficients, _ = nnls(np.column_stack([np.ones_like(load), busyness(load), np.maximum(slower, 0.0)]), away)
    scale: Floats = np.maximum(coefficients, [_LEAST_ERROR, 0.0, 0.0])
    return scale


def _knots(load: Floats) -> Floats:
    """Return the loads (knots) between which the curve is linear."""
    distinct: list[float] = []
    for value in np.sort(load).tolist():
        if not distinct or value - distinct[-1] > _APART * (1.0 - 0.7 * value):
            distinct.append(value)
    if not distinct:
        return np.zeros(0)
    distinct[-1] = max(distinct[-1], float(load.max()))
    chosen = np.linspace(0, len(distinct) - 1, min(len(distinct), _PIECES + 1)).round().astype(int)
    return busyness(np.array(distinct)[chosen])
