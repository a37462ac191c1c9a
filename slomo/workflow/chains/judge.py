"""Simulate chains that were placed on NUMA nodes, and compare the load they serve with the load they are offered.

The comparison of NUMASFP (COMSNETS'22): throughput served over throughput offered, averaged over intervals (ANAT).
Whole servers are simulated packet by packet: both sockets with caches and memory, the link between them, a NIC that
writes packets to its own socket, and stages that read them from wherever the stage before left them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slomo.errors import InvalidValueError
from slomo.placement.chains.allocation import Parts
from slomo.placement.chains.moves import INTERVAL_S, MoveCost
from slomo.placement.over_time.judge import TOLERANCE
from slomo.placement.over_time.judgement import Judgement, Violation
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.cluster import Cluster
from slomo.simulator.sharing.engine import StagePlace, simulate_chains
from slomo.simulator.sharing.layout import BATCH
from slomo.simulator.sharing.result import ChainResult
from slomo.vocabulary.chain_file import DEFAULT_CAPACITY
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_functions
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.node_costs import moving_costs
from slomo.workflow.chains.on_nodes import PlacedChains, core_numbers, isolations

#: Measured time of every interval on every server [ms], after as much warm-up; a pool's buffers are reused every 3 ms
#: or so.
COUNTED_MS = 4.0
#: More than a tenant beside the chains serves, and little of a wire.
_NOISE_MPPS = 0.2


@dataclass(frozen=True)
class NodeNoise:
    """Tenants that run beside the chains, on the last cores of every socket of every server."""

    #: What each of them does; it handles its packets as fast as it can.
    workload: Workload
    #: Tenants of a socket.
    per_socket: int
    #: Cache ways and throttle that they are confined to.
    place: StagePlace = field(default_factory=StagePlace)


def judge_chains(
    placed: PlacedChains,
    *,
    own: Sequence[NetworkFunction] = (),
    duration_ms: float = COUNTED_MS,
    move: MoveCost | float | None = None,
    manager_cycles: float | None = None,
    queue_capacity: int = DEFAULT_CAPACITY,
    beside: NodeNoise | None = None,
    seed: int = 0,
) -> Judgement:
    """Simulate every server in every interval, and return which share of its load each chain serves.

    `own`: additional network functions. `duration_ms`: simulated time that is counted; as much goes before. `move`:
    cost of stages that change nodes; hand-over, cold cache and remote memory as simulated by default; a number is the
    time for which the whole chain then serves nothing [s]. Intervals last ten seconds. `manager_cycles`: work per
    packet of a manager's two threads on the card's node [cycles]; one takes the packets of all chains from the card,
    one gives them back (OpenNetVM). They take the last two cores of the socket, which the cluster must reserve; by
    default the card itself fills and empties rings. `queue_capacity`: of the ring before each stage [packets], a power
    of two (OpenNetVM: 16384). Overloaded chains fill it, so the counted time must be long enough for that.
    `beside`: other tenants; the cluster must reserve their cores, too.

    ANAT is throughput served over throughput offered, averaged over intervals; chains without a place are offered
    their rates and serve nothing. An SLO of `min_mpps` is broken where in
    some interval a chain serves less than that, or than it is offered.
    """
    plan, runner = placed.plan, _Runner(placed.cluster, own, duration_ms, manager_cycles, queue_capacity, beside, seed)
    shares: list[float] = []
    violations: dict[str, Violation] = {}
    for interval, seats in enumerate(plan.seats):
        served, offered = 0.0, sum(item.offered_mpps(interval) for item in plan.unplaced)
        before = plan.seats[interval - 1] if interval else seats
        for name, chains in plan.servers.items():
            rates = runner.run(name, chains, interval, seats, plan.parts[interval] if plan.parts else Parts())
            lost = {item.request.id: runner.lost(name, item, before, seats, move) for item in chains}
            rates = {owner: rate * (1.0 - lost[owner]) for owner, rate in rates.items()}
            offered += sum(runner.offered_mpps(name, item, interval) for item in chains)
            served += sum(rates.values())
            for item in chains:
                broken = _broken(item, rates[item.request.id], runner.offered_mpps(name, item, interval), name)
                if broken is not None:
                    violations.setdefault(item.request.id, broken)
        shares.append(served / offered if offered else 1.0)
    stages = sum(len(item.request.chain) for chains in plan.servers.values() for item in chains)
    room = sum(s.cores * s.used_sockets for s in placed.cluster.servers if s.name in plan.servers)
    count = sum(map(len, plan.servers.values()))
    spread = np.percentile(plan.times_ms, [50, 99]) if plan.times_ms else np.zeros(2)
    return Judgement(
        policy=plan.policy,
        requests=count + len(plan.unplaced),
        placed=count,
        servers_used=placed.servers_used,
        violations=tuple(violations.values()),
        anat=float(np.mean(shares)) if shares else 1.0,
        utilisation=stages / room if room else 0.0,
        migrations=plan.migrations,
        decision_ms=(float(spread[0]), float(spread[1])),
        mixes_run=runner.runs,
        anat_over_time=tuple(shares),
    )


def _broken(item: RatedChain, mpps: float, offered_mpps: float, server: str) -> Violation | None:
    needed = min(item.request.slo.min_mpps or 0.0, offered_mpps)
    if mpps >= needed * (1.0 - TOLERANCE):
        return None
    return Violation(item.request.id, item.request.label, "throughput", needed, mpps, server)


@dataclass
class _Runner:
    """Simulates servers, and counts the simulations; its fields are those of :func:`judge_chains`."""

    cluster: Cluster
    own: Sequence[NetworkFunction]
    duration_ms: float
    manager_cycles: float | None
    queue_capacity: int
    beside: NodeNoise | None
    seed: int
    runs: int = 0

    def __post_init__(self) -> None:
        self._manager_cores = 0 if self.manager_cycles is None else 2
        self._servers = {server.name: server for server in self.cluster.servers}
        taken = self._manager_cores + (0 if self.beside is None else self.beside.per_socket)
        for server in self.cluster.servers:
            cores = server.machine_type.cores_per_socket
            if server.cores > cores - taken:
                raise InvalidValueError(
                    f"server '{server.name}' gives functions {server.cores} of {cores} cores, needed {taken} for "
                    "the manager and tenants beside the chains",
                    hint=f"reserve them: cores_reserved: {taken}",
                )

    def offered_mpps(self, server: str, item: RatedChain, interval: int) -> float:
        """Return the load that reaches the chain [Mpps]: its rate, at most line rate."""
        size_b = item.request.chain[0].traffic.packet_size_b
        return min(item.offered_mpps(interval), self._servers[server].machine_type.line_rate_mpps(size_b))

    def lost(
        self,
        name: str,
        item: RatedChain,
        before: Mapping[str, tuple[int, ...]],
        now: Mapping[str, tuple[int, ...]],
        move: MoveCost | float | None,
    ) -> float:
        """Return the share of an interval's packets that a chain does not serve because its stages move."""
        here, there = before.get(item.request.id, now[item.request.id]), now[item.request.id]
        if here == there:
            return 0.0
        if isinstance(move, float | int):
            return min(move / INTERVAL_S, 1.0)
        return moving_costs(self._servers[name].machine_type, move or MoveCost(), self.own)(item, here, there)

    def run(
        self,
        name: str,
        chains: Sequence[RatedChain],
        interval: int,
        seats: Mapping[str, tuple[int, ...]],
        parts: Parts,
    ) -> dict[str, float]:
        """Simulate one server for one interval; return the throughput of every chain [Mpps]."""
        server = self._servers[name]
        machine = server.machine_type
        cores, isolated = core_numbers(chains, seats, server), isolations(chains, seats, parts, server.ways)
        stages, lines, places = self._manager(machine), [], {}
        first, last = (tuple(stage.name for stage in some) for some in (stages[:1], stages[1:]))
        for item in chains:
            sizes_b = item.request.chain[0].traffic.packet_size_b
            names = tuple(f"{item.request.id}/{number}" for number in range(len(item.request.chain)))
            rows = zip(names, item.request.chain, cores[item.request.id], isolated[item.request.id], strict=True)
            for stage, workload, (socket, core), apart in rows:
                number = socket * machine.cores_per_socket + core
                stages.append(ChainStage(stage, number, workload=workload.saturated))
                places[stage] = StagePlace(apart.llc_way_mask, apart.memory_bandwidth_percent)
            mpps = self.offered_mpps(name, item, interval)
            lines.append(ServiceChain(item.request.id, (*first, *names, *last), mpps=mpps, packet_size_b=sizes_b))
        noise = self._noise(machine)
        places |= {stage.name: self.beside.place for stage in noise if self.beside is not None}
        noisy = [ServiceChain(stage.name, (stage.name,), mpps=_NOISE_MPPS) for stage in noise]
        buffer_b = max(2048, *(line.packet_size_b for line in lines))
        system = ChainSystem(
            (*stages, *noise), (*lines, *noisy), machine.name, queue_capacity=self.queue_capacity, buffer_b=buffer_b
        )
        used = {stage.workload.nf for stage in system.stages if stage.workload}
        self.runs += 1
        played = simulate_chains(
            machine,
            system,
            load_network_functions(used, self.own),
            places=places,
            wire_gbps=machine.shared_wire_gbps(server.port_gbps),
            duration_ms=self.duration_ms,
            warm_ms=self.duration_ms,
            seed=self.seed,
        )
        return {line.name: self._served(line, played.chains[line.name]) for line in lines}

    def _manager(self, machine: Machine) -> list[ChainStage]:
        """Return the manager threads that every packet passes; none if the NIC steers packets in hardware."""
        if self.manager_cycles is None:
            return []
        end = (machine.nic_socket + 1) * machine.cores_per_socket
        work = (self.manager_cycles,)
        return [ChainStage("manager/in", end - 2, cycles=work), ChainStage("manager/out", end - 1, cycles=work)]

    def _noise(self, machine: Machine) -> list[ChainStage]:
        """Return the tenants beside the chains."""
        if self.beside is None:
            return []
        cores, first = machine.cores_per_socket, 1 + self._manager_cores
        numbers = range(first, first + self.beside.per_socket)
        last = [cores * socket - number for socket in range(1, machine.sockets + 1) for number in numbers]
        return [ChainStage(f"beside/{core}", core, workload=self.beside.workload.saturated) for core in last]

    def _served(self, line: ServiceChain, result: ChainResult) -> float:
        """Return a chain's throughput [Mpps]; packets that may still wait in its stages at the end count as served."""
        offered, passed = result.offered_mpps, result.throughput_mpps
        in_hand_mpps = BATCH * len(line.stages) / (1e3 * self.duration_ms)
        assert line.mpps is not None, "BUG: chains on nodes have rates"
        return line.mpps if passed >= offered - in_hand_mpps else line.mpps * passed / offered
