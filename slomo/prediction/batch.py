"""The answers about a hundred thousand mixes in one call: `slomo.prediction.question` for arrays, to the last bit.

Servers are solved, or features composed, in a few passes over arrays. Nothing is looked up from earlier calls: the
speed holds for mixes that are all different. Mixes that share an accelerator, are offered less than full load or hold
an NF that was not profiled are asked about one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.competition import mix_features
from slomo.equilibrium.server import solve_joint
from slomo.errors import UnsupportedPredictionError
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.neighbourhood import beside
from slomo.models.nf_model import NFModel
from slomo.prediction.composed import interval_mpps, measured_alone_mpps
from slomo.prediction.equilibrium import NAME
from slomo.prediction.manner import Manner
from slomo.prediction.members import Indices, Members
from slomo.prediction.question import Answers
from slomo.prediction.result import PredictionBatch
from slomo.prediction.tenants import TenantModel, TenantModels, check_cores

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rates:
    """Predicted throughput and the ends of its interval [Mpps], arrays of one shape."""

    mpps: Floats
    low: Floats
    high: Floats

    def put(self, where: object, found: "Rates") -> None:
        """Write other rates into a part of these."""
        for mine, theirs in zip((self.mpps, self.low, self.high), (found.mpps, found.low, found.high), strict=True):
            mine[where] = theirs  # type: ignore[call-overload]


def predict_members(members: Members, machine: str, how: Manner) -> PredictionBatch:
    """Predict the target of every mix.

    Raises
    ------
    InvalidValueError
        For a mix that needs more cores than the machine has.
    UnknownNameError
        Where a target has no model of the name asked for.
    """
    whole = np.column_stack([members.target, members.places])
    _check_cores(members, whole)
    rates, jointly = _empty(members.target.shape), _joint_rows(members.tenants, whole, how)
    slow = _special(members.tenants, whole)
    rows = np.flatnonzero(jointly & ~slow)
    solved, at_rest = _solved(members.models, whole[rows], how)
    rates.put(rows, Rates(solved.mpps[:, 0], solved.low[:, 0], solved.high[:, 0]))
    rest = np.concatenate([np.flatnonzero(~jointly & ~slow), rows[~at_rest]])
    rates.put(rest, _composed(members, np.sort(rest), how, np.argsort(np.argsort(rest))))
    for row in np.flatnonzero(slow):
        rates.put(row, _one_by_one(members.tenants, whole[row], machine, how)[0])
    solo = np.array([_solo_mpps(tenant) for tenant in members.tenants] or [np.nan])[members.target]
    return PredictionBatch(
        machine=machine,
        model=NAME if len(jointly) and jointly.all() else how.model,
        coverage=how.coverage,
        target=members.target,
        competitors=members.places,
        workloads=tuple(tenant.workload for tenant in members.tenants),
        solo_mpps=solo,
        throughput_mpps=rates.mpps,
        low_mpps=rates.low,
        high_mpps=rates.high,
    )


def predict_places(models: Sequence[NFModel], members: NDArray[np.int64], machine: str, how: Manner) -> Rates:
    """Predict everybody on many servers.

    Parameters
    ----------
    models : sequence of NFModel
        What the indices stand for.
    members : ndarray of int, shape (servers, places)
        Indices in ascending order, then -1 for empty places; tenants alike are predicted once.
    machine : str
        Where they run.
    how : Manner
        How.

    Returns
    -------
    Rates
        Shape ``(servers, places)``; NaN where a competitor lacks a metric the model reads, and at empty places.
    """
    tenants = tuple(TenantModel(model.workload, model) for model in models)
    rates, jointly, slow = _empty(members.shape), _joint_rows(tenants, members, how), _special(tenants, members)
    rows = np.flatnonzero(jointly & ~slow)
    solved, at_rest = _solved(models, members[rows], how)
    rates.put(rows, solved)
    rest = np.sort(np.concatenate([np.flatnonzero(~jointly | slow), rows[~at_rest]]))
    rates.put(rest, _each_place(tenants, members[rest], machine, how))
    return rates


def _each_place(tenants: tuple[TenantModel, ...], members: NDArray[np.int64], machine: str, how: Manner) -> Rates:
    """Predict each tenant beside the others, tenants alike once."""
    width = members.shape[1]
    first = members >= 0
    first[:, 1:] &= members[:, 1:] != members[:, :-1]
    rows, places = np.nonzero(first)
    others = np.arange(width - 1) + (np.arange(width - 1) >= places[:, np.newaxis])
    asked = Members(tenants, members[rows, places], np.take_along_axis(members[rows], others, axis=1))
    batch = predict_members(asked, machine, how)
    number = np.cumsum(first.ravel()).reshape(first.shape) - 1  # of the latest tenant not like the one before
    return Rates(batch.throughput_mpps[number], batch.low_mpps[number], batch.high_mpps[number])


def _empty(shape: tuple[int, ...]) -> Rates:
    return Rates(*(np.full(shape, np.nan) for _ in range(3)))


def _solo_mpps(tenant: TenantModel) -> float:
    solo = tenant.model.solo_mpps
    return solo if tenant.offered_mpps is None else min(solo, tenant.offered_mpps)


def _check_cores(members: Members, whole: NDArray[np.int64]) -> None:
    tenants = (whole >= 0).sum(axis=1)
    for number in np.unique(members.target):
        check_cores(members.tenants[number].model, int(tenants[members.target == number].max()))


def _joint_rows(tenants: Sequence[TenantModel], whole: NDArray[np.int64], how: Manner) -> NDArray[np.bool_]:
    """Return which servers are solved all at once: those whose NFs all know how."""
    if how.by_composing:
        return np.zeros(len(whole), dtype=bool)
    knows = np.array([*(tenant.model.response is not None for tenant in tenants), True])
    every: NDArray[np.bool_] = np.logical_and.reduce(knows[whole], axis=1)
    return every


def _special(tenants: Sequence[TenantModel], whole: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which servers hold an NF that arrays do not know how to treat."""
    odd = [
        tenant.offered_mpps is not None or bool(tenant.adapted) or tenant.model.accelerator is not None
        for tenant in tenants
    ]
    some: NDArray[np.bool_] = np.logical_or.reduce(np.array([*odd, False])[whole], axis=1)
    return some


