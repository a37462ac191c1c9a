"""`numasfp`: put the fastest chains on the NIC's node while it has room, and migrate chains as rates change.

NUMASFP (COMSNETS'22): a profiler's lookup table gives each chain's needs at its present rate; all stages of a chain
stay on one node; chains migrate between nodes as their rates change. Their exclusive resources are computed in
`slomo.placement.chains.allocation`.
"""

from collections.abc import Sequence
from dataclasses import replace

from slomo.placement.chains.judges import Judges
from slomo.placement.chains.nodes import Need, Node, Nodes, by_rate, most_free
from slomo.placement.problem.chain import RatedChain


def numasfp(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put the fastest chains whole on the local node while it has room, the rest whole elsewhere."""
    del before
    left = list(nodes)
    seating: dict[str, tuple[int, ...]] = {}
    for item in by_rate(chains, interval):
        need = _fair(judges.table(item, item.offered_mpps(interval)), nodes[0])
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


def _fair(need: Need, node: Node) -> Need:
    """Return a need with at most its cores' share of the node's ways, so that ways suffice for all cores."""
    return replace(need, ways=min(need.ways, max(node.ways * need.cores // node.cores, 1)))
