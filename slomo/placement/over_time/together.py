"""Decide in one plan where new requests go and which placed requests move, since each depends on the other.

Placed first, newcomers open servers that no few moves empty again. Requests that a constraint binds, have several
pieces, or a disruption budget stay, and so does whoever shares a socket with them.

What a socket holds may stay there; every piece that comes to it counts. The master problem of Gilmore and Gomory
(Operations Research 9, 1961) gets a limit on the sockets of each present content, and one on all pieces that come. Its
prices find the mix that a socket of each content should become; an integer program over all such changes gives whole
sockets. The prices also bound what any plan with so many moves can reach (Lagrange). Work is limited, not time, so that
a loaded machine makes the same plan as an idle one.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.admission import Admission
from slomo.placement.online.checker import Before, worsened
from slomo.placement.online.sockets import Spot
from slomo.placement.online.state import ClusterState
from slomo.placement.over_time.repack import MoveBudget
from slomo.placement.planning.columns import Counts, linear_plan, whole_numbers
from slomo.placement.planning.shared_pricing import SharedPricing
from slomo.placement.problem.request import Request
from slomo.vocabulary.vector import Floats

#: How many pieces of each class a socket holds.
Content = tuple[int, ...]
#: Numbers of pricing rounds, of mixes of one content added in each, and of rounds with other prices afterwards.
_MOST_ROUNDS, _MIXES_PER_ROUND, _OTHER_PRICES = 40, 6, 8
#: Cost of an unserved request, and of a piece that comes, in sockets: of plans with equal sockets, few moves are best.
_UNSERVED, _LITTLE = 1000.0, 1e-4
#: Relative gap at which the integer program may stop, number of its nodes, and of pricings of contents over all rounds.
_GAP, _MOST_NODES, _MOST_PRICINGS = 1e-6, 1000, 10_000


@dataclass(frozen=True)
class Refilling:
    """Planned change of what each socket runs."""

    #: Content before and after, and number of sockets; empty sockets come from `(0, ..., 0)`.
    changes: tuple[tuple[Content, Content, int], ...]
    #: No plan with so many moves takes fewer sockets, for mixes of which every part holds.
    lower_bound: int


def refilled(
    present: Mapping[Content, int],
    empty: int,
    demand: Counts,
    coming: int,
    pricing: SharedPricing,
    *,
    cost_per_move: float = 0.0,
) -> Refilling | None:
    """Plan what each socket shall run so that the fewest sockets serve all requests; None if none can.

    `present`: content -> sockets in use that hold it. `empty`: sockets that hold nothing. `demand`, shape (classes,):
    pieces of each class: those that run, and newcomers. `coming`: pieces that may come to a socket: newcomers and
    moves. `pricing`: of every class twice: pieces that stay, then pieces that come. `cost_per_move`: what a move costs,
    in sockets.
    """
    classes = len(demand)
    contents = [*present, (0,) * classes]
    supply = np.array([*present.values(), empty, coming], dtype=np.float64)
    changes = dict.fromkeys((number, content) for number, content in enumerate(contents[:-1]))
    alone = np.eye(classes, dtype=np.int64).tolist()
    changes |= dict.fromkeys((len(present), tuple(each)) for each in alone)
    bound = 0.0
    for _ in range(min(_MOST_ROUNDS, _MOST_PRICINGS // len(contents) + 1)):
        program = _program(contents, list(changes), classes)
        value, _, prices = linear_plan(*program[:2], demand.astype(np.float64), program[2], supply)
        worth, rent, each = prices[:classes], prices[classes:-1], prices[-1]
        reached, fresh = float(worth @ demand - each * coming), 0
        for number, content in enumerate(contents):
            mixes = _best(pricing, content, demand, worth, each)
            reached += supply[number] * min(1.0 - max((gain for gain, _ in mixes), default=0.0), 0.0)
            for gain, after in mixes:
                if gain > 1.0 + rent[number] + 1e-7 and (number, after) not in changes:
                    changes[number, after] = None
                    fresh += 1
        bound = max(bound, reached)
        if not fresh or value - bound < 1e-3:
            break
    generator = np.random.default_rng(0)
    for _ in range(_OTHER_PRICES):  # whole sockets need mixes that fractions do not
        others = worth * generator.uniform(0.7, 1.3, classes)
        for number, content in enumerate(contents):
            mixes = _best(pricing, content, demand, others, each)
            changes |= dict.fromkeys((number, after) for gain, after in mixes if gain > rent[number])
    listed = list(changes)
    cost, serves, uses = _program(contents, listed, classes)
    cost[: len(listed)] += max(cost_per_move, _LITTLE) * uses[-1, : len(listed)]
    least = math.ceil(bound - 1e-6)  # the program need not prove that no plan takes fewer sockets
    uses = np.vstack([uses, np.where(np.arange(len(cost)) < len(listed), -1.0, 0.0)])
    counts = whole_numbers(
        cost, serves, demand.astype(np.float64), uses, np.append(supply, -least), gap=_GAP, node_limit=_MOST_NODES
    )
    if counts is None or counts[len(listed) :].any():
        return None
    made = [(contents[number], after, int(count)) for (number, after), count in zip(listed, counts, strict=False)]
    return Refilling(_trimmed([change for change in made if change[2]], demand), least)


def _best(
    pricing: SharedPricing, content: Content, demand: Counts, worth: Floats, each: float
) -> list[tuple[float, Content]]:
    """Return the most valuable mixes to which sockets with one mix can change, with their values."""
    prices, stay = np.concatenate([worth, worth - each]), np.array(content, dtype=np.int64)
    mixes = []
    for column in pricing.best(prices, np.concatenate([stay, demand - stay]), _MIXES_PER_ROUND):
        serves = np.array(column.serves)
        mixes.append((float(prices @ serves), tuple((serves[: len(worth)] + serves[len(worth) :]).tolist())))
    return mixes


def _program(
    contents: list[Content], changes: list[tuple[int, Content]], classes: int
) -> tuple[Floats, Floats, Floats]:
    """Return the arrays of the linear program: costs, requests served, sockets used."""
    owner = np.array([number for number, _ in changes])
    after = np.array([mix for _, mix in changes], dtype=np.float64)
    uses = np.zeros((len(contents) + 1, len(changes) + classes))
    uses[owner, np.arange(len(changes))] = 1.0
    uses[-1, : len(changes)] = np.maximum(after - np.array(contents)[owner], 0.0).sum(axis=1)
    cost = np.concatenate([np.ones(len(changes)), np.full(classes, _UNSERVED)])
    return cost, np.hstack([after.T, np.eye(classes)]), uses


def _trimmed(changes: list[tuple[Content, Content, int]], demand: Counts) -> tuple[tuple[Content, Content, int], ...]:
    """Remove requests that a plan serves twice, new ones first; return one change per socket."""
    sockets = [(before, np.array(after)) for before, after, count in changes for _ in range(count)]
    surplus = np.sum([after for _, after in sockets], axis=0) - demand
    for at in np.flatnonzero(surplus > 0).tolist():
        for _, after in sorted(sockets, key=lambda socket: min(socket[0][at] - int(socket[1][at]), 0)):
            taken = min(int(surplus[at]), int(after[at]))
            after[at] -= taken
            surplus[at] -= taken
    return tuple((before, tuple(after.tolist()), 1) for before, after in sockets)


@dataclass(frozen=True)
class JointPlacement:
    """Where new requests go, and which placed requests move for them."""

    core: Admission
    #: As in `Reoptimisation`; None for servers of several sockets.
    lower_bound: int | None


def planned_together(core: Admission, arriving: Sequence[Request], budget: MoveBudget) -> JointPlacement | None:
    """Return the plan of one kind of server with fewest sockets, within the limit on moves; None if impossible."""
    state = core.state
    if len(state.hosts) != 1 or state.limited or state.hosts[0].port_gbps is not None:
        return None
    host = state.hosts[0]
    newcomers = {request.id: piece for request in arriving if (piece := _piece(core, request, host)) is not None}
    free, bound = _sockets(core, host)
    demand = Counter([*(piece for at in free for piece in state.sockets[at].signature), *newcomers.values()])
    pieces = sorted(demand)
    pricing = core.policy.refilling(host, {piece: demand[piece] for piece in pieces})
    if pricing is None:
        return None
    contents = {at: tuple(map(state.sockets[at].signature.count, pieces)) for at in free}
    counts, empty = np.array([demand[piece] for piece in pieces], dtype=np.int64), state.empty_sockets(host)
    may_move = len(state.spots) if budget.max_moves is None else budget.max_moves
    plan = refilled(
        Counter(contents.values()), len(empty), counts, len(newcomers) + may_move, pricing,
        cost_per_move=budget.cost_per_move,
    )  # fmt: skip
    if plan is None:
        return None
    made = core.with_state(state.copy())
    before = Before(dict(state.requests), dict(state.spots))
    requests = [(request, newcomers[request.id]) for request in arriving if request.id in newcomers]
    _carry_out(made.state, plan, pieces, contents, empty, requests)
    if made.place([request for request in arriving if request.id not in newcomers]) or worsened(made, before):
        return None
    single = all(len(server.nics) == 1 for server in state.servers)
    lower = plan.lower_bound + len({state.sockets[at].server for at in bound}) if single else None
    return JointPlacement(made, lower)


def _piece(core: Admission, request: Request, host: Host) -> int | None:
    """Return a request's unit of placement if it has one instance and only its SLO restricts it; else None."""
    if not core.is_plain(request) or request.max_disrupted is not None:
        return None
    first = next((cuts[host] for cuts in core.cuts(request, []) if host in cuts), ())
    numbers = [core.pieces.number(piece) for piece in first]
    return numbers[0] if len(numbers) == 1 and _is_simple(core, numbers[0]) else None


