"""Place requests on empty sockets as a plan says: by mixes (equal requests are interchangeable), or one by one.

ResQ (NSDI'18) section 5.3 plans a batch as a whole; requests that the plan leaves out are admitted one by one.

ResQ (NSDI'18, section 6.2) uses Dobrescu et al.'s predictor in a scheduler this way: an instance's throughput is
predicted after its server is chosen, and another instance is added for the shortfall. Every instance counts as
saturated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.online.sockets import Spot
from slomo.placement.online.state import ClusterState
from slomo.placement.policies.base import Policy, Seats
from slomo.placement.problem.request import Request


def seat_mixes(
    state: ClusterState,
    policy: Policy,
    host: Host,
    plan: Mapping[Signature, int],
    queues: Mapping[int, Sequence[Request]],
) -> set[str]:
    """Place requests so that empty sockets get the mixes of a plan; return the placed requests.

    If requests run out before the plan does, the partly filled mix must be feasible too. Mixes with exclusive ways are
    checked again as well: their plans consider cores and ways, not ports.

    `queues` maps the piece that stands for a class to the requests of the class.
    """
    empty = iter(state.empty_sockets(host))
    pending = {piece: iter(queue) for piece, queue in queues.items()}
    primary = policy.cutting(host).primary
    taken: set[str] = set()
    for signature, count in sorted(plan.items(), key=lambda item: (-len(item[0]), item[0])):
        for _ in range(count):
            seats = [(piece, next(pending[primary.get(piece, piece)], None)) for piece in signature]
            here = [(piece, request) for piece, request in seats if request is not None]
            mix = tuple(piece for piece, _ in here)
            planned = mix == signature and not any(policy.pieces[piece].ways for piece in mix)
            if not here or not (planned or policy.oracle.verdict(host, mix).ok):
                continue
            socket = next(empty, None)
            if socket is None:
                return taken
            for piece, request in here:
                state.put(request, (socket, piece))
                state.keep(request, [(socket, piece)])
                taken.add(request.id)
    return taken


def seat_requests(state: ClusterState, host: Host, requests: Sequence[Request], seats: Seats) -> set[str]:
    """Place each request where a plan says; return the placed requests."""
    empty = state.empty_sockets(host)
    taken: set[str] = set()
    for request in requests:
        mine = seats.get(request.id, [])
        if not mine or max(at for at, _ in mine) >= len(empty):
            continue
        spots = [(empty[at], state.pieces.number(piece)) for at, piece in mine]
        for spot in spots:
            state.put(request, spot)
        state.keep(request, spots)
        taken.add(request.id)
    return taken


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
