"""Say what was decided: assignments with cores, ways, buffers and predictions, or the first SLO that would have broken.

Buffers follow ResQ (NSDI'18) section 4.3: all packet buffers of a socket together must fit the cache space devices
fill.
"""

from collections.abc import Sequence

from slomo.placement.feasibility.estimates import Rate, ThroughputEstimates
from slomo.placement.feasibility.mixes import Host, tenants_of
from slomo.placement.feasibility.on_demand import Shares, Want, class_masks, foreseen, share_out
from slomo.placement.feasibility.oracle import Breach
from slomo.placement.online.state import Socket, State
from slomo.placement.policies.base import Policy
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.request import Request
from slomo.vocabulary.machine import load_machine

#: Bytes of a buffer that holds an MTU-sized packet: 25 cache lines (ResQ section 4.3).
BUFFER_B = 1600


class DecisionWriter:
    """Puts the state into words.

    Parameters
    ----------
    state : State
        What runs where.
    policy : Policy
        Who decides.
    estimates : ThroughputEstimates
        Models and profiles.
    """

    def __init__(self, state: State, policy: Policy, estimates: ThroughputEstimates) -> None:
        self._state, self._policy, self._estimates = state, policy, estimates
        self._buffers: dict[Host, int] = {}
        self._shared: dict[object, Shares] = {}

    def decision(self, request: str) -> Decision:
        """Return where a placed request is."""
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
        return Decision(request, True, self._policy.name, self._model, tuple(assignments), tuple(reasons))

    @property
    def _model(self) -> str:
        """What predicts, for people; empty where nothing does."""
        return self._estimates.said(self._state.hosts[0].machine) if self._policy.predicts else ""

    def needed_here(self, request: str) -> float:
        """Return what a placed request's instances need together where they run [Mpps]."""
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
                key = (place.host, place.signature)
                if key not in rates:
                    mix = tenants_of(self._state.pieces.of(place.signature))
                    rates[key] = self._estimates.rates(place.host.machine, [mix])[0]
                total[name] += min(rates[key][workload][0] for workload in self._state.pieces[piece].workloads)
        return total

    def layout(self) -> dict[str, tuple[Assignment, ...]]:
        """Return what runs on each server in use."""
        found: dict[str, tuple[Assignment, ...]] = {}
        for place in self._state.sockets:
            if place.signature:
                masks, name = self._masks(place), self._state.cluster.servers[place.server].name
                found[name] = (
                    *found.get(name, ()),
                    *(self._assignment(place, core, masks) for core in sorted(place.cores)),
                )
        return found

    def refusal(self, request: Request, tried: Sequence[Refusal]) -> Decision:
        """Return why a request is not placed."""
        refused = tried[0] if len(tried) == len(self._state.hosts) else self._full(request)
        reasons = tuple(item.text for item in tried) or (refused.text,)
        return Decision(
            request.id,
            False,
            self._policy.name,
            self._model,
            (),
            reasons,
            refused,
        )

    def infeasible(self, request: Request, host: Host, fallback: str) -> Refusal:
        """Return why no empty socket of a kind can serve a request."""
        keys = [workload.key for workload in request.chain]
        if len(keys) > host.cores:
            return Refusal(request.id, request.label, host.machine, "cores", float(len(keys)), float(host.cores))
        unknown = [key for key in keys if not self._estimates.predictable(host.machine, key)]
        if self._policy.predicts and unknown and fallback == "refuse":
            return Refusal(request.id, unknown[0], host.machine, f"model '{self._estimates.said(host.machine)}'")
        bare = [key for key in keys if self._estimates.profile(host.machine, key) is None]
        if self._policy.needs_profiles and bare:
            return Refusal(request.id, bare[0], host.machine, "profile over cache ways")
        needed = self._estimates.needed_mpps(request, host.machine)
        if needed is None:
            return Refusal(request.id, request.label, host.machine, "model")
        if self.capacity_needed(request, host) is None:
            limit = request.slo.p95_us or request.slo.p99_us
            what = "profile over load, for latency" if bare else "latency"
            best = self._best_latency(request, host)
            return Refusal(request.id, request.label, host.machine, what, None if bare else limit, best)
        rates = [(self._best_rate(host, key), key) for key in keys]
        best, worst = min(rates)
        return Refusal(request.id, worst, host.machine, "throughput", needed, best * request.replicas)

    def capacity_needed(self, request: Request, host: Host) -> float | None:
        """Return the saturated throughput all instances need together [Mpps]; None where latency cannot be promised.

        Latency holds up to some load; capacity must exceed the promised throughput by its inverse (ResQ section 5.2).
        """
        needed = self._estimates.needed_mpps(request, host.machine)
        slo = request.slo
        if needed is None or slo.kind == "on-demand" or (slo.p95_us is None and slo.p99_us is None):
            return needed
        loads = []
        for workload in request.chain:
            profile = self._estimates.profile(host.machine, workload.key)
            stages = len(request.chain)
            p95, p99 = (None if limit is None else limit / stages for limit in (slo.p95_us, slo.p99_us))
            loads.append(None if profile is None else profile.load_for(p95, p99))
        known = [load for load in loads if load is not None]
        return None if len(known) < len(loads) else needed / min(known)

    def _best_latency(self, request: Request, host: Host) -> float | None:
        profiles = [self._estimates.profile(host.machine, workload.key) for workload in request.chain]
        column = 1 if request.slo.p95_us else 2
        return (
            sum(p.latency[0][column] for p in profiles if p and p.latency)
            if all(p and p.latency for p in profiles)
            else None
        )

    def _best_rate(self, host: Host, key: str) -> float:
        return self._estimates.solo_mpps(host.machine, key) or 0.0

    def _full(self, request: Request) -> Refusal:
        """Return what breaks first on the least loaded socket: a neighbour's SLO, the request's own, or cores."""
        sockets = self._state.sockets
        place = min(sockets, key=lambda item: len(item.cores))
        allowed = self._state.allowed(request, ())
        if allowed is not None and not any(allowed(item) for item in sockets):
            return Refusal(request.id, request.label, place.host.machine, "affinity")
        breach = self._breach(request, place)
        if breach is None:
            return Refusal(request.id, request.label, place.host.machine, "affinity" if allowed else "cores")
        owner = next(
            (name for name, piece, _ in place.cores.values() if self._state.pieces[piece] == breach.piece), request.id
        )
        return Refusal(owner, breach.workload, place.host.machine, breach.what, breach.needed, breach.possible)

    def _breach(self, request: Request, place: Socket) -> Breach | None:
        machine = place.host.machine
        if self._policy.predicts and not all(self._estimates.predictable(machine, w.key) for w in request.chain):
            return None
        needed = self.capacity_needed(request, place.host)
        for pieces in self._policy.offers(request, place.host, needed or 0.0):
            mix = self._state.pieces.grown(place.signature, self._state.pieces.number(pieces[0]))
            breach = self._policy.oracle.verdict(place.host, mix).breach
            if breach is not None:
                return breach
        return None

    def _assignment(self, place: Socket, core: int, masks: dict[int, int]) -> Assignment:
        _, number, stage = place.cores[core]
        piece = self._state.pieces[number]
        key = piece.workloads[stage]
        rate = self._rate(place, key, piece.ways[stage] if piece.ways else 0)
        return Assignment(
            server=self._state.cluster.servers[place.server].name,
            socket=place.socket,
            core=core,
            workload=key,
            needed_mpps=piece.needed_mpps,
            predicted_mpps=rate[0],
            low_mpps=rate[1],
            high_mpps=rate[2],
            llc_way_mask=masks.get(core),
            buffers=self._buffer_count(place.host),
        )

    def _rate(self, place: Socket, key: str, ways: int) -> tuple[float | None, float | None, float | None]:
        profile = self._estimates.profile(place.host.machine, key)
        if ways and profile is not None:
            mpps = profile.mpps(ways)
            return mpps, mpps, mpps
        rate = self._policy.oracle.verdict(place.host, place.signature).rates.get(key)
        return (None, None, None) if rate is None else rate

    def _masks(self, place: Socket) -> dict[int, int]:
        """Return the way mask of every core: blocks of their own from way 0 upwards, the rest for those who share."""
        masks: dict[int, int] = {}
        taken = 0
        for core in sorted(place.cores):
            _, number, stage = place.cores[core]
            ways = self._state.pieces[number].ways
            if ways:
                masks[core] = ((1 << ways[stage]) - 1) << taken
                taken += ways[stage]
        shares = self._shares(place, place.host.ways - taken)
        if shares is not None:
            names = class_masks(shares.classes, taken)
            masks |= {int(core): mask for core, mask in names.items()}
        if taken:
            rest = ((1 << place.host.ways) - 1) & ~((1 << taken) - 1)
            masks |= {core: rest for core in place.cores if core not in masks}
        return masks

    def _shares(self, place: Socket, ways: int) -> Shares | None:
        """Share the ways left among on-demand network functions, where everybody else owns ways and profiles are known.

        Their names are the numbers of their cores.
        """
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
        if wants and key not in self._shared:
            self._shared[key] = share_out(list(wants), ways, foreseen(wants))
        return self._shared[key] if wants else None

    def _want(self, request: Request | None, machine: str, workload: str) -> Want | None:
        """Return what one stage of an on-demand request would like; None for others, and without a profile."""
        profile = self._estimates.profile(machine, workload)
        if request is None or request.slo.kind != "on-demand" or profile is None:
            return None
        stages, slo = len(request.chain), request.slo
        p95, p99 = (None if limit is None else limit / stages for limit in (slo.p95_us, slo.p99_us))
        return Want(profile, self._estimates.wanted_mpps(request, machine) or 0.0, p95, p99)

    def _buffer_count(self, host: Host) -> int | None:
        if host not in self._buffers:
            ddio_b = load_machine(host.machine).capacities().ddio_kib * 1024
            self._buffers[host] = int(ddio_b / BUFFER_B / host.cores)
        return self._buffers[host] or None

    def _reason(self, place: Socket, request: str) -> str:
        others = len(place.cores) - sum(owner == request for owner, _, _ in place.cores.values())
        where = f"{self._state.cluster.servers[place.server].name}, socket {place.socket}"
        beside = f"beside {others} other{'s' if others != 1 else ''}" if others else "alone"
        verdict = self._policy.oracle.verdict(place.host, place.signature)
        if any(self._state.pieces[number].exclusive for number in place.signature):
            return f"{where}: alone, for there is no model of it on {place.host.machine}; its SLO cannot be checked"
        if self._state.requests[request].slo.kind == "on-demand":
            return f"{where}: {beside}, on demand: {self._lease(place, request)}"
        if self._policy.predicts and verdict.rates and verdict.headroom < float("inf"):
            spare = f"{100 * verdict.headroom:.1f} % to spare"
            return f"{where}: {beside}, every SLO holds at confidence {self._estimates.confidence:g} with {spare}"
        return f"{where}: {beside}"

    def _lease(self, place: Socket, request: str) -> str:
        """Say which part of the cache an on-demand request has."""
        taken = sum(sum(self._state.pieces[number].ways) for number in place.signature)
        shares = self._shares(place, place.host.ways - taken)
        if shares is None:
            return "no target promised, the cache is shared"
        mine = {str(core) for core, (owner, _, _) in place.cores.items() if owner == request}
        held = [item for item in shares.classes if mine & set(item.members)]
        parts = [f"{item.ways} ways, {len(item.members)} sharing" for item in held]
        short = "; its target is missed all the same" if mine & set(shares.unmet) else ""
        return f"max-min share of {' and '.join(parts)}{short}"
