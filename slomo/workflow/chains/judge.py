"""Run chains that were placed on NUMA nodes on the simulator: what they serve of what they are offered.

The comparison of NUMASFP (COMSNETS'22): throughput served over throughput offered, averaged over intervals (ANAT).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slomo.placement.chains.allocation import Parts
from slomo.placement.chains.moves import INTERVAL_S, MoveCost
from slomo.placement.over_time.judge import TOLERANCE
from slomo.placement.over_time.judgement import Judgement, Violation
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.workflow.chains.moving import moving_costs
from slomo.workflow.chains.on_nodes import Handover, PlacedChains, core_numbers, isolations, keeps_by

if TYPE_CHECKING:
    from slomo.placement.problem.chain import RatedChain
    from slomo.placement.problem.cluster import Cluster
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction
    from slomo.vocabulary.workload import Workload

#: Standard deviations of the number of arrivals within which a stage serves all it is offered.
_DEVIATIONS = 2.0
#: Line accesses of each simulation.
ACCESSES = 400_000


def judge_chains(
    placed: PlacedChains,
    *,
    handover: Handover = "simulated",
    own: "Sequence[NetworkFunction]" = (),
    accesses: int = ACCESSES,
    move: MoveCost | float | None = None,
    seed: int = 0,
) -> "Judgement":
    """Run every server in every interval on the simulator.

    Parameters
    ----------
    placed : PlacedChains
        What runs where.
    handover : {"simulated", "measured"}
        Nodes are simulated apart; a chain keeps the share of its throughput that it keeps when it is simulated alone,
        packet by packet, with its stages on these nodes, or the share that NUMASFP measured on OpenNetVM.
    own : sequence of NetworkFunction
        Network functions of one's own.
    accesses : int
        Line accesses of each simulation.
    move : MoveCost or float, optional
        What stages pay that change nodes: hand-over, cold cache and remote memory as simulated by default; a number is
        the time for which the whole chain then serves nothing [s]. Intervals last ten seconds.
    seed : int
        Of the simulations.

    Returns
    -------
    Judgement
        ANAT is throughput served over throughput offered, averaged over intervals. An SLO of `min_mpps` is broken where
        in some interval a chain serves less than that, or than it is offered.
    """
    plan, runner = placed.plan, _Runner(placed.cluster, own, handover, accesses, seed)
    shares: list[float] = []
    violations: dict[str, Violation] = {}
    for interval, seats in enumerate(plan.seats):
        served = offered = 0.0
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
        self._own = tuple(own)
        self._beds: dict[str, SimulatedTestbed] = {}
        self._handover, self._accesses, self._seed = handover, accesses, seed
        self.runs = 0

    def offered_mpps(self, server: str, item: "RatedChain", interval: int) -> float:
        """Return what reaches the chain [Mpps]: its rate, at most the line's."""
        size_b = item.request.chain[0].traffic.packet_size_b
        return min(item.offered_mpps(interval), self._servers[server].machine_type.line_rate_mpps(size_b))

    def lost(
        self,
        name: str,
        item: "RatedChain",
        before: Mapping[str, tuple[int, ...]],
        now: Mapping[str, tuple[int, ...]],
        move: MoveCost | float | None,
    ) -> float:
        """Return the share of an interval's service that moving costs a chain."""
        here, there = before.get(item.request.id, now[item.request.id]), now[item.request.id]
        if here == there:
            return 0.0
        if isinstance(move, float | int):
            return min(move / INTERVAL_S, 1.0)
        return moving_costs(self._servers[name].machine_type, move or MoveCost(), self._own)(item, here, there)

    def run(
        self,
        name: str,
        chains: "Sequence[RatedChain]",
        interval: int,
        seats: Mapping[str, tuple[int, ...]],
        parts: Parts,
    ) -> dict[str, float]:
        """Simulate one server for one interval; return the throughput of every chain [Mpps]."""
        server = self._servers[name]
        kept = keeps_by(self._handover, server.machine_type, self._own)
        keeps = {item.request.id: kept(item, seats[item.request.id]) for item in chains}
        stages = self._stages(name, chains, interval, seats, parts, keeps)
        rates = self._apart(server.machine_type, stages)
        slowest_mpps: dict[str, float] = {}
        for stage, rate in zip(stages, rates, strict=True):
            slowest_mpps[stage.owner] = min(slowest_mpps.get(stage.owner, float("inf")), rate * keeps[stage.owner])
        return {
            item.request.id: min(slowest_mpps[item.request.id], self.offered_mpps(name, item, interval))
            for item in chains
        }

    def _stages(
        self,
        name: str,
        chains: "Sequence[RatedChain]",
        interval: int,
        seats: Mapping[str, tuple[int, ...]],
        parts: Parts,
        keeps: Mapping[str, float],
    ) -> "list[_Stage]":
        server = self._servers[name]
        cores, isolated = core_numbers(chains, seats, server), isolations(chains, seats, parts, server.ways)
        stages = []
        for item in chains:
            # a chain that loses a share to hand-overs must work as if it were offered as much more
            offered = round(self.offered_mpps(name, item, interval) / keeps[item.request.id], 4)
            places = zip(item.request.chain, cores[item.request.id], isolated[item.request.id], strict=True)
            for workload, (socket, core), apart in places:
                stages.append(_Stage(item.request.id, workload.offered(offered), socket, core, apart))
        return stages

    def _apart(self, machine: "Machine", stages: "Sequence[_Stage]") -> list[float]:
        """Simulate every node as if it were the NIC's: what it is not costs a share of throughput."""
        rates = [0.0] * len(stages)
        for node in sorted({stage.socket for stage in stages}):
            here = [place for place, stage in enumerate(stages) if stage.socket == node]
            moved = [replace(stages[place], socket=machine.nic_socket) for place in here]
            for place, rate in zip(here, self._simulated(machine, moved), strict=True):
                rates[place] = rate
        return rates

    def _simulated(self, machine: "Machine", stages: "Sequence[_Stage]") -> list[float]:
        """Run stages on a testbed, all memory on the NIC's node; return what each serves [Mpps]."""
        if machine.name not in self._beds:
            self._beds[machine.name] = SimulatedTestbed(machine, self._own, accesses=self._accesses)
        colocation = Colocation(
            machine.name,
            None,
            tuple(stage.workload for stage in stages),
            tuple(stage.apart for stage in stages),
            tuple(stage.socket for stage in stages),
            machine.nic_socket,
        )
        self.runs += 1
        phase = self._beds[machine.name].run(colocation, seed=self._seed).alone
        assert phase is not None, "BUG: a run of competitors has a phase of theirs"
        rates = [sample.throughput_mpps for sample in phase.tenants]
        return [_rate(stage, mpps, 1e6 * phase.duration_s) for stage, mpps in zip(stages, rates, strict=True)]


def _rate(stage: "_Stage", mpps: float, duration_us: float) -> float:
    """Return a stage's throughput [Mpps]; what it is offered where it falls short by no more than chance may explain.

    Arrivals are random, and their number in the time simulated spreads by its square root; the slowest of several
    stages would always look too slow.
    """
    offered = stage.workload.traffic.offered_mpps
    if offered is None:
        return mpps
    chance = _DEVIATIONS / math.sqrt(max(offered * duration_us, 1.0))
    return offered if mpps >= offered * (1.0 - chance) else mpps


@dataclass(frozen=True)
class _Stage:
    """A stage of a chain, where it runs, and how it is kept apart."""

    owner: str
    workload: "Workload"
    socket: int
    core: int
    apart: Isolation
