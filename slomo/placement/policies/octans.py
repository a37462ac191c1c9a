"""`octans`: give the node of the NIC to the chains with the highest rates.

Octans (Zheng et al., TPDS'21) as NUMASFP (COMSNETS'22) compares with it: chains with high traffic rates in the local
node until its resources are depleted; static. Octans' own optimisation, by predicted drops, is not rebuilt.
"""

from collections.abc import Sequence

from slomo.placement.nodes import Node, Table, by_rate, filled
from slomo.placement.workloads import RatedChain


def octans(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Fill nodes with whole chains, the fastest first."""
    del table
    return filled(by_rate(chains, interval), nodes, whole=True)
