"""Chains on the NUMA nodes of servers as a verb: plan every interval, and run it on the simulator.

The comparison of NUMASFP (COMSNETS'22): throughput served over throughput offered, averaged over intervals (ANAT).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.placement.decision import Decision
    from slomo.placement.knowledge import Knowledge
    from slomo.placement.nodes import Node
    from slomo.placement.numa import ChainPlan, Judges
    from slomo.placement.problem import Cluster, Server
    from slomo.placement.profiles import InstanceProfile
    from slomo.placement.verify import Judgement, Violation
    from slomo.placement.workloads import RatedChain
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction
    from slomo.vocabulary.workload import Workload

#: What a hand-over between nodes costs: what NUMASFP measured, or what the simulator makes of memory far away.
Handover = Literal["measured", "simulated"]
#: Line accesses of each simulation.
ACCESSES = 200_000


@dataclass(frozen=True)
class PlacedChains:
    """A plan, how long it took, and what it rests on.

    Attributes
    ----------
    plan : ChainPlan
        Who runs where from interval to interval.
    cluster : Cluster
        The servers.
    times_ms : tuple of float
        Time of every interval's plan for all servers [ms].
    """

    plan: "ChainPlan"
    cluster: "Cluster"
    times_ms: tuple[float, ...]

    @property
    def servers_used(self) -> int:
        """Servers on which something runs."""
        return len(self.plan.servers)

    def decisions(self, interval: int = 0) -> "tuple[Decision, ...]":
        """Return where every chain is in one interval, those without a place refused."""
        from slomo.placement.decision import Assignment, Decision, Refusal

        found = []
        servers = {server.name: server for server in self.cluster.servers}
        for name, chains in self.plan.servers.items():
            cores = _core_numbers(chains, self.plan.seats[interval], servers[name])
            for item in chains:
                where = tuple(
                    Assignment(name, socket, core, workload.key)
                    for workload, (socket, core) in zip(item.request.chain, cores[item.request.id], strict=True)
                )
                found.append(Decision(item.request.id, True, self.plan.policy, "", where, (_reason(name, where),)))
        for name in self.plan.unplaced:
            refused = Refusal(name, "chain", self.cluster.servers[0].model.name, "cores")
            found.append(Decision(name, False, self.plan.policy, "", (), (refused.text,), refused))
        return tuple(found)


def _reason(server: str, where: Sequence[object]) -> str:
    sockets = [getattr(item, "socket", 0) for item in where]
    return f"{server}: stages on sockets {'-'.join(map(str, sockets))}"


def place_chains(
    cluster: "Cluster",
    chains: "Sequence[RatedChain]",
    policy: str,
    library: "ModelLibrary | None" = None,
    *,
    model: str = "slomo-xgb",
    profiles: "Sequence[InstanceProfile]" = (),
    handover: Handover = "measured",
) -> PlacedChains:
    """Place chains on the NUMA nodes of servers, interval by interval.

    Parameters
    ----------
    cluster : Cluster
        Servers; all their sockets are used.
    chains : sequence of RatedChain
        Chains with their rates.
    policy : str
        A name of `chain_policy_names`.
    library : ModelLibrary, optional
        Trained models: `slomo-numa` predicts with them, `numasfp`'s lookup table is made of them.
    model : str
        Sensitivity model.
    profiles : sequence of InstanceProfile
        Throughput over cache ways, for `numasfp`'s lookup table.
    handover : {"measured", "simulated"}
        What `slomo-numa` takes hand-overs between nodes to cost.

    Raises
    ------
    UnknownNameError
        For another policy, or a network function without a model where `slomo-numa` predicts.
    InvalidValueError
        Where a policy has too little to go by.
    """
    from slomo.models.library import ModelLibrary
    from slomo.placement.knowledge import Knowledge
    from slomo.placement.numa import plan_chains

    knowledge = Knowledge(library if library is not None else ModelLibrary([]), model, 0.5, profiles)
    if policy == "slomo-numa":
        knowledge.check_names([item.request for item in chains], cluster.machines)
    known = {
        name: _judges(knowledge, name, chains, predicts=policy == "slomo-numa", handover=handover)
        for name in cluster.machines
    }
    nodes = {server.name: _nodes(server) for server in cluster.servers}
    judges = {server.name: known[server.model.name] for server in cluster.servers}
    times: list[float] = []
    plan = plan_chains(policy, nodes, chains, judges, clock=_Clock(times))
    return PlacedChains(plan, cluster, tuple(times))


class _Clock:
    """Notes the time from call to call [ms]."""

    def __init__(self, times_ms: list[float]) -> None:
        self._times, self._last = times_ms, time.perf_counter()

    def __call__(self) -> None:
        now = time.perf_counter()
        self._times.append(1e3 * (now - self._last))
        self._last = now


def _nodes(server: "Server") -> "tuple[Node, ...]":
    from slomo.placement.nodes import Node

    return (Node(server.cores, server.ways),) * server.used_sockets


def _judges(
    knowledge: "Knowledge", machine: str, chains: "Sequence[RatedChain]", *, predicts: bool, handover: Handover
) -> "Judges":
    from slomo.placement.nodes import handover_keeps
    from slomo.placement.numa import Judges
    from slomo.placement.policies.numasfp import lookup_table
    from slomo.placement.policies.slomo_numa import node_rates

    table = lookup_table(knowledge, machine)
    if not predicts:
        return Judges(table)
    if handover == "measured":
        return Judges(table, node_rates(knowledge, machine), handover_keeps)
    keys = sorted({workload.key for item in chains for workload in item.request.chain})
    return Judges(table, node_rates(knowledge, machine, {key: remote_keeps(machine, key) for key in keys}))


@lru_cache(maxsize=1024)
def remote_keeps(machine: str, workload: str) -> float:
    """Simulate which share of its solo throughput a network function keeps away from the NIC, its memory beside it.

    Parameters
    ----------
    machine, workload : str
        Machine type and workload key.
    """
    from slomo.simulator.engine import Tenant, simulate
    from slomo.vocabulary.machine import load_machine
    from slomo.vocabulary.network_function import load_network_function
    from slomo.vocabulary.workload_text import parse_workload

    host, item = load_machine(machine), parse_workload(workload)
    function = load_network_function(item.nf)
    local = Tenant(item, function, host.nic_socket * host.cores_per_socket)
    away = (host.nic_socket + 1) % host.sockets
    remote = Tenant(item, function, away * host.cores_per_socket, memory_socket=host.nic_socket)
    near, far = (simulate(host, [seat], seed=0).tenants[0].throughput_mpps for seat in (local, remote))
    return min(far / near, 1.0)


def judge_chains(
    placed: PlacedChains,
    *,
    handover: Handover = "measured",
    own: "Sequence[NetworkFunction]" = (),
    accesses: int = ACCESSES,
    seed: int = 0,
) -> "Judgement":
    """Run every server in every interval on the simulator.

    Parameters
    ----------
    placed : PlacedChains
        What runs where.
    handover : {"measured", "simulated"}
        ``"measured"``: nodes are simulated apart, and a chain keeps the share of its throughput that NUMASFP measured
        for its hand-overs between nodes. ``"simulated"``: the server is simulated whole, all memory on the NIC's node;
        hand-overs cost nothing but the way to memory.
    own : sequence of NetworkFunction
        Network functions of one's own.
    accesses : int
        Line accesses of each simulation.
    seed : int
        Of the simulations.

    Returns
    -------
    Judgement
        ANAT is throughput served over throughput offered, averaged over intervals. An SLO of `min_mpps` is broken where
        in some interval a chain serves less than that, or than it is offered.
    """
    from slomo.placement.verify import Judgement

    plan, runner = placed.plan, _Runner(placed.cluster, own, handover, accesses, seed)
    shares: list[float] = []
    violations: dict[str, Violation] = {}
    for interval, seats in enumerate(plan.seats):
        served = offered = 0.0
        for name, chains in plan.servers.items():
            rates = runner.run(name, chains, interval, seats, plan.ways[interval] if plan.ways else {})
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
    spread = np.percentile(placed.times_ms, [50, 99]) if placed.times_ms else np.zeros(2)
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


def _broken(item: "RatedChain", mpps: float, offered_mpps: float, server: str) -> "Violation | None":
    from slomo.placement.verify import TOLERANCE, Violation

    needed = min(item.request.slo.min_mpps or 0.0, offered_mpps)
    if mpps >= needed * (1.0 - TOLERANCE):
        return None
    return Violation(item.request.id, item.request.label, "throughput", needed, mpps, server)


class _Runner:
    """Simulates servers, and counts how often."""

    def __init__(
        self, cluster: "Cluster", own: "Sequence[NetworkFunction]", handover: Handover, accesses: int, seed: int
    ) -> None:
        self._servers = {server.name: server for server in cluster.servers}
        self._own = {function.name: function for function in own}
        self._handover, self._accesses, self._seed = handover, accesses, seed
        self.runs = 0

    def offered_mpps(self, server: str, item: "RatedChain", interval: int) -> float:
        """Return what reaches the chain [Mpps]: its rate, at most the line's."""
        size_b = item.request.chain[0].traffic.packet_size_b
        return min(item.offered_mpps(interval), self._servers[server].model.line_rate_mpps(size_b))

    def run(
        self,
        name: str,
        chains: "Sequence[RatedChain]",
        interval: int,
        seats: Mapping[str, tuple[int, ...]],
        ways: Mapping[str, int],
    ) -> dict[str, float]:
        """Simulate one server for one interval; return the throughput of every chain [Mpps]."""
        from slomo.placement.nodes import handover_keeps

        server = self._servers[name]
        measured = self._handover == "measured"
        keeps = {item.request.id: handover_keeps(seats[item.request.id]) if measured else 1.0 for item in chains}
        stages = self._stages(name, chains, interval, seats, ways, keeps)
        rates = self._apart(server.model, stages) if measured else self._simulated(server.model, stages)
        found: dict[str, float] = {}
        for stage, rate in zip(stages, rates, strict=True):
            found[stage.owner] = min(found.get(stage.owner, float("inf")), rate * keeps[stage.owner])
        return {
            item.request.id: min(found[item.request.id], self.offered_mpps(name, item, interval)) for item in chains
        }

    def _stages(
        self,
        name: str,
        chains: "Sequence[RatedChain]",
        interval: int,
        seats: Mapping[str, tuple[int, ...]],
        ways: Mapping[str, int],
        keeps: Mapping[str, float],
    ) -> "list[_Stage]":
        server = self._servers[name]
        cores, masks = _core_numbers(chains, seats, server), _masks(chains, seats, ways, server.ways)
        found = []
        for item in chains:
            # a chain that loses a share to hand-overs must work as if it were offered as much more
            offered = round(self.offered_mpps(name, item, interval) / keeps[item.request.id], 4)
            places = zip(item.request.chain, cores[item.request.id], seats[item.request.id], strict=True)
            for workload, (socket, core), node in places:
                loaded = workload.with_traffic(replace(workload.traffic, offered_mpps=offered))
                mask = masks.get(item.request.id, masks.get(str(node)))
                found.append(_Stage(item.request.id, loaded, socket, core, mask))
        return found

    def _apart(self, machine: "Machine", stages: "Sequence[_Stage]") -> list[float]:
        """Simulate every node as if it were the NIC's: what it is not costs a share of throughput, measured."""
        rates = [0.0] * len(stages)
        for node in sorted({stage.socket for stage in stages}):
            here = [place for place, stage in enumerate(stages) if stage.socket == node]
            moved = [replace(stages[place], socket=machine.nic_socket) for place in here]
            for place, rate in zip(here, self._simulated(machine, moved), strict=True):
                rates[place] = rate
        return rates

    def _simulated(self, machine: "Machine", stages: "Sequence[_Stage]") -> list[float]:
        from slomo.simulator.engine import Tenant, simulate
        from slomo.vocabulary.network_function import load_network_function

        tenants = [
            Tenant(
                stage.workload,
                self._own.get(stage.workload.nf) or load_network_function(stage.workload.nf),
                stage.socket * machine.cores_per_socket + stage.core,
                llc_way_mask=stage.mask,
                memory_socket=None if stage.socket == machine.nic_socket else machine.nic_socket,
            )
            for stage in stages
        ]
        self.runs += 1
        result = simulate(machine, tenants, seed=self._seed, accesses=self._accesses)
        return [tenant.throughput_mpps for tenant in result.tenants]


