"""The live state an orchestrator talks to: admit, place, remove, ask, rebalance; every decision whole or not at all.

ResQ (NSDI'18) section 5: admission places at once and greedily; a batch, or what runs already, may be planned afresh.
All methods hold one lock, and what fails leaves the state as it was.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from slomo.errors import InvalidValueError
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature
from slomo.placement.feasibility.oracle import MixVerdict
from slomo.placement.online.decisions import DecisionWriter
from slomo.placement.online.moves import Move, consolidate
from slomo.placement.online.persistence import entry, restored, snapshot
from slomo.placement.online.scaling import scale_out
from slomo.placement.online.seating import seat_mixes, seat_requests
from slomo.placement.online.state import Socket, Spot, State
from slomo.placement.planning.packing import rank
from slomo.placement.policies.base import Asked, Policy
from slomo.placement.policies.registry import make_policy, policy_class
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.request import Request, find_request, unique_requests
from slomo.placement.problem.way_profiles import InstanceProfile
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from slomo.vocabulary.display import html_table

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary

#: Batches from this size on are followed by a look ahead, over so many mixes at most.
_LARGE_BATCH, _MOST_AHEAD = 500, 20_000

Fallback = Literal["refuse", "alone"]


class Placer:
    """Places requests on a cluster by a policy.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    cluster : Cluster
        Servers.
    policy : str or Policy class
        A name of `policy_names`, or a policy of one's own.
    model : str
        Sensitivity model to ask; some policies insist on their own.
    confidence : float
        Probability with which all SLOs of a socket must hold, 0.5 up to below 1.
    profiles : sequence of InstanceProfile
        Throughput over cache ways, latency over load; for policies that partition the cache, and for latency SLOs.
    observe : callable, optional
        For policies that scale by what they see: returns the throughput of every request [Mpps], given the placer;
        predictions stand in by default.
    fallback : {"refuse", "alone"}
        What to do with a network function that has no model on a machine: refuse it there, or give it a socket for
        itself.
    method : {"auto", "composed", "equilibrium"}
        Predict each tenant of a mix beside the vectors of the others, or all at their fixed point; "auto" takes the
        fixed point where the models know it. Policies with a model of their own ask that.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 2), "first-fit", fallback="alone")
    >>> placer.servers_used
    0
    """

    def __init__(
        self,
        library: "ModelLibrary",
        cluster: Cluster,
        policy: str | type[Policy] = "predicted",
        *,
        model: str = DEFAULT_MODEL,
        confidence: float = 0.95,
        profiles: Sequence[InstanceProfile] = (),
        fallback: Fallback = "refuse",
        method: str = DEFAULT_METHOD,
        observe: "Callable[[Placer], Mapping[str, float]] | None" = None,
    ) -> None:
        kind = policy_class(policy) if isinstance(policy, str) else policy
        if fallback not in ("refuse", "alone"):
            raise InvalidValueError(f"fallback is {fallback!r}, needed 'refuse' or 'alone'")
        self.cluster, self.fallback = cluster, fallback
        self._machines = cluster.machines
        self.estimates = ThroughputEstimates(
            library, kind.model or model, confidence, profiles, "composed" if kind.model else method
        )
        self._pieces = Pieces()
        self.policy = make_policy(kind, self.estimates, self._pieces)
        self._observe = observe
        self._lock = threading.RLock()
        self._state = State(cluster, self._pieces)
        self._account = DecisionWriter(self._state, self.policy, self.estimates)
        self._cut: dict[object, dict[Host, list[tuple[Piece, ...]]]] = {}

    def __repr__(self) -> str:
        return (
            f"Placer({len(self.requests)} requests on {self.servers_used} of {len(self.cluster)} servers, "
            f"policy {self.policy.name})"
        )

    def _repr_html_(self) -> str:
        names = {r.id: [self.cluster.servers[i].name for i in self._state.servers_of(r.id)] for r in self.requests}
        rows = ((r.id, r.label, ", ".join(names[r.id])) for r in self.requests)
        return html_table(repr(self), ("request", "network functions", "servers"), rows)

    @property
    def servers_used(self) -> int:
        """Servers on which something runs."""
        return self._state.servers_used

    @property
    def requests(self) -> tuple[Request, ...]:
        """What is placed, in the order it was."""
        with self._lock:
            return tuple(self._state.requests.values())

    def admit(self, request: Request) -> Decision:
        """Place one request, or refuse it and say which SLO would have broken first.

        Raises
        ------
        InvalidValueError
            For an id that is placed already.
        UnknownNameError
            For a network function nothing is known of.
        """
        with self._lock:
            self._check_new([request])
            return self._admit(request)

    def place_all(self, requests: Iterable[Request]) -> tuple[Decision, ...]:
        """Place a batch, higher priorities first; return decisions in the order given.

        Each request is placed whole or refused whole; none is moved that was placed before.

        Raises
        ------
        InvalidValueError, UnknownNameError
            As for :meth:`admit`; then nothing is placed.
        """
        with self._lock:
            batch = unique_requests(requests)
            self._check_new(batch)
            refused: dict[str, Decision] = {}
            for level in sorted({request.priority for request in batch}, reverse=True):
                waiting = [request for request in batch if request.priority == level]
                for request in self._planned(waiting):
                    decision = self._admit(request)
                    if not decision.accepted:
                        refused[request.id] = decision
            if self.policy.scales:
                self._scale(batch)
            if len(batch) >= _LARGE_BATCH:
                self._look_ahead()
            return tuple(refused.get(request.id) or self._account.decision(request.id) for request in batch)

    def remove(self, request: str) -> Decision:
        """Take a request off; return the decision that held until now.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            find_request("placed request", request, self._state.requests)
            last = self._account.decision(request)
            self._state.forget(request)
            return last

    def what_if(self, request: Request) -> Decision:
        """Return what :meth:`admit` would decide, and leave everything as it is."""
        with self._lock:
            decision = self.admit(request)
            if decision.accepted:
                self._state.forget(request.id)
            return decision

    def decision(self, request: str) -> Decision:
        """Return where a request is, with predictions for the mixes of now.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            find_request("placed request", request, self._state.requests)
            return self._account.decision(request)

    def layout(self) -> dict[str, tuple[Assignment, ...]]:
        """Return what runs on each server in use."""
        with self._lock:
            return self._account.layout()

    def rebalance(self, max_moves: int) -> tuple[Move, ...]:
        """Empty servers by moving at most `max_moves` pieces to others on which every SLO still holds.

        Raises
        ------
        InvalidValueError
            For a negative number of moves.
        """
        if max_moves < 0:
            raise InvalidValueError(f"max_moves is {max_moves}, needed 0 or more")
        with self._lock:
            return consolidate(self._state, self._best, max_moves)

    def snapshot(self) -> dict[str, Any]:
        """Return everything placed as a JSON-ready document that :meth:`restore` reads."""
        with self._lock:
            return snapshot(self._state, self.policy.name)

    def entry(self, request: str) -> dict[str, Any]:
        """Return one placed request as a snapshot holds it, for those who write down what changes.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            find_request("placed request", request, self._state.requests)
            return entry(self._state, request)

    def restore(self, document: Mapping[str, Any]) -> None:
        """Replace everything placed by what a snapshot holds.

        Raises
        ------
        ConfigurationError
            For a snapshot of another schema version or cluster; the state stays as it was.
        """
        with self._lock:
            state = restored(document, self.cluster, self._pieces)
            self._state = state
            self._account = DecisionWriter(state, self.policy, self.estimates)

    def _scale(self, batch: Sequence[Request]) -> None:
        placed = [request.id for request in batch if request.id in self._state.spots]
        needs = {name: self._account.needed_here(name) for name in placed}
        if self._observe is None:
            scale_out(self._state, self._account.predicted, needs, self._room)
        else:
            watch = self._observe
            scale_out(self._state, lambda: watch(self), needs, self._room)

    def _look_ahead(self) -> None:
        """Judge what one piece more would do to every mix there is, in one batch; that makes admissions quick."""
        oracle = self.policy.oracle
        if self.policy.predicts:
            for host in self._state.hosts:
                oracle.table(host, self._floors(host), most=_MOST_AHEAD)
        grown: dict[Host, list[Signature]] = {}
        for host, signature, _ in self._state.groups():
            more = (self._pieces.grown(signature, piece) for piece in range(len(self._pieces)))
            grown.setdefault(host, []).extend(mix for mix in more if not oracle.hopeless(host, mix))
        for host, mixes in grown.items():
            oracle.verdicts(host, mixes[:_MOST_AHEAD])

    def _floors(self, host: Host) -> dict[str, float]:
        """Return the least rate that was asked of each network function that can be predicted [Mpps]."""
        found: dict[str, float] = {}
        for piece in (self._pieces[number] for number in range(len(self._pieces))):
            for key in piece.workloads:
                if piece.needed_mpps > 0.0 and self.estimates.predictable(host.machine, key):
                    found[key] = min(piece.needed_mpps, found.get(key, piece.needed_mpps))
        return found

    def _room(self, piece: int) -> int | None:
        spot = self._best(dict.fromkeys(self._state.hosts, piece))
        return None if spot is None else spot[0]

    def _check_new(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.id in self._state.requests:
                raise InvalidValueError(
                    f"request '{request.id}' is placed already", hint="remove it first, or give the new one another id"
                )
        if self.fallback == "refuse":
            self.estimates.check_names(requests, self._machines)

    def _admit(self, request: Request) -> Decision:
        tried: list[Refusal] = []
        options = self._cuts(request, tried)
        # a socket in use goes before a new one, even where that takes another instance
        for used_only in (True, False) if self.policy.picks == "best" and len(options) > 1 else (False,):
            for cuts in options:
                spots = self._put_all(request, cuts, used_only=used_only)
                if spots is not None:
                    self._state.keep(request, spots)
                    return self._account.decision(request.id)
        return self._account.refusal(request, tried)

    def _put_all(
        self, request: Request, cuts: Mapping[Host, tuple[Piece, ...]], *, used_only: bool
    ) -> list[Spot] | None:
        """Put all pieces of a request somewhere, or none."""
        spots: list[Spot] = []
        for index in range(max(len(pieces) for pieces in cuts.values())):
            numbers = {host: self._pieces.number(pieces[index]) for host, pieces in cuts.items() if index < len(pieces)}
            spot = self._best(numbers, self._state.allowed(request, spots), used_only=used_only)
            if spot is None:
                for done in spots:
                    self._state.take(request.id, done)
                return None
            self._state.put(request.id, spot)
            spots.append(spot)
        return spots

    def _best(
        self,
        numbers: Mapping[Host, int],
        allowed: Callable[[Socket], bool] | None = None,
        *,
        used_only: bool = False,
    ) -> Spot | None:
        """Return the socket for one piece, by the policy's rule; `numbers` has the piece for each kind of socket."""
        oracle, found = self.policy.oracle, []
        for host, piece in numbers.items():
            groups = self._candidates(host, allowed)
            if used_only:
                groups.pop((), None)
            mixes = {signature: self._pieces.grown(signature, piece) for signature in groups}
            for signature, verdict in self._contenders(host, mixes):
                if verdict.ok:
                    best = self.policy.picks == "best" and bool(signature)
                    cores, headroom = rank(oracle, mixes[signature], verdict) if best else (0, 0.0)
                    found.append((-cores, -headroom, groups[signature], piece))
        return min(found)[2:] if found else None

    def _contenders(self, host: Host, mixes: Mapping[Signature, Signature]) -> Iterable[tuple[Signature, MixVerdict]]:
        """Judge the mixes that can win, in one batch: under best fit, not those emptier than one known to hold."""
        oracle = self.policy.oracle
        if self.policy.picks == "best":
            known, size = oracle.known(host), self._pieces.cores
            cores = {signature: size(mix) if signature else 0 for signature, mix in mixes.items()}
            held = [cores[signature] for signature, mix in mixes.items() if mix in known and known[mix].ok]
            least = max(held, default=0)
            mixes = {
                signature: mix
                for signature, mix in mixes.items()
                if least <= cores[signature] <= host.cores and not oracle.hopeless(host, mix)
            }
        return zip(mixes, oracle.verdicts(host, list(mixes.values())), strict=True)

    def _candidates(self, host: Host, allowed: Callable[[Socket], bool] | None) -> dict[Signature, int]:
        """Return each mix there is on sockets of a kind, with the lowest socket that has it."""
        if allowed is None:
            return {signature: socket for kind, signature, socket in self._state.groups() if kind == host}
        found: dict[Signature, int] = {}
        for number, place in enumerate(self._state.sockets):
            if place.host == host and place.signature not in found and allowed(place):
                found[place.signature] = number
        return found

    def _cuts(self, request: Request, tried: list[Refusal]) -> list[dict[Host, tuple[Piece, ...]]]:
        """Return the ways to cut a request, the preferred first; note in `tried` where none will do."""
        asked = (request.chain, request.slo, request.replicas, request.id in request.anti_affinity)
        if asked not in self._cut:
            per_host = {host: self._cuts_on(request, host) for host in self._state.hosts}
            self._cut[asked] = {host: cuts for host, cuts in per_host.items() if cuts}
        found = self._cut[asked]
        tried += [
            self._account.infeasible(request, host, self.fallback) for host in self._state.hosts if host not in found
        ]
        most = max((len(cuts) for cuts in found.values()), default=0)
        return [{host: cuts[i] for host, cuts in found.items() if i < len(cuts)} for i in range(most)]

    def _cuts_on(self, request: Request, host: Host) -> list[tuple[Piece, ...]]:
        workloads = tuple(workload.key for workload in request.chain)
        if self.policy.predicts and not all(self.estimates.predictable(host.machine, key) for key in workloads):
            alone = len(workloads) <= host.cores and self.fallback == "alone"
            return [(Piece(workloads, exclusive=True),)] if alone else []
        needed = self._account.capacity_needed(request, host)
        if needed is None or len(workloads) > host.cores:
            return []
        cuts = list(self.policy.offers(request, host, needed))
        return [pieces for pieces in cuts if self.policy.oracle.verdict(host, (self._pieces.number(pieces[0]),)).ok]

    def _planned(self, requests: Sequence[Request]) -> list[Request]:
        """Place what the policy plans as a batch; return the rest, in the order to admit it one by one."""
        plain = [r for r in requests if r.slo.kind == "reserved" and not (r.affinity or r.anti_affinity)]
        plain = [r for r in plain if not self._state.allowed(r, ())]
        taken: set[str] = set()
        for host in self._state.hosts:
            left = [r for r in plain if r.id not in taken]
            cuts = {r.id: found[0][host] for r in left if (found := self._cuts(r, [])) and host in found[0]}
            here = [r for r in left if r.id in cuts]
            queues: dict[int, list[Request]] = {}
            for request in here:
                if len(cuts[request.id]) == 1:
                    queues.setdefault(self._pieces.number(cuts[request.id][0]), []).append(request)
            demand = {piece: len(queue) for piece, queue in queues.items()}
            plan = (demand and self.policy.plan(host, demand)) or {}
            taken |= seat_mixes(self._state, self.policy, host, plan, queues)
            left = [request for request in here if request.id not in taken]
            needs = [(request, self._account.capacity_needed(request, host)) for request in left]
            asked = [Asked(request, need) for request, need in needs if need is not None]
            seats = (asked and self.policy.seats(host, asked)) or {}
            taken |= seat_requests(self._state, host, left, seats)
        rest = [request for request in requests if request.id not in taken]
        return sorted(rest, key=self._demand, reverse=True) if self.policy.sorts else rest

    def _demand(self, request: Request) -> float:
        """Return how demanding a request is, for the order of a batch."""
        cuts = self._cuts(request, [])
        if not cuts:
            return 0.0
        host, pieces = next(iter(cuts[0].items()))
        return self.policy.weight(host, self._pieces.number(pieces[0])) * len(pieces[0].workloads)
