"""Service chains on the NUMA nodes of one server, with rates that change: who runs where, and what that costs.

NUMASFP (COMSNETS'22): packets arrive at one node's NIC; a chain on the other node loses 22 %, a chain split between
nodes up to 52 %; a migration by cpuset is nearly seamless. A node's cores, cache ways and memory bandwidth are shared
by the chains on it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.workloads import RatedChain
from slomo.vocabulary.machine import Machine


@dataclass(frozen=True)
class Need:
    """What a chain takes at a traffic rate: NUMASFP's lookup table.

    Attributes
    ----------
    cores : int
        One per stage.
    ways : int
        Cache ways.
    memory_percent : float
        Share of a node's memory bandwidth [%].
    """

    cores: int
    ways: int
    memory_percent: float


#: Chain, offered rate [Mpps] -> need.
Table = Callable[[RatedChain, float], Need]
#: Chain -> node of each of its stages.
Nodes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Node:
    """One NUMA node: cores, ways and memory bandwidth left [%]."""

    cores: int
    ways: int
    memory_percent: float = 100.0

    def holds(self, need: Need) -> bool:
        """Say whether there is room."""
        return need.cores <= self.cores and need.ways <= self.ways and need.memory_percent <= self.memory_percent

    def less(self, need: Need) -> "Node":
        """Return what is left beside a chain."""
        left = max(self.memory_percent - need.memory_percent, 0.0)
        return Node(self.cores - need.cores, max(self.ways - need.ways, 0), left)


def nodes_of(machine: Machine, cores_reserved: int = 0) -> tuple[Node, ...]:
    """Return the nodes of a machine, that of the NIC first.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> nodes_of(load_machine("e5-2620v4"))[0]
    Node(cores=8, ways=18, memory_percent=100.0)
    """
    node = Node(machine.cores_per_socket - cores_reserved, machine.llc_ways - machine.ddio_ways)
    return (node,) * machine.sockets


def place_chains(
    policy: str,
    chains: Sequence[RatedChain],
    interval: int,
    nodes: Sequence[Node],
    table: Table,
    before: Nodes | None = None,
) -> dict[str, tuple[int, ...]]:
    """Place chains on the nodes of one server for one interval.

    Parameters
    ----------
    policy : {"numasfp", "octans", "node-first", "node-balance"}
        `numasfp` places afresh every interval by the rates of now; the others keep what the first interval's gave.
    chains : sequence of RatedChain
        Chains of this server.
    interval : int
        Which interval, from 0.
    nodes : sequence of Node
        The NIC's first.
    table : callable
        What a chain takes at a rate.
    before : mapping, optional
        Where the chains were.

    Raises
    ------
    UnknownNameError
        For another policy.
    InvalidValueError
        Where the chains have more stages than the server has cores.
    """
    if policy not in CHAIN_POLICIES:
        raise UnknownNameError("policy for chains on NUMA nodes", policy, CHAIN_POLICIES)
    stages, cores = sum(len(item.request.chain) for item in chains), sum(node.cores for node in nodes)
    if stages > cores:
        raise InvalidValueError(
            f"{len(chains)} chains of {stages} stages, but the server has {cores} cores", hint="use more servers"
        )
    if before is not None and policy != "numasfp":
        return dict(before)
    return CHAIN_POLICIES[policy](chains, interval, nodes, table)


def _by_rate(chains: Sequence[RatedChain], interval: int) -> list[RatedChain]:
    return sorted(chains, key=lambda item: (-item.offered_mpps(interval), item.request.id))


def _node_first(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Fill the local node, stage by stage, then the next, in the order chains come (NUMASFP's `node-first`)."""
    del interval, table
    return _filled(chains, nodes)


