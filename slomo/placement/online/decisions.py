"""Describe decisions to users: cores, ways and predictions of each instance, or the first SLO that would break.

Buffers follow ResQ (NSDI'18) section 4.3: all packet buffers of a socket together must fit into the DDIO ways.
"""

import math
from collections.abc import Mapping, Sequence

from slomo.errors import InvalidValueError
from slomo.placement.feasibility.estimates import Rate, ThroughputEstimates
from slomo.placement.feasibility.latency import each_mpps, promises_latency
from slomo.placement.feasibility.memo import Memo
from slomo.placement.feasibility.mixes import Host, Piece, tenants_of
from slomo.placement.feasibility.on_demand import Shares, Want, class_masks, foreseen, share_out
from slomo.placement.feasibility.oracle import EVIDENCE, behind_port, port_shares
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.placement.online.refusals import Binding, told
from slomo.placement.online.sockets import Socket
from slomo.placement.online.state import ClusterState
from slomo.placement.policies.base import Policy
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.request import Request
from slomo.units import plural
from slomo.vocabulary.packet_buffers import buffers_per_nf
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.workload import Workload

#: Largest number of cached divisions of a cache.
_MOST_SHARES = 20_000


class DecisionWriter:
    """Describes, for users, where requests run and why."""

    def __init__(self, state: ClusterState, policy: Policy, estimates: ThroughputEstimates) -> None:
        self._state, self._policy, self._estimates = state, policy, estimates
        self._shared: Memo[object, Shares] = Memo(_MOST_SHARES)

    def sizes(self) -> dict[str, int]:
        """Return the number of entries in the cache."""
        return {"cache shares": len(self._shared)}

    def decision(self, request: str) -> Decision:
        """Return where a placed request runs, with predictions."""
        state = self._state
        assignments: list[Assignment] = []
        reasons: dict[str, None] = {}
        for number in dict.fromkeys(number for number, _ in state.spots[request]):
            place = state.sockets[number]
            masks = self._masks(place)
            assignments += [
                self._assignment(place, core, masks) for core in sorted(place.cores) if place.cores[core][0] == request
            ]
            reasons[self._reason(place, request)] = None
        told_all = (*reasons, *self._policy.remarks)
        return Decision(
            request, True, self._policy.name, self._model, tuple(assignments), told_all, None, self._confidence
        )

    @property
    def _model(self) -> str:
        """Return the name of the model that predicts, for display; empty if no model does."""
        return self._estimates.predictor_label(self._state.sockets[0].host.machine) if self._policy.predicts else ""

    @property
    def _confidence(self) -> float | None:
        return self._estimates.confidence if self._policy.predicts else None

    def needed_here(self, request: str) -> float:
        """Return the throughput that a placed request's instances must reach together on their servers [Mpps]."""
        host = self._state.sockets[self._state.spots[request][0][0]].host
        return self.capacity_needed(self._state.requests[request], host) or 0.0

    def predicted(self) -> dict[str, float]:
        """Return the predicted throughput of every placed request, all instances together [Mpps]."""
        rates: dict[tuple[Host, tuple[int, ...]], dict[str, Rate]] = {}
        total: dict[str, float] = {}
        for name, spots in self._state.spots.items():
            total[name] = 0.0
            for number, piece in spots:
                place = self._state.sockets[number]
                key, mix = (place.host, place.signature), tenants_of(self._state.pieces.of(place.signature))
                known = all(self._estimates.predictable(place.host.machine, workload) for workload in mix)
                if not known or len(place.cores) > place.host.cores:  # nothing predicts hyper-threads
                    continue
                if key not in rates:
                    loaded = behind_port(place.host, mix, self._estimates)
                    there = tuple(loaded[workload] for workload in mix)
                    served = self._estimates.rates(place.host.machine, [there])[0]
                    rates[key] = {workload: served[name] for workload, name in loaded.items()}
                total[name] += min(rates[key][workload][0] for workload in self._state.pieces[piece].workloads)
        return total

    def breaking(self) -> dict[str, float]:
        """Return the probability, for each server in use, that a promise in its shared cache is broken."""
        holds: dict[str, float] = {}
        for place in self._state.sockets if self._policy.predicts else ():
            tenants, needs = [], []
            for name, number, stage in place.cores.values():
                piece = self._state.pieces[number]
                promised = 0.0 if piece.ways or piece.exclusive else piece.needed_mpps * self._exact(name, place.host)
                tenants.append(piece.workloads[stage])
                needs.append(promised)
            if any(needs):
                loaded = behind_port(place.host, tenants, self._estimates)
                mix = [(loaded[key], need) for key, need in zip(tenants, needs, strict=True)]
                server = self._state.servers[place.server].name
                risk = self._estimates.breaking(place.host.machine, mix)
                holds[server] = holds.get(server, 1.0) * (1.0 - risk)
        return {server: 1.0 - hold for server, hold in holds.items()}

    def layout(self) -> dict[str, tuple[Assignment, ...]]:
        """Return what runs on each server that is in use."""
        layout: dict[str, tuple[Assignment, ...]] = {}
        for place in self._state.sockets:
            if place.signature:
                masks, name = self._masks(place), self._state.servers[place.server].name
                layout[name] = (
                    *layout.get(name, ()),
                    *(self._assignment(place, core, masks) for core in sorted(place.cores)),
                )
        return layout

    def refusal(self, request: Request, tried: Sequence[Refusal], cuts: Mapping[Host, tuple[Piece, ...]]) -> Decision:
        """Return why a request is not placed, for each kind of server; kinds that could serve it come first."""
        binding = Binding(self._state, self._policy)
        reasons = [*(binding.on(request, host, pieces[0]) for host, pieces in cuts.items()), *tried]
        if not reasons:
            reasons = [Refusal(request.id, request.label, "any machine", "servers")]
        policy, model = self._policy.name, self._model
        why = (*told(reasons), *self._policy.remarks)
        return Decision(request.id, False, policy, model, (), why, reasons[0], self._confidence)

    def infeasible(self, request: Request, host: Host, fallback: str) -> Refusal:
        """Return why not even an empty socket of a kind of server can run a request."""
        keys = [workload.key for workload in request.chain]
        if len(keys) > host.cores:
            return Refusal(request.id, request.label, host.machine, "cores", float(len(keys)), float(host.cores))
        unknown = [key for key in keys if not self._estimates.predictable(host.machine, key)]
        if self._policy.predicts and unknown and fallback == "refuse":
            return Refusal(
                request.id, unknown[0], host.machine, f"model '{self._estimates.predictor_label(host.machine)}'"
            )
        bare = [key for key in keys if self._estimates.profile(host.machine, key) is None]
        if self._policy.needs_profiles and bare:
            return Refusal(request.id, bare[0], host.machine, "profile over cache ways")
        needed = self._estimates.needed_mpps(request, host.machine)
        if needed is None:
            return Refusal(request.id, request.label, host.machine, "model")
        if self.capacity_needed(request, host) is None:
            limit = request.slo.p95_us or request.slo.p99_us
            what = "profile over load, for latency" if bare else "latency"
            profiles = self._estimates.profiles_of(host.machine, request) or []
            column = 1 if request.slo.p95_us else 2
            known = profiles and all(profile.latency for profile in profiles)
            best = sum(profile.latency[0][column] for profile in profiles) if known else None
            return Refusal(request.id, request.label, host.machine, what, None if bare else limit, best)
        stages = dict.fromkeys(keys)
        for key in stages if self._policy.predicts and len(keys) > 1 else ():
            if (lacking := self._estimates.lacking(host.machine, key, len(stages))) is not None:
                return Refusal(request.id, key, host.machine, EVIDENCE, *lacking)
        rates = [(self._estimates.solo_mpps(host.machine, key) or 0.0, key) for key in keys]
        if self._policy.predicts and not unknown:
            named = [STRANGER if self._estimates.is_stranger(host.machine, key) else key for key in keys]
            alone = self._estimates.rates(host.machine, [(name,) for name in named])
            rates = [(each[name][1], key) for each, name, key in zip(alone, named, keys, strict=True)]
        best, worst = min(rates)
        return Refusal(request.id, worst, host.machine, "throughput", needed, best * request.replicas)

    def capacity_needed(self, request: Request, host: Host) -> float | None:
        """Return the throughput that all instances of a request must reach together [Mpps]; None if latency SLOs fail.

        Extra capacity for latency depends on the number of instances, see `slomo.placement.feasibility.latency`.
        """
        machine = host.machine
        needed = self._estimates.needed_mpps(request, machine)
        if needed is None or not promises_latency(request):
            return needed
        counts = range(1, request.replicas + 1)
        possible = any(each_mpps(self._estimates, request, machine, needed, n) is not None for n in counts)
        return needed if possible else None

    def capacity_rounded(self, request: Request, host: Host) -> float | None:
        """Return :meth:`capacity_needed`, rounded up to the next step of the SLO grid [Mpps]."""
        needed = self.capacity_needed(request, host)
        return None if needed is None else self._estimates.rounded(request, host.machine, needed)

    def _assignment(self, place: Socket, core: int, masks: dict[int, int]) -> Assignment:
        owner, number, stage = place.cores[core]
        piece = self._state.pieces[number]
        key = piece.workloads[stage]
        rate = self._rate(place, key, piece.ways[stage] if piece.ways else 0)
        server = self._state.servers[place.server]
        return Assignment(
            server=server.name,
            socket=place.socket,
            core=core % place.host.cores,
            workload=stage_of(self._state.requests[owner], stage).key,
            needed_mpps=piece.needed_mpps * self._exact(owner, place.host),
            predicted_mpps=rate[0],
            low_mpps=rate[1],
            high_mpps=rate[2],
            llc_way_mask=masks.get(core),
            buffers=self._buffer_count(place, stage_of(self._state.requests[owner], stage)),
            memory_node=place.socket,
            thread=core // place.host.cores,
            machine_fingerprint=server.machine_type.fingerprint,
        )

    def _exact(self, name: str, host: Host) -> float:
        """Return the promise of a request before rounding over that after rounding."""
        request = self._state.requests[name]
        exact, up = self.capacity_needed(request, host), self.capacity_rounded(request, host)
        return exact / up if exact and up else 1.0

    def _rate(self, place: Socket, key: str, ways: int) -> tuple[float | None, float | None, float | None]:
        profile = self._estimates.profile(place.host.machine, key)
        if ways and profile is not None:
            shares = port_shares(
                place.host, tenants_of(self._state.pieces.of(place.signature)), self._estimates.solo_mpps
            )
            mpps = min(profile.alone_mpps(ways), shares.get(key, math.inf))
            return mpps, mpps, mpps
        rate = self._policy.oracle.verdict(place.host, place.signature).rates.get(key)
        return (None, None, None) if rate is None else rate

    def _masks(self, place: Socket) -> dict[int, int]:
        """Return the way mask of every core: exclusive blocks from way 0 upwards, the rest for all other cores."""
        masks: dict[int, int] = {}
        taken = 0
        for core in sorted(place.cores):
            _, number, stage = place.cores[core]
            ways = self._state.pieces[number].ways
            if ways:
                masks[core] = way_block(ways[stage], taken)
                taken += ways[stage]
        shares = self._shares(place, place.host.ways - taken)
        if shares is not None:
            names = class_masks(shares.classes, taken)
            masks |= {int(core): mask for core, mask in names.items()}
        if taken:
            rest = way_block(place.host.ways) & ~way_block(taken)
            masks |= {core: rest for core in place.cores if core not in masks}
        return masks

    def _shares(self, place: Socket, ways: int) -> Shares | None:
        """Divide the remaining ways among on-demand functions, if all others have exclusive ways and profiles."""
        wants: dict[str, Want] = {}
        for core in sorted(place.cores):
            owner, number, stage = place.cores[core]
            piece = self._state.pieces[number]
            if piece.ways:
                continue
            want = self._want(self._state.requests.get(owner), place.host.machine, piece.workloads[stage])
            if want is None:
                return None
            wants[str(core)] = want
        key = (ways, tuple(wants.items()))
        shares = self._shared.recall(key)
        if wants and shares is None:
            shares = self._shared[key] = share_out(list(wants), ways, foreseen(wants))
        return shares if wants else None

    def _want(self, request: Request | None, machine: str, workload: str) -> Want | None:
        """Return target and profile of a stage of an on-demand request; None for others or without a profile."""
        profile = self._estimates.profile(machine, workload)
        if request is None or request.slo.kind != "on-demand" or profile is None:
            return None
        stages, slo = len(request.chain), request.slo
        p95, p99 = (None if limit is None else limit / stages for limit in (slo.p95_us, slo.p99_us))
        return Want(profile, self._estimates.wanted_mpps(request, machine) or 0.0, p95, p99)

    def _buffer_count(self, place: Socket, workload: Workload) -> int | None:
        machine = self._state.servers[place.server].machine_type
        sharers = max(place.host.cores, len(place.cores))
        try:
            return buffers_per_nf(machine, sharers, workload.traffic.packet_size_b)
        except InvalidValueError:  # a share too small to be of use: nothing is limited
            return None

    def _reason(self, place: Socket, request: str) -> str:
        others = len(place.cores) - sum(owner == request for owner, _, _ in place.cores.values())
        where = f"{self._state.servers[place.server].name}, socket {place.socket}"
        beside = f"beside {plural(others, 'other')}" if others else "alone"
        verdict = self._policy.oracle.verdict(place.host, place.signature)
        if any(self._state.pieces[number].exclusive for number in place.signature):
            return f"{where}: alone, for there is no model of it on {place.host.machine}; its SLO cannot be checked"
        if self._state.requests[request].slo.kind == "on-demand":
            return f"{where}: {beside}, on demand: {self._lease(place, request)}"
        if self._policy.predicts and verdict.rates and verdict.headroom < float("inf"):
            spare = f"{100 * verdict.headroom:.1f} % to spare"
            beside += f", every SLO holds at confidence {self._estimates.confidence:g} with {spare}"
        return f"{where}: {beside}{self._stand_in(place.host.machine, request)}"

    def _stand_in(self, machine: str, request: str) -> str:
        """Return the functions that stand, as the worst case, for a function without a model."""
        keys = [workload.key for workload in self._state.requests[request].chain]
        strangers = [key for key in keys if self._policy.predicts and self._estimates.is_stranger(machine, key)]
        worst = self._estimates.worst(machine) if strangers else None
        if worst is None:
            return ""
        who = f"presses like '{worst.contentious}' and suffers like '{worst.sensitive}'"
        return f"; there is no model of '{strangers[0]}' on {machine}, it is taken for one that {who}"

    def _lease(self, place: Socket, request: str) -> str:
        """Return, in words, which cache ways a request on demand shares."""
        taken = sum(sum(self._state.pieces[number].ways) for number in place.signature)
        if len(place.cores) > place.host.cores:
            return "nothing promised; hyper-threads of a core are shared, which is not predicted (not supported)"
        shares = self._shares(place, place.host.ways - taken)
        if shares is None:
            return "no target promised, the cache is shared"
        mine = {str(core) for core, (owner, _, _) in place.cores.items() if owner == request}
        held = [item for item in shares.classes if mine & set(item.members)]
        parts = [f"{plural(item.ways, 'way')}, {len(item.members)} sharing" for item in held]
        short = "; its target is missed all the same" if mine & set(shares.unmet) else ""
        return f"max-min share of {' and '.join(parts)}{short}"


def stage_of(request: Request, number: int) -> Workload:
    """Return the workload of one stage, counted over all instances of a piece (unit of placement)."""
    return request.chain[number % len(request.chain)]
