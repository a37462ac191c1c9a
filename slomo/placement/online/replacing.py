"""Give a request the place of others: a new version that of the old one, a high priority that of lower ones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slomo.placement.online.change import ClusterChange
from slomo.placement.online.checker import Before, broken_constraints
from slomo.placement.online.moves import Move
from slomo.placement.online.sockets import Spot
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.request import Request

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission


def in_place(core: "Admission", request: Request) -> bool:
    """Replace a request by its new version on the same cores; return False, and change nothing, if it does not fit."""
    state = core.state
    old, spots = state.requests[request.id], state.spots[request.id]
    before = Before({request.id: old}, {request.id: spots})
    cores = [_cores_of(core, request.id, spot, spots[:at]) for at, spot in enumerate(spots)]
    needs_same = (old.chain, old.slo) == (request.chain, request.slo)
    options: list[tuple[int, ...]] = [tuple(piece for _, piece in spots)] if needs_same else []
    hosts = {state.sockets[number].host for number, _ in spots}
    for cut in core.cuts(request, []):
        if hosts <= set(cut) and all(len(cut[host]) == len(spots) for host in hosts):
            ranked = {host: sorted(cut[host], key=lambda piece: -piece.instances) for host in hosts}
            order = sorted(range(len(spots)), key=lambda at: -state.pieces[spots[at][1]].instances)
            pieces = {at: ranked[state.sockets[spots[at][0]].host][rank] for rank, at in enumerate(order)}
            options.append(tuple(state.pieces.number(pieces[at]) for at in range(len(spots))))
    for pieces_there in dict.fromkeys(options):
        with state.trial() as trial:
            seats = tuple(zip(spots, pieces_there, cores, strict=True))
            if _reseated(core, request, seats) and not broken_constraints(core, [request.id], before):
                return True
            trial.undo()
    return False


def replaced(core: "Admission", request: Request, *, surge: bool) -> Decision:
    """Place a request's new version, with the old one still there or without; the caller undoes a refusal."""
    state = core.state
    if not surge:
        state.forget(request.id)
        return core.admit(request)
    old = f"{request.id} (before)"
    state.renamed(request.id, old)
    decision = core.admit(request)
    if decision.accepted:
        state.forget(old)
    return core.writer.decision(request.id) if decision.accepted else decision


def fewest_victims(core: "Admission", request: Request) -> list[Request] | None:
    """Return the fewest requests to remove from one server so that a request fits; None if no server works."""
    state = core.state
    best: tuple[tuple[int, int, int], list[Request]] | None = None
    for number in range(len(state.servers)):
        if number in state.closed:
            continue
        weaker = [state.requests[name] for name in state.tenants_of(number)]
        weaker = [r for r in weaker if r.gang is None and state.may_move(r, state.spots[r.id])]
        weaker = sorted((r for r in weaker if r.priority < request.priority), key=lambda r: (r.priority, r.id))
        gone = _enough(core, request, weaker) if weaker else None
        if gone:
            cost = (max(each.priority for each in gone), len(gone), number)
            best = (cost, gone) if best is None or cost < best[0] else best
    return None if best is None else best[1]


def preempted(core: "Admission", request: Request, victims: Sequence[Request], what: str) -> ClusterChange:
    """Admit a request in the place of its victims; these are placed elsewhere if there is room."""
    homes: Mapping[str, tuple[str, ...]] = {each.id: core.writer.decision(each.id).servers for each in victims}
    for each in victims:
        core.state.forget(each.id)
    placed = core.admit(request)
    assert placed.accepted, "BUG: the victims were found to make room"
    decisions = [core.admitted(each) for each in sorted(victims, key=lambda r: -r.priority)]
    moves = tuple(Move(d.request, homes[d.request][0], target) for d in decisions for target in d.servers)
    return ClusterChange(what, True, moves, tuple(d for d in decisions if not d.accepted))


def _cores_of(core: "Admission", name: str, spot: Spot, earlier: Sequence[Spot]) -> tuple[int, ...]:
    """Return the cores of one part of a request; of equal parts, the first has the lowest cores."""
    number, piece = spot
    mine = sorted(
        c for c, (owner, kind, _) in core.state.sockets[number].cores.items() if (owner, kind) == (name, piece)
    )
    stages = len(core.state.pieces[piece].workloads)
    first = stages * list(earlier).count(spot)
    return tuple(mine[first : first + stages])


def _reseated(core: "Admission", request: Request, seats: Sequence[tuple[Spot, int, tuple[int, ...]]]) -> bool:
    """Put a request's new version on the cores of the old one; return whether they suffice."""
    state = core.state
    state.forget(request.id)
    spots: list[Spot] = []
    for (number, _), piece, cores in seats:
        place, stages = state.sockets[number], len(state.pieces[piece].workloads)
        free = [c for c in range(place.host.places) if c not in place.cores and c not in cores]
        chosen = [*cores, *free][:stages]
        if len(chosen) < stages or any(core_ in place.cores for core_ in chosen):
            return False
        state.put(request, (number, piece), chosen)
        spots.append((number, piece))
    state.keep(request, spots)
    return True


def _enough(core: "Admission", request: Request, weaker: Sequence[Request]) -> list[Request] | None:
    """Return the first few of some requests, as many as must be removed to make room."""
    with core.state.trial() as trial:
        trial.undo()
        for count, each in enumerate(weaker, 1):
            core.state.forget(each.id)
            if core.admit(request).accepted:
                return list(weaker[:count])
    return None
