"""Move everything off servers that are drained, tainted or failed, higher priorities first."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slomo.placement.online.change import ClusterChange
from slomo.placement.online.checker import Before, broken_constraints, keeps_promise
from slomo.placement.online.constraints import means
from slomo.placement.online.moves import Move, move_of, moved_spot
from slomo.placement.online.sockets import Spot
from slomo.placement.problem.request import Request, is_must

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission


def failed(core: "Admission", numbers: Sequence[int], what: str) -> ClusterChange:
    """Close failed servers, and place elsewhere what ran on them."""
    state = core.state
    lost = dict.fromkeys(name for number in numbers for name in state.tenants_of(number))
    for number in numbers:
        state.close(number, "failed")
    return without(core, [state.requests[name] for name in lost], numbers, what)


def without(core: "Admission", lost: Sequence[Request], numbers: Sequence[int], what: str) -> ClusterChange:
    """Remove requests from some servers and place them elsewhere, higher priorities first."""
    state, gone = core.state, set(numbers)
    before = {r.id: state.spots[r.id] for r in lost}
    homes = {name: [state.servers[at].name for at in state.homes(spots)] for name, spots in before.items()}
    ranked = _named_first(lost)
    whole: list[Request] = []
    for request in ranked:  # lost requests are removed first, so that all find the room they leave
        staying = [spot for spot in before[request.id] if state.sockets[spot[0]].server not in gone]
        if not staying:
            state.forget(request.id)
            whole.append(request)
            continue
        for spot in before[request.id]:
            if spot not in staying:
                state.take(request, spot)
        state.settle(request.id, staying)
    degraded, refused = [], []
    for request in ranked:
        if request not in whole and not _completed(core, request, before[request.id]):
            if request.survives is not None and keeps_promise(core, request):
                degraded.append(request.id)
                continue
            state.forget(request.id)
            whole.append(request)
        if request in whole:
            decision = core.admitted(request)
            refused += [] if decision.accepted else [decision]
    then = Before({r.id: r for r in lost}, before)
    for request in [r for r in ranked if r.id in state.spots]:  # of two that want each other near one came first
        if any(item.constraint == "affinity" for item in broken_constraints(core, [request.id], then)):
            state.forget(request.id)
            decision = core.admitted(request)
            refused += [] if decision.accepted else [decision]
    moves = []
    for name, spots in before.items():
        now = [state.servers[at].name for at in state.homes(state.spots.get(name, ()))]
        source = next(state.servers[state.sockets[n].server].name for n, _ in spots if state.sockets[n].server in gone)
        moves += [Move(name, source, target) for target in dict.fromkeys(now) if target not in homes[name]]
    return ClusterChange(what, True, tuple(moves), tuple(refused), degraded=tuple(degraded))


def emptied(core: "Admission", number: int, max_moves: int | None) -> tuple[tuple[Move, ...], list[str]]:
    """Move everything off a server, most demanding first; return the moves and the requests that cannot move."""
    state = core.state
    moves: list[Move] = []
    left: list[str] = []
    names = sorted(state.tenants_of(number), key=lambda name: (-state.requests[name].priority, name))
    for name in names:
        here = [each for each in state.spots[name] if state.sockets[each[0]].server == number]
        if not state.may_move(state.requests[name], here):
            left.append(name)
            continue
        for spot in here:
            budget = max_moves is None or len(moves) < max_moves
            target = moved_spot(core, name, spot, lambda place: place.server != number) if budget else None
            if target is None:
                left.append(name)
                break
            moves.append(move_of(state, name, spot, target))
    return tuple(moves), left


def _named_first(lost: Sequence[Request]) -> list[Request]:
    """Return requests by priority, but each after the requests that its affinity names."""
    order: dict[str, Request] = {}

    def add(request: Request, above: frozenset[str]) -> None:
        terms = [item for item in request.affinity if is_must(item)]
        for other in lost if terms else ():
            if other.id not in order and other.id not in above and any(means(item, other) for item in terms):
                add(other, above | {other.id})
        order.setdefault(request.id, request)

    for request in sorted(lost, key=lambda request: -request.priority):
        add(request, frozenset({request.id}))
    return list(order.values())


def _completed(core: "Admission", request: Request, whole: Sequence[Spot]) -> bool:
    """Place elsewhere all that a request has lost, or nothing."""
    state = core.state
    missing = Counter(piece for _, piece in whole) - Counter(piece for _, piece in state.spots[request.id])
    with state.trial() as trial:
        for piece in missing.elements():
            spots = state.spots[request.id]
            spot = core.best(request, dict.fromkeys(state.hosts, piece), spots)
            if spot is None:
                trial.undo()
                return False
            state.put(request, spot)
            state.settle(request.id, [*spots, spot])
        before = Before({request.id: request}, {request.id: tuple(whole)})
        if broken_constraints(core, [request.id], before):
            trial.undo()
            return False
    return True
