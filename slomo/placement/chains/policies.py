"""Policies for chains on NUMA nodes by name, what they are given, and those of NUMASFP's evaluation.

NUMASFP (COMSNETS'22): a profiler's lookup table gives each chain's needs at its present rate; all stages of a chain
stay on one node; chains migrate between nodes as their rates change. Their exclusive resources are computed in
`slomo.placement.chains.allocation`. Octans, node-first and node-balance ("alternative placement mechanisms") choose
nodes once and never move a chain.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slomo.errors import UnknownNameError
from slomo.placement.chains.moves import Moving
from slomo.placement.chains.nodes import Node, Nodes, Table, by_rate, filled, most_free
from slomo.placement.problem.chain import RatedChain
from slomo.plugins import imported

#: Workload key of a stage, and its offered load [Mpps].
Stage = tuple[str, float]
#: A node, and the stages on it.
Mix = tuple[int, tuple[Stage, ...]]
#: Mixes -> throughput of each stage of each [Mpps].
Estimate = Callable[[Sequence[Mix]], Sequence[Sequence[float]]]
#: A chain and the nodes of its stages -> share of throughput that it keeps when packets cross nodes.
Keeps = Callable[[RatedChain, Sequence[int]], float]


@dataclass(frozen=True)
class Judges:
    """Tables and functions that chain policies are given; only `slomo-numa` needs predictions and crossing costs."""

    #: Resources that a chain needs at a rate.
    table: Table
    #: Throughput of the stages of a node beside each other; `slomo-numa` needs it.
    estimate: Estimate | None = None
    #: Share of throughput that a chain keeps, given the nodes of its stages.
    keeps: Keeps = lambda *_: 1.0
    #: Share of an interval's service that a chain loses to moving.
    moving: Moving = lambda *_: 0.0
    #: Line rate of the ports that all chains of the server share [Gbit/s].
    wire_gbps: float = math.inf


#: (chains of one server, interval, nodes with the NIC's first, judges, nodes before) -> node of each stage.
ChainPolicy = Callable[[Sequence[RatedChain], int, Sequence[Node], Judges, Nodes | None], dict[str, tuple[int, ...]]]


def numasfp(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put the fastest chains whole on the NIC's node while it has room, and the others whole on other nodes."""
    del before
    left = list(nodes)
    seating: dict[str, tuple[int, ...]] = {}
    for item in by_rate(chains, interval):
        need = judges.table(item, item.offered_mpps(interval))
        share = max(nodes[0].ways * need.cores // nodes[0].cores, 1)
        need = replace(need, ways=min(need.ways, share))  # so that ways suffice for all cores
        best = next((i for i, node in enumerate(left) if node.holds(need)), None)
        if best is None:
            roomy = [i for i, node in enumerate(left) if need.cores <= node.cores]
            best = max(roomy, key=lambda i: (left[i].memory_percent, left[i].ways), default=None)
        if best is None:
            free = [node.cores for node in left]
            seating[item.request.id] = most_free(need.cores, free)
            left = [Node(cores, node.ways, node.memory_percent) for cores, node in zip(free, left, strict=True)]
        else:
            left[best] = left[best].less(need)
            seating[item.request.id] = (best,) * need.cores
    return seating


def octans(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Fill nodes in order with whole chains, the fastest first, which so get the node of the NIC.

    Octans (Zheng et al., TPDS'21) as NUMASFP (COMSNETS'22) describes it: chains with high traffic rates on the local
    node until its resources are used up; static. Octans' own optimisation by predicted drops is not rebuilt.
    """
    del judges, before
    return filled(by_rate(chains, interval), nodes, whole=True)


def node_first(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Fill the NIC's node, then the next, stage by stage, so that a chain may be split between two nodes.

    NUMASFP (COMSNETS'22), "alternative placement mechanisms": on the local node first until all its resources are
    consumed, then on the remote node; static.
    """
    del interval, judges, before
    return filled(chains, nodes)


def node_balance(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put each chain on the node that has most free cores, so that cores are used evenly.

    NUMASFP (COMSNETS'22), "alternative placement mechanisms": chains are divided into all nodes to balance each node's
    core utilisation; static. The paper does not say whether chains are kept whole; they are here, which is the more
    favourable reading; `node_balance_stages` is the other one.
    """
    del interval, judges, before
    free = [node.cores for node in nodes]
    return {item.request.id: most_free(len(item.request.chain), free) for item in chains}


def node_balance_stages(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put each stage on the node that has most free cores, so that chains go back and forth between nodes."""
    del interval, judges, before
    free = [node.cores for node in nodes]
    return {item.request.id: tuple(most_free(1, free)[0] for _ in item.request.chain) for item in chains}


@dataclass(frozen=True)
class ListedChainPolicy:
    """A chain policy, and whether it moves chains, uses predictions, and gives exclusive resources."""

    #: None for those that predict, whose module is imported on first use.
    function: ChainPolicy | None = None
    places_afresh: bool = False
    predicts: bool = False
    allocates: bool = False

    @property
    def decide(self) -> ChainPolicy:
        """The function by which the policy chooses nodes."""
        return self.function or imported("slomo.placement.chains.predicted:best_nodes")


_POLICIES = {
    "numasfp": ListedChainPolicy(numasfp, places_afresh=True, allocates=True),
    "octans": ListedChainPolicy(octans),
    "octans-predicted": ListedChainPolicy(predicts=True),
    "node-first": ListedChainPolicy(node_first),
    "node-balance": ListedChainPolicy(node_balance),
    "node-balance-stages": ListedChainPolicy(node_balance_stages),
    "slomo-numa": ListedChainPolicy(places_afresh=True, predicts=True),
}


def chain_policy_names() -> tuple[str, ...]:
    """Return the names of the policies for chains on NUMA nodes."""
    return tuple(_POLICIES)


def chain_policy(name: str) -> ListedChainPolicy:
    """Return a policy for chains by its name. Raises UnknownNameError, with the nearest name, if there is none."""
    if name not in _POLICIES:
        raise UnknownNameError("policy for chains on NUMA nodes", name, _POLICIES)
    return _POLICIES[name]
