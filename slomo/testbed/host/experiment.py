"""Run one experiment: competitors alone, then beside the target; all processes are stopped in any case.

The order is SLOMO's (SIGCOMM'20, section 4.1). Throughput changes between two starts of the same NF. The slowdown is
therefore measured without restarting any tenant, and multiplied by the solo throughput of the same campaign.

Counters and probes give the same two results: the pressure of all competitors on the socket, and the pressure of one
NF.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slomo.host.cores import socket_of
from slomo.records.proved_zeros import ZERO_THROUGHOUT
from slomo.records.rows import plan_of
from slomo.records.run import Phase, TenantSample
from slomo.records.schema import Plan
from slomo.testbed.host.counters.base import CounterReader, CounterSample
from slomo.testbed.host.interleaving import Paired, WindowTaker, alternate, require_served, summarise, wait_steady
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.competitions import Probe
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, Window
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

NOTHING_CORE = MetricVector({}, scope=Scope.CORE)
NOTHING_SOCKET = MetricVector({}, scope=Scope.SOCKET)
_ALONE_WINDOWS = 3


@dataclass(frozen=True)
class ObservedPressure:
    """Counters of each NF's core and of the socket, in one phase of a run."""

    #: Core-level vectors, one per tenant in order; empty if unknown.
    own: tuple[MetricVector, ...]
    #: Socket-level vector.
    socket: MetricVector = NOTHING_SOCKET
    #: Vector of the whole machine.
    system: MetricVector | None = None
    #: Details for the provenance.
    details: dict[str, Any] = field(default_factory=dict)


def observe_counters(
    reader: CounterReader, tenants: Sequence[HostTenant], watch: Callable[[], list[Window]]
) -> tuple[list[Window], ObservedPressure]:
    """Read the counters of the first NF's socket while `watch()` measures throughputs."""
    cores = [core for tenant in tenants for core in tenant.where.cores]
    reader.start(cores)
    try:
        windows = watch()
    except BaseException:
        reader.stop()
        raise
    sample = reader.stop()
    socket = sample.sockets.get(socket_of(cores[0]), NOTHING_SOCKET)
    own = tuple(core_vector(sample, tenant) for tenant in tenants)
    details: dict[str, Any] = {"source": reader.name, "duration_s": sample.duration_s}
    if sample.zero_throughout:
        details[ZERO_THROUGHOUT] = {scope: list(names) for scope, names in sample.zero_throughout.items()}
    return windows, ObservedPressure(own, socket, sample.system, details)


def core_vector(sample: CounterSample, tenant: HostTenant) -> MetricVector:
    """Return the counters of an NF's core; unknown if the NF has several cores."""
    if len(tenant.where.cores) != 1:
        return NOTHING_CORE
    return sample.cores.get(tenant.where.cores[0], NOTHING_CORE)


def as_core(vector: MetricVector) -> MetricVector:
    """Convert the pressure that a single NF causes on its socket to counters of that NF's core."""
    return MetricVector(dict(vector), scope=Scope.CORE)


@dataclass(frozen=True)
class Bench:
    """What all experiments of one testbed share: counter reader, probes, settings, traffic generator."""

    #: CPUs in use, the target's first.
    cores: tuple[int, ...]
    #: Duration and repetitions of measurements.
    settings: HostSettings
    #: Counter reader; None if probe programs (reporters) replace it.
    reader: CounterReader | None
    #: Function that returns the probes; they are calibrated on first use.
    probe: Callable[[], Probe]
    #: Generator for the NFs whose throughput a generator measures.
    generator: TrafficGenerator | None = None
    #: Workload key -> solo throughputs measured in this campaign [Mpps]; each solo run adds one.
    solo_mpps: dict[str, list[float]] = field(default_factory=dict)


