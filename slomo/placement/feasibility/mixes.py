"""Mixes by signature: which pieces share a socket, as sorted numbers, so that sockets alike are judged once.

The servers of a cluster differ in few ways and its network functions repeat; that is what makes bin packing with
predictions in the loop quick.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slomo.placement.problem.cluster import Server

#: Numbers of pieces, in ascending order; () is an empty socket.
Signature = tuple[int, ...]


@dataclass(frozen=True)
class Host:
    """A kind of socket: what the sockets of all servers of one type and set-up have.

    Attributes
    ----------
    machine : str
        Machine type.
    cores, ways : int
        Cores and cache ways for NFs.
    """

    machine: str
    cores: int
    ways: int


def host_of(server: Server) -> Host:
    """Return the kind of socket a server has.

    Examples
    --------
    >>> host_of(Server("a", "e5-2620v4"))
    Host(machine='e5-2620v4', cores=8, ways=18)
    """
    return Host(server.machine_type.name, server.cores, server.ways)


@dataclass(frozen=True)
class Piece:
    """What is placed as one: an NF, or the stages of a chain, on cores of one socket.

    Attributes
    ----------
    workloads : tuple of str
        Workload keys, one core each.
    needed_mpps : float
        What every stage must serve [Mpps].
    ways : tuple of int
        Cache ways of each stage's own; empty where the cache is shared.
    exclusive : bool
        Must have the socket for itself.
    instances : int
        Instances of the request it holds; each has all stages.
    replicas : int
        Instances the request may be cut into; tells apart pieces of requests that may be cut in different ways.
    """

    workloads: tuple[str, ...]
    needed_mpps: float = 0.0
    ways: tuple[int, ...] = ()
    exclusive: bool = False
    instances: int = 1
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
        self._cores: dict[Signature, int] = {}
        self._grown: dict[tuple[Signature, int], Signature] = {}

    def number(self, piece: Piece) -> int:
        """Return the number of `piece`, a new one for a piece not seen before."""
        if piece not in self._known:
            self._known[piece] = len(self._list)
            self._list.append(piece)
        return self._known[piece]

    def __getitem__(self, number: int) -> Piece:
        return self._list[number]

    def __len__(self) -> int:
        return len(self._list)

    def grown(self, signature: Signature, number: int) -> Signature:
        """Return `signature` with one piece more."""
        key = (signature, number)
        if key not in self._grown:
            self._grown[key] = tuple(sorted((*signature, number)))
        return self._grown[key]

    def of(self, signature: Signature) -> tuple[Piece, ...]:
        """Return the pieces of a signature."""
        return tuple(self._list[number] for number in signature)

    def cores(self, signature: Signature) -> int:
        """Return the cores a signature takes."""
        if signature not in self._cores:
            self._cores[signature] = sum(len(self._list[number].workloads) for number in signature)
        return self._cores[signature]


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
