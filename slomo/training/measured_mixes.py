"""Keep measured mixes beside the models: for that very mix a measurement says more than a prediction."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.models.measured_mix import MeasuredMix
from slomo.models.nf_model import NFModel
from slomo.records.rows import competitors_from_cell

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset


def with_measured(dataset: "ProfileDataset", models: Sequence[NFModel]) -> list[NFModel]:
    """Return the models with the mixes at full load that were measured with a standard error."""
    frame = dataset.frame
    chosen = (frame["plan"] == "mix") & frame["offered_mpps"].isna() & frame["isolation"].isin(["null", "", "None"])
    columns = ["machine", "target", "competitors", "throughput_mpps", "throughput_se_mpps"]
    rows = frame.loc[chosen].reindex(columns=columns).dropna().to_dict("records")
    found: dict[tuple[str, str], dict[tuple[str, ...], list[tuple[float, float]]]] = {}
    for row in rows:
        key, mpps = _neighbours(row), (float(row["throughput_mpps"]), float(row["throughput_se_mpps"]))
        if key is not None:
            found.setdefault((str(row["machine"]), str(row["target"])), {}).setdefault(key, []).append(mpps)
    return [
        replace(model, measured=tuple([_mean(key, rows) for key, rows in sorted(mixes.items())]))
        if (mixes := found.get((model.machine, model.workload.key)))
        else model
        for model in models
    ]


def _neighbours(row: dict[Any, Any]) -> tuple[str, ...] | None:
    """Return the sorted keys of a row's neighbours; None unless all are at full load."""
    workloads = competitors_from_cell(str(row["competitors"]))
    keys = tuple(sorted(workload.key for workload in workloads))
    return None if any(workload.traffic.offered_mpps is not None for workload in workloads) else keys


def _mean(key: tuple[str, ...], rows: Sequence[tuple[float, float]]) -> MeasuredMix:
    """Return one value for all rows of a mix; instances of one run do not err independently: errors do not shrink."""
    mpps, errors = np.array(rows).T
    error = math.hypot(float(errors.max()), float(mpps.std(ddof=1)) if len(mpps) > 1 else 0.0)
    return MeasuredMix(key, float(mpps.mean()), max(error, 1e-9))
