"""Predict all NFs of a server together, for many servers in one call.

This goes beyond SLOMO (SIGCOMM'20) section 6, which composes vectors averaged over past pressure. Each NF's vector is a
continuous function of the others' summed vectors, clipped to the measured range. The joint map therefore maps a box
into itself and has a fixed point (Brouwer). A round with damping d turns an eigenvalue q of the joint map into 1 - d +
d q, whose absolute value is below 1 for 1 - 2 / d < q < 1. NFs that all slow down together have negative eigenvalues;
two NFs that evict each other from the cache have positive ones. The remaining distance after the last step is estimated
as step * r / (1 - r), r the ratio of the last two steps (Banach).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.compose.saturation import saturate
from slomo.equilibrium.rounds import LEAST_LOAD, TINY, IterationState, busy_part, load_of, served_part, waited
from slomo.equilibrium.settling import ResponseTable, distinct_mixes, response_table
from slomo.equilibrium.tables import Tables, flows_and_polled, reader, vector_tables
from slomo.errors import InvalidValueError
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.error_shape import shapes_at
from slomo.models.interval_ends import ends_mpps, predicted_loss
from slomo.models.intervals import scores_between
from slomo.models.neighbourhood import Kinds, beside_loads, within
from slomo.models.nf_model import NFModel
from slomo.models.responses.arrivals import arrival_half_width_mpps
from slomo.models.responses.server_response import ServerResponse
from slomo.vocabulary.metrics import METRICS, Rule

#: Number of servers whose throughputs are computed together.
_CHUNK = 32_768
_PER_PLACE = ("pressure", "load", "throughput_mpps", "low_mpps", "high_mpps")


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """The equilibria of converged servers, from which counters can be computed later."""

    #: Pressure of the others on each NF, shape (servers, places, pressures).
    pressure: Floats
    #: Served share of an NF's possible throughput; 1 for a saturated NF, shape (servers, places).
    load: Floats
    #: Memory latency as a multiple of that of a channel that is just full; 1 if the channel is not full. It is part of
    #: `pressure`, shape (servers,).
    waiting: Floats


@dataclass(frozen=True, eq=False)
class Joint(FixedPoints):
    """Predictions for many servers, as arrays; an empty place holds 0."""

    #: Served throughput, and lower and upper bound of its interval [Mpps], shape (servers, places).
    throughput_mpps: Floats
    low_mpps: Floats
    high_mpps: Floats
    #: Whether the rounds converged, shape (servers,).
    converged: NDArray[np.bool_]
    #: Number of rounds, shape (servers,).
    rounds: NDArray[np.int64]
    #: Size of the last step divided by that of the step before, shape (servers,).
    ratio: Floats
    #: Bound on the remaining distance, as a share of `slomo.equilibrium.rounds.Servers.reference`, shape (servers,).
    bound: Floats

    @classmethod
    def empty(cls, servers: int, places: int, pressures: int) -> "Joint":
        """Return arrays of 0 for so many servers."""
        pressure, (load, mpps, low, high) = np.zeros((servers, places, pressures)), np.zeros((4, servers, places))
        (waiting, ratio, bound), converged = np.zeros((3, servers)), np.zeros(servers, dtype=bool)
        return cls(pressure, load, waiting, mpps, low, high, converged, np.zeros(servers, dtype=np.int64), ratio, bound)

    def only(self, rows: NDArray[np.integer] | list[int]) -> "Joint":
        """Return the predictions for a selection of the servers, by row number."""
        return Joint(**{name: getattr(self, name)[rows] for name in Joint.__dataclass_fields__})


def solve_joint(
    models: Sequence[NFModel],
    members: NDArray[np.int64],
    offered_mpps: Floats | None = None,
    *,
    coverage: float = 0.9,
    window_s: float | None = None,
    first_only: bool = False,
) -> Joint:
    """Find the equilibria of many servers (sockets) in one call.

    Raises the errors of `slomo.equilibrium.settling.responses_of`; InvalidValueError for arrays whose shapes do not
    match, or a measurement of length 0.

    `models`: the distinct NFs, all with a `response`. `members`, shape (servers, places): index into `models` per
    place, -1 for an empty place; the order of places does not matter, to the last bit. `offered_mpps`, same shape:
    offered load; NaN (and everything, by default) saturates an NF. `window_s`: length of the measurement to which the
    intervals apply, since arrivals vary; by default that of the calibration mixes at reduced load, or else of the
    profile's runs. `first_only`: compute only the throughput of the NF in the first place, which saves half of the
    time; at saturating load, others then have 0.
    """
    models = tuple(models)
    check_servers(models, members, offered_mpps)
    order, members, offered = canonical(ranks(models), members, offered_mpps)
    read = (members >= 0) & (order == 0) if first_only else members >= 0
    nfs = response_table(models)
    joint = Joint.empty(len(members), members.shape[1], len(nfs.socket.caps))
    reduced: NDArray[np.bool_] = np.logical_or.reduce(np.isfinite(offered), axis=1)
    # servers with reduced loads are solved together, so that rows are independent
    for rows in (np.flatnonzero(~reduced), np.flatnonzero(reduced)):
        if not len(rows):
            continue
        mixes, loads, back = members[rows], offered[rows], None
        if is_saturated := not reduced[rows[0]]:  # each distinct server once
            mixes, back = distinct_mixes(mixes, len(models))
        state = nfs.settle(nfs.group(mixes, None if is_saturated else loads))
        kinds = within(mixes) if is_saturated else beside_loads(within(mixes), np.isfinite(loads))
        servers = np.arange(len(rows)) if back is None else back
        for begin in range(0, len(rows), _CHUNK):
            part, here = rows[begin : begin + _CHUNK], servers[begin : begin + _CHUNK]
            asked = members[part], offered[part], order[part], read[part]
            _read(nfs, (part, here), asked, (state, kinds), (coverage, window_s), joint)
    return joint


@lru_cache(maxsize=256)
def ranks(models: tuple[NFModel, ...]) -> NDArray[np.int64]:
    """Return the rank of each model in the canonical order of tenants."""
    rank = np.empty(len(models) + 1, dtype=np.int64)
    rank[sorted(range(len(models)), key=lambda number: models[number].workload.key)] = np.arange(len(models))
    rank[-1] = len(models)
    return rank


def canonical(
    rank: NDArray[np.int64], members: NDArray[np.integer], offered_mpps: Floats | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the canonical order of places, and members and loads in this order; saturated NFs get infinite loads."""
    whole: NDArray[np.int64] = np.asarray(members, dtype=np.int64)
    rows = np.arange(len(whole))[:, None]
    if offered_mpps is None:
        order = np.argsort(rank[whole], axis=1, kind="stable")
        return order, whole[rows, order], np.full(whole.shape, np.inf)
    offered = np.where((whole >= 0) & ~np.isnan(offered_mpps), offered_mpps, np.inf)
    order = np.lexsort((offered, rank[whole]), axis=-1)
    return order, whole[rows, order], offered[rows, order]


