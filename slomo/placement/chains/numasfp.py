"""`numasfp`: the fastest chains on the node of the NIC while cores, cache ways and memory bandwidth last; migrates.

NUMASFP (COMSNETS'22): a profiler's lookup table says what each chain needs at its rate of now; all stages of a chain
stay on one node; chains migrate between nodes as their rates change.
"""

from collections.abc import Sequence
from dataclasses import replace

from slomo.placement.chains.judges import Judges
from slomo.placement.chains.nodes import Need, Node, Nodes, Table, by_rate, most_free
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.vocabulary.machine import Machine


def numasfp(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], judges: Judges, before: Nodes | None
) -> dict[str, tuple[int, ...]]:
    """Put the fastest chains whole on the local node while it lasts, the rest whole elsewhere."""
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
    """Return a need with no more ways than its cores' share of the node, so that all its cores can be given some."""
    return replace(need, ways=min(need.ways, max(node.ways * need.cores // node.cores, 1)))


def lookup_table(estimates: ThroughputEstimates, host: Machine) -> Table:
    """Return NUMASFP's lookup table: what each network function needs at a traffic rate.

    Cache ways are the fewest with which a profile serves the rate, or as much of it as the network function can;
    without a profile, those it holds alone. Memory bandwidth is what it moves alone, in proportion to the rate.

    Parameters
    ----------
    estimates : ThroughputEstimates
        Profiles and models; a network function with neither counts with one way and no traffic to memory.
    host : Machine
        Machine type.
    """
    machine = host.name
    way_kib = host.llc_mib * 1024 / host.llc_ways

    def of_one(key: str, mpps: float) -> tuple[float, float]:
        ways, memory = 1.0, 0.0
        if (machine, key) in estimates.library:
            model = estimates.library[machine, key]
            solo, share = model.solo_vector, min(mpps / model.solo_mpps, 1.0)
            ways = (solo.get("L3OCC", 0.0) or 0.0) / way_kib
            memory = share * ((solo.get("READ", 0.0) or 0.0) + (solo.get("WRITE", 0.0) or 0.0))
        profile = estimates.profile(machine, key)
        if profile is not None:
            ways = float(profile.ways_for(min(mpps, profile.promise_mpps(profile.ways[-1][0]))) or 1)
        return ways, memory

    def need(item: RatedChain, mpps: float) -> Need:
        parts = [of_one(workload.key, mpps) for workload in item.request.chain]
        ways, memory = (sum(part[i] for part in parts) for i in range(2))
        return Need(len(parts), max(round(ways), 1), 100 * memory / host.usable_memory_gb_s)

    return need


def allocated(
    chains: Sequence[RatedChain], interval: int, seats: Nodes, nodes: Sequence[Node], table: Table
) -> dict[str, int]:
    """Return the cache ways each chain gets to itself.

    Where the chains of a node need more than it has, its cache stays shared: nobody is given less than the table says.
    Stages of a chain that is split share what is left.
    """
    own_ways: dict[str, int] = {}
    for number, node in enumerate(nodes):
        here = [item for item in chains if number in seats[item.request.id]]
        whole = [item for item in here if len(set(seats[item.request.id])) == 1]
        ways = {item.request.id: table(item, item.offered_mpps(interval)).ways for item in whole}
        if sum(ways.values()) + (len(whole) < len(here)) <= node.ways:
            own_ways |= ways
    return own_ways
