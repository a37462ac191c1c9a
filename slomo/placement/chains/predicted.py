"""`slomo-numa`: assign whole chains to nodes so that predicted throughput is highest.

NUMASFP (COMSNETS'22) formulates this search and solves it by rates. Here every node is predicted as a whole, all stages
at their fixed point under their loads (beyond SLOMO, SIGCOMM'20), and the cost of crossing nodes comes from
measurements.

Run only for the first interval, it is `octans-predicted`: Octans (TPDS'21), too, chooses nodes by predicted drops and
keeps them. Its own model of the drops is not rebuilt; these predictions replace it.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from slomo.compose.ports import port_shares_mpps
from slomo.errors import InvalidValueError
from slomo.models.nf_model import NFModel
from slomo.placement.chains.nodes import Node, Nodes, by_rate, filled, migrations, most_free
from slomo.placement.chains.policies import Estimate, Judges, Keeps, Mix
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.prediction.batch import predict_places
from slomo.prediction.options import PredictionOptions
from slomo.prediction.tenants import TenantModel

#: The node of each stage of each chain.
Choice = tuple[tuple[int, ...], ...]
#: Choices -> value of each; higher is better.
Worth = Callable[[Sequence[Choice]], Sequence[float]]
#: Largest number of assignments of whole chains that are all evaluated.
MOST_WAYS = 1024
#: Largest number of steps of one local search.
MOST_STEPS = 40


def best_nodes(
    chains: Sequence[RatedChain],
    interval: int,
    nodes: Sequence[Node],
    judges: Judges,
    before: Nodes | None = None,
) -> dict[str, tuple[int, ...]]:
    """Choose the nodes with the highest predicted total throughput; among equal choices, the one with fewest moves.

    Chains stay whole if possible; else one of them is split. The cost of a move is subtracted from the throughput. Up
    to 1024 assignments are all evaluated. For more, a local search takes single moves and exchanges, starting from the
    previous assignment, from fastest-first and from an even division (:func:`climbed`).

    The first node is the NIC's. By default, chains keep all their throughput across nodes and lose nothing by
    moves.
    """
    if judges.estimate is None:
        raise InvalidValueError("policy 'slomo-numa' has no predictions", hint="give trained models")
    estimate, was = judges.estimate, before or {}

    def named(choice: Choice) -> dict[str, tuple[int, ...]]:
        return {item.request.id: seats for item, seats in zip(chains, choice, strict=True)}

    def lost_mpps(choice: Choice) -> float:
        homes = [was.get(item.request.id, seats) for item, seats in zip(chains, choice, strict=True)]
        moved = [each for each in zip(chains, homes, choice, strict=True) if each[1] != each[2]]
        return sum(item.offered_mpps(interval) * judges.moving(item, home, seats) for item, home, seats in moved)

    def worth(choices: Sequence[Choice]) -> list[float]:  # throughput less what moves cost, then fewer moves
        served = served_at(chains, interval, choices, estimate, judges.keeps, judges.wire_gbps)
        pairs = zip(served, choices, strict=True)
        return [round(mpps - lost_mpps(each), 6) - 1e-9 * migrations(was, named(each)) for mpps, each in pairs]

    if len(nodes) ** len(chains) > MOST_WAYS:
        return named(climbed(_starts(chains, interval, nodes, before), nodes, worth))
    choices = every_choice([len(item.request.chain) for item in chains], nodes)
    if not choices:
        return filled(by_rate(chains, interval), nodes)
    values = worth(choices)
    return named(choices[max(range(len(choices)), key=lambda number: values[number])])


def _starts(chains: Sequence[RatedChain], interval: int, nodes: Sequence[Node], before: Nodes | None) -> list[Choice]:
    names, free = [item.request.id for item in chains], [node.cores for node in nodes]
    fastest = filled(by_rate(chains, interval), nodes, whole=True)
    even = {item.request.id: most_free(len(item.request.chain), free) for item in by_rate(chains, interval)}
    standing = [before] if before is not None and all(name in before for name in names) else []
    return [tuple(seats[name] for name in names) for seats in (*standing, fastest, even)]


def served_at(
    chains: Sequence[RatedChain],
    interval: int,
    choices: Sequence[Choice],
    estimate: Estimate,
    keeps: Keeps,
    wire_gbps: float = math.inf,
) -> list[float]:
    """Return the predicted total throughput of each assignment [Mpps], predicted in one batch.

    A chain is offered what it gets of the ports, which all share max-min fair (`wire_gbps`).
    """
    offered: Sequence[float] = [chain.offered_mpps(interval) for chain in chains]
    if math.isfinite(wire_gbps):
        frames_b = [chain.request.chain[0].traffic.packet_size_b for chain in chains]
        offered = port_shares_mpps(frames_b, offered, wire_gbps)
    mix_numbers: dict[Mix, int] = {}
    needed: list[list[tuple[int, list[int]]]] = []
    for choice in choices:
        needed.append([])
        for node in sorted({at for seats in choice for at in seats}):
            owners, stages = [], []
            for owner, (chain, seats) in enumerate(zip(chains, choice, strict=True)):
                for workload, at in zip(chain.request.chain, seats, strict=True):
                    if at == node:  # what hand-overs cost makes a chain work as if it were offered as much more
                        owners.append(owner)
                        stages.append((workload.key, round(offered[owner] / keeps(chain, seats), 4)))
            needed[-1].append((mix_numbers.setdefault((node, tuple(stages)), len(mix_numbers)), owners))
    rates = estimate(list(mix_numbers))
    totals = []
    for choice, parts in zip(choices, needed, strict=True):
        slowest = [float("inf")] * len(chains)
        for number, owners in parts:
            for owner, rate in zip(owners, rates[number], strict=True):
                slowest[owner] = min(slowest[owner], rate)
        rows = zip(chains, offered, slowest, choice, strict=True)
        totals.append(sum(min(most, rate * keeps(chain, seats)) for chain, most, rate, seats in rows))
    return totals


def node_rates(estimates: ThroughputEstimates, machine: str) -> Estimate:
    """Return a function that predicts nodes as if the NIC were on each; at full load where part load is unknown."""

    def rates(mixes: Sequence[Mix]) -> list[list[float]]:
        names = {key for _, stages in mixes for key, _ in stages}
        models = {key: estimates.library[machine, key] for key in names if (machine, key) in estimates.library}
        if len(models) == len(names) and all(model.response is not None for model in models.values()):
            return _under_loads(models, machine, mixes)
        keys = [tuple(key for key, _ in stages) for _, stages in mixes]
        solved = estimates.rates(machine, keys)
        return [[rate[key][0] for key in mix] for mix, rate in zip(keys, solved, strict=True)]

    return rates


def _under_loads(models: Mapping[str, NFModel], machine: str, mixes: Sequence[Mix]) -> list[list[float]]:
    """Predict the throughput on every node under the chains' loads."""
    kinds = sorted({stage for _, stages in mixes for stage in stages})
    number = {stage: code for code, stage in enumerate(kinds)}
    tenants = [TenantModel(models[key].workload, models[key], mpps) for key, mpps in kinds]
    members = np.full((len(mixes), max(len(stages) for _, stages in mixes)), -1, dtype=np.int64)
    for row, (_, stages) in enumerate(mixes):
        members[row, : len(stages)] = sorted(number[stage] for stage in stages)
    served = predict_places(tenants, members, machine, PredictionOptions(method="equilibrium")).mpps
    rates = [dict(zip(row, mpps, strict=True)) for row, mpps in zip(members.tolist(), served.tolist(), strict=True)]
    return [[rate[number[stage]] for stage in stages] for rate, (_, stages) in zip(rates, mixes, strict=True)]


