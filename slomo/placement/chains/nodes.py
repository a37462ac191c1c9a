"""The NUMA nodes of a server, the resources that chains use on them, and the cost of packets that cross nodes.

NUMASFP (COMSNETS'22): packets arrive at the NIC of one node, chains on a node share its cores, cache ways and memory
bandwidth, crossing nodes costs throughput, and a migration by cpuset costs almost none.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slomo.placement.problem.chain import RatedChain


@dataclass(frozen=True)
class Need:
    """Resources that a chain needs at a traffic rate: a row of NUMASFP's lookup table."""

    #: Number of cores: one per stage.
    cores: int
    #: Number of cache ways.
    ways: int
    #: Share of a node's memory bandwidth [%].
    memory_percent: float
    #: Memory bandwidth throttle (MBA) of each stage [%]; empty if the table has none.
    throttles: tuple[int, ...] = ()


#: Chain, offered rate [Mpps] -> need.
Table = Callable[[RatedChain, float], Need]
#: Chain -> node of each of its stages.
Nodes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Node:
    """One NUMA node: its free cores, cache ways and memory bandwidth [%]."""

    cores: int
    ways: int
    memory_percent: float = 100.0

    def holds(self, need: Need) -> bool:
        """Return whether a node has enough free resources for a chain."""
        return need.cores <= self.cores and need.ways <= self.ways and need.memory_percent <= self.memory_percent

    def less(self, need: Need) -> "Node":
        """Return what remains of the node when a chain has taken its resources."""
        left = max(self.memory_percent - need.memory_percent, 0.0)
        return Node(self.cores - need.cores, max(self.ways - need.ways, 0), left)


def socket_of(node: int, nic_socket: int) -> int:
    """Return a node's socket; node 0 is that of the NIC, the others follow in order."""
    return nic_socket if node == 0 else node - (node <= nic_socket)


def cores_on(nodes: Sequence[int], nic_socket: int, used: Counter[int]) -> list[tuple[int, int]]:
    """Return socket and core of each stage, and count them in `used`; cores are assigned from 0 upwards."""
    cores = []
    for node in nodes:
        socket = socket_of(node, nic_socket)
        cores.append((socket, used[socket]))
        used[socket] += 1
    return cores


def seated(cores: Mapping[str, int], nodes: Mapping[str, int], cores_of: Mapping[int, Sequence[int]]) -> dict[str, int]:
    """Return a core of its own for each tenant on its node: its present one, or else the first free one there.

    >>> seated({"nat": 0, "fw": 1, "ids": 2}, {"nat": 1, "fw": 0, "ids": 1}, {0: (0, 1), 1: (2, 3)})
    {'nat': 3, 'fw': 1, 'ids': 2}
    """
    taken: dict[str, int] = {}
    for name, core in cores.items():
        if core in cores_of[nodes[name]] and core not in taken.values():
            taken[name] = core
    for name in cores:
        if name not in taken:
            taken[name] = next(core for core in cores_of[nodes[name]] if core not in taken.values())
    return {name: taken[name] for name in cores}


def crossings(seats: Sequence[int]) -> int:
    """Return how often a packet crosses nodes on its way from the NIC (node 0) through all stages and back."""
    return sum(here != there for here, there in pairwise((0, *seats, 0)))


def handover_keeps(seats: Sequence[int]) -> float:
    """Return the share of its throughput, 0 to 1, that a chain keeps although packets cross nodes.

    NUMASFP measured a chain of three (monitor, router, forwarder) on OpenNetVM: all remote, 22 % less; the middle one
    local, 52 % less. From the NIC and back these are two and four crossings. Six and more are extrapolated.
    """
    pairs = crossings(seats) // 2
    measured = (1.0, 0.78, 0.48)
    return measured[pairs] if pairs < len(measured) else float(0.48 * (0.48 / 0.78) ** (pairs - 2))


def migrations(before: Nodes, after: Nodes) -> int:
    """Return the number of stages that changed nodes."""
    return sum(x != y for name in after if name in before for x, y in zip(before[name], after[name], strict=True))


def by_rate(chains: Sequence[RatedChain], interval: int) -> list[RatedChain]:
    """Return the chains in order of rate, the fastest first."""
    return sorted(chains, key=lambda item: (-item.offered_mpps(interval), item.request.id))


def filled(chains: Sequence[RatedChain], nodes: Sequence[Node], *, whole: bool = False) -> dict[str, tuple[int, ...]]:
    """Fill nodes in order; if `whole`, a chain that does not fit on a node goes to the next with room for all of it."""
    free = [node.cores for node in nodes]
    seating: dict[str, tuple[int, ...]] = {}
    for item in chains:
        stages, seats = len(item.request.chain), list[int]()
        fitting = next((i for i, cores in enumerate(free) if cores >= stages), None) if whole else None
        for _ in range(stages):
            node = next(i for i, cores in enumerate(free) if cores > 0) if fitting is None else fitting
            free[node] -= 1
            seats.append(node)
        seating[item.request.id] = tuple(seats)
    return seating


def most_free(stages: int, free: list[int]) -> tuple[int, ...]:
    """Take cores on the node with most free cores; use several nodes only if no node has room for all stages."""
    seats: list[int] = []
    for node in sorted(range(len(free)), key=lambda i: (-free[i], i)):
        taken = min(free[node], stages - len(seats))
        free[node] -= taken
        seats += [node] * taken
    return tuple(sorted(seats))
