"""Decide in one plan where new requests go and which placed requests move, since each depends on the other.

Placed first, newcomers open servers that no few moves empty again. Requests that a constraint binds, have several
pieces, or a disruption budget stay, and so does whoever shares a socket with them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.admission import Admission
from slomo.placement.online.checker import Before, worsened
from slomo.placement.online.sockets import Spot
from slomo.placement.online.state import ClusterState
from slomo.placement.over_time.repack import MoveBudget
from slomo.placement.planning.refilling import Content, Refilling, refilled
from slomo.placement.problem.request import Request


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
