"""Plan over several kinds of servers at once, at the lowest total cost.

Gilmore and Gomory's master problem (Operations Research 9, 1961) with a cost and a limited supply of each kind; a
kind's mixes are priced with both. An integer program over all examined mixes gives whole numbers. The result does not
depend on the order of servers, since kinds are sorted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Host, Signature
from slomo.placement.planning.columns import Column, Pricing, linear_plan, served, whole_numbers
from slomo.vocabulary.vector import Floats

#: Cost of an unserved request, in units of the most expensive server.
_UNSERVED = 1000.0
#: Largest numbers of pricing rounds, and of mixes in the integer program.
_MOST_ROUNDS, _MOST_CHOICES = 60, 3000
#: Time limit [s], and its share for pricing; the rest is for the integer program. Relative gap at which the solver may
#: stop.
_LIMIT_S, _PRICING_SHARE, _GAP = 10.0, 0.4, 2e-3


@dataclass(frozen=True)
class SocketKind:
    """A kind of socket: how many there are, and the mixes that fit on one."""

    #: The kind.
    host: Host
    #: Empty sockets of it.
    supply: int
    #: Index of each of its request classes among all classes.
    classes: tuple[int, ...]
    #: Initial mixes, over its own classes.
    start: Sequence[Column]
    #: Finds more.
    pricing: Pricing | None = None


@dataclass(frozen=True)
class KindsPlan:
    """How many sockets of each kind run each mix, and the total cost."""

    sockets: tuple[Mapping[Signature, int], ...]
    cost: float


#: Columns by number of their kind and signature.
_Columns = dict[tuple[int, Signature], Column]


def cover_kinds(demand: Sequence[int], kinds: Sequence[SocketKind]) -> KindsPlan:
    """Serve as many requests as possible (`demand` by class) at the lowest cost."""
    begun = time.perf_counter()
    needed, supply = np.array(demand, dtype=np.float64), np.array([float(kind.supply) for kind in kinds])
    columns: _Columns = {
        (number, column.signature): column for number, kind in enumerate(kinds) for column in kind.start
    }
    for _ in range(_MOST_ROUNDS):
        _, cost, serves, uses = _program(len(needed), kinds, columns)
        prices = linear_plan(cost, serves, needed, uses, supply)[2]
        fresh: _Columns = {}
        for number, kind in enumerate(kinds):
            if kind.pricing is not None and kind.supply:
                worth = kind.host.cost + max(prices[len(needed) + number], 0.0)
                priced, _ = kind.pricing(prices[list(kind.classes)] / worth)
                fresh |= {key: each for each in priced if (key := (number, each.signature)) not in columns}
        columns |= fresh
        if not fresh or time.perf_counter() - begun > _PRICING_SHARE * _LIMIT_S:
            break
    listed, cost, serves, uses = _program(len(needed), kinds, columns)
    if len(listed) > _MOST_CHOICES:
        prices = linear_plan(cost, serves, needed, uses, supply)[2]
        reduced = (cost - prices @ np.vstack([serves, -uses]))[: len(listed)]
        best = sorted(np.argsort(reduced, kind="stable")[:_MOST_CHOICES].tolist())
        listed, cost, serves, uses = _program(len(needed), kinds, {listed[at]: columns[listed[at]] for at in best})
    left_s = max(_LIMIT_S - (time.perf_counter() - begun), 1.0)
    counts = whole_numbers(cost, serves, needed, uses, supply, time_limit=left_s, gap=_GAP)
    if counts is None:
        return KindsPlan(tuple({} for _ in kinds), float("inf"))
    plans: tuple[dict[Signature, int], ...] = tuple({} for _ in kinds)
    for (number, signature), count in zip(listed, counts.tolist(), strict=False):
        if count:
            plans[number][signature] = count
    return KindsPlan(plans, float(cost @ counts))


def _program(
    classes: int, kinds: Sequence[SocketKind], columns: Mapping[tuple[int, Signature], Column]
) -> tuple[list[tuple[int, Signature]], Floats, Floats, Floats]:
    """Return the arrays of the linear program: columns, costs, requests served, sockets used."""
    listed = sorted(columns, key=lambda key: key[0])
    serves, uses = np.zeros((classes, len(listed))), np.zeros((len(kinds), len(listed)))
    for number, kind in enumerate(kinds):
        mine = [at for at, (owner, _) in enumerate(listed) if owner == number]
        uses[number, mine] = 1.0
        if mine:
            serves[np.ix_(kind.classes, mine)] = served([columns[listed[at]] for at in mine]).T
    dearest = _UNSERVED * max(kind.host.cost for kind in kinds)
    cost = np.array([kinds[owner].host.cost for owner, _ in listed] + [dearest] * classes)
    return listed, cost, np.hstack([serves, np.eye(classes)]), np.hstack([uses, np.zeros((len(kinds), classes))])
