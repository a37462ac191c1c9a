"""The noisy-neighbour test: search the highest rate without loss of a path of tenants beside noise, under each policy.

The test follows VSPERF (OPNFV) and ETSI TST009: MLRsearch (RFC 9971, with the controller of its PyPI package) finds the
throughput at a loss ratio, and latency is measured at that throughput. A packet passes every stage of the path, some
twice (NIC, vSwitch, VM, vSwitch, NIC); stages are tenants on cores of their own.

RFC 2544 section 26.1 searches for the highest load without loss. MLRsearch (RFC 9971) accepts any loss ratio and needs
fewer and shorter trials; the controller of its PyPI package chooses the trials.
"""

import csv
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from slomo.control.advice import advise
from slomo.control.pools.configuration import PoolConfiguration, ReservedGroup
from slomo.control.pools.manager import PoolManager
from slomo.control.situation import Setting, Situation
from slomo.enforce.backends.simulated import Occupant, SimulatedBackend, SimulatedServer
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import ConfigurationError, TestbedError, UnknownNameError
from slomo.files.documents import read
from slomo.files.ranges import Count, Name, Part, Percent, PositiveCount, Ways
from slomo.simulator.result import TenantResult
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.partition_profile import profile_partitions

POLICIES = ("none", "llc", "mba", "both", "pools", "burstable", "slomo")


@dataclass(frozen=True)
class PathStage:
    """A tenant that the test's packets pass."""

    #: Of the tenant.
    name: Name
    #: What runs.
    nf: Name
    #: Number of times that each packet passes this stage.
    passes: PositiveCount = 1


class _Noise(Struct, forbid_unknown_fields=True, frozen=True):
    nf: Name
    levels: Annotated[tuple[Count, ...], Meta(min_length=1)]


class _Pools(Struct, forbid_unknown_fields=True, frozen=True):
    """RMD's pools: `infrastructure` of the first stage lies over all of them; below it are the system's ways."""

    #: Ways of each further stage, under policy pools guaranteed.
    victim: Ways = 2
    #: Ways of the first stage, which are the pools' ways, too.
    infrastructure: Ways = 11
    #: Ways of the burstable pool: with one way a workload's largest and least amount would be equal, so guaranteed.
    burstable: Annotated[int, Meta(ge=2, le=64)] = 3
    #: Ways of the best-effort pool, in which the noise is; the rest is guaranteed.
    noise: Ways = 3

    @property
    def guarantee(self) -> int:
        """Ways of the pool of guaranteed ways."""
        return self.infrastructure - self.burstable - self.noise


class NoisyNeighbourFile(Struct, forbid_unknown_fields=True, frozen=True):
    """The fields of a noisy-neighbour test's file."""

    #: Simulated machine.
    machine: Name
    #: The victim.
    path: Annotated[tuple[PathStage, ...], Meta(min_length=1)]
    #: What the noise runs, and numbers of noisy tenants.
    noise: _Noise
    #: Which of ``POLICIES``.
    policies: tuple[str, ...] = POLICIES
    #: That the throughput may have.
    loss_ratio: Part = 0.005
    #: Cache ways of RMD's pools.
    pools: _Pools = _Pools()
    #: Memory-bandwidth throttle of the noise under policies mba and both [%].
    noise_mba: Percent = 10
    #: Additional network functions.
    files: tuple[Name, ...] = ()
    #: Fidelity.
    accesses: PositiveCount = 60_000
    scale: PositiveCount = 32


@dataclass(frozen=True)
class NoisyNeighbourTest:
    """A noisy-neighbour test as its file specifies it, with the machine and the functions already read."""

    settings: NoisyNeighbourFile
    machine: Machine
    functions: tuple[NetworkFunction, ...]
    #: Of all runs: one for all loads, so that the search repeats itself and loss grows with load.
    seed: int = 0


