"""Empty servers by moving their pieces to others without breaking an SLO.

ResQ (NSDI'18) section 5.3 migrates only if that saves enough; here a server is emptied completely or not at all, so
that no move is useless.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.checker import Before, worsened
from slomo.placement.online.sockets import Socket, Spot
from slomo.placement.online.state import Allowed, ClusterState
from slomo.placement.problem.request import Request

if TYPE_CHECKING:
    from slomo.placement.online.admission import Admission

#: Finds a socket for a piece of a request among allowed sockets.
Chooser = Callable[[Request, Mapping[Host, int], Allowed, Callable[[Socket], float] | None], Spot | None]


@dataclass(frozen=True)
class Move:
    """One piece that moved.

    Attributes
    ----------
    request : str
        Whose.
    source, target : str
        Servers.
    """

    request: str
    source: str
    target: str


def consolidate(core: "Admission", max_moves: int) -> tuple[Move, ...]:
    """Empty the servers with the fewest pieces within the budget of moves; return the moves."""
    done: list[Move] = []
    state = core.state
    before = Before(dict(state.requests), dict(state.spots))
    for server in sorted(
        {place.server for place in state.sockets if place.signature}, key=lambda s: (_load(state, s), s)
    ):
        if 0 < _load(state, server) <= max_moves - len(done):
            done += _emptied(core, server, before)
    return tuple(done)


def _load(state: ClusterState, server: int) -> int:
    return sum(len(state.sockets[number].signature) for number in state.sockets_of(server))


def _emptied(core: "Admission", server: int, before: Before) -> list[Move]:
    """Move everything off a server to others in use, or nothing."""
    moves: list[Move] = []
    state = core.state
    with state.trial() as trial:
        for name in state.tenants_of(server):
            for spot in [each for each in state.spots[name] if state.sockets[each[0]].server == server]:
                target = moved_spot(
                    state, core.best, name, spot, lambda place: bool(place.signature) and place.server != server
                )
                if target is None:
                    trial.undo()
                    return []
                moves.append(Move(name, *(state.servers[state.sockets[at].server].name for at in (spot[0], target[0]))))
        if worsened(core, before):
            trial.undo()
            return []
    return moves


def moved_spot(
    state: ClusterState, choose: Chooser, name: str, spot: Spot, test: Callable[[Socket], bool]
) -> Spot | None:
    """Move one piece of a request to the best socket of the same kind that passes a test; None without one."""
    request, host = state.requests[name], state.sockets[spot[0]].host
    rest = list(state.spots[name])
    rest.remove(spot)
    near = state.allowed(request, rest)
    target = choose(
        request, {host: spot[1]}, lambda place, count: test(place) and (near is None or near(place, count)),
        state.score(request, rest),
    )  # fmt: skip
    if target is not None:
        state.take(request, spot)
        state.put(request, target)
        state.settle(name, [*rest, target])
    return target
