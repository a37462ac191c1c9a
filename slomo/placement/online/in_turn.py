"""Place the instances of a request one after the other, each on the first server where it breaks no promise.

ResQ (NSDI'18, section 6.2) uses Dobrescu et al.'s predictor in a scheduler this way: an instance's throughput is
predicted after its server is chosen, and another instance is added for the shortfall. Every instance counts as
saturated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slomo.placement.feasibility.mixes import Host, Piece
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.online.sockets import Spot
from slomo.placement.online.state import ClusterState
from slomo.placement.problem.request import Request

#: A promise too small to bind [Mpps]; it marks an instance as one with a promise.
_HARDLY_MPPS = 1e-9
#: Finds a socket for a piece of a request, given its number on each kind of socket, and where other pieces run.
Best = Callable[[Request, Mapping[Host, int], Sequence[Spot]], Spot | None]


def put_in_turn(
    state: ClusterState, oracle: Oracle, best: Best, request: Request, pieces: Mapping[Host, Piece], grid: float
) -> bool:
    """Place instances that serve a request together; return False, and place none, if they cannot.

    `pieces` has, for each kind of socket, the piece that would serve the request alone. The promise of an instance
    is rounded down to multiples of `grid`, a share of the request's need.
    """
    hardly = {host: state.pieces.number(replace(piece, needed_mpps=_HARDLY_MPPS)) for host, piece in pieces.items()}
    with state.trial() as trial:
        spots: list[Spot] = []
        missing = 1.0
        while missing > 1e-9 and len(spots) < request.replicas:
            spot = best(request, hardly, spots)
            if spot is None:
                break
            piece = pieces[state.sockets[spot[0]].host]
            share = min(_share(state, oracle, spot, piece, grid), missing)
            spot = (spot[0], state.pieces.number(replace(piece, needed_mpps=share * piece.needed_mpps)))
            state.put(request, spot)
            spots.append(spot)
            missing -= share
        if missing > 1e-9:
            trial.undo()
            return False
        state.keep(request, spots)
    return True


def _share(state: ClusterState, oracle: Oracle, spot: Spot, piece: Piece, grid: float) -> float:
    """Return the share of a request's promise that one instance can keep on a socket, on the SLO grid."""
    place = state.sockets[spot[0]]
    rates = oracle.verdict(place.host, state.pieces.grown(place.signature, spot[1])).rates
    share = min((rates[key][1] for key in piece.workloads), default=0.0) / piece.needed_mpps
    return min(math.floor(share / grid + 1e-9) * grid, 1.0)
