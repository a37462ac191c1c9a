"""Calibrate intervals on whole mixes: competitors composed, throughput predicted, compared with what was measured.

Mixes are never fitted, so their errors are those a new mix will have: of the sensitivity model, of the contentiousness
profiles and of composition together. Scores are pooled over the NFs of a machine, or kept per NF where there are
enough (Mondrian; Vovk et al. 2005, section 4.5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.intervals import ConformalCalibration, calibrate
from slomo.models.mixture import mix_features
from slomo.models.nf_model import NFModel

if TYPE_CHECKING:
    from slomo.records.profile import ProfileDataset

#: An NF with this many scores of its own is calibrated on them alone.
ENOUGH_OF_ONE = 100
#: Fewer pooled scores than this say less than cross-validation does.
ENOUGH_IN_ALL = 30


@dataclass(frozen=True, eq=False)
class MixRows:
    """Mixes of one machine whose tenants all have models.

    Attributes
    ----------
    target : ndarray of int, shape (n,)
        Index of the target's model.
    members : ndarray of int, shape (n, places)
        Indices of the competitors' models, -1 for an empty place.
    mpps : ndarray, shape (n,)
        Measured throughput.
    """

    target: NDArray[np.int64]
    members: NDArray[np.int64]
    mpps: Floats


def mix_rows(dataset: "ProfileDataset", models: Sequence[NFModel], machine: str) -> MixRows:
    """Return the rows of plan ``mix`` on `machine` whose tenants are all among `models`."""
    from slomo.records.rows import competitors_from_cell

    frame = dataset.frame
    chosen = (frame["plan"] == "mix") & (frame["machine"] == machine) & frame["isolation"].isin(["null", "", "None"])
    index = {model.workload.key: number for number, model in enumerate(models)}
    found: list[tuple[int, list[int], float]] = []
    for target, competitors, mpps in frame.loc[chosen, ["target", "competitors", "throughput_mpps"]].itertuples(
        index=False
    ):
        keys = [workload.key for workload in competitors_from_cell(str(competitors))]
        if target in index and all(key in index for key in keys):
            found.append((index[target], [index[key] for key in keys], float(mpps)))
    places = max((len(members) for _, members, _ in found), default=0)
    members = np.full((len(found), places), -1, dtype=np.int64)
    for row, (_, listed, _) in enumerate(found):
        members[row, : len(listed)] = listed
    return MixRows(
        np.array([t for t, _, _ in found], dtype=np.int64), members, np.array([mpps for _, _, mpps in found])
    )


def predict_mixes(models: Sequence[NFModel], rows: MixRows, name: str, compat: str | None = None) -> Floats:
    """Return what family `name` predicts for each row [Mpps]; NaN where a target has no such model."""
    predicted = np.full(len(rows.mpps), np.nan)
    for number in np.unique(rows.target):
        model, here = models[number], rows.target == number
        if name in model.sensitivity:
            sensitivity = model.sensitivity[name]
            vectors = mix_features(
                models,
                rows.members[here],
                sensitivity.feature_names,
                capacities=model.capacities,
                composition=sensitivity.composition,
                compat=compat,
                traffic=model.traffic,
            )
            predicted[here] = sensitivity.predict_mpps(vectors)
    return predicted


def calibrations(models: Sequence[NFModel], rows: MixRows) -> dict[int, dict[str, ConformalCalibration]]:
    """Return calibrations by model index and family; empty where there are too few mixes."""
    names = sorted({name for model in models for name in model.sensitivity})
    solo = np.array([model.solo_mpps for model in models])
    result: dict[int, dict[str, ConformalCalibration]] = {number: {} for number in range(len(models))}
    for name in names:
        predicted = predict_mixes(models, rows, name)
        if np.isfinite(predicted).sum() < ENOUGH_IN_ALL:
            continue
        pooled = calibrate(rows.mpps, predicted, solo[rows.target], "mixes")
        for number, model in enumerate(models):
            if name in model.sensitivity:
                here = (rows.target == number) & np.isfinite(predicted)
                enough = here.sum() >= ENOUGH_OF_ONE
                result[number][name] = (
                    calibrate(rows.mpps[here], predicted[here], model.solo_mpps, "mixes") if enough else pooled
                )
    return result


def summary(calibration: Mapping[str, ConformalCalibration]) -> dict[str, dict[str, object]]:
    """Return what the manifest says about the intervals.

    Examples
    --------
    >>> summary({"none": ConformalCalibration(np.array([0.5]), "mixes")})
    {'none': {'source': 'mixes', 'scores': 1}}
    """
    return {name: {"source": item.source, "scores": item.count} for name, item in calibration.items()}
