"""Represent a mix by its signature (sorted numbers of what runs on a socket), so that equal mixes are predicted once.

A *piece* is what is placed as a unit: instances of one network function, or a chain, together on cores of one socket.

Servers of a cluster are of few types and network functions repeat, which makes bin packing by predictions fast.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from slomo.placement.problem.cluster import Server

#: Numbers of pieces, in ascending order; () is an empty socket.
Signature = tuple[int, ...]
#: Largest number of signatures with remembered results.
MOST_SIGNATURES = 400_000


@dataclass(frozen=True)
class Host:
    """A kind of server: the properties that all sockets of equal servers share."""

    #: Machine type.
    machine: str
    #: Cores and cache ways available to NFs.
    cores: int
    ways: int
    #: Cost of using one socket.
    cost: float = 1.0
    #: Usable hyper-threads of each core.
    threads: int = 1
    #: Line rate of the one NIC port that all NFs of the server share [Gbit/s]; None if they share the machine's ports.
    port_gbps: float | None = None
    #: Total line rate of the machine's ports [Gbit/s]; None if unlimited or unknown.
    wire_gbps: float | None = None

    @property
    def places(self) -> int:
        """Number of NFs that the socket can run: one per core, or one per hyper-thread for NFs without a promise."""
        return self.cores * self.threads

    def order(self) -> tuple[float, int, str, int, int, float]:
        """Return the key by which kinds of sockets are sorted, cheapest core first, whatever the order of servers."""
        return self.cost / self.cores, -self.cores, self.machine, -self.ways, self.threads, self.port_gbps or 0.0


def host_of(server: Server) -> Host:
    """Return the kind of server to which a server belongs."""
    cost = server.cost / len(server.nics)
    machine = server.machine_type
    wire = machine.shared_wire_gbps()
    limit = wire if math.isfinite(wire) else None
    return Host(machine.name, server.cores, server.ways, cost, server.threads_per_core, server.port_gbps, limit)


@dataclass(frozen=True)
class Piece:
    """What is placed as a unit: instances of one NF, or a chain, together on cores of one socket."""

    #: Workload keys, one core each.
    workloads: tuple[str, ...]
    #: Throughput that every stage must serve [Mpps].
    needed_mpps: float = 0.0
    #: Exclusive cache ways of each stage; empty if the cache is shared.
    ways: tuple[int, ...] = ()
    #: Whether it needs the socket for itself.
    exclusive: bool = False
    #: Number of instances of the request in this piece; each has all stages.
    instances: int = 1
    #: Largest number of instances of the request; distinguishes pieces of requests that can be split differently.
    replicas: int = 1


class Pieces:
    """Gives every different piece (unit of placement) a number; equal pieces have equal numbers."""

    def __init__(self) -> None:
        self._known: dict[Piece, int] = {}
        self._list: list[Piece] = []
        self._numbering = threading.Lock()
        #: Number of cores that the mix of a signature takes.
        self.cores = lru_cache(MOST_SIGNATURES)(self._count_cores)
        #: Signature of the same mix with one more piece (unit of placement).
        self.grown = lru_cache(MOST_SIGNATURES)(_grown)

    def sizes(self) -> dict[str, int]:
        """Return the number of entries in each cache."""
        caches = {"signatures": self.cores, "grown signatures": self.grown}
        return {name: cache.cache_info().currsize for name, cache in caches.items()}

    def number(self, piece: Piece) -> int:
        """Return the number of `piece`; a piece not seen before gets a new one."""
        number = self._known.get(piece)
        if number is None:
            with self._numbering:  # a plan outside the placer's lock numbers pieces, too
                if piece not in self._known:
                    self._list.append(piece)
                    self._known[piece] = len(self._list) - 1
            number = self._known[piece]
        return number

    def __getitem__(self, number: int) -> Piece:
        return self._list[number]

    def __len__(self) -> int:
        return len(self._list)

    def of(self, signature: Signature) -> tuple[Piece, ...]:
        """Return the pieces (units of placement) of the mix that a signature stands for."""
        return tuple(self._list[number] for number in signature)

    def _count_cores(self, signature: Signature) -> int:
        return sum(len(self._list[number].workloads) for number in signature)


def _grown(signature: Signature, number: int) -> Signature:
    return tuple(sorted((*signature, number)))


def without(signature: Signature, number: int) -> Signature:
    """Return the signature of the same mix without one of its pieces (instances placed together)."""
    place = signature.index(number)
    return signature[:place] + signature[place + 1 :]


def tenants_of(pieces: Iterable[Piece]) -> tuple[str, ...]:
    """Return the workload keys of all NFs in `pieces` (a piece: instances that are placed together on one socket)."""
    return tuple(key for piece in pieces for key in piece.workloads)
