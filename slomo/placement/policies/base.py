"""The interface of policies: split requests into parts, choose a socket for a part, plan a batch.

A *piece* is what is placed as a unit: instances of one network function, or a chain, together on cores of one socket.

Everything else (state, verdicts, undo, decisions) is shared, so policies differ only where the papers do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.latency import each_mpps
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.planning.columns import Column, Pricing
from slomo.placement.planning.shared_pricing import SharedPricing
from slomo.placement.problem.cluster import Server
from slomo.placement.problem.request import Request

#: Choice among feasible sockets: the lowest, or the fullest with the least headroom.
Picks = Literal["first", "best"]
#: Demand of a batch: number of a piece -> count.
Demand = Mapping[int, int]
#: Plan per request: number of an empty socket, counted from 0, and piece.
Seats = dict[str, list[tuple[int, Piece]]]


@dataclass(frozen=True)
class Asked:
    """A request and the throughput that its instances must reach [Mpps]."""

    request: Request
    needed_mpps: float


@dataclass(frozen=True)
class SocketChoice:
    """A socket on which a piece (unit of placement) keeps all promises and constraints."""

    #: Whose.
    server: Server
    #: Number within the server.
    socket: int
    #: Cores in use there now.
    cores_used: int
    #: Smallest relative margin above a promised throughput there; infinite without promises.
    headroom: float
    #: Sum of the weights of the request's met preferences.
    liked: float = 0.0


@dataclass
class Cutting:
    """Ways to split requests into pieces (units of placement) for one kind of server."""

    #: Piece -> pieces that serve the same request at another cost, among which a plan may choose.
    alternatives: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: Piece -> instances on one socket -> the piece with that number of instances, worthwhile or not.
    splits: dict[int, dict[int, int]] = field(default_factory=dict)
    #: Piece of a request (some of its instances) -> the piece that represents all pieces with the same needs.
    primary: dict[int, int] = field(default_factory=dict)
    #: Piece with exclusive ways -> the first of the pieces that serve the same request in a shared cache.
    shared: dict[int, int] = field(default_factory=dict)


class Policy:
    """Base class of policies; as it is, it ignores contention and takes the first socket with free cores.

    Parameters
    ----------
    estimates : ThroughputEstimates
        Models and profiles.
    pieces : Pieces
        Numbers of pieces, shared with the state.

    Attributes
    ----------
    name : str
        Alias in the registry.
    picks : {"first", "best"}
        Rule by which a socket is chosen.
    predicts : bool
        Judge mixes by predicted throughput; otherwise cores are counted, and no SLO is checked.
    sorts : bool
        Place the most demanding pieces of a batch first.
    model : str or None
        Sensitivity model it insists on.
    ranks : bool
        Ranks servers itself: every piece goes where :meth:`choose` says.
    in_turn : bool
        Places instances where they break no promise of others, and a further one for what they fall short of their own.
    scales : bool
        Adds instances after a batch where throughput is seen to fall short.
    needs_profiles : bool
        Cannot do without profiles over cache ways.
    reads_profiles : bool
        Gives cache ways by profiles where there are any; all policies read them for latency and on-demand SLOs, and
        for network functions without a model.
    """

    name: ClassVar[str] = "first-fit"
    picks: ClassVar[Picks] = "first"
    predicts: ClassVar[bool] = False
    sorts: ClassVar[bool] = False
    model: ClassVar[str | None] = None
    needs_profiles: ClassVar[bool] = False
    reads_profiles: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    in_turn: ClassVar[bool] = False
    ranks: ClassVar[bool] = False
    #: Reasons that every decision has, for instance that a package is missing with which plans are better.
    remarks: tuple[str, ...] = ()

    def __init__(self, estimates: ThroughputEstimates, pieces: Pieces) -> None:
        self.estimates, self.pieces = estimates, pieces
        self.oracle = Oracle(pieces, estimates, predicts=self.predicts)
        self._cutting: dict[Host, Cutting] = {}

    def cutting(self, host: Host) -> "Cutting":
        """Return the ways to split requests into pieces (instances placed together) for one kind of server."""
        return self._cutting.setdefault(host, Cutting())

    def offers(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield the ways of :meth:`cuts` to split a request; for one on demand, one instance in the shared ways."""
        if request.slo.kind == "on-demand":
            yield (Piece(self.estimates.keys(host.machine, request)),)
        else:
            yield from self.cuts(request, host, needed_mpps)

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield ways to serve `needed_mpps` by 1, 2, ... equal instances, the fewest first."""
        workloads = self.estimates.keys(host.machine, request)
        for count in range(1, request.replicas + 1):
            each = self.each(request, host, needed_mpps, count)
            if each is not None and self.can_alone(host, workloads, each):
                yield (Piece(workloads, each),) * count

    def each(self, request: Request, host: Host, needed_mpps: float, count: int) -> float | None:
        """Return the throughput that each of several instances must serve [Mpps]; None if the latency SLO breaks."""
        return each_mpps(self.estimates, request, host.machine, needed_mpps, count)

    def can_alone(self, host: Host, workloads: tuple[str, ...], mpps: float) -> bool:
        """Return whether each workload would serve `mpps` if it ran alone on a socket of this host."""
        solos = [self.estimates.solo_mpps(host.machine, key) for key in workloads]
        return all(solo is None or mpps <= solo for solo in solos)

    def choose(self, request: Request, choices: Sequence[SocketChoice]) -> SocketChoice | None:
        """Return the chosen one of the feasible sockets, or None to refuse; called only if `ranks` is set."""
        del request
        return min(choices, key=lambda each: (-each.liked, -each.cores_used, each.headroom, each.server.name))

    def weight(self, host: Host, piece: int) -> float:
        """Return how demanding part of a request is: the share of a socket that it would use among its copies."""
        signature: Signature = ()
        while self.oracle.verdict(host, self.pieces.grown(signature, piece)).ok:
            signature = self.pieces.grown(signature, piece)
            if len(signature) >= host.cores:
                break
        return 1.0 / max(len(signature), 1)

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Return how many sockets shall run each mix to serve a batch; None to place requests one by one."""
        del host, demand
        return None

    def columns(self, host: Host, demand: Demand) -> tuple[list[Column], Pricing | None] | None:
        """Return mixes for one kind of server, and what finds more, for a plan over several kinds; or None."""
        del host, demand
        return None

    def refilling(self, host: Host, demand: Demand) -> SharedPricing | None:
        """Return what finds valuable mixes for a plan that also moves running requests; or None."""
        del host, demand
        return None

    def seats(self, host: Host, batch: Sequence[Asked]) -> Seats | None:
        """Return places for a batch, for plans that distinguish equal requests; or None."""
        del host, batch
        return None
