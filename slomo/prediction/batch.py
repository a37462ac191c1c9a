"""Predict a hundred thousand mixes in one call; the results equal `slomo.prediction.question` to the last bit.

Servers are solved, or features composed, in a few passes over arrays. Results are cached between calls only if the
caller asks for it (`keep`); the speed does not depend on caching. Mixes that share an accelerator or full ports are
predicted one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.competition import features_for
from slomo.equilibrium.judgement import codes_of_first, reasons_of_first
from slomo.equilibrium.memo import JointMemo
from slomo.equilibrium.server import Joint, solve_joint
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import VERDICTS, Verdict
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.interval_ends import at_most, stretched
from slomo.models.neighbourhood import beside
from slomo.models.nf_model import NFModel
from slomo.models.responses.latent import PAIRS, LatentSensitivity
from slomo.models.sharing import accelerator_shared, ports_full
from slomo.prediction.answers import Answers, answers_on
from slomo.prediction.composed import interval_mpps, measured_alone_mpps, repeats_of
from slomo.prediction.fixed_point import NAME
from slomo.prediction.members import Indices, Members
from slomo.prediction.options import PredictionOptions
from slomo.prediction.question import answer
from slomo.prediction.result import Judgement, PredictionBatch
from slomo.prediction.tenants import TenantModel, TenantModels, check_cores
from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL
from slomo.vocabulary.vector import Floats

#: Largest number of cached mixes per set of models and coverage; they take about 20 MB.
MOST_MIXES = 100_000


@dataclass(frozen=True, eq=False)
class Rates:
    """Predicted throughput and interval [Mpps], arrays of one shape."""

    mpps: Floats
    low: Floats
    high: Floats

    def put(self, where: object, rates: "Rates") -> None:
        """Write the given throughputs and intervals into a part of these arrays."""
        for mine, theirs in zip((self.mpps, self.low, self.high), (rates.mpps, rates.low, rates.high), strict=True):
            mine[where] = theirs  # type: ignore[call-overload]


@dataclass(frozen=True, eq=False)
class Places(Rates):
    """Throughputs, limited by the offered loads, and intervals of all NFs on many servers."""

    #: Throughput that each NF could serve, whatever its offered load [Mpps], shape (servers, places).
    possible: Floats
    #: Which servers were predicted by their fixed point, shape (servers,).
    jointly: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Servers:
    """Many servers as arrays: the distinct models, the index of the model at each place (-1 if empty), and its load."""

    models: tuple[NFModel, ...]
    who: Indices
    offered: Floats

    @classmethod
    def of(cls, tenants: Sequence[TenantModel], members: Indices) -> "_Servers":
        """Give a number to each distinct model of the servers' NFs; a model with two different loads counts once."""
        models, number, loads = _numbered(tuple(tenants))
        return cls(models, number[members], loads[members])

    def jointly(self, how: PredictionOptions) -> NDArray[np.bool_]:
        """Return the servers that the equilibrium can predict: those on which all models support it."""
        if how.by_composing:
            return np.zeros(len(self.who), dtype=bool)
        every: NDArray[np.bool_] = np.logical_and.reduce(_supporting(self.models)[0][self.who], axis=1)
        return every

    def sharing(self) -> NDArray[np.bool_]:
        """Return the servers whose NFs share an accelerator or full ports, which are predicted one by one."""
        return accelerator_shared(self.models, self.who) | ports_full(self.models, self.who, self.offered)

    def at(self, rows: Indices) -> "_Servers":
        """Return some of these servers, by their row numbers."""
        who, offered = self.who[rows], self.offered[rows]
        if _supporting(self.models)[1]:
            return _Servers(self.models, who, offered)
        used, packed = np.unique(who, return_inverse=True)
        empty = int(used[0] < 0)
        models = tuple(self.models[code] for code in used[empty:].tolist())
        return _Servers(models, packed.reshape(who.shape) - empty, offered)

    def solved(self, how: PredictionOptions, *, keep: bool = False, first_only: bool = False) -> Joint:
        """Predict these servers; with `keep`, reuse cached results of earlier calls."""
        loads = self.offered if np.isfinite(self.offered).any() else None
        if keep and how.window_s is None:
            return _kept(self.models, how.coverage).solve(self.who, loads)
        asked = self.models, self.who, loads
        return solve_joint(*asked, coverage=how.coverage, window_s=how.window_s, first_only=first_only)


