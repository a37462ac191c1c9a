"""Add instances to requests that miss their SLO, until all meet it or there is no more room.

E2 (SOSP'15) section 5: scale out on overload, and split traffic over all instances.
"""

from collections.abc import Callable, Mapping

from slomo.placement.feasibility.mixes import Piece
from slomo.placement.online.admission import Admission

#: Largest number of rounds of observation per batch.
MOST_ROUNDS = 12


def scale_out(core: Admission, observe: Callable[[], Mapping[str, float]], needed_mpps: Mapping[str, float]) -> None:
    """Add instances to requests that miss their SLO; `observe` returns the throughput of every request [Mpps]."""
    for _ in range(MOST_ROUNDS):
        seen = observe()
        short = [name for name, needed in needed_mpps.items() if seen.get(name, 0.0) < needed]
        if not sum(_one_more(core, name, needed_mpps[name]) for name in short):
            return


def _one_more(core: Admission, name: str, needed_mpps: float) -> bool:
    """Split a request's traffic over one more instance, if that is allowed and there is room."""
    state = core.state
    request, spots = state.requests[name], state.spots[name]
    if len(spots) >= request.replicas:
        return False
    workloads = tuple(workload.key for workload in request.chain)
    each = request.capacity_for(needed_mpps, len(spots) + 1)
    if each is None:
        return False
    piece = state.pieces.number(Piece(workloads, each))
    target = core.best(request, dict.fromkeys(state.hosts, piece), spots)
    if target is None:
        return False
    moved = [(number, piece) for number, _ in (*spots, target)]
    for spot in spots:
        state.take(request, spot)
    for spot in moved:
        state.put(request, spot)
    state.settle(name, moved)
    return True