def check_servers(models: Sequence[NFModel], members: NDArray[np.integer], offered_mpps: Floats | None) -> None:
    """Raise an error for arrays whose shapes do not match, or invalid loads."""
    members = np.asarray(members)
    shape = members.shape
    wrong = not models or len(shape) != 2
    if wrong or members.max(initial=-1) >= len(models) or members.min(initial=-1) < -1:
        raise InvalidValueError(
            f"servers of shape {shape} and {len(models)} models do not belong together",
            hint="needed: indices of the models, shape (servers, places), -1 for an empty place",
        )
    if offered_mpps is not None and (np.shape(offered_mpps) != shape or (np.asarray(offered_mpps) <= 0.0).any()):
        raise InvalidValueError(
            f"offered loads of shape {np.shape(offered_mpps)} for servers of shape {shape}, or a load not above 0 Mpps",
            hint="one load per place, NaN where the NF is saturated",
        )


def joint_vectors(
    models: Sequence[NFModel], members: NDArray[np.integer], solved: FixedPoints, names: tuple[str, ...]
) -> Floats:
    """Return the counters of every NF's core in the equilibrium, shape ``(servers, places, len(names))``.

    NaN for a metric that an NF did not report, and for instructions below full load, since polling adds to them. An NF
    without neighbours has its solo vector. The content of a cache depends on the order of accesses, not on their speed.
    Halving an NF's rate therefore has the same effect on it as doubling its neighbours' rates, except that its queue is
    short (`ServerResponse.part_load`). Occupancy is not a rate and is not scaled.
    """
    who: NDArray[np.int64] = np.asarray(members, dtype=np.int64)
    nfs = response_table(tuple(models))
    responses = nfs.responses
    rates, polled = flows_and_polled(names)
    solo, weight, low, high = (part[who] for part in vector_tables(responses, names))
    inner, load, present = nfs.table, solved.load[:, :, None], (who >= 0)[:, :, None]
    here, count = present[:, :, 0], present.sum(axis=1, keepdims=True)
    neighbours = np.broadcast_to(count[:, :, 0] - 1.0, who.shape)[here]
    served = np.zeros((*who.shape, 1))
    possible = reader(responses, who[here], neighbours)(solved.pressure[here])
    served[here, 0] = np.multiply(solved.load[here], possible)
    added = waited(nfs.socket, solved.waiting)
    beside = np.maximum(solved.pressure - added, 0.0), added
    moved = _under(nfs, who, beside, load, (weight, low, high))
    if inner.part_load is not None and (load[here] < 1.0).any():
        part = served_part(served, inner.high[who][..., [inner.pressures]])
        ends = [each[who] for each in vector_tables(responses, names, part_load=True)[1:]]
        idle = _under(nfs, who, beside, part, ends, inner.part_load)
        full, busy = _under(nfs, who, beside, np.ones_like(load), (weight, low, high)), busy_part(load)
        known = (inner.part_load.start[who][:, :, :1] > 0.0) & (load < 1.0)
        moved = np.where(known, busy * full + (1.0 - busy) * idle, moved)
    result = np.where(count == 1, solo * np.where(rates, load, 1.0), moved * np.where(rates, served, 1.0))
    result = np.where(present, result, 0.0)
    if "LMB" in names and nfs.socket.channel is not None and nfs.corrects_traffic:
        # on a loaded channel, the rounds' traffic of an NF is more accurate
        own, by_all = _own_and_all(beside[0][:, :, nfs.socket.channel], here)
        known = here & (count[:, :, 0] > 1) & nfs.loads(by_all)
        result[:, :, names.index("LMB")][known] = own[known]
    if "L3OCC" in names and nfs.socket.held is not None:
        # for a cache divided by age, the rounds have computed each NF's occupancy
        own, _ = _own_and_all(beside[0][:, :, nfs.socket.held], here)
        known = here & (count[:, :, 0] > 1) & (nfs.knows_age[who] | ~here).all(axis=1, keepdims=True)
        result[:, :, names.index("L3OCC")][known] = own[known]
    total = np.nansum(result, axis=1)
    saturated, _ = saturate(total, names, nfs.socket.capacities)
    if "L3OCC" in names:
        held = names.index("L3OCC")
        least = np.minimum(np.nansum(solo[:, :, held] * present[:, :, 0], axis=1), nfs.full_kib(who))
        saturated[:, held] = np.maximum(saturated[:, held], least)
    adds_up = np.array([METRICS[name].rule is Rule.SUM for name in names], dtype=bool)
    result *= np.where(adds_up, saturated / np.maximum(total, TINY), 1.0)[:, None, :]
    return np.where(polled & (load < 1.0) & (who >= 0)[:, :, None], np.nan, result)


