"""`numasfp`: put the fastest chains on the NIC's node while it has room, and migrate chains as rates change.

NUMASFP (COMSNETS'22): a profiler's lookup table gives each chain's needs at its present rate; all stages of a chain
stay on one node; chains migrate between nodes as their rates change. Their exclusive resources are computed in
`slomo.placement.chains.allocation`.
"""

from collections.abc import Sequence
from dataclasses import replace

from slomo.placement.chains.judges import Judges
from slomo.placement.chains.nodes import Node, Nodes, by_rate, most_free
from slomo.placement.problem.chain import RatedChain


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
