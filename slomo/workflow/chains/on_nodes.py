"""Plan the placement of chains on the NUMA nodes of servers, for every interval.

The method is that of NUMASFP (COMSNETS'22). `run_chains` measures the throughput that a plan achieves.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slomo.errors import UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile
from slomo.placement.chains.allocation import Parts, lookup_table
from slomo.placement.chains.moves import MoveCost
from slomo.placement.chains.nodes import Node, cores_on, handover_keeps
from slomo.placement.chains.planner import ChainPlan, plan_chains
from slomo.placement.chains.policies import Judges, chain_policy
from slomo.placement.chains.predicted import node_rates
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.vocabulary.colocation import Isolation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.way_masks import way_block

#: Source of the cost of crossing nodes: the simulator, or NUMASFP's measurement on OpenNetVM.
Handover = Literal["simulated", "measured"]


@dataclass(frozen=True)
class PlacedChains:
    """A placement plan for chains, and the servers for which it was made."""

    #: Node and server of every stage in every interval.
    plan: ChainPlan
    #: The servers.
    cluster: Cluster

    @property
    def servers_used(self) -> int:
        """Number of servers on which a chain runs."""
        return len(self.plan.servers)

    def decisions(self, interval: int = 0) -> tuple[Decision, ...]:
        """Return the place of every chain in one interval; chains without a place are marked refused."""
        decisions = []
        servers = {server.name: server for server in self.cluster.servers}
        for name, chains in self.plan.servers.items():
            seats = self.plan.seats[interval]
            cores = core_numbers(chains, seats, servers[name])
            isolated = isolations(chains, seats, self.plan.parts[interval], servers[name].ways)
            for item in chains:
                places = zip(item.request.chain, cores[item.request.id], isolated[item.request.id], strict=True)
                where = tuple(
                    Assignment(
                        name,
                        socket,
                        core,
                        workload.key,
                        llc_way_mask=apart.llc_way_mask,
                        memory_bandwidth_percent=apart.memory_bandwidth_percent,
                        machine_fingerprint=servers[name].machine_type.fingerprint,
                    )
                    for workload, (socket, core), apart in places
                )
                reason = f"{name}: stages on sockets {'-'.join(str(place.socket) for place in where)}"
                decisions.append(Decision(item.request.id, True, self.plan.policy, "", where, (reason,)))
        free = {
            name: server.cores * server.machine_type.sockets
            - sum(len(item.request.chain) for item in self.plan.servers.get(name, ()))
            for name, server in servers.items()
        }
        best = max(free, key=lambda name: free[name])
        for item in self.plan.unplaced:
            name, machine = item.request.id, servers[best].machine_type.name
            refused = Refusal(name, "chain", machine, "cores", len(item.request.chain), free[best], best)
            decisions.append(Decision(name, False, self.plan.policy, "", (), (refused.text,), refused))
        return tuple(decisions)


def place_chains(
    cluster: Cluster,
    chains: Sequence[RatedChain],
    policy: str,
    library: ModelLibrary | None = None,
    *,
    model: str = DEFAULT_MODEL,
    needs: Sequence[PartitionProfile] = (),
    allocate: bool | None = None,
    handover: Handover = "simulated",
) -> PlacedChains:
    """Place chains on the NUMA nodes of servers, interval by interval.

    All sockets of the cluster's servers are used. `policy`: a name of `chain_policy_names`. `library`, `model`:
    `slomo-numa` predicts with them, `numasfp`'s lookup table is made of them. `needs`: what else that table is made of,
    profiles over partitions, or over cache ways beside the models. `allocate`: whether chains get ways and bandwidth of
    their own by that table; by default under `numasfp` alone. `handover`: what `slomo-numa` takes hand-overs between
    nodes to cost: what a lone chain loses when it is simulated packet by packet, or what NUMASFP measured.
    """
    estimates = ThroughputEstimates(library if library is not None else ModelLibrary([]), model, 0.5, needs)
    estimates.check_machines(cluster.machine_types)
    keys = sorted({workload.saturated.key for item in chains for workload in item.request.chain})
    by_needs = needs and (allocate or chain_policy(policy).allocates)
    for machine, key in itertools.product(cluster.machines, keys) if by_needs else ():
        if estimates.profile(machine, key) is None and (machine, key) not in estimates.library:
            known = [name for place, name in estimates.profiles if place == machine]
            raise UnknownNameError("network function", key, known, where=f"in the profiles of '{machine}'")
    if chain_policy(policy).predicts:
        estimates.check_names([item.request for item in chains], cluster.machines)
    judges_by_machine = {
        name: _judges(estimates, machine, predicts=chain_policy(policy).predicts, handover=handover)
        for name, machine in cluster.machine_types.items()
    }
    nodes = {server.name: ((Node(server.cores, server.ways),) * server.used_sockets) for server in cluster.servers}
    judges = {
        server.name: replace(
            judges_by_machine[server.machine_type.name],
            wire_gbps=server.machine_type.shared_wire_gbps(server.port_gbps),
        )
        for server in cluster.servers
    }
    return PlacedChains(plan_chains(policy, nodes, chains, judges, allocate=allocate), cluster)


def _judges(
    estimates: ThroughputEstimates,
    machine: Machine,
    *,
    predicts: bool,
    handover: Handover,
) -> Judges:
    table = lookup_table(estimates, machine)
    if not predicts:
        return Judges(table)
    from slomo.workflow.chains.node_costs import handover_kept, moving_costs  # others need no simulator

    def keeps(chain: RatedChain, seats: Sequence[int]) -> float:
        return (
            handover_keeps(seats)
            if handover == "measured"
            else handover_kept(machine, chain.request.chain, tuple(seats))
        )

    return Judges(table, node_rates(estimates, machine.name), keeps, moving_costs(machine, MoveCost()))


def core_numbers(
    chains: Sequence[RatedChain], seats: Mapping[str, tuple[int, ...]], server: Server
) -> dict[str, list[tuple[int, int]]]:
    """Return socket and core of every stage; node 0 is the NIC's socket, cores are assigned from 0 upwards."""
    used = Counter[int]()
    return {item.request.id: cores_on(seats[item.request.id], server.nics[0], used) for item in chains}


def isolations(
    chains: Sequence[RatedChain], seats: Mapping[str, tuple[int, ...]], parts: Parts, most: int
) -> dict[str, tuple[Isolation, ...]]:
    """Return the cache ways and throttle of each stage of each chain on a server with `most` ways."""
    masks = _way_masks(chains, seats, parts.ways, most)
    isolated = {}
    for item in chains:
        name, nodes = item.request.id, seats[item.request.id]
        throttles: Sequence[int | None] = parts.throttles.get(name) or (None,) * len(nodes)
        isolated[name] = tuple(
            Isolation(masks.get(name, masks.get(str(node))), percent)
            for node, percent in zip(nodes, throttles, strict=True)
        )
    return isolated


def _way_masks(
    chains: Sequence[RatedChain], seats: Mapping[str, tuple[int, ...]], ways: Mapping[str, int], most: int
) -> dict[str, int]:
    """Return way masks: by chain id for chains with exclusive ways, by node number for the shared rest."""
    used: dict[int, int] = {}
    masks: dict[str, int] = {}
    for item in chains:
        node, count = seats[item.request.id][0], ways.get(item.request.id, 0)
        if count:
            masks[item.request.id] = way_block(count, used.get(node, 0))
            used[node] = used.get(node, 0) + count
    return masks | {str(node): way_block(most) & ~way_block(taken) for node, taken in used.items()}
