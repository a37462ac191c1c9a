"""Empty servers: move their pieces to others on which every SLO still holds.

ResQ (NSDI'18) section 5.3 migrates only where that saves enough; here a server is emptied whole or left alone, so that
no move is for nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slomo.placement.feasibility.mixes import Host
from slomo.placement.online.state import Socket, Spot, State

#: Finds a socket for a piece, given which sockets are allowed.
Chooser = Callable[[Mapping[Host, int], Callable[[Socket], bool]], Spot | None]


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


def consolidate(state: State, choose: Chooser, max_moves: int) -> tuple[Move, ...]:
    """Empty the servers with the fewest pieces while moves are left; return the moves made."""
    done: list[Move] = []
    for server in sorted(
        {place.server for place in state.sockets if place.signature}, key=lambda s: (_load(state, s), s)
    ):
        if 0 < _load(state, server) <= max_moves - len(done):
            done += _emptied(state, choose, server)
    return tuple(done)


def _load(state: State, server: int) -> int:
    return sum(len(place.signature) for place in state.sockets if place.server == server)


def _emptied(state: State, choose: Chooser, server: int) -> list[Move]:
    """Move everything off a server, or nothing."""
    inside = {number for number, place in enumerate(state.sockets) if place.server == server}
    owners = [name for name, spots in state.spots.items() if any(number in inside for number, _ in spots)]
    before = {name: state.spots[name] for name in owners}
    moves: list[Move] = []
    for name in owners:
        for spot in before[name]:
            target = _moved(state, choose, name, spot, server) if spot[0] in inside else spot
            if target is None:
                _put_back(state, before)
                return []
            if target != spot:
                moves.append(
                    Move(name, *(state.cluster.servers[state.sockets[at].server].name for at in (spot[0], target[0])))
                )
    return moves


def _moved(state: State, choose: Chooser, name: str, spot: Spot, server: int) -> Spot | None:
    """Move one piece to a socket in use elsewhere."""
    request, host = state.requests[name], state.sockets[spot[0]].host
    rest = list(state.spots[name])
    rest.remove(spot)
    near = state.allowed(request, rest)
    target = choose(
        {host: spot[1]},
        lambda place: bool(place.signature) and place.server != server and (near is None or near(place)),
    )
    if target is not None:
        state.take(name, spot)
        state.put(name, target)
        state.keep(request, [*rest, target])
    return target


def _put_back(state: State, before: Mapping[str, tuple[Spot, ...]]) -> None:
    for name, spots in before.items():
        request = state.requests[name]
        state.forget(name)
        for spot in spots:
            state.put(name, spot)
        state.keep(request, spots)
