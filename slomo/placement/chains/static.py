"""Chain policies that choose nodes once and never move a chain: Octans, node-first, node-balance.

NUMASFP (COMSNETS'22), "alternative placement mechanisms".
"""

from collections.abc import Sequence

from slomo.placement.chains.judges import Judges
from slomo.placement.chains.nodes import Node, Nodes, by_rate, filled, most_free
from slomo.placement.problem.chain import RatedChain


def octans(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Fill nodes in order with whole chains, the fastest first.

    `octans`: give the node of the NIC to the chains with the highest rates.

    Octans (Zheng et al., TPDS'21) as NUMASFP (COMSNETS'22) describes it: chains with high traffic rates on the local
    node until its resources are used up; static. Octans' own optimisation by predicted drops is not rebuilt.
    """
    del judges, before
    return filled(by_rate(chains, interval), nodes, whole=True)


def node_first(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Fill nodes in order stage by stage, so that a chain may be split between two nodes.

    `node-first`: fill the NIC's node, then the next, in the chains' given order.

    NUMASFP (COMSNETS'22), "alternative placement mechanisms": on the local node first until all its resources are
    consumed, then on the remote node; static.
    """
    del interval, judges, before
    return filled(chains, nodes)


def node_balance(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put each chain on the node that has most free cores.

    `node-balance`: divide the chains among the nodes so that cores are used evenly.

    NUMASFP (COMSNETS'22), "alternative placement mechanisms": chains are divided into all nodes to balance each node's
    core utilisation; static. The paper does not say whether chains are kept whole; they are here, which is the more
    favourable reading.
    """
    del interval, judges, before
    free = [node.cores for node in nodes]
    return {item.request.id: most_free(len(item.request.chain), free) for item in chains}
