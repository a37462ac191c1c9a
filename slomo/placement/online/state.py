"""What runs where: sockets grouped by signature, so that the best socket is found among kinds of sockets, not sockets.

A signature's sockets are interchangeable; the one with the lowest number is taken, so that decisions can be repeated.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from slomo.placement.feasibility.mixes import Host, Pieces, Signature, host_of, without
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import Request


@dataclass
class Socket:
    """One socket of one server, and what runs on its cores.

    Attributes
    ----------
    server : int
        Index into the cluster's servers.
    socket : int
        Number within the server.
    host : Host
        Kind of socket.
    signature : Signature
        Its mix.
    cores : dict of int to (str, int, int)
        Core -> request, piece, stage.
    """

    server: int
    socket: int
    host: Host
    signature: Signature = ()
    cores: dict[int, tuple[str, int, int]] = field(default_factory=dict)


#: Where one piece of a request is: socket number, piece number.
Spot = tuple[int, int]


class State:
    """All sockets of a cluster.

    Parameters
    ----------
    cluster : Cluster
        Servers.
    pieces : Pieces
        What the numbers in signatures stand for.
    everywhere : bool
        Use sockets without a NIC, too.

    Attributes
    ----------
    hosts : tuple of Host
        Kinds of sockets, in the order they appear.

    Examples
    --------
    >>> state = State(Cluster.uniform("e5-2620v4", 2), Pieces())
    >>> len(state.sockets), state.servers_used
    (2, 0)
    """

    def __init__(self, cluster: Cluster, pieces: Pieces, *, everywhere: bool = False) -> None:
        self.cluster, self.pieces = cluster, pieces
        self.sockets: list[Socket] = []
        self.requests: dict[str, Request] = {}
        self.spots: dict[str, tuple[Spot, ...]] = {}
        self._groups: dict[tuple[Host, Signature], list[int]] = {}
        self._tenants: dict[int, int] = {}
        self._shy: dict[str, tuple[str, ...]] = {}
        for index, server in enumerate(cluster.servers):
            host = host_of(server)
            for socket in range(server.used_sockets) if everywhere else server.nics:
                self.sockets.append(Socket(index, socket, host))
        self.hosts = tuple(dict.fromkeys(place.host for place in self.sockets))
        for number, place in enumerate(self.sockets):
            self._groups.setdefault((place.host, ()), []).append(number)  # ascending, which is a heap

    @property
    def servers_used(self) -> int:
        """Servers on which something runs."""
        return len(self._tenants)

    def groups(self) -> Iterator[tuple[Host, Signature, int]]:
        """Yield kind of socket, signature, and the lowest socket that has it."""
        dead = []
        for (host, signature), heap in self._groups.items():
            while heap and self.sockets[heap[0]].signature != signature:
                heapq.heappop(heap)
            if heap:
                yield host, signature, heap[0]
            else:
                dead.append((host, signature))
        for key in dead:
            del self._groups[key]

    def empty_sockets(self, host: Host) -> list[int]:
        """Return the empty sockets of a kind, in order."""
        return [number for number, place in enumerate(self.sockets) if place.host == host and not place.signature]

    def put(self, request: str, spot: Spot, cores: Sequence[int] | None = None) -> tuple[int, ...]:
        """Put a piece of a request on given cores of a socket, or on the lowest free ones; return the cores."""
        number, piece = spot
        place = self.sockets[number]
        stages = len(self.pieces[piece].workloads)
        wanted = range(place.host.cores) if cores is None else cores
        free = [core for core in wanted if core not in place.cores and 0 <= core < place.host.cores][:stages]
        assert len(free) == stages, "BUG: a socket was chosen that has too few free cores"
        place.cores.update({core: (request, piece, stage) for stage, core in enumerate(free)})
        self._tenants[place.server] = self._tenants.get(place.server, 0) + 1
        self._resign(number, self.pieces.grown(place.signature, piece))
        return tuple(free)

    def take(self, request: str, spot: Spot) -> None:
        """Take one piece of a request off a socket."""
        number, piece = spot
        place = self.sockets[number]
        mine = [core for core, (owner, kind, _) in sorted(place.cores.items()) if owner == request and kind == piece]
        for core in mine[: len(self.pieces[piece].workloads)]:
            del place.cores[core]
        self._tenants[place.server] -= 1
        if not self._tenants[place.server]:
            del self._tenants[place.server]
        self._resign(number, without(place.signature, piece))

    def _resign(self, number: int, signature: Signature) -> None:
        place = self.sockets[number]
        place.signature = signature
        heapq.heappush(self._groups.setdefault((place.host, signature), []), number)

    def keep(self, request: Request, spots: Iterable[Spot]) -> None:
        """Remember where a request is."""
        self.requests[request.id] = request
        self.spots[request.id] = tuple(spots)
        if request.anti_affinity:
            self._shy[request.id] = request.anti_affinity

    def forget(self, request: str) -> tuple[Spot, ...]:
        """Take all pieces of a request off; return where they were."""
        spots = self.spots.pop(request)
        for spot in spots:
            self.take(request, spot)
        del self.requests[request]
        self._shy.pop(request, None)
        return spots

    def servers_of(self, request: str) -> set[int]:
        """Return the servers a request runs on."""
        return {self.sockets[number].server for number, _ in self.spots.get(request, ())}

    def allowed(self, request: Request, mine: Iterable[Spot]) -> "Callable[[Socket], bool] | None":
        """Return which sockets (anti-)affinity leaves to a request, or None where it leaves all."""
        if not request.affinity and not request.anti_affinity and not self._avoided(request):
            return None
        own = {self.sockets[number].server for number, _ in mine}
        near = [self.servers_of(name) for name in request.affinity if name != request.id and name in self.spots]
        foes = [*request.anti_affinity, *self._avoided(request)]
        away = set().union(*(self.servers_of(name) for name in foes if name != request.id))
        away |= own if request.id in request.anti_affinity else set()
        return lambda place: place.server not in away and all(place.server in group for group in near)

    def _avoided(self, request: Request) -> list[str]:
        """Return the placed requests that do not want this one near."""
        return [name for name, away in self._shy.items() if request.id in away]
