"""Place requests on empty sockets as a plan says: by mixes (equal requests are interchangeable), or one by one.

ResQ (NSDI'18) section 5.3 plans a batch as a whole; requests that the plan leaves out are admitted one by one.
"""

from collections.abc import Mapping, Sequence

from slomo.placement.feasibility.mixes import Host, Signature
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
