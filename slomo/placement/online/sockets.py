"""The sockets of the cluster: what runs on each, groups of sockets with equal mixes, and changes that can be undone."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slomo.placement.feasibility.mixes import Host, Signature


@dataclass
class Socket:
    """One socket of one server, and what runs on its cores."""

    #: Number of the server.
    server: int
    #: Number of the socket within its server.
    socket: int
    #: Kind of socket.
    host: Host
    #: Signature of the mix on the socket.
    signature: Signature = ()
    #: Core -> request, piece, stage.
    cores: dict[int, tuple[str, int, int]] = field(default_factory=dict)


#: Place of one piece of a request: socket number, piece number.
Spot = tuple[int, int]


class Trial:
    """A tentative change: it stays when the context ends, unless it is marked to be undone."""

    kept = True

    def undo(self) -> None:
        """Mark all changes since the trial began to be undone at its end."""
        self.kept = False


class SocketGroup:
    """Sockets of one kind with the same mix, lowest number first."""

    __slots__ = ("heap", "members", "queued")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.queued: set[int] = set()
        self.members = 0

    def add(self, number: int) -> None:
        """Add a socket, unless the group has it."""
        if number not in self.queued:
            self.queued.add(number)
            heapq.heappush(self.heap, number)

    def lowest(self, belongs: Callable[[int], bool]) -> int | None:
        """Return the lowest-numbered socket that is still in the group; None if there is none."""
        while self.heap and not belongs(self.heap[0]):
            self.queued.discard(heapq.heappop(self.heap))
        return self.heap[0] if self.heap else None


class SocketGroups:
    """All sockets, grouped by kind and mix."""

    def __init__(self, cores: Callable[[Signature], int]) -> None:
        self._cores = cores
        self._groups: dict[tuple[Host, Signature], SocketGroup] = {}
        self._by_cores: dict[Host, dict[int, dict[Signature, None]]] = {}

    @property
    def queued(self) -> int:
        """Number of entries in the queues of all groups."""
        return sum(len(group.heap) for group in self._groups.values())

    def enter(self, number: int, place: Socket) -> None:
        """Add a socket to the group of its mix."""
        key = (place.host, place.signature)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SocketGroup()
            alike = self._by_cores.setdefault(place.host, {}).setdefault(self._cores(place.signature), {})
            alike[place.signature] = None
        group.members += 1
        group.add(number)

    def leave(self, place: Socket) -> None:
        """Remove a socket from its group, before its mix changes."""
        key = (place.host, place.signature)
        group = self._groups[key]
        group.members -= 1
        if not group.members:
            del self._groups[key]
            del self._by_cores[place.host][self._cores(place.signature)][place.signature]

    def offer(self, number: int, place: Socket) -> None:
        """Put a socket back into its group after its server was closed and opened again."""
        self._groups[place.host, place.signature].add(number)

    def drop(self, places: Iterable[Socket], first: int) -> None:
        """Remove the sockets with numbers from `first` on."""
        for place in places:
            self.leave(place)
        for group in self._groups.values():
            group.heap = [number for number in group.heap if number < first]
            heapq.heapify(group.heap)
            group.queued = set(group.heap)

    def of_cores(self, host: Host, cores: int) -> Iterable[Signature]:
        """Return the signatures of all mixes on one kind of server that use a given number of cores."""
        return self._by_cores.get(host, {}).get(cores, ())

    def lowest(self, host: Host, signature: Signature, belongs: Callable[[int], bool]) -> int | None:
        """Return the lowest-numbered socket with a given mix; None if there is none."""
        group = self._groups.get((host, signature))
        return None if group is None else group.lowest(belongs)