@dataclass(frozen=True)
class NoisyNeighbourRow:
    """Result of the test at one level of noise under one policy."""

    #: Noisy tenants.
    noise: int
    #: What was enforced.
    policy: str
    #: Highest load whose loss is within the ratio (relevant lower bound).
    throughput_mpps: float
    #: Lowest load whose loss exceeds the ratio (relevant upper bound).
    upper_mpps: float
    #: Runs it took.
    trials: int
    #: p50, p95, p99 of the whole path at that load, summed over stages.
    latency_us: Mapping[str, float]
    #: Knobs read back.
    settings: Mapping[str, str]
    #: L3 misses of each tenant of the path, and of all noise together.
    misses_m_s: Mapping[str, float]


def read_noisy_neighbour_file(path: str | Path) -> NoisyNeighbourTest:
    """Read a configuration. Raises ConfigurationError for an invalid file; UnknownNameError for an unknown policy."""
    stored = read(path, NoisyNeighbourFile, hint="see docs/examples/noisy-neighbour")
    for name in stored.policies:
        if name not in POLICIES:
            raise UnknownNameError("policy", name, POLICIES)
    functions = tuple(load_network_function(str(Path(path).parent / name)) for name in stored.files)
    machine, pools = load_machine(stored.machine), stored.pools
    guaranteed = pools.victim * (len(stored.path) - 1)
    if pools.infrastructure > machine.llc_ways or pools.guarantee < guaranteed:
        raise ConfigurationError(
            f"{path}: pools: infrastructure has {pools.infrastructure} ways, needed at most {machine.llc_ways} "
            f"('{machine.name}') and at least burstable {pools.burstable} + noise {pools.noise} + "
            f"{guaranteed} of the stages behind the first"
        )
    return NoisyNeighbourTest(stored, machine, functions)


def run_noisy_neighbour(
    test: NoisyNeighbourTest, told: Callable[[NoisyNeighbourRow], None] | None = None
) -> list[NoisyNeighbourRow]:
    """Search the throughput of the path at every level of noise, under every policy."""
    rows = []
    for level in test.settings.noise.levels:
        for policy in test.settings.policies if level else ("none",):
            row = _search(test, level, policy)
            rows.append(row)
            if told is not None:
                told(row)
    return rows


def _search(test: NoisyNeighbourTest, level: int, policy: str) -> NoisyNeighbourRow:
    server = _server(test, level)
    backend = SimulatedBackend(server)
    plan = _plan(test, level, policy)
    receipt = apply(plan, backend) if plan.tenants else None
    trials: list[_Trial] = []

    def loss(_: float, load_pps: float) -> float:
        trials.append(_trial(test, server, load_pps))
        return trials[-1].loss

    line_rate_pps = test.machine.nic_gbps * 1e9 / ((64 + 20) * 8)
    low, high = search_throughput(loss, test.settings.loss_ratio, least_pps=2e4, most_pps=line_rate_pps)
    final = _trial(test, server, low)
    knobs = {
        name: str(value)
        for name, value in server.knobs.items()
        if value and name.split(":")[0] in ("ways", "bandwidth")
    }
    if receipt is not None:
        undo(receipt, backend)
    return NoisyNeighbourRow(
        level, policy, low * 1e-6, high * 1e-6, len(trials) + 1, final.latency_us, knobs, final.misses_m_s
    )


def _server(test: NoisyNeighbourTest, level: int) -> SimulatedServer:
    own, settings = {function.name: function for function in test.functions}, test.settings
    stages = [Occupant(stage.name, Workload(stage.nf), own.get(stage.nf)) for stage in settings.path]
    nf = settings.noise.nf
    noise = [Occupant(f"noise{n}", Workload(nf), own.get(nf)) for n in range(level)]
    return SimulatedServer(test.machine, [*stages, *noise], scale=settings.scale, accesses=settings.accesses)


