"""`node-balance`: divide the chains among the nodes so that cores are used evenly.

NUMASFP (COMSNETS'22), "alternative placement mechanisms": chains are divided into all nodes to balance each node's core
utilisation; static. Whether chains are kept whole is not said; here they are, which is the kinder reading.
"""

from collections.abc import Sequence

from slomo.placement.nodes import Node, Table, most_free
from slomo.placement.workloads import RatedChain


def node_balance(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Put each chain on the node with most cores free."""
    del interval, table
    free = [node.cores for node in nodes]
    return {item.request.id: most_free(len(item.request.chain), free) for item in chains}
