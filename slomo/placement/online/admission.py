"""Find servers for a request or a batch of requests: choose a socket for each part of a request, or plan the batch.

ResQ (NSDI'18) section 5: admission is immediate and greedy; a batch is planned as a whole. The caller holds the lock or
works on a copy.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from slomo.errors import InvalidValueError
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.memo import Memo
from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.online.checker import BrokenConstraint, broken_constraints
from slomo.placement.online.decisions import DecisionWriter, stage_of
from slomo.placement.online.refusals import told
from slomo.placement.online.seating import put_in_turn, seat_mixes, seat_requests
from slomo.placement.online.settings import Fallback
from slomo.placement.online.sockets import Socket, Spot
from slomo.placement.online.state import Allowed, ClusterState
from slomo.placement.planning.kinds_cover import SocketKind, cover_kinds
from slomo.placement.policies.base import Asked, Policy, SocketChoice
from slomo.placement.problem.decision import AtRisk, Decision, Refusal
from slomo.placement.problem.request import Request

#: Batch size from which mixes are predicted ahead, and the largest number of these mixes.
LARGE_BATCH, _MOST_AHEAD = 500, 20_000
#: Share of a need to which an instance's promise is rounded down, without a grid of SLOs.
_GRID = 0.01
#: Largest number of request kinds with cached splits.
_MOST_CUTS = 20_000
Cuts = dict[Host, tuple[Piece, ...]]
#: Whether a socket is one on which a piece may run.
Fitting = Callable[[Socket], bool]


class Admission:
    """Finds servers for requests and batches; `fallback` says what to do with an NF that has no model."""

    def __init__(self, state: ClusterState, policy: Policy, estimates: ThroughputEstimates, fallback: Fallback) -> None:
        self.state, self.policy, self.estimates, self.fallback = state, policy, estimates, fallback
        self.pieces = state.pieces
        self.writer = DecisionWriter(state, policy, estimates)
        self.cut: Memo[object, list[tuple[Piece, ...]]] = Memo(_MOST_CUTS)

    def with_state(self, state: ClusterState) -> "Admission":
        """Return a copy that works on another state of the cluster but shares the remembered predictions."""
        other = Admission(state, self.policy, self.estimates, self.fallback)
        other.cut = self.cut
        return other

    def admit(self, request: Request) -> Decision:
        """Place one request; return the refusal if that is impossible."""
        tried: list[Refusal] = []
        options = self.cuts(request, tried)
        alone = request.min_replicas == 1 and request.survives is None
        if self.policy.in_turn and alone and self._put_in_turn(request, options):
            return self.writer.decision(request.id)
        # prefer sockets in use to an empty one, even at the price of another instance
        for used_only in (True, False) if self.policy.picks == "best" and len(options) > 1 else (False,):
            for cuts in options:
                if self._put_all(request, cuts, used_only=used_only):
                    return self.writer.decision(request.id)
        return self.writer.refusal(request, tried, options[0] if options else {})

    def admitted(self, request: Request) -> Decision:
        """Place one request and check the result against all constraints; return the refusal if that fails."""
        with self.state.trial() as trial:
            decision = self.admit(request)
            broken = broken_constraints(self, [request.id])
            if broken:
                trial.undo()
        return self._does_not_stand(request, broken) if broken else decision

    def withdrawn(self, batch: Sequence[Request]) -> dict[str, Decision]:
        """Check a placed batch, remove requests that break a constraint, and return their refusals."""
        refused: dict[str, Decision] = {}
        for request in batch:
            if request.id in self.state.spots:
                broken = broken_constraints(self, [request.id])
                if broken:
                    self.state.forget(request.id)
                    refused[request.id] = self._does_not_stand(request, broken)
        return refused

    def _does_not_stand(self, request: Request, broken: Sequence[BrokenConstraint]) -> Decision:
        reasons = [each.refusal(request, self.policy.name) for each in broken]
        return Decision(request.id, False, self.policy.name, refused=reasons[0], reasons=told(reasons))

    def gangs_whole(self, batch: Sequence[Request], refused: Mapping[str, Decision]) -> dict[str, Decision]:
        """Remove the other members of a gang if one member was refused; return their refusals."""
        missing = {request.gang: request.id for request in batch if request.gang and request.id in refused}
        withdrawn: dict[str, Decision] = {}
        for request in batch:
            if request.gang in missing and request.id in self.state.spots:
                self.state.forget(request.id)
                first = missing[request.gang]
                constraint, here = f"gang '{request.gang}' is placed all or none", f"'{first}' has no place"
                gives, names = f"what '{first}' is refused for, or the gang", (request.id, request.label)
                why = Refusal(*names, "any machine", "gang", constraint=constraint, here=here, gives=gives)
                reasons = (f"{constraint}, and {here}",)
                withdrawn[request.id] = Decision(request.id, False, self.policy.name, refused=why, reasons=reasons)
        return withdrawn

    def at_risk(self) -> tuple[AtRisk, ...]:
        """Return the promises that do not hold on their servers: broken before unjudged ones, worst first."""
        rows: list[AtRisk] = []
        for place in self.state.sockets:
            verdict = self.policy.oracle.verdict(place.host, place.signature) if place.signature else None
            if verdict is None or verdict.ok:
                continue
            server = self.state.servers[place.server].name
            for core, (name, number, stage) in sorted(place.cores.items()):
                piece = self.pieces[number]
                breach = self.policy.oracle.breach(place.host.machine, piece, piece.workloads[stage], verdict)
                if breach is None:
                    continue
                lack = breach.what, breach.needed, breach.possible
                if breach.state == "unjudged":
                    lack = "throughput", piece.needed_mpps, 0.0
                workload = stage_of(self.state.requests[name], stage).key
                rows.append(AtRisk(name, workload, server, place.socket, core, *lack, breach.state, breach.why))
        return tuple(sorted(rows, key=lambda row: (row.state, row.possible / (row.needed or math.inf), row.request)))

    def place(self, batch: Sequence[Request]) -> dict[str, Decision]:
        """Place a batch, higher priorities first; return the refusals."""
        refused: dict[str, Decision] = {}
        for level in sorted({request.priority for request in batch}, reverse=True):
            waiting = [request for request in batch if request.priority == level]
            for request in self._planned(waiting):
                decision = self.admit(request)
                if not decision.accepted:
                    refused[request.id] = decision
        if len(batch) >= LARGE_BATCH:
            self._look_ahead()
        return refused

    def _put_in_turn(self, request: Request, options: Sequence[Cuts]) -> bool:
        """Place instances that serve only together, if the request has a throughput SLO and may have several."""
        whole = [{host: pieces[0] for host, pieces in cuts.items() if len(pieces) == 1} for cuts in options]
        pieces = next((each for each in whole if each), {})
        if request.replicas == 1 or any(piece.needed_mpps <= 0.0 or piece.exclusive for piece in pieces.values()):
            return False
        grid = self.estimates.slo_grid or _GRID
        return bool(pieces) and put_in_turn(self.state, self.policy.oracle, self.best, request, pieces, grid)

    def _put_all(self, request: Request, cuts: Cuts, *, used_only: bool) -> bool:
        """Place all pieces (units of placement) of a request, or none of them."""
        with self.state.trial() as trial:
            spots: list[Spot] = []
            for index in range(max(len(pieces) for pieces in cuts.values())):
                numbers = {host: self.pieces.number(cut[index]) for host, cut in cuts.items() if index < len(cut)}
                spot = self.best(request, numbers, spots, used_only=used_only)
                if spot is None:
                    trial.undo()
                    return False
                self.state.put(request, spot)
                spots.append(spot)
            self.state.keep(request, spots)
        return True

    def best(
        self,
        request: Request,
        numbers: Mapping[Host, int],
        mine: Sequence[Spot],
        test: Fitting | None = None,
        *,
        used_only: bool = False,
    ) -> Spot | None:
        """Return the best socket for one piece (instances placed together) by the policy's rule.

        `numbers`: the piece's number for each kind of server. `mine`: where the request's other pieces run. `test`:
        whether a socket is a candidate; all are by default.

        Preferences of the request count first. If several kinds have empty sockets, the one is opened of which the
        piece takes the cheapest share. A policy that ranks servers itself is given all feasible sockets.
        """
        allowed, rather = self.state.allowed(request, mine), self.state.score(request, mine)
        fits = {piece: self._fitting(request, piece, allowed, test) for piece in numbers.values()}
        if self.policy.ranks:
            return self._ranked(request, numbers, fits, rather)
        oracle, choices = self.policy.oracle, []
        picks_best = self.policy.picks == "best"
        for kind, (host, piece) in enumerate(numbers.items()):
            fitting = fits[piece]
            groups = None if fitting is None and rather is None else self._candidates(host, fitting, rather)
            for level in self._levels(host, piece, groups, used_only=used_only):
                held = False
                for base, cores, headroom in oracle.holding(host, piece, level, hopeful=picks_best):
                    lowest = self.state.lowest(host, base) if groups is None else groups[base]
                    if lowest is None:
                        continue
                    held = rather is None
                    liked = 0.0 if rather is None else -rather(self.state.sockets[lowest])
                    full = (-cores, headroom) if picks_best and base else (0, 0.0)
                    share = self.policy.weight(host, piece) * host.cost if picks_best and not base else 0.0
                    choices.append((liked, *full, share, kind if picks_best else 0, lowest, piece))
                if held:
                    break
        return min(choices)[5:] if choices else None

    def _ranked(
        self,
        request: Request,
        numbers: Mapping[Host, int],
        fits: Mapping[int, Fitting | None],
        rather: Callable[[Socket], float] | None,
    ) -> Spot | None:
        """Return the socket that the policy chooses among those that keep all promises."""
        choices: dict[SocketChoice, Spot] = {}
        for host, piece in numbers.items():
            fitting = fits[piece]
            places = [
                (number, place)
                for number, place in enumerate(self.state.sockets)
                if place.host == host and place.server not in self.state.closed and (fitting is None or fitting(place))
            ]
            room = host.places - len(self.pieces[piece].workloads)
            bases = {p.signature for _, p in places if self.pieces.cores(p.signature) <= room}
            holds = {each.base: each for each in self.policy.oracle.holding(host, piece, bases, hopeful=True)}
            for number, place in places:
                if (grown := holds.get(place.signature)) is not None:
                    server = self.state.servers[place.server]
                    liked = 0.0 if rather is None else rather(place)
                    choice = SocketChoice(server, place.socket, len(place.cores), grown.headroom, liked)
                    choices[choice] = (number, piece)
        taken = self.policy.choose(request, tuple(choices)) if choices else None
        if taken is not None and taken not in choices:
            raise InvalidValueError(
                f"policy '{self.policy.name}' chose {taken!r} for '{request.id}', which it was not offered",
                hint="Policy.choose returns one of its choices, or None",
            )
        return None if taken is None else choices[taken]

    def _fitting(self, request: Request, piece: int, allowed: Allowed | None, test: Fitting | None) -> Fitting | None:
        """Return the sockets on which constraints, resources and a test allow a part of a request; None for all."""
        if allowed is None and test is None and not self.state.limited:
            return None
        instances = self.pieces[piece].instances
        return lambda place: (
            (test is None or test(place))
            and (allowed is None or allowed(place, instances))
            and self.state.short_of(request, piece, place) is None
        )

    def _levels(
        self, host: Host, piece: int, groups: Mapping[Signature, int] | None, *, used_only: bool
    ) -> Iterator[list[Signature]]:
        """Yield mixes with one more part of a request, in batches, fullest first, until one keeps all promises."""
        levels: dict[int, list[Signature]] = {}
        for cores in range(host.places - len(self.pieces[piece].workloads), -1 + used_only, -1):
            levels[cores] = self.state.signatures(host, cores) if groups is None else []
        for signature in groups or ():
            cores = self.pieces.cores(signature)
            if cores in levels:
                levels[cores].append(signature)
        if self.policy.picks == "best":
            yield from levels.values()
        else:
            yield [signature for level in levels.values() for signature in level]

    def _candidates(
        self, host: Host, allowed: Fitting | None, rather: Callable[[Socket], float] | None
    ) -> dict[Signature, int]:
        """Return, for each mix on the allowed sockets of a kind, the socket that the request prefers."""
        taken: dict[Signature, tuple[float, int]] = {}
        for number, place in enumerate(self.state.sockets):
            if place.host != host or place.server in self.state.closed:
                continue
            if (rather is None and place.signature in taken) or not (allowed is None or allowed(place)):
                continue
            mine = (0.0 if rather is None else -rather(place), number)
            taken[place.signature] = min(mine, taken.get(place.signature, mine))
        return {signature: number for signature, (_, number) in taken.items()}

    def cuts(self, request: Request, tried: list[Refusal]) -> list[Cuts]:
        """Return the ways to split a request into parts, best first; if there is none, add the reason to `tried`."""
        per_host: dict[Host, list[tuple[Piece, ...]]] = {}
        alike = (request.chain, request.slo, request.replicas, request.id in request.anti_affinity, request.spread)
        for host in self.state.hosts:
            key = (host, *alike, request.max_per_host, request.min_replicas, request.survives)
            cuts = self.cut.recall(key)
            if cuts is None:
                cuts = self.cut[key] = self._cuts_on(request, host)
            if cuts:
                per_host[host] = cuts
            else:
                tried.append(self.writer.infeasible(request, host, self.fallback))
        most = max((len(cuts) for cuts in per_host.values()), default=0)
        return [{host: cuts[i] for host, cuts in per_host.items() if i < len(cuts)} for i in range(most)]

    def _cuts_on(self, request: Request, host: Host) -> list[tuple[Piece, ...]]:
        workloads = self.estimates.keys(host.machine, request)
        if self.policy.predicts and not all(self.estimates.predictable(host.machine, key) for key in workloads):
            alone = len(workloads) <= host.cores and self.fallback == "alone"
            return [(Piece(workloads, exclusive=True),)] if alone else []
        needed = self.writer.capacity_rounded(request, host)
        if needed is None or len(workloads) > host.cores:
            return []
        most, least = request.most_together, max(request.min_replicas, 2 if request.survives else 1)
        cuts = [
            pieces
            for pieces in self.policy.offers(request, host, needed)
            if all(piece.instances <= most for piece in pieces)
            and least <= sum(piece.instances for piece in pieces) <= request.replicas
        ]
        return [pieces for pieces in cuts if self.policy.oracle.verdict(host, (self.pieces.number(pieces[0]),)).ok]

    def _planned(self, requests: Sequence[Request]) -> list[Request]:
        """Place the part of a batch that the policy can plan; return the other requests, in order of admission."""
        one_by_one = self.state.limited or any(host.port_gbps for host in self.state.hosts)
        plain = [] if one_by_one else [r for r in requests if self.is_plain(r)]
        filled = self._in_gaps(plain)
        plain = [request for request in plain if request.id not in filled]
        if len(requests) == 1:  # nothing to plan: it has an empty server to itself
            plain = []
        planned = self._planned_over_kinds(plain) if len(self.state.hosts) > 1 else set()
        taken = filled | planned
        for host in self.state.hosts if not planned else ():
            left = [r for r in plain if r.id not in taken]
            cuts = {r.id: options[0][host] for r in left if (options := self.cuts(r, [])) and host in options[0]}
            here = [r for r in left if r.id in cuts]
            queues: dict[int, list[Request]] = {}
            for request in here:
                if len(cuts[request.id]) == 1:
                    queues.setdefault(self.pieces.number(cuts[request.id][0]), []).append(request)
            demand = {piece: len(queue) for piece, queue in queues.items()}
            plan = (demand and self.policy.plan(host, demand)) or {}
            taken |= seat_mixes(self.state, self.policy, host, plan, queues)
            left = [request for request in here if request.id not in taken]
            needs = [(request, self.writer.capacity_needed(request, host)) for request in left]
            batch = [Asked(request, need) for request, need in needs if need is not None]
            seats = (batch and self.policy.seats(host, batch)) or {}
            taken |= seat_requests(self.state, host, left, seats)
        rest = [request for request in requests if request.id not in taken]
        return sorted(rest, key=self.weight, reverse=True) if self.policy.sorts else rest

    def _in_gaps(self, requests: Sequence[Request]) -> set[str]:
        """Place what still fits on servers in use, most demanding first; the batch's plan uses only empty servers."""
        if self.policy.picks != "best" or not self.state.servers_used:
            return set()
        order = sorted(requests, key=self.weight, reverse=True)
        return {r.id for r in order if any(self._put_all(r, cuts, used_only=True) for cuts in self.cuts(r, []))}

    def _planned_over_kinds(self, requests: Sequence[Request]) -> set[str]:
        """Plan a batch over all kinds of servers at once, if the policy can; return the placed requests."""
        cuts = {request.id: self.cuts(request, []) for request in requests}
        alike: dict[tuple[tuple[Host, int], ...], list[Request]] = {}
        for request in requests:
            if cuts[request.id]:
                first = {h: c[0] for h, c in cuts[request.id][0].items() if len(c) == 1}
                key = tuple((host, self.pieces.number(piece)) for host, piece in first.items())
                alike.setdefault(key, []).append(request)
        groups = [(dict(key), queue) for key, queue in alike.items() if key]
        kinds, pieces = [], []
        for host in self.state.hosts:
            here: dict[int, int] = {}
            for number, (by_host, _) in enumerate(groups):
                if host in by_host:  # two classes that need the same here but not elsewhere: the first has this kind
                    here.setdefault(by_host[host], number)
            made = self.policy.columns(host, {piece: len(groups[n][1]) for piece, n in here.items()}) if here else None
            if made is not None:
                supply = len(self.state.empty_sockets(host))
                kinds.append(SocketKind(host, supply, tuple(here.values()), *made))
                pieces.append(here)
        if not kinds:
            return set()
        plan = cover_kinds([len(queue) for _, queue in groups], kinds)
        taken: set[str] = set()
        for kind, here, sockets in zip(kinds, pieces, plan.sockets, strict=True):
            queues = {piece: [r for r in groups[n][1] if r.id not in taken] for piece, n in here.items()}
            taken |= seat_mixes(self.state, self.policy, kind.host, sockets, queues)
        return taken

    def is_plain(self, request: Request) -> bool:
        """Return whether only its SLO limits where a request may be placed."""
        bound = (request.affinity, request.anti_affinity, request.spread, request.max_per_host, request.prefer)
        free = not any(bound) and request.min_replicas == 1 and request.survives is None
        anywhere = self.state.allowed(request) is None and self.state.score(request) is None
        return free and anywhere and request.slo.kind == "reserved" and not self.policy.ranks

    def weight(self, request: Request) -> float:
        """Return how demanding a request is; a batch is placed in this order."""
        cuts = self.cuts(request, [])
        if not cuts:
            return 0.0
        host, pieces = next(iter(cuts[0].items()))
        return self.policy.weight(host, self.pieces.number(pieces[0])) * len(pieces[0].workloads)

    def _look_ahead(self) -> None:
        """Predict every present mix with one more tenant, in one batch, for later admissions."""
        oracle = self.policy.oracle
        if self.policy.predicts:
            for host in self.state.hosts:
                floors = self._floors(host)
                if floors:
                    oracle.table(host, floors, most=_MOST_AHEAD)
        grown: dict[Host, list[Signature]] = {}
        present = (
            (place.host, place.signature) for place in self.state.sockets if place.server not in self.state.closed
        )
        for host, signature in dict.fromkeys(present):
            room = _MOST_AHEAD - len(grown.get(host, ()))
            more = (self.pieces.grown(signature, piece) for piece in range(min(len(self.pieces), max(room, 0))))
            grown.setdefault(host, []).extend(mix for mix in more if not oracle.hopeless(host, mix))
        for host, mixes in grown.items():
            oracle.verdicts(host, mixes[:_MOST_AHEAD])

    def _floors(self, host: Host) -> dict[str, float]:
        """Return the lowest throughput that any request requires of each network function [Mpps]."""
        floors: dict[str, float] = {}
        for piece in (self.pieces[number] for number in range(len(self.pieces))):
            for key in piece.workloads:
                if piece.needed_mpps > 0.0 and self.estimates.predictable(host.machine, key):
                    floors[key] = min(piece.needed_mpps, floors.get(key, piece.needed_mpps))
        return floors
