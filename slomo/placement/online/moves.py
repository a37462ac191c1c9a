"""Empty servers by moving what runs there to other servers without breaking an SLO.

ResQ (NSDI'18) section 5.3 migrates only if that saves enough; here a server is emptied completely or not at all, so
that no move is useless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slomo.placement.feasibility.mixes import without
from slomo.placement.online.checker import Before, worsened
from slomo.placement.online.sockets import Socket, Spot
from slomo.placement.online.state import ClusterState

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission

#: Number of servers that could not be emptied after which swaps are given up; swaps tried for one piece.
SWAPPED_SERVERS, SWAPS = 8, 64


@dataclass(frozen=True)
class Move:
    """A move of one piece (unit of placement: instances together on a socket)."""

    #: Id of the request whose piece moves.
    request: str
    #: Servers.
    source: str
    target: str


def consolidate(core: "Admission", max_moves: int) -> tuple[Move, ...]:
    """Empty the servers on which least runs, within the limit on moves; a piece may push another to a third server."""
    done: list[Move] = []
    state = core.state
    before = Before(dict(state.requests), dict(state.spots))
    failed = 0
    for server in sorted(
        {place.server for place in state.sockets if place.signature}, key=lambda s: (_load(state, s), s)
    ):
        if 0 < _load(state, server) <= max_moves - len(done):
            moves = _emptied(core, server, before, max_moves - len(done), swaps=failed < SWAPPED_SERVERS)
            failed += not moves
            done = _joined(done, moves)
    return tuple(done)


def _joined(done: Sequence[Move], moves: Sequence[Move]) -> list[Move]:
    """Return earlier and later moves; a request moves once, later, if nothing took the place that it left.

    >>> _joined([Move("nat", "a", "b")], [Move("ids", "b", "c"), Move("nat", "b", "c")])
    [Move(request='ids', source='b', target='c'), Move(request='nat', source='a', target='c')]
    """
    made = list(done)
    filled = {move.target for move in (*done, *moves)}
    for move in moves:
        earlier = [each for each in done if each.request == move.request]
        alone = len(earlier) == 1 == sum(each.request == move.request for each in moves)
        if alone and earlier[0].target == move.source and earlier[0].source not in filled:
            made.remove(earlier[0])
            move = replace(move, source=earlier[0].source)
        made.append(move)
    return made


def _load(state: ClusterState, server: int) -> int:
    return sum(len(state.sockets[number].signature) for number in state.sockets_of(server))


def _emptied(core: "Admission", server: int, before: Before, most: int, *, swaps: bool) -> list[Move]:
    """Move everything off a server to others in use, or nothing."""
    moves: list[Move] = []
    state = core.state
    here = [
        (name, spot)
        for name in state.tenants_of(server)
        for spot in state.spots[name]
        if state.sockets[spot[0]].server == server
    ]
    with state.trial() as trial:
        for name, spot in here:
            target = moved_spot(core, name, spot, lambda place: bool(place.signature) and place.server != server)
            made = [] if target is None else [move_of(state, name, spot, target)]
            if target is None and swaps and len(moves) + 2 <= most:
                made = _made_room(core, name, spot)
            moves += made
            if not made or len(moves) > most:
                trial.undo()
                return []
        if worsened(core, before):
            trial.undo()
            return []
    return moves


def move_of(state: ClusterState, name: str, spot: Spot, target: Spot) -> Move:
    """Return the move of a piece from one place to another, by the names of the servers."""
    return Move(name, *(state.servers[state.sockets[at].server].name for at in (spot[0], target[0])))


def _made_room(core: "Admission", name: str, spot: Spot) -> list[Move]:
    """Move part of a request to a socket from which something lighter moves away; return both moves, or none.

    Glover (Discrete Applied Mathematics 65, 1996) calls it an ejection chain, here of length two.
    """
    state, source = core.state, core.state.sockets[spot[0]]
    weights = {piece: core.policy.weight(source.host, piece) for place in state.sockets for piece in place.signature}
    lighter = [
        (weights[piece], number, piece)
        for number, place in enumerate(state.sockets)
        if place.host == source.host and place.server != source.server and place.server not in state.closed
        for piece in sorted(set(place.signature))
        if weights[piece] < weights[spot[1]]
    ]
    left = {(at, piece): without(state.sockets[at].signature, piece) for _, at, piece in sorted(lighter)[:SWAPS]}
    held = core.policy.oracle.holding(source.host, spot[1], list(dict.fromkeys(left.values())), hopeful=False)
    fits = {grown.base for grown in held}
    swapped = (_swapped(core, name, spot, other) for other, signature in left.items() if signature in fits)
    return next((moves for moves in swapped if moves), [])


def _swapped(core: "Admission", name: str, spot: Spot, other: Spot) -> list[Move]:
    """Move part of a request into the place of another one, which moves to a third server, or move nothing."""
    state = core.state
    source, place = state.sockets[spot[0]], state.sockets[other[0]]
    owner = next(owner for owner, kind, _ in place.cores.values() if kind == other[1])
    with state.trial() as trial:
        left = come = None
        if owner != name:
            away = (source.server, place.server)
            left = moved_spot(core, owner, other, lambda at: bool(at.signature) and at.server not in away)
        if left is not None:
            there = (place.server, place.socket)
            come = moved_spot(core, name, spot, lambda at: (at.server, at.socket) == there)
        if left is not None and come is not None:
            return [move_of(state, owner, other, left), move_of(state, name, spot, come)]
        trial.undo()
    return []


def moved_spot(core: "Admission", name: str, spot: Spot, test: Callable[[Socket], bool]) -> Spot | None:
    """Move one part of a request to the best socket of its kind that passes a test; None if there is none."""
    state = core.state
    request, rest = state.requests[name], list(state.spots[name])
    rest.remove(spot)
    target = core.best(request, {state.sockets[spot[0]].host: spot[1]}, rest, test)
    if target is not None:
        state.take(request, spot)
        state.put(request, target)
        state.settle(name, [*rest, target])
    return target
