"""`slomo-numa`: of all ways to put whole chains on nodes, the one predicted to serve most at the rates of now.

The search NUMASFP (COMSNETS'22) formulates and solves by rates; here every node is predicted as a whole, all stages at
their fixed point under their loads (beyond SLOMO, SIGCOMM'20), and what a chain loses between nodes is known from
measurements.

Asked once, for the first interval, it is `octans-predicted`: Octans (TPDS'21), too, chooses nodes by what
it predicts chains to lose and keeps them; its own model of that loss is not rebuilt, these predictions stand in for it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from slomo.errors import InvalidValueError
from slomo.placement.chains.judges import Estimate, Judges, Keeps, Mix
from slomo.placement.chains.nodes import Node, Nodes, by_rate, filled, migrations
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.problem.chain import RatedChain
from slomo.prediction.batch import predict_places
from slomo.prediction.manner import Manner
from slomo.prediction.tenants import TenantModel

if TYPE_CHECKING:
    from slomo.models.nf_model import NFModel

_Choice = tuple[tuple[int, ...], ...]
#: More chains on one server than this are too many to try all ways.
MOST_CHAINS = 10


def slomo_numa(
    chains: Sequence[RatedChain],
    interval: int,
    nodes: Sequence[Node],
    judges: Judges,
    before: Nodes | None,
) -> dict[str, tuple[int, ...]]:
    """Choose nodes by the judges' predictions, see :func:`best_nodes`.

    Raises
    ------
    InvalidValueError
        Where there are no predictions.
    """
    if judges.estimate is None:
        raise InvalidValueError("policy 'slomo-numa' has no predictions", hint="give trained models")
    return best_nodes(chains, interval, nodes, judges.estimate, before, judges.keeps)


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
        What the stages of nodes serve beside each other under their loads.
    before : mapping, optional
        Where the chains were.
    keeps : callable, optional
        Share that a chain keeps of its throughput, given its nodes; all by default.

    Raises
    ------
    InvalidValueError
        For more than ten chains on one server.
    """
    if len(chains) > MOST_CHAINS:
        raise InvalidValueError(f"{len(chains)} chains on one server, needed at most {MOST_CHAINS}")
    choices = list(_choices([len(item.request.chain) for item in chains], nodes))
    if not choices:
        return filled(by_rate(chains, interval), nodes)
    served = served_at(chains, interval, choices, estimate, keeps or _all_kept)
    placed = [{item.request.id: seats for item, seats in zip(chains, choice, strict=True)} for choice in choices]
    moved = [migrations(before or {}, each) for each in placed]
    best = max(range(len(choices)), key=lambda number: (round(served[number], 6), -moved[number]))
    return placed[best]


def _all_kept(chain: RatedChain, seats: Sequence[int]) -> float:
    del chain, seats
    return 1.0


def _choices(lengths: Sequence[int], nodes: Sequence[Node]) -> Iterator[_Choice]:
    """Yield the ways to seat chains whole; where there are none, those that split one chain once."""
    numbers = range(len(nodes))
    whole = [[(node,) * length for node in numbers] for length in lengths]
    any_whole = False
    for choice in itertools.product(*whole):
        if _fits(choice, nodes):
            any_whole = True
            yield choice
    if any_whole:
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


def served_at(
    chains: Sequence[RatedChain], interval: int, choices: Sequence[_Choice], estimate: Estimate, keeps: Keeps
) -> list[float]:
    """Return what all chains together are predicted to serve under each choice of nodes [Mpps], in one question."""
    offered = [chain.offered_mpps(interval) for chain in chains]
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
    """Return an estimate from predictions of every node as a whole, each as if it were the NIC's.

    At the fixed point under the loads of now where all models have learned that; else as if all were saturated.

    Parameters
    ----------
    estimates : ThroughputEstimates
        Models.
    machine : str
        Machine type.
    """

    def rates(mixes: Sequence[Mix]) -> list[list[float]]:
        names = {key for _, stages in mixes for key, _ in stages}
        models = {key: estimates.library[machine, key] for key in names if (machine, key) in estimates.library}
        if len(models) == len(names) and all(model.response is not None for model in models.values()):
            return _under_loads(models, machine, mixes)
        keys = [tuple(key for key, _ in stages) for _, stages in mixes]
        solved = estimates.rates(machine, keys)
        return [[rate[key][0] for key in mix] for mix, rate in zip(keys, solved, strict=True)]

    return rates


def _under_loads(models: "Mapping[str, NFModel]", machine: str, mixes: Sequence[Mix]) -> list[list[float]]:
    """Ask about every node at its loads."""
    kinds = sorted({stage for _, stages in mixes for stage in stages})
    number = {stage: code for code, stage in enumerate(kinds)}
    tenants = [TenantModel(models[key].workload, models[key], mpps) for key, mpps in kinds]
    members = np.full((len(mixes), max(len(stages) for _, stages in mixes)), -1, dtype=np.int64)
    for row, (_, stages) in enumerate(mixes):
        members[row, : len(stages)] = sorted(number[stage] for stage in stages)
    served = predict_places(tenants, members, machine, Manner(method="equilibrium")).mpps
    rates = [dict(zip(row, mpps, strict=True)) for row, mpps in zip(members.tolist(), served.tolist(), strict=True)]
    return [[rate[number[stage]] for stage in stages] for rate, (_, stages) in zip(rates, mixes, strict=True)]
