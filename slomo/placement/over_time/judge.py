"""Run everything that is placed on a testbed and count broken SLOs, whatever the policy predicted.

ResQ (NSDI'18) section 6 ran all computed placements and recorded real throughput and latency. The testbed is passed as
a callable, since placement imports none; a mix that occurs on many servers runs once.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slomo.errors import ConfigurationError
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.judgement import Judgement, Violation
from slomo.placement.problem.cluster import Server
from slomo.placement.problem.decision import Assignment
from slomo.placement.problem.request import Request
from slomo.records.run import RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.packet_buffers import MOST_BUFFERS
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.workload_text import parse_workload

Run = Callable[[Colocation], RunRecord]
#: Server, socket, and core (with hyper-thread).
Seat = tuple[str, int, str]
#: Spread of measured throughput between seeds; a smaller shortfall is no violation.
TOLERANCE = 0.005
#: Standard deviations of the number of arrivals by which a request's served load may differ from its offered load.
_DEVIATIONS = 2.0


class Judge:
    """Runs mixes on a testbed and remembers the results.

    `run`: runs a co-location and returns its record, for instance `SimulatedTestbed(...).run`. `fingerprint`:
    fingerprint of a machine, by name, where mixes run; a placement on another machine of that name is not judged.
    `each`: runs every mix of a placement: `map`, or what does so elsewhere (`slomo.fleet.spread`); judgements do not
    depend on it.
    """

    def __init__(
        self,
        run: Run,
        fingerprint: Callable[[str], str] | None = None,
        each: Callable[[Run, Iterable[Colocation]], Iterable[RunRecord]] = map,
    ) -> None:
        self._run, self._fingerprint, self._each = run, fingerprint, each
        self._seen: dict[str, tuple[TenantSample, ...]] = {}
        self._lasted_us: dict[str, float] = {}

    @property
    def mixes_run(self) -> int:
        """Number of different mixes run so far."""
        return len(self._seen)

    def judge(self, placer: Placer, *, requests: int | None = None, decision_ms: Sequence[float] = ()) -> Judgement:
        """Run everything that a placer has placed; return which SLOs were broken.

        `placer`: the placement to judge. `requests`: how many were asked for; what is placed by default. `decision_ms`:
        times of decisions, if they were taken [ms]. Raises ConfigurationError for a machine of the cluster that is not
        the one of that name on which mixes run.
        """
        layout, samples = placer.layout(), self._run_all(placer)
        servers = {server.name: server for server in placer.cluster.servers}
        violations, unmet, ran = list[Violation](), list[str](), set[str]()
        served = promised = 0.0
        for request, items in _requests_run(placer, samples):
            ran.add(request.id)
            server = servers[items[0].server]
            needed = self._wanted(placer, request, server.machine_type) or 0.0
            measured = _capacity(request, items, samples)
            broken = self._late(placer, request, items, server, layout[server.name])
            if measured < needed * (1.0 - TOLERANCE - self._chance(request, needed)):
                broken.insert(0, Violation(request.id, request.label, "throughput", needed, measured, server.name))
            if request.slo.kind == "on-demand":
                unmet += [request.id] if broken else []
                continue
            served, promised = served + min(measured, needed), promised + needed
            violations += broken
        cores = sum(len(items) for items in layout.values())
        room = sum(servers[name].cores * len(servers[name].nics) for name in layout)
        spread = np.percentile(decision_ms, [50, 99]) if len(decision_ms) else np.zeros(2)
        return Judgement(
            policy=placer.policy.name,
            requests=len(placer.requests) if requests is None else requests,
            placed=len(placer.requests),
            servers_used=placer.servers_used,
            violations=tuple(violations),
            anat=served / promised if promised else 1.0,
            utilisation=cores / room if layout else 0.0,
            decision_ms=(float(spread[0]), float(spread[1])),
            mixes_run=self.mixes_run,
            on_demand_unmet=tuple(unmet),
            not_run=tuple(request.id for request in placer.requests if request.id not in ran),
        )

    def throughput(self, placer: Placer) -> dict[str, float]:
        """Run everything that is placed; return the throughput of every request that was run [Mpps]."""
        samples = self._run_all(placer)
        ran = _requests_run(placer, samples)
        return {request.id: _capacity(request, items, samples) for request, items in ran}

    def _run_all(self, placer: Placer) -> dict[Seat, TenantSample]:
        for name, machine in placer.cluster.machine_types.items():
            if self._fingerprint is not None and (other := self._fingerprint(name)) != machine.fingerprint:
                raise ConfigurationError(
                    f"the judge runs another machine '{name}', with fingerprint {other}, than the cluster's, with "
                    f"fingerprint {machine.fingerprint}: their numbers differ",
                    hint="make_judge(machines=cluster.machine_types.values()), or give the machine a name of its own",
                )
        servers = {server.name: server for server in placer.cluster.servers}
        asked: list[tuple[Server, list[Assignment]]] = []
        for name, items in placer.layout().items():
            for socket in sorted({item.socket for item in items}):
                here = [item for item in items if item.socket == socket]
                if len(here) <= servers[name].cores:  # hyper-threads are not simulated
                    asked.append((servers[name], here))
        self._run_mixes([_mix(server.machine_type, here, {}, server.port_gbps) for server, here in asked])
        samples: dict[Seat, TenantSample] = {}
        for server, here in asked:
            ran = self._samples(server.machine_type, here, port_gbps=server.port_gbps)
            samples |= {_seat(item): sample for item, sample in zip(here, ran, strict=True)}
        return samples

    def _wanted(self, placer: Placer, request: Request, machine: Machine) -> float | None:
        """Return the throughput that a request must reach [Mpps]."""
        keys, share = [workload.key for workload in request.chain], request.slo.min_share
        if share is None or not any(placer.estimates.is_stranger(machine.name, key) for key in keys):
            return placer.estimates.wanted_mpps(request, machine.name)
        alone = [self._samples(machine, [Assignment(machine.name, 0, 0, key)])[0].throughput_mpps for key in keys]
        return share * min(alone)

    def _chance(self, request: Request, needed: float) -> float:
        """Return by how much a request may fall short, because packets arrive at random below full load."""
        offered = [workload.traffic.offered_mpps for workload in request.chain if workload.traffic.offered_mpps]
        if not offered or needed < 0.9 * min(offered):
            return 0.0
        return _DEVIATIONS / math.sqrt(max(min(offered) * min(self._lasted_us.values(), default=1.0), 1.0))

    def _late(
        self,
        placer: Placer,
        request: Request,
        items: Sequence[Assignment],
        server: Server,
        there: Sequence[Assignment],
    ) -> list[Violation]:
        """Run a request at its promised load beside its neighbours on a server, and compare the latency with its SLO.

        `items` are its own instances, `there` all on the server.
        """
        limits = [(name, limit) for name in ("p95_us", "p99_us") if (limit := getattr(request.slo, name)) is not None]
        if not limits:
            return []
        machine, socket = server.machine_type, items[0].socket
        here = [item for item in there if item.socket == socket]
        mine = [item for item in items if item.server == server.name and item.socket == socket]
        needed = placer.estimates.wanted_mpps(request, machine.name) or None
        share = None if needed is None else needed * len(request.chain) / len(items)
        loads = {item.seat: share or _kept_load(placer, request, machine.name, item) for item in mine}
        ran = self._samples(machine, here, loads, server.port_gbps)
        samples = dict(zip([item.seat for item in here], ran, strict=True))
        violations = []
        for name, limit in limits:
            times = [getattr(samples[item.seat], f"latency_{name}") for item in mine]
            measured = sum(value for value in times if value is not None) * len(request.chain) / max(len(times), 1)
            if measured > limit:
                violations.append(Violation(request.id, request.label, "latency", limit, measured, server.name))
        return violations

    def _samples(
        self,
        machine: Machine,
        items: Sequence[Assignment],
        loads: Mapping[str, float | None] | None = None,
        port_gbps: float | None = None,
    ) -> list[TenantSample]:
        """Run one socket with its cache ways and packet buffers; return samples in the order of `items`."""
        mix = _mix(machine, items, loads or {}, port_gbps)
        self._run_mixes([mix])
        back = dict(zip(mix.order, self._seen[mix.colocation.key], strict=True))
        return [back[i] for i in range(len(items))]

    def _run_mixes(self, mixes: Iterable["_Mix"]) -> None:
        """Run, in one batch, all mixes that were not run before."""
        new = {mix.colocation.key: mix for mix in mixes if mix.colocation.key not in self._seen}
        if not new:
            return
        records = self._each(self._run, [mix.colocation for mix in new.values()])
        for (key, mix), record in zip(new.items(), records, strict=True):
            phase = record.alone if mix.colocation.target is None else record.beside
            assert phase is not None, "BUG: the run has no phase with everybody in it"
            self._seen[key] = phase.tenants
            self._lasted_us[key] = 1e6 * phase.duration_s


@dataclass(frozen=True)
class _Mix:
    """Tenants of one socket, with a target where every core is in use, and the order in which results are given."""

    colocation: Colocation
    order: tuple[int, ...]


def _mix(
    machine: Machine, items: Sequence[Assignment], loads: Mapping[str, float | None], port_gbps: float | None
) -> _Mix:
    """Return the mix of one socket. It does not contain which core runs which NF, so mixes can be compared."""
    order = sorted(range(len(items)), key=lambda i: (items[i].workload, (items[i].llc_way_mask or 0).bit_count(), i))
    workloads = [parse_workload(items[i].workload) for i in order]
    offered = [loads.get(items[i].seat) for i in order]
    workloads = [w if mpps is None else w.offered(round(mpps, 6)) for w, mpps in zip(workloads, offered, strict=True)]
    masks = _compacted([items[i].llc_way_mask for i in order])
    # fewer buffers than a network function uses by default are a limit
    buffers = [count if (count := items[i].buffers) is not None and count < MOST_BUFFERS else None for i in order]
    parts = tuple(Isolation(mask, None, count) for mask, count in zip(masks, buffers, strict=True))
    isolation = parts if any(part != Isolation() for part in parts) else None
    full = len(items) >= machine.cores_per_socket
    first = workloads[0] if full else None
    beside = tuple(workloads[1:] if full else workloads)
    return _Mix(Colocation(machine.name, first, beside, isolation, port_gbps=port_gbps), tuple(order))


def _seat(item: Assignment) -> Seat:
    return item.server, item.socket, item.seat


def _requests_run(
    placer: Placer, samples: Mapping[Seat, TenantSample]
) -> Iterator[tuple[Request, Sequence[Assignment]]]:
    """Yield the requests that were run, with their instances."""
    for request in placer.requests:
        items = placer.decision(request.id).assignments
        if all(_seat(item) in samples for item in items):
            yield request, items


def _capacity(request: Request, items: Sequence[Assignment], samples: Mapping[Seat, TenantSample]) -> float:
    """Return the throughput of all instances of a request; an instance serves the rate of its slowest stage."""
    stages, rates = len(request.chain), [samples[_seat(item)].throughput_mpps for item in items]
    return sum(min(rates[i : i + stages]) for i in range(0, len(rates), stages))


def _kept_load(placer: Placer, request: Request, machine: str, item: Assignment) -> float | None:
    """Return the load up to which a request alone keeps its latency SLO [Mpps]."""
    profile = placer.estimates.profile(machine, item.workload)
    if profile is None or parse_workload(item.workload).traffic.offered_mpps is not None:
        return None
    stages = len(request.chain)
    p95, p99 = (None if limit is None else limit / stages for limit in (request.slo.p95_us, request.slo.p99_us))
    ways = profile.curve[-1][0] if item.llc_way_mask is None else item.llc_way_mask.bit_count()
    capacity = profile.alone_mpps(ways)
    load = profile.load_for(p95, p99, max(capacity, 1e-9) / profile.solo_mpps)
    return None if load is None else load * capacity or None


def _compacted(masks: Sequence[int | None]) -> list[int | None]:
    """Move blocks of ways side by side, in the same order and of the same sizes, so that equal mixes look equal."""
    start, made = 0, dict[int, int]()
    for mask in masks:
        if mask is not None and (mask not in made):
            made[mask] = way_block(mask.bit_count(), start)
            start += mask.bit_count()
    return [None if mask is None else made[mask] for mask in masks]


def asked_times(placer: Placer, requests: Sequence[Request]) -> list[float]:
    """Measure the time of single decisions [ms]: ask where a copy of each of some 200 requests would go.

    The cluster is unchanged; a batch can so be compared by the time of one more decision. Refused neighbours are left
    out of a copy's affinity.
    """
    times = []
    placed = {request.id for request in placer.requests}
    for request in requests[:: max(len(requests) // 200, 1)]:
        near, away = (
            tuple(each for each in terms if not isinstance(each, str) or each in placed)
            for terms in (request.affinity, request.anti_affinity)
        )
        again = replace(request, id=f"{request.id} once more", affinity=near, anti_affinity=away)
        begun = time.perf_counter()
        placer.what_if(again)
        times.append(1e3 * (time.perf_counter() - begun))
    return times