@dataclass(frozen=True)
class _Stage:
    """A stage of a chain, where it runs, and the cache ways it may fill."""

    owner: str
    workload: "Workload"
    socket: int
    core: int
    mask: int | None


def _masks(
    chains: "Sequence[RatedChain]", seats: Mapping[str, tuple[int, ...]], ways: Mapping[str, int], most: int
) -> dict[str, int]:
    """Return way masks: of chains that own ways by id, of the rest of a node by its number."""
    used: dict[int, int] = {}
    masks: dict[str, int] = {}
    for item in chains:
        node, count = seats[item.request.id][0], ways.get(item.request.id, 0)
        if count:
            masks[item.request.id] = ((1 << count) - 1) << used.get(node, 0)
            used[node] = used.get(node, 0) + count
    return masks | {str(node): ((1 << most) - 1) & ~((1 << taken) - 1) for node, taken in used.items()}


def _core_numbers(
    chains: "Sequence[RatedChain]", seats: Mapping[str, tuple[int, ...]], server: "Server"
) -> dict[str, list[tuple[int, int]]]:
    """Return socket and core of every stage: nodes count from the NIC's, cores are taken from 0 upwards."""
    first = server.nics[0]
    sockets = [first, *(number for number in range(server.used_sockets) if number != first)]
    used = dict.fromkeys(sockets, 0)
    found: dict[str, list[tuple[int, int]]] = {}
    for item in chains:
        found[item.request.id] = []
        for node in seats[item.request.id]:
            socket = sockets[node]
            found[item.request.id].append((socket, used[socket]))
            used[socket] += 1
    return found
