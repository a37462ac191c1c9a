"""Predict a hundred thousand mixes in one call.

Features of all mixes are composed in one pass over arrays, then each target's model reads its rows. Nothing is looked
up from earlier calls: the speed holds for mixes that are all different.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Compat
from slomo.equilibrium.competition import mix_features
from slomo.errors import InvalidValueError
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.nf_model import NFModel
from slomo.prediction.members import Indices, Members
from slomo.prediction.result import PredictionBatch

Floats = NDArray[np.float64]


def predict_members(
    members: Members, machine: str, model: str, coverage: float, compat: Compat | None = None
) -> PredictionBatch:
    """Predict every mix of `members` with sensitivity model `model`.

    Raises
    ------
    InvalidValueError
        For a mix that needs more cores than the machine has.
    UnknownNameError
        Where a target has no such model.
    """
    count = len(members.target)
    mpps, width = np.full(count, np.nan), np.zeros(count)
    solo = np.array([found.solo_mpps for found in members.models] or [np.nan])[members.target]
    tenants = 1 + (members.places >= 0).sum(axis=1)
    for rows, targets in _groups(members, model):
        features = _features(members, rows, model, compat)
        for number, mine in targets:
            subject = members.models[number]
            at = rows[mine]
            check_cores(subject, int(tenants[at].max()))
            mpps[at] = subject.model(model).predict_mpps(features[mine])
            width[at] = half_width_mpps(subject, model, mpps[at], coverage)
    alone = tenants == 1
    mpps[alone], width[alone] = solo[alone], 0.0
    return PredictionBatch(
        machine=machine,
        model=model,
        coverage=coverage,
        target=members.target,
        competitors=members.places,
        workloads=tuple(found.workload for found in members.models),
        solo_mpps=solo,
        throughput_mpps=mpps,
        low_mpps=np.maximum(mpps - width, 0.0),
        high_mpps=mpps + width,
    )


def half_width_mpps(subject: NFModel, model: str, predicted_mpps: Floats, coverage: float) -> Floats:
    """Return half the width of each interval [Mpps]; the whole solo throughput for a model without calibration."""
    found = subject.calibration.get(model)
    if found is None:
        return np.full(len(predicted_mpps), subject.solo_mpps)
    return found.half_width_mpps(predicted_mpps, subject.solo_mpps, coverage)


def check_cores(subject: NFModel, tenants: int) -> None:
    """Refuse more tenants than the machine's socket has cores.

    Raises
    ------
    InvalidValueError
        Naming the machine, its cores and the tenants.
    """
    if subject.capacities is not None and tenants > subject.capacities.cores:
        raise InvalidValueError(
            f"'{subject.workload.nf}' and {tenants - 1} competitors need {tenants} cores, "
            f"{subject.machine} has {subject.capacities.cores} on a socket",
            hint=f"leave out {tenants - subject.capacities.cores}, or name a machine with more cores",
        )


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that is no probability strictly between 0 and 1.

    Raises
    ------
    InvalidValueError
        For any other number.

    Examples
    --------
    >>> check_coverage(90)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: coverage is 90, needed above 0 and below 1
    hint: 0.9 is usual
    """
    if not 0.0 < coverage < 1.0:
        raise InvalidValueError(f"coverage is {coverage}, needed above 0 and below 1", hint="0.9 is usual")


def _groups(members: Members, model: str) -> Iterator[tuple[Indices, list[tuple[int, slice]]]]:
    """Yield rows that share their features, and for each target among them which of these rows are its own."""
    order = np.argsort(members.target, kind="stable")
    numbers, starts = np.unique(members.target[order], return_index=True)
    parts = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in parts:
        groups.setdefault(_reads(members.models[number], model), []).append(number)
    for group in groups.values():
        rows = np.concatenate([parts[number] for number in group])
        ends = np.cumsum([len(parts[number]) for number in group]).tolist()
        yield rows, [(number, slice(end - len(parts[number]), end)) for number, end in zip(group, ends, strict=True)]


def _reads(subject: NFModel, model: str) -> tuple[object, ...]:
    """Return what determines the features of a target: two targets with the same share one pass."""
    found = subject.model(model)
    own = any(name.startswith(TRAFFIC_PREFIX) for name in found.feature_names)
    return found.feature_names, found.composition, subject.capacities, tuple(subject.traffic.items()) if own else ()


def _features(members: Members, rows: Indices, model: str, compat: Compat | None) -> Floats:
    subject = members.models[int(members.target[rows[0]])]
    found = subject.model(model)
    return mix_features(
        members.models,
        members.places[rows],
        found.feature_names,
        capacities=subject.capacities,
        composition=found.composition,
        compat=compat,
        traffic=subject.traffic,
    )
