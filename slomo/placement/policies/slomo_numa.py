"""`slomo-numa`: of all ways to put whole chains on nodes, the one predicted to serve most; migrates.

The search NUMASFP (COMSNETS'22) formulates and solves by rates; here each node's mix is predicted as a whole (SLOMO,
SIGCOMM'20), and what a chain loses between nodes is known from measurements.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from slomo.errors import InvalidValueError
from slomo.placement.knowledge import Knowledge
from slomo.placement.nodes import Node, Nodes, by_rate, filled, migrations
from slomo.placement.workloads import RatedChain

#: Node, workload keys of all stages on it -> throughput of each [Mpps].
Estimate = Callable[[int, tuple[str, ...]], Sequence[float]]
#: Nodes of a chain's stages -> share of its throughput that it keeps for hand-overs between nodes.
Keeps = Callable[[Sequence[int]], float]
#: More chains on one server than this are too many to try all ways.
_MOST_CHAINS = 10


def best_nodes(
    chains: Sequence[RatedChain],
    interval: int,
    nodes: Sequence[Node],
    estimate: Estimate,
    before: Nodes | None = None,
    keeps: Keeps | None = None,
) -> dict[str, tuple[int, ...]]:
    """Choose the nodes at which all chains together are predicted to serve most; among equals, fewest stages move.

    Chains stay whole where that is possible; else one of them is split.

    Parameters
    ----------
    chains : sequence of RatedChain
        Chains of this server, ten at most.
    interval : int
        Which interval, from 0.
    nodes : sequence of Node
        The NIC's first.
    estimate : callable
        What the stages of a node serve beside each other.
    before : mapping, optional
        Where the chains were.
    keeps : callable, optional
        Share that a chain keeps of its throughput, given its nodes; all by default.

    Raises
    ------
    InvalidValueError
        For more than ten chains on one server.
    """
    if len(chains) > _MOST_CHAINS:
        raise InvalidValueError(f"{len(chains)} chains on one server, needed at most {_MOST_CHAINS}")
    best: tuple[float, int, dict[str, tuple[int, ...]]] | None = None
    for choice in _choices([len(item.request.chain) for item in chains], nodes):
        placed = {item.request.id: seats for item, seats in zip(chains, choice, strict=True)}
        served = _served(chains, interval, choice, estimate, keeps)
        moved = migrations(before or {}, placed)
        if best is None or (round(served, 6), -moved) > (round(best[0], 6), -best[1]):
            best = (served, moved, placed)
    return filled(by_rate(chains, interval), nodes) if best is None else best[2]


def _choices(lengths: Sequence[int], nodes: Sequence[Node]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the ways to seat chains whole; where there are none, those that split one chain once."""
    numbers = range(len(nodes))
    whole = [[(node,) * length for node in numbers] for length in lengths]
    found = False
    for choice in itertools.product(*whole):
        if _fits(choice, nodes):
            found = True
            yield choice
    if found:
        return
    for place, length in enumerate(lengths):
        cut = [
            (first,) * at + (second,) * (length - at)
            for at in range(1, length)
            for first, second in itertools.permutations(numbers, 2)
        ]
        yield from (
            choice for choice in itertools.product(*whole[:place], cut, *whole[place + 1 :]) if _fits(choice, nodes)
        )


def _fits(choice: Sequence[Sequence[int]], nodes: Sequence[Node]) -> bool:
    return all(sum(seats.count(number) for seats in choice) <= node.cores for number, node in enumerate(nodes))


def _served(
    chains: Sequence[RatedChain],
    interval: int,
    choice: Sequence[tuple[int, ...]],
    estimate: Estimate,
    keeps: Keeps | None,
) -> float:
    slowest = [float("inf")] * len(chains)
    for node in sorted({at for seats in choice for at in seats}):
        stages = [
            (owner, workload.key)
            for owner, (chain, seats) in enumerate(zip(chains, choice, strict=True))
            for workload, at in zip(chain.request.chain, seats, strict=True)
            if at == node
        ]
        for (owner, _), rate in zip(stages, estimate(node, tuple(key for _, key in stages)), strict=True):
            slowest[owner] = min(slowest[owner], rate)
    return sum(
        min(chain.offered_mpps(interval), rate * (1.0 if keeps is None else keeps(seats)))
        for chain, rate, seats in zip(chains, slowest, choice, strict=True)
    )


def node_rates(knowledge: Knowledge, machine: str, remote: Mapping[str, float] | None = None) -> Estimate:
    """Return an estimate from predictions of every node's mix.

    Parameters
    ----------
    knowledge : Knowledge
        Models.
    machine : str
        Machine type.
    remote : mapping of str to float, optional
        Share of its solo throughput that each workload keeps on a node without the NIC; 1 where nothing is said.
    """
    cache: dict[tuple[str, ...], dict[str, float]] = {}

    def rates(node: int, keys: tuple[str, ...]) -> list[float]:
        mix = tuple(sorted(keys))
        if mix not in cache:
            cache[mix] = {key: rate[0] for key, rate in knowledge.rates(machine, [mix])[0].items()}
        kept = (remote or {}) if node else {}
        return [cache[mix][key] * kept.get(key, 1.0) for key in keys]

    return rates