def _is_simple(core: Admission, number: int) -> bool:
    """Return whether a piece (what is placed together) is one NF that shares the cache and has a throughput promise."""
    piece = core.pieces[number]
    alone = len(piece.workloads) == piece.replicas == 1 and not piece.exclusive
    return alone and not piece.ways and piece.needed_mpps > 0.0


def _sockets(core: Admission, host: Host) -> tuple[list[int], list[int]]:
    """Return the sockets in use on which everything may move, and the other sockets in use."""
    state = core.state
    stay = {
        name
        for name, request in state.requests.items()
        if len(state.spots[name]) > 1 or request.max_disrupted is not None or not core.is_plain(request)
    }
    free: list[int] = []
    bound: list[int] = []
    for number, place in enumerate(state.sockets):
        if place.signature:
            may = place.host == host and place.server not in state.closed
            may = may and all(owner not in stay and _is_simple(core, piece) for owner, piece, _ in place.cores.values())
            (free if may else bound).append(number)
    return free, bound


def _carry_out(
    state: ClusterState,
    plan: Refilling,
    pieces: Sequence[int],
    contents: dict[int, Content],
    empty: Sequence[int],
    arriving: Sequence[tuple[Request, int]],
) -> None:
    """Move and place requests as planned."""
    by_content: dict[Content, list[int]] = {(0,) * len(pieces): list(reversed(empty))}
    for number in sorted(contents, reverse=True):
        by_content.setdefault(contents[number], []).append(number)
    become = [(by_content[before].pop(), after) for before, after, _ in plan.changes]
    become += [(at, (0,) * len(pieces)) for content, rest in by_content.items() if any(content) for at in rest]
    waiting: dict[int, list[tuple[Request, Spot | None]]] = {piece: [] for piece in pieces}
    for request, piece in reversed(arriving):
        waiting[piece].append((request, None))
    for number, after in become:
        surplus = Counter(state.sockets[number].signature)
        surplus.subtract(dict(zip(pieces, after, strict=True)))
        for _, (owner, piece, _) in sorted(state.sockets[number].cores.items(), reverse=True):
            if surplus[piece] > 0:
                surplus[piece] -= 1
                waiting[piece].append((state.requests[owner], (number, piece)))
    for requests in waiting.values():
        for request, spot in requests:
            if spot is not None:
                state.take(request, spot)
    for number, after in become:
        short = Counter(dict(zip(pieces, after, strict=True)))
        short.subtract(state.sockets[number].signature)
        for piece in (+short).elements():
            request, spot = waiting[piece].pop()
            state.put(request, (number, piece))
            if spot is None:
                state.keep(request, [(number, piece)])
            else:
                state.settle(request.id, [(number, piece)])
    assert not any(waiting.values()), "BUG: a plan that serves all left someone out"
