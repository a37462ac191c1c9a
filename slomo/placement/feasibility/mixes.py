"""Mixes by signature: which pieces share a socket, as sorted numbers, so that sockets alike are judged once.

The servers of a cluster differ in few ways and its network functions repeat; that is what makes bin packing with
predictions in the loop quick.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from slomo.placement.feasibility.memo import Memo
from slomo.placement.problem.cluster import Server

#: Numbers of pieces, in ascending order; () is an empty socket.
Signature = tuple[int, ...]
#: Signatures about which something is remembered, at most.
MOST_SIGNATURES = 400_000


@dataclass(frozen=True)
class Host:
    """A kind of socket: what the sockets of all servers of one type and set-up have."""

    #: Machine type.
    machine: str
    #: Cores and cache ways for NFs.
    cores: int
    ways: int
    #: What it costs to use one.
    cost: float = 1.0
    #: Hyper-threads of each core that are places.
    threads: int = 1
    #: Line rate of the NIC port that all share [Gbit/s]; None where each has one.
    port_gbps: float | None = None
    #: What all ports of the machine carry together [Gbit/s]; None where they limit nothing, or that is not known.
    wire_gbps: float | None = None

    @property
    def places(self) -> int:
        """Network functions it has room for: as many as cores, of those without a promise as many as hyper-threads."""
        return self.cores * self.threads

    def order(self) -> tuple[float, int, str, int, int, float]:
        """Return what kinds are sorted by, whatever the order of the servers: the cheapest core first."""
        return self.cost / self.cores, -self.cores, self.machine, -self.ways, self.threads, self.port_gbps or 0.0


def host_of(server: Server) -> Host:
    """Return the kind of socket a server has.

    Examples
    --------
    >>> host_of(Server("a", "e5-2620v4"))
    Host(machine='e5-2620v4', cores=8, ways=18, cost=1.0, threads=1, port_gbps=None, wire_gbps=80.0)
    """
    cost = server.cost / len(server.nics)
    machine = server.machine_type
    wire = machine.shared_wire_gbps()
    limit = wire if math.isfinite(wire) else None
    return Host(machine.name, server.cores, server.ways, cost, server.threads_per_core, server.port_gbps, limit)


@dataclass(frozen=True)
class Piece:
    """What is placed as one: an NF, or the stages of a chain, on cores of one socket."""

    #: Workload keys, one core each.
    workloads: tuple[str, ...]
    #: What every stage must serve [Mpps].
    needed_mpps: float = 0.0
    #: Cache ways of each stage's own; empty where the cache is shared.
    ways: tuple[int, ...] = ()
    #: Must have the socket for itself.
    exclusive: bool = False
    #: Instances of the request it holds; each has all stages.
    instances: int = 1
    #: Instances the request may be cut into; tells apart pieces of requests that may be cut in different ways.
    replicas: int = 1


class Pieces:
    """Numbers pieces; equal pieces have equal numbers.

    Examples
    --------
    >>> pieces = Pieces()
    >>> pieces.number(Piece(("lpm",))), pieces.number(Piece(("nat",))), pieces.number(Piece(("lpm",)))
    (0, 1, 0)
    """

    def __init__(self) -> None:
        self._known: dict[Piece, int] = {}
        self._list: list[Piece] = []
        self._cores: Memo[Signature, int] = Memo(MOST_SIGNATURES)
        self._grown: Memo[tuple[Signature, int], Signature] = Memo(MOST_SIGNATURES)
        self._numbering = threading.Lock()

    def sizes(self) -> dict[str, int]:
        """Return how many entries each memory holds."""
        return {"signatures": len(self._cores), "grown signatures": len(self._grown)}

    def number(self, piece: Piece) -> int:
        """Return the number of `piece`, a new one for a piece not seen before."""
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

    def grown(self, signature: Signature, number: int) -> Signature:
        """Return `signature` with one piece more."""
        key = (signature, number)
        grown = self._grown.recall(key)
        if grown is None:
            grown = self._grown[key] = tuple(sorted((*signature, number)))
        return grown

    def of(self, signature: Signature) -> tuple[Piece, ...]:
        """Return the pieces of a signature."""
        return tuple(self._list[number] for number in signature)

    def cores(self, signature: Signature) -> int:
        """Return the cores a signature takes."""
        cores = self._cores.recall(signature)
        if cores is None:
            cores = self._cores[signature] = sum(len(self._list[number].workloads) for number in signature)
        return cores


def without(signature: Signature, number: int) -> Signature:
    """Return `signature` with one piece less.

    Examples
    --------
    >>> without((1, 2, 2), 2)
    (1, 2)
    """
    place = signature.index(number)
    return signature[:place] + signature[place + 1 :]


def tenants_of(pieces: Iterable[Piece]) -> tuple[str, ...]:
    """Return the workload keys of all stages of all pieces.

    Examples
    --------
    >>> tenants_of([Piece(("lpm", "nat")), Piece(("lpm",))])
    ('lpm', 'nat', 'lpm')
    """
    return tuple(key for piece in pieces for key in piece.workloads)