def _octans(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Fill the local node with the fastest chains (Octans, TPDS'21, as NUMASFP compares with it)."""
    del table
    return _filled(_by_rate(chains, interval), nodes, whole=True)


def _node_balance(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Put each chain on the node with most cores free, so that cores are used evenly."""
    del interval, table
    free = [node.cores for node in nodes]
    found: dict[str, tuple[int, ...]] = {}
    for item in chains:
        found[item.request.id] = _most_free(len(item.request.chain), free)
    return found


def _numasfp(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], table: Table
) -> dict[str, tuple[int, ...]]:
    """Put the fastest chains whole on the local node while cores, ways and bandwidth last, the rest whole elsewhere."""
    left = list(nodes)
    found: dict[str, tuple[int, ...]] = {}
    for item in _by_rate(chains, interval):
        need = table(item, item.offered_mpps(interval))
        best = next((i for i, node in enumerate(left) if node.holds(need)), None)
        if best is None:
            roomy = [i for i, node in enumerate(left) if need.cores <= node.cores]
            best = max(roomy, key=lambda i: (left[i].memory_percent, left[i].ways), default=None)
        if best is None:
            free = [node.cores for node in left]
            found[item.request.id] = _most_free(need.cores, free)
            left = [Node(cores, node.ways, node.memory_percent) for cores, node in zip(free, left, strict=True)]
        else:
            left[best] = left[best].less(need)
            found[item.request.id] = (best,) * need.cores
    return found


def _filled(chains: Sequence[RatedChain], nodes: Sequence[Node], *, whole: bool = False) -> dict[str, tuple[int, ...]]:
    """Fill nodes in order; with `whole`, a chain that does not fit a node goes whole to the next that holds it."""
    free = [node.cores for node in nodes]
    found: dict[str, tuple[int, ...]] = {}
    for item in chains:
        stages = len(item.request.chain)
        fitting = next((i for i, cores in enumerate(free) if cores >= stages), None) if whole else None
        if fitting is not None:
            free[fitting] -= stages
            found[item.request.id] = (fitting,) * stages
            continue
        seats = []
        for _ in range(stages):
            node = next(i for i, cores in enumerate(free) if cores > 0)
            free[node] -= 1
            seats.append(node)
        found[item.request.id] = tuple(seats)
    return found


def _most_free(stages: int, free: list[int]) -> tuple[int, ...]:
    """Take cores of the node with most free, of several nodes only where no one holds all stages."""
    node = max(range(len(free)), key=lambda i: (free[i], -i))
    if free[node] >= stages:
        free[node] -= stages
        return (node,) * stages
    seats = []
    for _ in range(stages):
        node = max(range(len(free)), key=lambda i: (free[i], -i))
        free[node] -= 1
        seats.append(node)
    return tuple(seats)


CHAIN_POLICIES: dict[str, Callable[[Sequence[RatedChain], int, Sequence[Node], Table], dict[str, tuple[int, ...]]]] = {
    "numasfp": _numasfp,
    "octans": _octans,
    "node-first": _node_first,
    "node-balance": _node_balance,
}


#: Node, workload keys of all stages on it -> throughput of each [Mpps].
Estimate = Callable[[int, tuple[str, ...]], Sequence[float]]
#: More chains on one server than this are too many to try all ways.
_MOST_CHAINS = 10


def best_nodes(
    chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], estimate: Estimate, before: Nodes | None = None
) -> dict[str, tuple[int, ...]]:
    """Keep chains whole, and choose the nodes at which all together are predicted to serve most; `slomo`'s own policy.

    Among equals, fewest stages move. `estimate` knows what the stages of a node cost each other, and what it costs to
    be away from the NIC.

    Raises
    ------
    InvalidValueError
        For more than ten chains on one server, or more stages than its nodes have cores.
    """
    if len(chains) > _MOST_CHAINS:
        raise InvalidValueError(f"{len(chains)} chains on one server, needed at most {_MOST_CHAINS}")
    best: tuple[float, int, dict[str, tuple[int, ...]]] | None = None
    for choice in itertools.product(range(len(nodes)), repeat=len(chains)):
        taken = [
            sum(len(c.request.chain) for c, at in zip(chains, choice, strict=True) if at == n)
            for n in range(len(nodes))
        ]
        if any(count > node.cores for count, node in zip(taken, nodes, strict=True)):
            continue
        placed = {c.request.id: (at,) * len(c.request.chain) for c, at in zip(chains, choice, strict=True)}
        served = _served(chains, interval, choice, estimate)
        moved = migrations(before or {}, placed)
        if best is None or (round(served, 6), -moved) > (round(best[0], 6), -best[1]):
            best = (served, moved, placed)
    if best is None:
        return _filled(_by_rate(chains, interval), nodes)
    return best[2]


def _served(chains: Sequence[RatedChain], interval: int, choice: Sequence[int], estimate: Estimate) -> float:
    total = 0.0
    for node in set(choice):
        here = [chain for chain, at in zip(chains, choice, strict=True) if at == node]
        keys = tuple(workload.key for chain in here for workload in chain.request.chain)
        rates = iter(estimate(node, keys))
        for chain in here:
            slowest = min(next(rates) for _ in chain.request.chain)
            total += min(chain.offered_mpps(interval), slowest)
    return total


def migrations(before: Nodes, after: Nodes) -> int:
    """Return how many stages changed nodes.

    Examples
    --------
    >>> migrations({"a": (0, 0)}, {"a": (0, 1)})
    1
    """
    return sum(x != y for name in after if name in before for x, y in zip(before[name], after[name], strict=True))
