"""`node-first`: fill the node of the NIC, then the next, in the order chains come.

NUMASFP (COMSNETS'22), "alternative placement mechanisms": on the local node first until all its resources are
consumed, then on the remote node; static.
"""

from collections.abc import Sequence

from slomo.placement.nodes import Node, Table, filled
from slomo.placement.workloads import RatedChain


def node_first(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Fill nodes stage by stage; the chain at the border is split."""
    del interval, table
    return filled(chains, nodes)
