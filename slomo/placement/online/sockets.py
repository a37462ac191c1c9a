"""Sockets as the state knows them: what runs on one, those alike in a group, and a trial that can be undone."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from slomo.placement.feasibility.mixes import Host, Signature


@dataclass
class Socket:
    """One socket of one server, and what runs on its cores.

    Attributes
    ----------
    server : int
        Number of the server.
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


class Trial:
    """What is being tried; kept at its end unless it is undone."""

    kept = True

    def undo(self) -> None:
        """Have everything since the trial began undone at its end."""
        self.kept = False


class SocketGroup:
    """The sockets of one kind with one signature, the lowest first; those that left are passed over."""

    __slots__ = ("heap", "queued")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.queued: set[int] = set()

    def add(self, number: int) -> None:
        """Let a socket in, once."""
        if number not in self.queued:
            self.queued.add(number)
            heapq.heappush(self.heap, number)

    def lowest(self, belongs: Callable[[int], bool]) -> int | None:
        """Return the lowest socket that still belongs, or None."""
        while self.heap and not belongs(self.heap[0]):
            self.queued.discard(heapq.heappop(self.heap))
        return self.heap[0] if self.heap else None