@dataclass(frozen=True)
class _Trial:
    loss: float
    latency_us: Mapping[str, float]
    misses_m_s: Mapping[str, float]


def _trial(test: NoisyNeighbourTest, server: SimulatedServer, load_pps: float) -> _Trial:
    """Offer a load to every stage and count the packets that come through."""
    path = test.settings.path
    for stage in path:
        server.offer(stage.name, server.occupants[stage.name].workload.offered(stage.passes * load_pps * 1e-6))
    result = server.simulate(test.seed)
    stages = list(zip(path, result.tenants[: len(path)], strict=True))
    misses = {stage.name: _misses(tenant) for stage, tenant in stages}
    latency = {
        name: sum(stage.passes * tenant.latency_us.get(name, 0.0) for stage, tenant in stages)
        for name in ("p50", "p95", "p99")
    }
    noise_misses = sum(map(_misses, result.tenants[len(path) :]))
    return _Trial(max(tenant.loss for _, tenant in stages), latency, {**misses, "noise": noise_misses})


def _misses(tenant: TenantResult) -> float:
    return float(tenant.vector.get("L3MISS") or 0.0)


def _plan(test: NoisyNeighbourTest, level: int, policy: str) -> EnforcementPlan:
    noise = [f"noise{number}" for number in range(level)]
    if policy == "none" or not level:
        return EnforcementPlan("noisy")
    if policy == "slomo":
        return _chosen(test, noise)
    if policy in ("pools", "burstable"):
        return _pools(test, noise, bursts=policy == "burstable")
    path = test.settings.path
    throttle = MemoryBandwidth(test.settings.noise_mba) if policy in ("mba", "both") else None
    full = test.machine.full_way_mask
    own = way_block(test.settings.pools.victim * len(path)) if policy in ("llc", "both") else 0
    settings = [TenantSetting(stage.name, llc_way_mask=own or None) for stage in path]
    settings += [
        TenantSetting(name, llc_way_mask=(full & ~own) if own else None, memory_bandwidth=throttle) for name in noise
    ]
    return EnforcementPlan("noisy", tuple(settings))


def _pools(test: NoisyNeighbourTest, noise: Sequence[str], *, bursts: bool) -> EnforcementPlan:
    """Admit the stages to RMD's pools, then the noise to the best-effort one; the first stage is infrastructure.

    A stage's ways are guaranteed. If it `bursts`, it asks for all ways of the burstable pool, at least for one. The
    first noise asks for the same, so the pool shrinks the stage.
    """
    pools, (first, *stages), ways = test.settings.pools, test.settings.path, test.machine.llc_ways
    configuration = PoolConfiguration(
        ReservedGroup(ways - pools.infrastructure),
        ReservedGroup(pools.infrastructure),
        pools.guarantee,
        pools.burstable,
        pools.noise,
        max_allowed_shared=len(noise),
        shrink=True,
    )
    manager = PoolManager(configuration, ways)
    names = [*(stage.name for stage in stages), *noise]
    for core, name in enumerate(names):
        burstable = bursts and name not in noise[1:]
        most, least = (pools.burstable, 1) if burstable else (0, 0) if name in noise else (pools.victim, pools.victim)
        manager.admit({"core_ids": [str(core)], "max_cache": most, "min_cache": least})
    admitted = zip(names, manager.workloads, strict=True)
    settings = [TenantSetting(name, llc_way_mask=workload.mask) for name, workload in admitted]
    return EnforcementPlan("noisy", (TenantSetting(first.name, llc_way_mask=manager.layout.infrastructure), *settings))


