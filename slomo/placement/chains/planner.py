"""Place service chains with changing rates on the NUMA nodes of servers, interval by interval.

NUMASFP (COMSNETS'22) places chains by their present rates and migrates them between nodes; Octans, node-first and
node-balance keep their first choice.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slomo.errors import InvalidValueError
from slomo.placement.chains.allocation import Parts, allocated
from slomo.placement.chains.nodes import Node, Nodes, migrations
from slomo.placement.chains.policies import Judges, chain_policy
from slomo.placement.problem.chain import RatedChain


def place_chains(
    policy: str,
    chains: Sequence[RatedChain],
    interval: int,
    nodes: Sequence[Node],
    judges: Judges,
    before: Nodes | None = None,
) -> dict[str, tuple[int, ...]]:
    """Place chains on the nodes of one server for one interval.

    `numasfp` and `slomo-numa` place afresh every interval by the rates of now; the others keep what they chose
    first (`octans-predicted` what `slomo-numa` would). The first node is the NIC's.
    """
    chosen = chain_policy(policy)
    stages, cores = sum(len(item.request.chain) for item in chains), sum(node.cores for node in nodes)
    if stages > cores:
        raise InvalidValueError(
            f"{len(chains)} chains of {stages} stages, but the server has {cores} cores", hint="use more servers"
        )
    if before is not None and not chosen.places_afresh:
        return dict(before)
    return chosen.decide(chains, interval, nodes, judges, before)


@dataclass(frozen=True)
class ChainPlan:
    """Nodes of all chains in every interval."""

    #: Name of the policy that placed the chains.
    policy: str
    #: The chains on each server in use.
    servers: Mapping[str, tuple[RatedChain, ...]]
    #: Per interval, the node of each stage of each chain.
    seats: tuple[Nodes, ...]
    #: Chains for which no server has enough cores.
    unplaced: tuple[RatedChain, ...] = ()
    #: Exclusive cache ways and memory bandwidth of chains per interval, under policies that allocate them.
    parts: tuple[Parts, ...] = ()
    #: Time to plan each interval for all servers [ms].
    times_ms: tuple[float, ...] = field(default=(), compare=False)

    @property
    def migrations(self) -> int:
        """Number of stages that changed nodes, over all intervals."""
        return sum(migrations(before, after) for before, after in zip(self.seats, self.seats[1:], strict=False))


def plan_chains(
    policy: str,
    servers: Mapping[str, Sequence[Node]],
    chains: Sequence[RatedChain],
    judges: Mapping[str, Judges],
    *,
    allocate: bool | None = None,
) -> ChainPlan:
    """Put each chain on the first server with enough cores, and choose its nodes in every interval.

    Chains get ways and bandwidth to themselves by the table where `allocate` says so; by default as the policy
    does.
    """
    chosen = chain_policy(policy)
    shares, unplaced = _spread(servers, chains)
    count = min((len(item.gbps) for item in chains), default=0)
    seats: list[Nodes] = []
    parts: list[Parts] = []
    times_ms: list[float] = []
    divides = chosen.allocates if allocate is None else allocate
    for interval in range(count):
        begun = time.perf_counter()
        now: dict[str, tuple[int, ...]] = {}
        own = Parts()
        for name, mine in shares.items():
            before = {item.request.id: seats[-1][item.request.id] for item in mine} if seats else None
            now |= place_chains(policy, mine, interval, servers[name], judges[name], before)
            if divides:
                own |= allocated(mine, interval, now, servers[name], judges[name].table)
        seats.append(now)
        parts.append(own)
        times_ms.append(1e3 * (time.perf_counter() - begun))
    placed = {name: tuple(mine) for name, mine in shares.items()}
    return ChainPlan(policy, placed, tuple(seats), unplaced, tuple(parts), tuple(times_ms))


def _spread(
    servers: Mapping[str, Sequence[Node]], chains: Sequence[RatedChain]
) -> tuple[dict[str, list[RatedChain]], tuple[RatedChain, ...]]:
    free = {name: sum(node.cores for node in nodes) for name, nodes in servers.items()}
    shares: dict[str, list[RatedChain]] = {}
    unplaced = []
    for item in chains:
        name = next((name for name, cores in free.items() if cores >= len(item.request.chain)), None)
        if name is None:
            unplaced.append(item)
            continue
        free[name] -= len(item.request.chain)
        shares.setdefault(name, []).append(item)
    return shares, tuple(unplaced)
