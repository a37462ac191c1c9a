"""Put running and new requests on the fewest sockets that a limited number of moves allows.

What a socket holds may stay there; every piece that comes to it counts. The master problem of Gilmore and Gomory
(Operations Research 9, 1961) gets a limit on the sockets of each present content, and one on all pieces that come. Its
prices find the mix that a socket of each content should become; an integer program over all such changes gives whole
sockets. The prices also bound what any plan with so many moves can reach (Lagrange). Work is limited, not time, so that
a loaded machine makes the same plan as an idle one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slomo.placement.planning.columns import Counts, linear_plan, whole_numbers
from slomo.placement.planning.shared_pricing import SharedPricing
from slomo.vocabulary.vector import Floats

#: How many pieces of each class a socket holds.
Content = tuple[int, ...]
#: Numbers of pricing rounds, of mixes of one content added in each, and of rounds with other prices afterwards.
_MOST_ROUNDS, _MIXES_PER_ROUND, _OTHER_PRICES = 40, 6, 8
#: Cost of an unserved request, and of a piece that comes, in sockets: of plans with equal sockets, few moves are best.
_UNSERVED, _LITTLE = 1000.0, 1e-4
#: Relative gap at which the integer program may stop, number of its nodes, and of pricings of contents over all rounds.
_GAP, _MOST_NODES, _MOST_PRICINGS = 1e-6, 1000, 10_000


@dataclass(frozen=True)
class Refilling:
    """Planned change of what each socket runs."""

    #: Content before and after, and number of sockets; empty sockets come from `(0, ..., 0)`.
    changes: tuple[tuple[Content, Content, int], ...]
    #: No plan with so many moves takes fewer sockets, for mixes of which every part holds.
    lower_bound: int


def refilled(
    present: Mapping[Content, int],
    empty: int,
    demand: Counts,
    coming: int,
    pricing: SharedPricing,
    *,
    cost_per_move: float = 0.0,
) -> Refilling | None:
    """Plan what each socket shall run so that the fewest sockets serve all requests; None if none can.

    `present`: content -> sockets in use that hold it. `empty`: sockets that hold nothing. `demand`, shape (classes,):
    pieces of each class: those that run, and newcomers. `coming`: pieces that may come to a socket: newcomers and
    moves. `pricing`: of every class twice: pieces that stay, then pieces that come. `cost_per_move`: what a move costs,
    in sockets.
    """
    classes = len(demand)
    contents = [*present, (0,) * classes]
    supply = np.array([*present.values(), empty, coming], dtype=np.float64)
    changes = dict.fromkeys((number, content) for number, content in enumerate(contents[:-1]))
    alone = np.eye(classes, dtype=np.int64).tolist()
    changes |= dict.fromkeys((len(present), tuple(each)) for each in alone)
    bound = 0.0
    for _ in range(min(_MOST_ROUNDS, _MOST_PRICINGS // len(contents) + 1)):
        program = _program(contents, list(changes), classes)
        value, _, prices = linear_plan(*program[:2], demand.astype(np.float64), program[2], supply)
        worth, rent, each = prices[:classes], prices[classes:-1], prices[-1]
        reached, fresh = float(worth @ demand - each * coming), 0
        for number, content in enumerate(contents):
            mixes = _best(pricing, content, demand, worth, each)
            reached += supply[number] * min(1.0 - max((gain for gain, _ in mixes), default=0.0), 0.0)
            for gain, after in mixes:
                if gain > 1.0 + rent[number] + 1e-7 and (number, after) not in changes:
                    changes[number, after] = None
                    fresh += 1
        bound = max(bound, reached)
        if not fresh or value - bound < 1e-3:
            break
    generator = np.random.default_rng(0)
    for _ in range(_OTHER_PRICES):  # whole sockets need mixes that fractions do not
        others = worth * generator.uniform(0.7, 1.3, classes)
        for number, content in enumerate(contents):
            mixes = _best(pricing, content, demand, others, each)
            changes |= dict.fromkeys((number, after) for gain, after in mixes if gain > rent[number])
    listed = list(changes)
    cost, serves, uses = _program(contents, listed, classes)
    cost[: len(listed)] += max(cost_per_move, _LITTLE) * uses[-1, : len(listed)]
    least = math.ceil(bound - 1e-6)  # the program need not prove that no plan takes fewer sockets
    uses = np.vstack([uses, np.where(np.arange(len(cost)) < len(listed), -1.0, 0.0)])
    counts = whole_numbers(
        cost, serves, demand.astype(np.float64), uses, np.append(supply, -least), gap=_GAP, node_limit=_MOST_NODES
    )
    if counts is None or counts[len(listed) :].any():
        return None
    made = [(contents[number], after, int(count)) for (number, after), count in zip(listed, counts, strict=False)]
    return Refilling(_trimmed([change for change in made if change[2]], demand), least)


def _best(
    pricing: SharedPricing, content: Content, demand: Counts, worth: Floats, each: float
) -> list[tuple[float, Content]]:
    """Return the most valuable mixes to which sockets with one mix can change, with their values."""
    prices, stay = np.concatenate([worth, worth - each]), np.array(content, dtype=np.int64)
    mixes = []
    for column in pricing.best(prices, np.concatenate([stay, demand - stay]), _MIXES_PER_ROUND):
        serves = np.array(column.serves)
        mixes.append((float(prices @ serves), tuple((serves[: len(worth)] + serves[len(worth) :]).tolist())))
    return mixes


def _program(
    contents: list[Content], changes: list[tuple[int, Content]], classes: int
) -> tuple[Floats, Floats, Floats]:
    """Return the arrays of the linear program: costs, requests served, sockets used."""
    owner = np.array([number for number, _ in changes])
    after = np.array([mix for _, mix in changes], dtype=np.float64)
    uses = np.zeros((len(contents) + 1, len(changes) + classes))
    uses[owner, np.arange(len(changes))] = 1.0
    uses[-1, : len(changes)] = np.maximum(after - np.array(contents)[owner], 0.0).sum(axis=1)
    cost = np.concatenate([np.ones(len(changes)), np.full(classes, _UNSERVED)])
    return cost, np.hstack([after.T, np.eye(classes)]), uses


def _trimmed(changes: list[tuple[Content, Content, int]], demand: Counts) -> tuple[tuple[Content, Content, int], ...]:
    """Remove requests that a plan serves twice, new ones first; return one change per socket."""
    sockets = [(before, np.array(after)) for before, after, count in changes for _ in range(count)]
    surplus = np.sum([after for _, after in sockets], axis=0) - demand
    for at in np.flatnonzero(surplus > 0).tolist():
        for _, after in sorted(sockets, key=lambda socket: min(socket[0][at] - int(socket[1][at]), 0)):
            taken = min(int(surplus[at]), int(after[at]))
            after[at] -= taken
            surplus[at] -= taken
    return tuple((before, tuple(after.tolist()), 1) for before, after in sockets)