def _chosen(test: NoisyNeighbourTest, noise: Sequence[str]) -> EnforcementPlan:
    """Ask for settings that keep 95 % of each stage's solo throughput, or the highest share that any keep."""
    machine, settings = test.machine, test.settings
    testbed = SimulatedTestbed(machine, test.functions, scale=settings.scale, accesses=settings.accesses)
    names = [*(stage.nf for stage in settings.path), settings.noise.nf]
    profile = profile_partitions(testbed, machine, [Workload(nf) for nf in names])
    responses = {stage.name: profile.responses[Workload(stage.nf).key] for stage in settings.path}
    stages = list(responses)
    responses |= {name: profile.responses[Workload(settings.noise.nf).key] for name in noise}
    whole = dict.fromkeys(responses, Setting(machine.full_way_mask))
    llcs = _server(test, len(noise)).llcs
    for share in (0.95, 0.9, 0.85, 0.8, 0.7, 0.6):
        promised = {name: share * responses[name].solo_mpps for name in stages}
        situation = Situation(responses, profile.memory, machine.llc_ways, whole, promised, llcs=llcs)
        best = advise(situation, margin=0.01)
        if best is not None:
            return situation.plan("noisy", best.settings)
    return EnforcementPlan("noisy")


def summary(rows: Sequence[NoisyNeighbourRow]) -> list[dict[str, Any]]:
    """Return one mapping per row: the loss relative to no noise, and the part of it that the policy avoids."""
    quiet = next((row.throughput_mpps for row in rows if not row.noise), None)
    bare = {row.noise: row.throughput_mpps for row in rows if row.policy == "none"}
    table = []
    for row in rows:
        lost = None if not quiet else 1.0 - row.throughput_mpps / quiet
        noisy = bare.get(row.noise)
        gain = None if not noisy or row.policy == "none" else row.throughput_mpps / noisy - 1.0
        table.append({**asdict(row), "lost_share": lost, "gain_over_unmanaged": gain})
    return table


def to_csv(rows: Sequence[NoisyNeighbourRow]) -> str:
    """Return the test's results as CSV."""
    table = [{key: value for key, value in row.items() if not isinstance(value, Mapping)} for row in summary(rows)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(table[0]) if table else [])
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


#: Longest search [s].
_LONGEST_S = 3600.0


def search_throughput(
    trial: Callable[[float, float], float],
    loss_ratio: float,
    *,
    least_pps: float,
    most_pps: float,
    trial_s: float = 1.0,
) -> tuple[float, float]:
    """Return the highest load with at most this loss, and the lowest with more [packets/s], 1 % apart.

    `trial` offers a load for a time [s, packets/s], and returns the share of packets that was lost. `loss_ratio`: share
    that may be lost, 0 for RFC 2544's throughput. `trial_s`: length of a trial [s].
    """
    try:
        mlr: Any = importlib.import_module("MLRsearch")
    except ImportError:
        raise TestbedError(
            "throughput at a loss ratio is searched by MLRsearch, which is not installed",
            hint="pip install 'slomo[noise]'",
        ) from None

    class Measurer(mlr.AbstractMeasurer):  # type: ignore[misc]
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            count = max(1, round(intended_duration * intended_load))
            return mlr.MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=count,
                loss_count=round(count * trial(intended_duration, intended_load)),
            )

    goal = mlr.SearchGoal(
        loss_ratio=loss_ratio,
        exceed_ratio=0.0,
        relative_width=0.01,
        initial_trial_duration=trial_s,
        final_trial_duration=trial_s,
        duration_sum=trial_s,
    )
    config = mlr.Config()
    config.goals = [goal]
    config.min_load, config.max_load = least_pps, most_pps
    config.warmup_duration, config.search_duration_max = 0.0, _LONGEST_S
    try:
        result = mlr.MultipleLossRatioSearch(config).search(Measurer(), lambda _: None)[goal]
    except RuntimeError:  # it has no lower bound
        raise TestbedError(
            f"more than {100 * loss_ratio:g} % are lost at every load down to {least_pps:g} packets/s",
            hint="give generator and function cores of their own, or allow more loss",
        ) from None
    low, high = result.relevant_lower_bound, result.relevant_upper_bound
    return float(least_pps if low is None else low), float(most_pps if high is None else high)
