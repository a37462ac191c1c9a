"""Store mixes that were measured several times in the models, so that placement uses the measured throughputs.

A mix needs at least two runs to show how much runs differ. Since a few runs show it only roughly, the spread of a mix
is at least the pooled standard deviation of all such mixes of the machine. Its degrees of freedom are stored, since
bounds use a quantile of Student's t distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.models.measured_mix import MeasuredMix
from slomo.models.nf_model import NFModel
from slomo.records.rows import competitors_from_cell
from slomo.records.schema import isolated

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset

#: Least relative error, since an emulated testbed gives exactly equal runs.
_LEAST = 1e-6
#: Columns of a row: mean, spread between its runs, number of runs.
_COLUMNS = ("machine", "target", "competitors", "throughput_mpps", "throughput_cv", "replicates")


def with_measured(dataset: "ProfileDataset", models: Sequence[NFModel]) -> list[NFModel]:
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