@lru_cache(maxsize=8)
def _kept(models: tuple[NFModel, ...], coverage: float) -> JointMemo:
    """Return the cache of predicted mixes of these models."""
    return JointMemo(models, coverage=coverage, most=MOST_MIXES)


@lru_cache(maxsize=64)
def _numbered(tenants: tuple[TenantModel, ...]) -> tuple[tuple[NFModel, ...], Indices, Floats]:
    """Return distinct models, each tenant's model (-1: empty place), and its offered load (NaN: saturated)."""
    models = tuple(dict.fromkeys(tenant.model for tenant in tenants))
    code = {model: number for number, model in enumerate(models)}
    loads = [np.nan if tenant.offered_mpps is None else tenant.offered_mpps for tenant in tenants]
    return models, np.array([*(code[tenant.model] for tenant in tenants), -1]), np.array([*loads, np.nan])


@lru_cache(maxsize=64)
def _supporting(models: tuple[NFModel, ...]) -> tuple[NDArray[np.bool_], bool]:
    """Return which models support the equilibrium (last: an empty place), and whether one server can hold them all."""
    responses = [model.response for model in models]
    every = {None if response is None else response.pressure_names for response in responses}
    return np.array([*(response is not None for response in responses), True]), len(every - {None}) == len(every) == 1


def predict_members(members: Members, machine: str, how: PredictionOptions, *, keep: bool = False) -> PredictionBatch:
    """Predict the target of every mix; `keep` caches solved mixes for later calls with the same tenants."""
    whole, tenants = np.column_stack([members.target, members.places]), members.tenants
    most = np.zeros(len(members.tenants), dtype=np.int64)
    np.maximum.at(most, members.target, (whole >= 0).sum(axis=1))
    for number in np.flatnonzero(most):
        check_cores(members.tenants[number].model, int(most[number]))
    servers = _Servers.of(tenants, whole)
    rates, jointly, plain = _empty(members.target.shape), servers.jointly(how), replace(how, explain=False)
    made = np.array([*(bool(tenant.adapted) for tenant in tenants), False])
    slow = servers.sharing() | (made[members.target] & (members.places < 0).all(axis=1))  # unmeasured solo runs
    rows, rest = np.flatnonzero(jointly & ~slow), np.flatnonzero(~jointly & ~slow)
    nothing: list[Judgement | None] = [None] * len(whole)
    judged: Callable[[], list[Judgement | None]] = nothing.copy
    if len(rows):
        here = servers.at(rows)
        joint = here.solved(how, keep=keep, first_only=True)
        rates.put(rows, Rates(joint.throughput_mpps[:, 0], joint.low_mpps[:, 0], joint.high_mpps[:, 0]))
        rest = np.sort(np.concatenate([rest, rows[~joint.converged]]))
        arrays = joint.converged & ~(made[whole[rows]].any(axis=1) | np.isfinite(here.offered[:, 0]))
        judged = partial(_judged, here, joint, how.coverage, (nothing, rows, arrays))
    if len(rest):
        rates.put(rest, _composed(servers, rest, how))
    predicted: dict[tuple[int, ...], Rates] = {}  # each distinct mix is predicted once
    for row in np.flatnonzero(slow).tolist():
        mix = (int(whole[row, 0]), *sorted(whole[row, 1:].tolist()))
        if mix not in predicted:
            predicted[mix] = _rates_of(answers_on(_server(tenants, mix, machine), plain), 0)
        rates.put(row, predicted[mix])
    offered = servers.offered[:, 0]
    solo = np.array([model.solo_mpps for model in servers.models] or [np.nan])[servers.who[:, 0]]
    return PredictionBatch(
        machine=machine,
        model=NAME if len(jointly) and jointly.all() else how.model,
        coverage=how.coverage,
        target=members.target,
        competitors=members.places,
        workloads=tuple(tenant.workload for tenant in tenants),
        units=tuple(tenant.model.throughput_unit for tenant in tenants),
        noises=tuple(tenant.model.noise for tenant in tenants),
        solo_mpps=np.fmin(solo, offered),
        throughput_mpps=rates.mpps,
        low_mpps=rates.low,
        high_mpps=rates.high,
        judged=judged,
        judge=partial(_judged_alone, tenants, whole, machine, plain),
    )