def _own_and_all(others: Floats, here: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return each NF's amount, and that of all NFs together."""
    others = others * here
    by_all = others.sum(axis=1, keepdims=True) / np.maximum(here.sum(axis=1, keepdims=True) - 1.0, 1.0)
    return np.maximum(by_all - others, 0.0), by_all


def _under(
    nfs: ResponseTable,
    members: NDArray[np.integer],
    pressure: tuple[Floats, Floats],
    share: Floats,
    answers: Sequence[Floats],
    table: Tables | None = None,
) -> Floats:
    """Return counters at the given pressure, for packets that arrive at a `share` of the measured speed.

    The pressure has two parts: the others' traffic, which is divided by `share`, and the channel's waiting, which is
    not.
    """
    table, rates = table or nfs.table, flows_and_polled(nfs.responses[0].pressure_names)[0]
    stretched = pressure[0] * np.where(rates, 1.0 / np.maximum(share, LEAST_LOAD), 1.0) + pressure[1]
    basis = pressure_basis(stretched, table.scale[members], table.limit[members])
    read: Floats = np.matmul(basis[:, :, None, :], answers[0])[:, :, 0, :]
    return np.minimum(np.maximum(read, answers[1]), answers[2])


def _read(
    nfs: ResponseTable,
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    asked: tuple[NDArray[np.int64], Floats, NDArray[np.int64], NDArray[np.bool_]],
    solved: tuple[IterationState, Kinds],
    how: tuple[float, float | None],
    joint: Joint,
) -> None:
    """Write the predictions of some servers into `joint`; throughputs are those of the networks at the equilibrium.

    `rows`: the servers' rows in `joint`, and in `solved`, which holds each distinct server once, with the neighbourhood
    of every NF. `asked`: NFs, offered loads and their order (:func:`canonical`), and for which NFs throughputs are
    needed. `how`: coverage and length of the measurement.
    """
    (part, servers), (members, most, order, read), (state, kinds), (coverage, window_s) = rows, asked, solved, how
    at, place = np.nonzero(read)
    who, count = members[at, place], np.add.reduce(members >= 0, axis=1)
    mpps = state.mpps[servers[at], place]
    if (unread := np.isnan(mpps)).any():
        pressure = state.pressure[servers[at[unread]], place[unread]]
        mpps[unread] = reader(nfs.responses, who[unread], count[at[unread]] - 1.0)(pressure)
    alone = (count == 1)[at]
    mpps[alone] = nfs.solo_mpps[who[alone]]
    solo, scores = nfs.solo_mpps[who], _scores(nfs.responses, coverage)[:, who, kinds[servers[at], place]]
    middle, size = shapes_at(nfs.shapes, who, predicted_loss(mpps, solo))
    below, above = (middle + size * score for score in scores)
    if (measured := alone & ~nfs.is_carried[who]).any():
        reach = np.array([model.alone_reach(coverage) for model in nfs.models])[who]
        below, above = np.where(measured, -reach, below), np.where(measured, reach, above)
    low, high = ends_mpps(mpps, solo, (below, above))
    into = part[at], order[at, place]
    joint.load[part[:, None], order] = members >= 0
    if np.isfinite(most).any():
        offered = most[at, place]
        joint.load[into] = load = load_of(offered, mpps)
        mpps, spread = np.minimum(mpps, offered), _arrivals(nfs.responses, who, (offered, load), coverage, window_s)
        low, high = np.maximum(np.minimum(low, offered - spread), 0.0), np.minimum(high, offered + spread)
    joint.throughput_mpps[into], joint.low_mpps[into], joint.high_mpps[into] = mpps, low, high
    back = np.argsort(order, axis=1) + (servers * order.shape[1])[:, None]
    joint.pressure[part] = state.pressure.reshape(-1, state.pressure.shape[2]).take(back, axis=0)
    if not (here := joint.load[part] > 0.0).all():
        joint.pressure[part] *= here[:, :, None]
    for name in ("waiting", "converged", "rounds", "ratio", "bound"):
        getattr(joint, name)[part] = getattr(state, name)[servers]


@lru_cache(maxsize=256)
def _scores(responses: tuple[ServerResponse, ...], coverage: float) -> Floats:
    """Return the known errors that give the lower and upper bound of intervals, shape (2, NFs, neighbourhoods)."""
    each = np.array([scores_between(response.calibration, coverage) for response in responses])
    return each.swapaxes(0, 1)


def _arrivals(
    responses: Sequence[ServerResponse],
    who: NDArray[np.int64],
    loads: tuple[Floats, Floats],
    coverage: float,
    window_s: float | None,
) -> Floats:
    """Return how much a measurement may deviate from the offered load [Mpps]; `loads` are in Mpps, and as shares."""
    spread, (offered, load) = np.zeros(who.shape), loads
    for number in np.unique(who[np.isfinite(offered)]).tolist():
        here = (who == number) & np.isfinite(offered)
        scores = responses[number].arrivals
        spread[here] = arrival_half_width_mpps(offered[here], load[here], scores, coverage, window_s)
    return spread


def placed_back(joint: Joint, order: NDArray[np.int64]) -> Joint:
    """Return results in the original order of places."""
    if (order == np.arange(order.shape[1])).all():
        return joint
    rows, back = np.arange(len(order))[:, None], np.argsort(order, axis=1)
    return replace(joint, **{name: getattr(joint, name)[rows, back] for name in _PER_PLACE})