class Experiment:
    """Runs one set of network functions together."""

    def __init__(
        self,
        colocation: Colocation,
        definitions: tuple[HostDefinition, ...],
        cores: Sequence[tuple[int, ...]],
        equipment: Bench,
    ) -> None:
        self.colocation, self._bench, self.settings = colocation, equipment, equipment.settings
        self._plan = list(zip(definitions, colocation.tenants, cores, strict=True))
        self._details: dict[str, Any] = {}
        self._alone_mpps: list[float] = []

    def phases(self) -> tuple[Phase | None, Phase | None, dict[str, Any]]:
        """Run both phases, as in `RunRecord`, and return them with details for the provenance."""
        target = self.colocation.target
        own = NOTHING_CORE if target is None or self._bench.reader is not None else self._own_by_probe(target)
        with Run(self._bench.generator) as run:
            competitors = [run.start(*planned) for planned in self._plan[target is not None :]]
            alone = self._alone(competitors) if competitors else None
            beside, tenants = None, competitors
            if target is not None:
                tenants = [run.start(*self._plan[0]), *competitors]
                self._steady(tenants)
                measure = self._beside if competitors else self._solo
                beside = measure(tenants, own)
            self._details["commands"] = [run.command_of(tenant) for tenant in tenants]
            self._details["cores"] = [list(cores) for *_, cores in self._plan]
        return alone, beside, self._details

    def _alone(self, competitors: Sequence[HostTenant]) -> Phase:
        self._steady(competitors)
        taker = WindowTaker(self.settings, self.settings.window_s)
        rounds: list[list[Window]] = []

        def watch() -> list[Window]:
            rounds.extend(taker.take(competitors) for _ in range(_ALONE_WINDOWS))
            return rounds[-1]

        windows, seen = self._watched(competitors, watch)
        if self._bench.reader is None:
            socket, details = self._bench.probe().measure(competitors)
            seen = ObservedPressure(self._members(competitors, socket), socket, None, details)
        self._details["alone"] = seen.details
        self._alone_mpps = [statistics.median(w.rate_mpps for w in column) for column in zip(*rounds, strict=True)]
        return self._phase(competitors, self._alone_mpps, windows, seen, _ALONE_WINDOWS * self.settings.window_s)

    def _members(
        self, competitors: Sequence[HostTenant], socket: MetricVector | None = None
    ) -> tuple[MetricVector, ...]:
        """Return the counters of each competitor; unknown unless a probe has measured that competitor alone."""
        if self._bench.reader is not None:
            return tuple(NOTHING_CORE for _ in competitors)
        if socket is not None and len(competitors) == 1:
            return (as_core(socket),)
        readings = [self._bench.probe().of([tenant.workload.key]) for tenant in competitors]
        return tuple(NOTHING_CORE if reading is None else as_core(reading[0]) for reading in readings)

    def _own_by_probe(self, target: Workload) -> MetricVector:
        """Return the pressure that the target puts on others, probed beside it alone, again if old in a solo run."""
        probe = self._bench.probe()
        reading = probe.of([target.key])
        if reading is None or not (self.colocation.competitors or probe.fresh([target.key])):
            definition = self._plan[0][0]
            spare = self._bench.cores[1 : 1 + definition.section.cores]
            if len(spare) < definition.section.cores:
                return NOTHING_CORE
            with Run(self._bench.generator) as run:
                tenant = run.start(definition, target, spare)
                self._steady([tenant])
                reading = probe.measure([tenant])
        self._details["own"] = reading[1]
        return as_core(reading[0])

    def _beside(self, tenants: Sequence[HostTenant], own: MetricVector) -> Phase:
        target, *competitors = tenants
        mutual = len(competitors) == 1 and plan_of(self.colocation) is Plan.MIX
        pairs = alternate(target, competitors, self.settings, self.colocation.label, mutual=mutual)
        windows, seen = list(pairs.latest), ObservedPressure((own, *self._members(competitors)))
        if self._bench.reader is not None:
            taker = WindowTaker(self.settings, self.settings.window_s)
            windows, seen = observe_counters(self._bench.reader, tenants, lambda: taker.take(tenants))
        reference = self._bench.solo_mpps.setdefault(target.workload.key, [statistics.median(pairs.solo_mpps)])
        self._details["pairs"] = {**pairs.to_dict(), "reference_mpps": statistics.median(reference)}
        self._details["beside"] = seen.details
        mpps = statistics.median(pairs.beside_mpps)
        if self.settings.interleaved:
            mpps = pairs.ratio.median * statistics.median(reference)
        rates = [mpps, *self._others(pairs, competitors)]
        return self._phase(tenants, rates, windows, seen, pairs.duration_s)

    def _others(self, pairs: Paired, competitors: Sequence[HostTenant]) -> list[float]:
        """Return the competitors' throughput [Mpps].

        If possible, a single competitor's throughput is the product of its throughput ratio (beside the target to
        alone) and its reference solo throughput, since a ratio within one process is more precise.
        """
        rates = [statistics.median(column) for column in zip(*pairs.competitors_mpps, strict=True)]
        reference = self._bench.solo_mpps.get(competitors[0].workload.key)
        if self.settings.interleaved and reference is not None and pairs.competitor_ratio is not None:
            return [pairs.competitor_ratio.median * statistics.median(reference)]
        if not self.settings.interleaved or len(competitors) > 1 or reference is None or self._alone_mpps[0] <= 0.0:
            return rates
        return [rates[0] / self._alone_mpps[0] * statistics.median(reference)]

    def _solo(self, tenants: Sequence[HostTenant], own: MetricVector) -> Phase:
        taker = WindowTaker(self.settings, self.settings.window_s)
        count = 2 * self.settings.pairs
        windows, seen = self._watched(tenants, lambda: [taker.take(tenants)[0] for _ in range(count)])
        if self._bench.reader is None:
            seen = ObservedPressure((own,))
        else:
            self._details["beside"] = seen.details
        rates = [window.rate_mpps for window in windows]
        require_served(rates)
        summary = summarise(rates)
        self._bench.solo_mpps.setdefault(tenants[0].workload.key, []).append(summary.median)
        self._details["solo"] = {"mpps": rates, "dispersion": summary.dispersion, "rejected_windows": taker.rejected}
        return self._phase(tenants, [summary.median], windows[-1:], seen, count * self.settings.window_s)

    def _watched(
        self, tenants: Sequence[HostTenant], watch: Callable[[], list[Window]]
    ) -> tuple[list[Window], ObservedPressure]:
        """Return the windows that `watch` measures, and the pressure that the counters show meanwhile."""
        if self._bench.reader is None:
            return watch(), ObservedPressure(tuple(NOTHING_CORE for _ in tenants))
        return observe_counters(self._bench.reader, tenants, watch)

    def _phase(
        self,
        tenants: Sequence[HostTenant],
        rates: Sequence[float],
        windows: Sequence[Window],
        seen: ObservedPressure,
        duration_s: float,
    ) -> Phase:
        rows = zip(tenants, rates, windows, seen.own, strict=True)
        samples = tuple(_sample(rate, vector, tenant, window.latency_us) for tenant, rate, window, vector in rows)
        return Phase(samples, seen.socket, seen.system, duration_s)

    def _steady(self, tenants: Sequence[HostTenant]) -> None:
        """Wait until all tenants' throughput is steady; record in the provenance which exceeded the time limit."""

        def check() -> None:
            for tenant in tenants:
                tenant.process.require_alive("becoming steady")

        for tenant in tenants:
            if not wait_steady(tenant.readings, tenant.definition.section.steady, check):
                self._details.setdefault("not_steady", []).append(tenant.definition.nf)


def _sample(rate_mpps: float, vector: MetricVector, tenant: HostTenant, latency_us: dict[str, float]) -> TenantSample:
    offered = tenant.workload.traffic.offered_mpps
    loss = None if offered is None else max(0.0, 1.0 - rate_mpps / offered)
    percentiles: dict[str, Any] = {f"latency_{name}_us": value for name, value in latency_us.items()}
    return TenantSample(rate_mpps, vector, loss=loss, **percentiles)