def _judged(
    servers: _Servers, joint: Joint, coverage: float, places: tuple[list[Judgement | None], Indices, NDArray[np.bool_]]
) -> list[Judgement | None]:
    """Return verdicts and reasons of the mixes; None for mixes that cannot be judged in arrays."""
    nothing, rows, arrays = places
    judgements, codes = nothing.copy(), codes_of_first(servers.models, servers.who, joint, coverage)
    for row in rows[arrays & (codes == 0)].tolist():
        judgements[row] = (VERDICTS[0], ())
    doubtful = np.flatnonzero(arrays & (codes != 0) & ~np.isfinite(servers.offered).any(axis=1))
    reasons = reasons_of_first(servers.models, servers.who[doubtful], joint.only(doubtful), coverage)
    for row, code, why in zip(rows[doubtful].tolist(), codes[doubtful].tolist(), reasons, strict=True):
        judgements[row] = (VERDICTS[code], why)
    return judgements


def _judged_alone(
    tenants: Sequence[TenantModel], whole: Indices, machine: str, how: PredictionOptions, row: int
) -> Judgement:
    try:
        prediction = answer(_server(tenants, whole[row].tolist(), machine), how)
    except UnsupportedPredictionError as error:
        return Verdict.UNSUPPORTED, (error.message,)
    return prediction.verdict, prediction.reasons


def predict_places(tenants: Sequence[TenantModel], members: Indices, machine: str, how: PredictionOptions) -> Places:
    """Predict all tenants of many servers.

    `members`, shape (servers, places): indices of `tenants` in ascending order, then -1 for empty places; equal tenants
    are predicted once. The result is NaN if a competitor lacks a metric that the model needs, and at empty places.
    """
    servers, plain = _Servers.of(tenants, members), replace(how, explain=False)
    jointly, sharing = servers.jointly(how), servers.sharing()
    mpps, low, high, possible = (np.full(members.shape, np.nan) for _ in range(4))
    places = Places(mpps, low, high, possible, jointly)
    rows, rest = np.flatnonzero(jointly & ~sharing), np.flatnonzero(~jointly & ~sharing)
    if servers.who[rows].max(initial=-1) >= 0:
        here = servers.at(rows)
        joint = here.solved(how)
        places.put(rows, Rates(joint.throughput_mpps, joint.low_mpps, joint.high_mpps))
        load = np.where(np.isfinite(here.offered) & (joint.load > 0.0), joint.load, 1.0)
        places.possible[rows] = joint.throughput_mpps / load
        moving = rows[~joint.converged]
        places.jointly[moving] = False
        rest = np.sort(np.concatenate([rest, moving]))
    for row in np.flatnonzero(sharing).tolist():
        _put_sharing(places, row, answers_on(_server(tenants, members[row].tolist(), machine), plain))
    if len(rest):
        _put_composed(places, rest, servers, how)
    places.possible[members < 0] = np.nan
    return places


def _put_composed(all_places: Places, rows: Indices, servers: _Servers, how: PredictionOptions) -> None:
    """Write the composed predictions of all NFs on the servers `rows`; equal NFs are computed once."""
    who, offered = servers.who[rows], servers.offered[rows]
    first = who >= 0
    first[:, 1:] &= who[:, 1:] != who[:, :-1]
    at, places = np.nonzero(first)
    turned = np.arange(who.shape[1] - 1) + (np.arange(who.shape[1] - 1) >= places[:, np.newaxis])
    order = np.column_stack([places, turned])
    saturated = np.full(order.shape, np.nan)
    targets = _Servers(servers.models, np.take_along_axis(who[at], order, axis=1), saturated)
    each = _composed(targets, np.arange(len(at)), how)
    number = np.cumsum(first.ravel()).reshape(first.shape) - 1  # of the latest NF that differs from the one before
    all_places.possible[rows] = each.mpps[number]
    served, ends = at_most(each.mpps[number], (each.low[number], each.high[number]), offered)
    all_places.put(rows, Rates(served, *ends))


def _put_sharing(places: Places, row: int, answers: Answers) -> None:
    """Write the predictions of one server whose NFs share an accelerator or full ports."""
    places.jointly[row] = answers.solved is not None
    for place in range(len(answers.server.tenants)):
        rates = _rates_of(answers, place)
        places.put((row, place), rates)
        loads = [None if i == place else load for i, load in enumerate(answers.loads)]
        full = answers.loads[place] is None
        lifted = rates if full else _rates_of(Answers(answers.server, answers.how, loads), place)
        places.possible[row, place] = lifted.mpps