def every_choice(lengths: Sequence[int], nodes: Sequence[Node]) -> list[Choice]:
    """Return all assignments that put whole chains on nodes; if none fits, those that split one chain once."""
    whole = [[(node,) * length for node in range(len(nodes))] for length in lengths]
    fitting = [choice for choice in itertools.product(*whole) if fits(choice, nodes)]
    return fitting or list(_splitting(whole, lengths, nodes))


def _splitting(
    whole: Sequence[Sequence[tuple[int, ...]]], lengths: Sequence[int], nodes: Sequence[Node]
) -> Iterator[Choice]:
    for place, length in enumerate(lengths):
        cut = [
            (first,) * at + (second,) * (length - at)
            for at in range(1, length)
            for first, second in itertools.permutations(range(len(nodes)), 2)
        ]
        choices = itertools.product(*whole[:place], cut, *whole[place + 1 :])
        yield from (choice for choice in choices if fits(choice, nodes))


def fits(choice: Choice, nodes: Sequence[Node]) -> bool:
    """Return whether an assignment gives every stage a core."""
    return all(sum(seats.count(number) for seats in choice) <= node.cores for number, node in enumerate(nodes))


def climbed(starts: Sequence[Choice], nodes: Sequence[Node], worth: Worth) -> Choice:
    """Return the best assignment of a local search, which moves or exchanges chains as long as that helps.

    The search starts at each of `starts` and ends when no step improves, after at most `MOST_STEPS`. With n stages on
    two nodes a step evaluates up to n + n * n / 4 neighbours.

    All `starts` must fit; the first wins among equals.
    """
    ends = [_climb(start, nodes, worth) for start in dict.fromkeys(starts)]
    return max(ends, key=lambda end: end[1])[0]


def _climb(here: Choice, nodes: Sequence[Node], worth: Worth) -> tuple[Choice, float]:
    """Return the assignment at which a local search ends, and its value."""
    value = worth([here])[0]
    for _ in range(MOST_STEPS):
        near = [choice for choice in dict.fromkeys(_near(here, len(nodes))) if fits(choice, nodes)]
        values = worth(near) if near else []
        best = max(range(len(near)), key=lambda place: values[place], default=-1)
        if best < 0 or values[best] <= value:
            break
        here, value = near[best], values[best]
    return here, value


def _near(choice: Choice, nodes: int) -> Iterator[Choice]:
    """Yield assignments that differ by moving one whole chain, or by exchanging two chains of equal length."""
    for place, seats in enumerate(choice):
        for node in range(nodes):
            if seats != (node,) * len(seats):
                yield (*choice[:place], (node,) * len(seats), *choice[place + 1 :])
    for one, other in itertools.combinations(range(len(choice)), 2):
        if choice[one] != choice[other] and len(choice[one]) == len(choice[other]):
            swapped = list(choice)
            swapped[one], swapped[other] = choice[other], choice[one]
            yield tuple(swapped)
