"""Add instances to requests that miss their SLO, until all meet it or there is no more room.

E2 (SOSP'15) section 5: scale out on overload, and split traffic over all instances.
"""

from collections.abc import Callable, Mapping

from slomo.placement.feasibility.mixes import Piece
from slomo.placement.online.state import ClusterState
from slomo.placement.problem.request import Request

#: Largest number of rounds of observation per batch.
MOST_ROUNDS = 12


def scale_out(
    state: ClusterState,
    observe: Callable[[], Mapping[str, float]],
    needed_mpps: Mapping[str, float],
    choose: Callable[[Request, int], int | None],
) -> int:
    """Add instances, on sockets that `choose` finds or None, to requests that miss their SLO; return their number."""
    added = 0
    for _ in range(MOST_ROUNDS):
        seen = observe()
        short = [name for name, needed in needed_mpps.items() if name in state.spots and seen.get(name, 0.0) < needed]
        grown = sum(_one_more(state, name, needed_mpps[name], choose) for name in short)
        added += grown
        if not grown:
            break
    return added


def _one_more(state: ClusterState, name: str, needed_mpps: float, choose: Callable[[Request, int], int | None]) -> bool:
    """Split a request's traffic over one more instance, if that is allowed and there is room."""
    request, spots = state.requests[name], state.spots[name]
    if len(spots) >= request.replicas:
        return False
    workloads = tuple(workload.key for workload in request.chain)
    each = request.capacity_for(needed_mpps, len(spots) + 1)
    if each is None:
        return False
    piece = state.pieces.number(Piece(workloads, each))
    socket = choose(request, piece)
    if socket is None:
        return False
    moved = [(number, piece) for number in (*(spot[0] for spot in spots), socket)]
    for spot in spots:
        state.take(request, spot)
    for spot in moved:
        state.put(request, spot)
    state.settle(name, moved)
    return True