def _one_by_one(tenants: Sequence[TenantModel], row: NDArray[np.int64], machine: str, how: Manner) -> list[Rates]:
    here = tuple(tenants[number] for number in row.tolist() if number >= 0)
    answers = Answers(TenantModels(machine, here, (0,) * len(here)), replace(how, explain=False))
    try:
        found = answers.prediction(0)
    except UnsupportedPredictionError:
        return [Rates(*(np.array(np.nan) for _ in range(3)))]
    return [Rates(*(np.array(value) for value in (found.throughput_mpps, *found.interval)))]


def _solved(models: Sequence[NFModel], members: NDArray[np.int64], how: Manner) -> tuple[Rates, NDArray[np.bool_]]:
    """Solve servers all at once; return everybody's rates, and which came to rest."""
    if not len(members):
        return _empty(members.shape), np.zeros(0, dtype=bool)
    used, packed = np.unique(members, return_inverse=True)
    empty = int(used[0] < 0)
    joint = solve_joint(
        [models[code] for code in used[empty:]],
        packed.reshape(members.shape) - empty,
        coverage=how.coverage,
        window_s=how.window_s,
    )
    return Rates(joint.throughput_mpps, joint.low_mpps, joint.high_mpps), joint.converged


def _composed(members: Members, rows: Indices, how: Manner, order: Indices) -> Rates:
    """Predict the targets of mixes `rows` by composing, and return them in another order."""
    part = Members(members.tenants, members.target[rows], members.places[rows])
    count = len(rows)
    mpps, low, high = (np.full(count, np.nan) for _ in range(3))
    kind = beside(part.places)
    for here, targets in _groups(part, how.model):
        features = _features(part, here, how)
        for number, mine in targets:
            subject = part.tenants[number].model
            at = here[mine]
            mpps[at] = subject.model(how.model).predict_mpps(features[mine])
            low[at], high[at] = interval_mpps(subject, how.model, mpps[at], how.coverage, kind[at])
    solo = np.array([tenant.model.solo_mpps for tenant in part.tenants] or [np.nan])[part.target]
    alone = (part.places < 0).all(axis=1)
    mpps[alone] = solo[alone]
    low[alone], high[alone] = measured_alone_mpps(solo[alone])
    return Rates(mpps[order], low[order], high[order])


def _groups(members: Members, model: str) -> Iterator[tuple[Indices, list[tuple[int, slice]]]]:
    """Yield rows that share their features, and for each target among them which of these rows are its own."""
    order = np.argsort(members.target, kind="stable")
    numbers, starts = np.unique(members.target[order], return_index=True)
    parts = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in parts:
        groups.setdefault(_reads(members.tenants[number].model, model), []).append(number)
    for group in groups.values():
        rows = np.concatenate([parts[number] for number in group])
        ends = np.cumsum([len(parts[number]) for number in group]).tolist()
        yield rows, [(number, slice(end - len(parts[number]), end)) for number, end in zip(group, ends, strict=True)]


def _reads(subject: NFModel, model: str) -> tuple[object, ...]:
    """Return what determines the features of a target: two targets with the same share one pass."""
    family = subject.model(model)
    own = any(name.startswith(TRAFFIC_PREFIX) for name in family.feature_names)
    return family.feature_names, family.composition, subject.capacities, tuple(subject.traffic.items()) if own else ()


def _features(members: Members, rows: Indices, how: Manner) -> Floats:
    subject = members.tenants[int(members.target[rows[0]])].model
    family = subject.model(how.model)
    return mix_features(
        members.models,
        members.places[rows],
        family.feature_names,
        capacities=subject.capacities,
        composition=family.composition,
        compat=how.compat,
        traffic=subject.traffic,
    )
