"""What runs on each socket of the cluster; sockets with the same mix form a group, so that searches are fast.

Sockets of one signature are interchangeable; the lowest number is taken, so decisions are reproducible. Servers change:
a closed one (cordoned, failed, removed) keeps its number, but its sockets are not offered. Any tentative change can be
undone as a whole (:meth:`ClusterState.trial`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from slomo.placement.feasibility.mixes import Host, Pieces, Signature, host_of, without
from slomo.placement.online.constraints import Constraints, limits_of, taken_of
from slomo.placement.online.sockets import Socket, SocketGroups, Spot, Trial
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import Request

#: Whether a socket is acceptable for a number of instances.
Allowed = Callable[[Socket, int], bool]
#: Why a server is closed.
Closed = Literal["cordoned", "failed", "removed"]


class ClusterState:
    """All sockets of a cluster, and the requests placed on them.

    `cluster`: servers. `pieces`: pieces that the numbers in signatures refer to. `servers` lists servers by number,
    those that were removed included; `tainted` and `limited` are servers with taints, and with limited amounts of
    something or reserved cores; `closed` are servers that take nothing more, each with the reason; `version` is raised
    by every change.
    """

    def __init__(self, cluster: Cluster, pieces: Pieces) -> None:
        self.pieces = pieces
        self.servers: list[Server] = []
        self.sockets: list[Socket] = []
        self._places: list[list[int]] = []
        self.requests: dict[str, Request] = {}
        self.spots: dict[str, tuple[Spot, ...]] = {}
        self.closed: dict[int, Closed] = {}
        self.constraints = Constraints()
        self.tainted: set[int] = set()
        self.limited: set[int] = set()
        self._used: dict[int, dict[str, float]] = {}
        self.version = 0
        self._groups = SocketGroups(pieces.cores)
        self._tenants: dict[int, int] = {}
        self._own: dict[str, list[int]] = {}
        self._journal: list[Callable[[], None]] | None = None
        self._cluster: Cluster | None = cluster
        self._hosts: tuple[Host, ...] | None = None
        for server in cluster.servers:
            self._append(server)

    @property
    def cluster(self) -> Cluster:
        """All servers except removed ones."""
        if self._cluster is None:
            alive = (server for number, server in enumerate(self.servers) if self.closed.get(number) != "removed")
            self._cluster = Cluster(tuple(alive))
        return self._cluster

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Kinds of servers with open sockets, in an order that does not depend on the servers' order."""
        if self._hosts is None:
            kinds = {place.host for place in self.sockets if place.server not in self.closed}
            self._hosts = tuple(sorted(kinds, key=Host.order))
        return self._hosts

    @property
    def servers_used(self) -> int:
        """Number of servers on which something runs."""
        return len(self._tenants)

    def number_of(self, server: str) -> int | None:
        """Return the number of a server; None if the server was removed."""
        numbers = self._own.get(server, ())
        return next((number for number in numbers if self.closed.get(number) != "removed"), None)

    def sockets_of(self, server: int) -> list[int]:
        """Return the numbers of the sockets of a server."""
        return self._places[server]

    def tenants_of(self, server: int) -> tuple[str, ...]:
        """Return the requests that run on a server, in order of arrival."""
        here = {owner for number in self._places[server] for owner, _, _ in self.sockets[number].cores.values()}
        return tuple(name for name in self.requests if name in here)

    def add_server(self, server: Server) -> None:
        """Add a server."""
        number = self._append(server)
        self._note(lambda: self._drop_last(number))
        self._changed()

    def _append(self, server: Server) -> int:
        number, host = len(self.servers), host_of(server)
        self.servers.append(server)
        if server.taints:
            self.tainted.add(number)
        if server.resources or server.reserved is not None:
            self.limited.add(number)
        self._own.setdefault(server.name, []).append(number)
        first = len(self.sockets)
        self._places.append(list(range(first, first + len(server.nics))))
        for socket in server.nics:
            self.sockets.append(Socket(number, socket, host))
            self._groups.enter(len(self.sockets) - 1, self.sockets[-1])
        return number

    def _drop_last(self, number: int) -> None:
        server = self.servers.pop()
        self._places.pop()
        self.tainted.discard(number)
        self.limited.discard(number)
        self._own[server.name].remove(number)
        left = len(self.sockets) - len(server.nics)
        self._groups.drop(self.sockets[left:], left)
        del self.sockets[left:]
        self._changed()

    def mark(self, server: int, taints: Sequence[str]) -> None:
        """Replace a server's taints."""
        before = self.servers[server].taints
        self.servers[server] = replace(self.servers[server], taints=tuple(taints))
        (self.tainted.add if taints else self.tainted.discard)(server)
        self._note(lambda: self.mark(server, before))
        self._changed()

    def close(self, server: int, why: Closed | None) -> None:
        """Close a server to new requests, or reopen it (with None)."""
        before = self.closed.get(server)
        if why is None:
            self.closed.pop(server, None)
        else:
            self.closed[server] = why
        for number in self.sockets_of(server):
            place = self.sockets[number]
            self._groups.offer(number, place)
        self._note(lambda: self.close(server, before))
        self._changed()

    def _changed(self) -> None:
        self._cluster = self._hosts = None
        self.version += 1

    def signatures(self, host: Host, cores: int) -> list[Signature]:
        """Return the distinct mixes on sockets of one kind on which exactly `cores` cores are used."""
        return list(self._groups.of_cores(host, cores))

    def lowest(self, host: Host, signature: Signature) -> int | None:
        """Return the lowest-numbered CPU socket of a kind, on an open server, with a given mix; None if none."""

        def belongs(number: int) -> bool:
            place = self.sockets[number]
            return place.signature == signature and place.host == host and place.server not in self.closed

        return self._groups.lowest(host, signature, belongs)

    def empty_sockets(self, host: Host) -> list[int]:
        """Return the empty open sockets of a kind, in order."""
        return [
            number
            for number, place in enumerate(self.sockets)
            if place.host == host and not place.signature and place.server not in self.closed
        ]

    def put(self, request: Request, spot: Spot, cores: Sequence[int] | None = None) -> None:
        """Put a piece of a request (instances placed together) on cores of a socket."""
        number, piece = spot
        place = self.sockets[number]
        stages = len(self.pieces[piece].workloads)
        candidates = range(place.host.places) if cores is None else cores
        free = [core for core in candidates if core not in place.cores and 0 <= core < place.host.places][:stages]
        assert len(free) == stages, "BUG: a socket was chosen that has too few free cores"
        self._put(number, piece, {core: (request.id, piece, stage) for stage, core in enumerate(free)})
        self._count(place.server, request, piece)
        self._note(lambda: self._unput(request, spot, free))

    def take(self, request: Request, spot: Spot) -> None:
        """Remove one piece (instances placed together) of a request from a socket."""
        number, piece = spot
        place = self.sockets[number]
        mine = [core for core, (owner, kind, _) in place.cores.items() if owner == request.id and kind == piece]
        mine = sorted(mine)[: len(self.pieces[piece].workloads)]
        before = {core: place.cores[core] for core in mine}
        self._unput(request, spot, mine)

        def back() -> None:
            self._put(number, piece, before)
            self._count(place.server, request, piece)

        self._note(back)

    def _count(self, server: int, request: Request, piece: int, sign: int = 1) -> None:
        """Add the limited resources that a piece uses on a server; with sign -1, subtract them."""
        if server in self.limited:
            held = self._used.setdefault(server, {})
            for name, amount in taken_of(self.servers[server], request, self.pieces[piece]).items():
                held[name] = held.get(name, 0.0) + sign * amount

    def _put(self, number: int, piece: int, cores: Mapping[int, tuple[str, int, int]]) -> None:
        place = self.sockets[number]
        place.cores.update(cores)
        self._tenants[place.server] = self._tenants.get(place.server, 0) + 1
        self._resign(number, self.pieces.grown(place.signature, piece))

    def _unput(self, request: Request, spot: Spot, cores: Iterable[int]) -> None:
        number, piece = spot
        place = self.sockets[number]
        for core in cores:
            del place.cores[core]
        self._tenants[place.server] -= 1
        if not self._tenants[place.server]:
            del self._tenants[place.server]
        self._count(place.server, request, piece, -1)
        self._resign(number, without(place.signature, piece))

    def _resign(self, number: int, signature: Signature) -> None:
        place = self.sockets[number]
        self._groups.leave(place)
        place.signature = signature
        self.version += 1
        self._groups.enter(number, place)

    def keep(self, request: Request, spots: Iterable[Spot]) -> None:
        """Record where a new request runs."""
        self._enter(request, tuple(spots))
        self._note(lambda: self._leave(request.id))

    def _enter(self, request: Request, spots: tuple[Spot, ...]) -> None:
        self.requests[request.id] = request
        self.spots[request.id] = spots
        self.constraints.enter(request)

    def _leave(self, name: str) -> None:
        self.constraints.leave(self.requests.pop(name))
        del self.spots[name]

    def settle(self, name: str, spots: Iterable[Spot]) -> None:
        """Record anew where a placed request runs."""
        before, self.spots[name] = self.spots[name], tuple(spots)
        self._note(lambda: self.settle(name, before))

    def forget(self, name: str) -> None:
        """Remove a request from all its sockets."""
        request, spots = self.requests[name], self.spots[name]
        for spot in spots:
            self.take(request, spot)
        order = None if self._journal is None else tuple(self.requests)
        self._leave(name)

        def back() -> None:
            self._enter(request, spots)
            if order is not None and order[-1] != name:  # in the place it had
                self.requests = {each: self.requests[each] for each in order if each in self.requests}
                self.spots = {each: self.spots[each] for each in order if each in self.spots}

        self._note(back)

    def servers_of(self, request: str) -> set[int]:
        """Return the servers of a request."""
        return {self.sockets[number].server for number, _ in self.spots.get(request, ())}

    def open_servers(self) -> Iterator[int]:
        """Yield the servers that are open to new requests."""
        return (number for number in range(len(self.servers)) if number not in self.closed)

    def homes(self, spots: Iterable[Spot]) -> list[int]:
        """Return the server of every instance of a request."""
        return [self.sockets[number].server for number, piece in spots for _ in range(self.pieces[piece].instances)]

    def may_move(self, request: Request, spots: Iterable[Spot]) -> bool:
        """Return whether `max_disrupted` allows moving or removing these instances of a request."""
        return request.max_disrupted is None or len(self.homes(spots)) <= request.max_disrupted

    def allowed(self, request: Request, mine: Iterable[Spot] = ()) -> Allowed | None:
        """Return the sockets that a request's constraints allow; None if all are allowed."""
        tests = [rule.holds for rule in self.constraints.rules(request, self.homes(mine), self)]
        return (lambda place, instances: all(test(place.server, instances) for test in tests)) if tests else None

    def score(self, request: Request, mine: Iterable[Spot] = ()) -> Callable[[Socket], float] | None:
        """Return how much a request prefers a socket; None if the request has no preferences."""
        return self.constraints.score(request, self.homes(mine), self)

    def short_of(self, request: Request, piece: int, place: Socket) -> tuple[str, float, float] | None:
        """Return the resource that a server lacks for a part of a request, with the needed and the free amount."""
        if place.server not in self.limited:
            return None
        server, held = self.servers[place.server], self._used.get(place.server, {})
        needed = taken_of(server, request, self.pieces[piece])
        free = ((name, needed.get(name, 0.0), most - held.get(name, 0.0)) for name, most in limits_of(server))
        return next((each for each in free if each[1] > each[2] + 1e-9), None)

    def renamed(self, name: str, other: str) -> None:
        """Change the id of a placed request."""
        request = replace(self.requests[name], id=other)
        self.constraints.leave(self.requests[name])
        self.constraints.enter(request)
        self.requests = {
            other if key == name else key: request if key == name else r for key, r in self.requests.items()
        }
        self.spots = {other if key == name else key: spots for key, spots in self.spots.items()}
        for number in {number for number, _ in self.spots[other]}:
            cores = self.sockets[number].cores
            cores |= {core: (other, *rest) for core, (owner, *rest) in cores.items() if owner == name}  # type: ignore[misc]
        self._note(lambda: self.renamed(other, name))
        self.version += 1

    def copy(self) -> "ClusterState":
        """Return an independent copy of the state."""
        other = ClusterState.__new__(ClusterState)
        other.__dict__.update(self.__dict__)
        other.servers, other.closed, other._places = list(self.servers), dict(self.closed), list(self._places)
        other.sockets = [replace(place, cores=dict(place.cores)) for place in self.sockets]
        other.requests, other.spots = dict(self.requests), dict(self.spots)
        other.tainted, other.limited, other._tenants = set(self.tainted), set(self.limited), dict(self._tenants)
        other._own = {name: list(numbers) for name, numbers in self._own.items()}
        other._used = {number: dict(held) for number, held in self._used.items()}
        other.constraints = self.constraints.copy()
        other._groups, other._journal = SocketGroups(other.pieces.cores), None
        for number, place in enumerate(other.sockets):
            other._groups.enter(number, place)
        return other

    def _note(self, undo: Callable[[], None]) -> None:
        if self._journal is not None:
            self._journal.append(undo)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Undo all changes made inside the context if an error is raised or the trial is marked to be undone."""
        outer, journal, trial = self._journal, list[Callable[[], None]](), Trial()
        self._journal = journal
        try:
            yield trial
        except BaseException:
            trial.undo()
            raise
        finally:
            self._journal = None  # undoing is not noted
            if not trial.kept:
                for undo in reversed(journal):
                    undo()
            self._journal = outer
            if outer is not None and trial.kept:
                outer.extend(journal)
