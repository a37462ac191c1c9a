"""The controller `numa` moves tenants with their memory between the nodes of a server as loads change.

In every interval, NUMASFP (COMSNETS'22) places chains anew by their present rates and migrates them by cpuset. This
controller computes the nodes with the largest predicted throughput (`slomo.placement.chains.predicted`). It moves
tenants only if the gain over a horizon exceeds the cost of the moves.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slomo.control.observation import ControlDecision, MachineReading
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.equilibrium.partition import Partitions, solve_partitions
from slomo.errors import InvalidValueError
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.moves import INTERVAL_S
from slomo.placement.chains.nodes import Need, Node, seated, socket_of
from slomo.placement.chains.policies import Judges, Mix
from slomo.placement.chains.predicted import best_nodes, served_at
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.request import Request
from slomo.units import plural
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.server_setting import llc_numbers
from slomo.vocabulary.workload import Workload

#: Least relative gain in predicted throughput for a move, and relative change of load below which loads count as equal.
GAIN, STEADY = 0.02, 0.05
#: Assumed duration of present loads: NUMASFP's interval [s].
HORIZON_S = INTERVAL_S


@dataclass(frozen=True)
class NumaTenant:
    """Workload, response, first core and cost of a move of one tenant."""

    #: The tenant's workload.
    workload: Workload
    #: Response of the tenant to its neighbours.
    response: PartitionResponse
    #: Core on which it runs at first.
    core: int
    #: Throughput on a node without the NIC, as a share of solo throughput, above 0.
    far: float = 1.0
    #: Cost of a move, as an equivalent time without service [s] (`MoveCost.lost_s`).
    move_s: float = 0.0


@dataclass(frozen=True)
class NumaMemory:
    """The controller's state between rounds: each tenant's core, and the loads at the last decision."""

    cores: Mapping[str, int]
    loads_mpps: Mapping[str, float] = field(default_factory=dict)
    moved: bool = False


class NumaController:
    """Moves tenants between the NUMA nodes of a server.

    `server`: name of the server in plans. `machine`: machine with more than one socket. `tenants`: tenants by name.
    `memory`: memory of one socket. `horizon_s`: time for which the present loads are assumed to last [s]; the gain of a
    move in this time must exceed its cost.
    """

    name = "numa"

    def __init__(
        self,
        server: str,
        machine: Machine,
        tenants: Mapping[str, NumaTenant],
        memory: MemoryTraffic,
        *,
        horizon_s: float = HORIZON_S,
    ) -> None:
        if machine.sockets < 2 or not horizon_s > 0.0:
            raise InvalidValueError(
                f"'{machine.name}' has {plural(machine.sockets, 'socket')}, the horizon is {horizon_s} s, "
                "needed two or more sockets and a time above 0"
            )
        self.horizon_s = horizon_s
        self.server, self.machine, self.tenants, self.memory = server, machine, dict(tenants), memory
        #: Socket of each placement node; the NIC's socket is first.
        self._sockets = [socket_of(node, machine.nic_socket) for node in range(machine.sockets)]
        self._solved: dict[Mix, tuple[float, ...]] = {}
        for socket in self._sockets:
            cores = [tenant.core for tenant in tenants.values() if machine.socket_of(tenant.core) == socket]
            if len(cores) > machine.cores_per_socket:
                shared = Counter(cores).most_common(1)[0][0]
                sharing = ", ".join(f"'{name}'" for name, tenant in tenants.items() if tenant.core == shared)
                raise InvalidValueError(
                    f"tenants {sharing} share core {shared}, but 'numa' gives each a core of its own, and socket "
                    f"{socket} has {machine.cores_per_socket} for {len(cores)} tenants",
                    hint="put some on another socket",
                )

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the core of every tenant; see `Controller`."""
        first = {name: tenant.core for name, tenant in self.tenants.items()}
        state = memory if isinstance(memory, NumaMemory) else NumaMemory(first)
        loads = {
            name: self.tenants[name].response.solo_mpps if reading.offered_mpps is None else reading.offered_mpps
            for name, reading in observation.tenants.items()
            if name in self.tenants
        }
        if not self._changed(loads, state.loads_mpps):
            return ControlDecision(self._plan(state), state, escalated=observation.broken)
        chains = [self._rated(name, mpps) for name, mpps in loads.items()]
        before = {name: (self._node(state.cores[name]),) for name in loads}
        staying = Counter(self._node(core) for name, core in state.cores.items() if name not in loads)
        nodes = [
            Node(self.machine.cores_per_socket - staying[node], self.machine.llc_ways)
            for node in range(self.machine.sockets)
        ]
        best = best_nodes(chains, 0, nodes, Judges(_no_table, self._rates, self._keeps, self._moving), before)
        choices = [tuple(seats[name] for name in loads) for seats in (before, best)]
        now_mpps, then_mpps = served_at(chains, 0, choices, self._rates, self._keeps)
        state = replace(state, loads_mpps=loads)
        if then_mpps < (1.0 + GAIN) * now_mpps:
            reasons = ("no other nodes serve more",) if observation.broken else ()
            return ControlDecision(self._plan(state), state, reasons, escalated=observation.broken)
        sockets = {
            name: self._sockets[best[name][0]] if name in best else self.machine.socket_of(core)
            for name, core in state.cores.items()
        }
        per = self.machine.cores_per_socket
        cores_of = {socket: range(socket * per, (socket + 1) * per) for socket in self._sockets}
        fresh = replace(state, cores=seated(state.cores, sockets, cores_of), moved=True)
        movers = [name for name in loads if fresh.cores[name] != state.cores[name]]
        lost = sum(self.tenants[name].move_s * loads[name] for name in movers)
        rates = f"{then_mpps:.2f} instead of {now_mpps:.2f} Mpps predicted"
        why = f"move {', '.join(movers)}: {rates}, {lost:.2g} M packets lost by moving"
        return ControlDecision(self._plan(fresh), fresh, (why,))

    def _changed(self, loads: Mapping[str, float], before: Mapping[str, float]) -> bool:
        return loads.keys() != before.keys() or any(
            abs(mpps - before[name]) > STEADY * max(before[name], 1e-9) for name, mpps in loads.items()
        )

    def _rated(self, name: str, mpps: float) -> RatedChain:
        return RatedChain.at_mpps(Request(name, (self.tenants[name].workload,)), mpps)

    def _keeps(self, chain: RatedChain, seats: Sequence[int]) -> float:
        return self.tenants[chain.request.id].far if any(seats) else 1.0

    def _moving(self, chain: RatedChain, before: Sequence[int], after: Sequence[int]) -> float:
        return min(self.tenants[chain.request.id].move_s / self.horizon_s, 1.0) if before != after else 0.0

    def _rates(self, mixes: Sequence[Mix]) -> list[tuple[float, ...]]:
        """Predict the throughputs of tenants that share a node and all its cache ways; predictions are cached."""
        fresh = [mix for mix in dict.fromkeys(mixes) if mix not in self._solved]
        responses = {tenant.workload.key: tenant.response for tenant in self.tenants.values()}
        number = {key: place for place, key in enumerate(responses)}
        for size in {len(stages) for _, stages in fresh}:
            same = [mix for mix in fresh if len(mix[1]) == size]
            tenants = np.array([[number[key] for key, _ in stages] for _, stages in same])
            loads = np.array([[mpps for _, mpps in stages] for _, stages in same])
            masks = np.full(tenants.shape, self.machine.full_way_mask)
            llcs = llc_numbers([None] * size, self.machine.cores_per_socket, self.machine.llc_domains_per_socket)
            settings = Partitions(list(responses.values()), masks, tenants, offered_mpps=loads, llcs=np.array([llcs]))
            solved = solve_partitions(settings, self.memory)
            self._solved.update({mix: each.throughput_mpps for mix, each in zip(same, solved, strict=True)})
        rates = [self._solved[mix] for mix in mixes]
        if len(self._solved) > 1 << 14:
            self._solved.clear()
        return rates

    def _node(self, core: int) -> int:
        return self._sockets.index(self.machine.socket_of(core))

    def _plan(self, state: NumaMemory) -> EnforcementPlan | None:
        if not state.moved:
            return None
        return EnforcementPlan(
            self.server,
            tuple(
                TenantSetting(name, cores=(core,), memory_node=self.machine.socket_of(core))
                for name, core in state.cores.items()
            ),
        )


def _no_table(chain: RatedChain, mpps: float) -> Need:
    raise AssertionError(f"BUG: nodes of '{chain.request.id}' are chosen by predictions, not by a table at {mpps} Mpps")