def _server(tenants: Sequence[TenantModel], row: Sequence[int], machine: str) -> TenantModels:
    return TenantModels(machine, tuple(tenants[number] for number in row if number >= 0))


def _rates_of(answers: Answers, number: int) -> Rates:
    try:
        prediction = answers.prediction(number)
    except UnsupportedPredictionError:
        return _empty(())
    return Rates(*(np.array(value) for value in (prediction.throughput_mpps, *prediction.interval)))


def _empty(shape: tuple[int, ...]) -> Rates:
    return Rates(*(np.full(shape, np.nan) for _ in range(3)))


def _composed(servers: _Servers, rows: Indices, how: PredictionOptions) -> Rates:
    """Predict the first NF of each server in `rows` from composed vectors, up to its offered load."""
    models, target, places = servers.models, servers.who[rows, 0], servers.who[rows, 1:]
    offered = servers.offered[rows, 0]
    if how.model == DEFAULT_MODEL and (by_name := _beside_names(models, servers.who[rows])).any():
        rates = _empty(rows.shape)
        for part, name in ((by_name, PAIRS), (~by_name, how.model)):
            rates.put(part, _composed(servers, rows[part], replace(how, method=COMPOSED, model=name)))
        return rates
    mpps, low, high = (np.full(len(rows), np.nan) for _ in range(3))
    kind = beside(places)
    for here, targets in _groups(models, target, how.model):
        first = models[targets[0][0]]
        features = features_for(first, first.model(how.model), models, places[here], how.compat)
        for number, mine in targets:
            subject = models[number]
            at = here[mine]
            mpps[at] = subject.model(how.model).predict_mpps(features[mine])
            low[at], high[at] = interval_mpps(subject, how.model, mpps[at], how.coverage, kind[at])
            family, repeats = subject.model(how.model), repeats_of(subject, how.coverage)
            if isinstance(family, LatentSensitivity):
                factor = family.stretch((places[at] >= 0).sum(axis=1))
                low[at], high[at] = stretched(mpps[at], (low[at], high[at]), factor, subject.solo_mpps)
            if repeats is not None and isinstance(family, LatentSensitivity):
                known = at[family.were_measured(features[mine])]
                low[known], high[known] = repeats.interval_mpps(
                    mpps[known], subject.solo_mpps, how.coverage, kind[known]
                )
    solo = np.array([model.solo_mpps for model in models] or [np.nan])[target]
    alone = (places < 0).all(axis=1)
    mpps[alone] = solo[alone]
    if alone.any():
        reach = np.array([model.alone_reach(how.coverage) for model in models])[target]
        low[alone], high[alone] = measured_alone_mpps(solo[alone], reach[alone])
    unknown, (served, ends) = np.isnan(mpps), at_most(mpps, (low, high), offered)
    return Rates(*(np.where(unknown, np.nan, each) for each in (served, *ends)))


def _beside_names(models: Sequence[NFModel], who: Indices) -> NDArray[np.bool_]:
    """Return the rows of a profiled NF beside one known by name alone (`NFModel.named_beside`)."""
    chosen = np.array([*(model.chosen == PAIRS for model in models), False])
    able = np.array([*(PAIRS in model.sensitivity for model in models), False]) & ~chosen
    rows: NDArray[np.bool_] = able[who[:, 0]] & chosen[who[:, 1:]].any(axis=1)
    return rows


def _groups(
    models: Sequence[NFModel], target: Indices, model: str
) -> Iterator[tuple[Indices, list[tuple[int, slice]]]]:
    """Yield groups of rows whose models have the same features, with each target's rows in the group."""
    order = np.argsort(target, kind="stable")
    numbers, starts = np.unique(target[order], return_index=True)
    parts = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in parts:
        groups.setdefault(_reads(models[number], model), []).append(number)
    for group in groups.values():
        rows = np.concatenate([parts[number] for number in group])
        ends = np.cumsum([len(parts[number]) for number in group]).tolist()
        yield rows, [(number, slice(end - len(parts[number]), end)) for number, end in zip(group, ends, strict=True)]


def _reads(subject: NFModel, model: str) -> tuple[object, ...]:
    """Return a key of the features of a target's model; targets with equal keys are predicted together."""
    family = subject.model(model)
    own = any(name.startswith(TRAFFIC_PREFIX) for name in family.feature_names)
    return family.feature_names, family.composition, subject.capacities, tuple(subject.traffic.items()) if own else ()
