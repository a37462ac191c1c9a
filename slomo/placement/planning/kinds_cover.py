"""One plan over several kinds of servers: mixes on each kind, at the lowest total cost.

Gilmore and Gomory's master problem (Operations Research 9, 1961) with a cost and a limited supply of each kind; a
kind's mixes are priced with both. An integer program over all examined mixes gives whole numbers. The result does not
depend on the order of servers, since kinds are sorted.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.extras import need
from slomo.placement.feasibility.mixes import Host, Signature
from slomo.placement.planning.columns import Column, Pricing, served
from slomo.vocabulary.vector import Floats

#: Cost of an unserved request, in units of the most expensive server.
_UNSERVED = 1000.0
#: Largest numbers of pricing rounds, and of mixes in the integer program.
_MOST_ROUNDS, _MOST_CHOICES = 60, 3000
#: Share of the time for pricing; the rest is for the integer program. Relative gap at which the solver may stop.
_PRICING_SHARE, _GAP = 0.4, 2e-3


@dataclass(frozen=True)
class SocketKind:
    """A kind of socket, their number, and the mixes that fit one."""

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
    """Number of sockets of each kind with each mix, the cost, and the cost of the fractional optimum."""

    sockets: tuple[Mapping[Signature, int], ...]
    cost: float
    bound: float


def cover_kinds(demand: Sequence[int], kinds: Sequence[SocketKind], time_limit_s: float = 10.0) -> KindsPlan:
    """Serve as much of a demand as fits, at the lowest cost.

    Examples
    --------
    >>> small, large = Host("s", 1, 1, 1.0), Host("l", 4, 1, 2.0)
    >>> kinds = [SocketKind(small, 9, (0,), [Column((0,), (1,))]), SocketKind(large, 1, (0,), [Column((0,) * 4, (4,))])]
    >>> cover_kinds([5], kinds).sockets
    ({(0,): 1}, {(0, 0, 0, 0): 1})
    """
    begun = time.perf_counter()
    demanded = np.array(demand, dtype=np.float64)
    columns: list[dict[Signature, Column]] = [{column.signature: column for column in kind.start} for kind in kinds]
    bound = 0.0
    for _ in range(_MOST_ROUNDS):
        bound, prices, supply_prices = _master(demanded, kinds, columns)
        fresh = 0
        for number, kind in enumerate(kinds):
            if kind.pricing is None or not kind.supply:
                continue
            cost = kind.host.cost + supply_prices[number]
            priced, _ = kind.pricing(prices[list(kind.classes)] / cost)
            new = {column.signature: column for column in priced if column.signature not in columns[number]}
            columns[number] |= new
            fresh += len(new)
        if not fresh or time.perf_counter() - begun > _PRICING_SHARE * time_limit_s:
            break
    left = max(time_limit_s - (time.perf_counter() - begun), 1.0)
    return _whole(demanded, kinds, columns, (bound, left))


def _flat(kinds: Sequence[SocketKind], columns: Sequence[Mapping[Signature, Column]]) -> list[tuple[int, Column]]:
    return [(number, column) for number in range(len(kinds)) for column in columns[number].values()]


def _program(
    demanded: Floats, kinds: Sequence[SocketKind], flat: Sequence[tuple[int, Column]]
) -> tuple[Floats, Floats, Floats]:
    """Return costs, coverage (classes x columns), and use of supply (kinds x columns); unserved classes last."""
    serves = np.zeros((len(demanded), len(flat)))
    for number, kind in enumerate(kinds):
        mine = [at for at, (owner, _) in enumerate(flat) if owner == number]
        if mine:
            serves[np.ix_(kind.classes, mine)] = served([flat[at][1] for at in mine]).T
    uses = np.zeros((len(kinds), len(flat)))
    uses[[owner for owner, _ in flat], range(len(flat))] = 1.0
    dearest = _UNSERVED * max(kind.host.cost for kind in kinds)
    cost = np.array([kinds[owner].host.cost for owner, _ in flat] + [dearest] * len(demanded))
    none = np.zeros((len(kinds), len(demanded)))
    return cost, np.hstack([serves, np.eye(len(demanded))]), np.hstack([uses, none])


def _master(
    demanded: Floats, kinds: Sequence[SocketKind], columns: Sequence[Mapping[Signature, Column]]
) -> tuple[float, Floats, Floats]:
    """Solve the linear problem; return its optimum, the price of each class, and the price of each kind of socket."""
    need("scipy")
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    cost, serves, uses = _program(demanded, kinds, _flat(kinds, columns))
    limits = np.concatenate([-demanded, [float(kind.supply) for kind in kinds]])
    solved = linprog(cost, A_ub=csc_array(np.vstack([-serves, uses])), b_ub=limits, method="highs")
    assert solved.status == 0, f"BUG: what is not served has its price, so there is an optimum: {solved.message}"
    marginals = -np.asarray(solved.ineqlin.marginals)
    return float(solved.fun), marginals[: len(demanded)], np.maximum(marginals[len(demanded) :], 0.0)


def _whole(
    demanded: Floats,
    kinds: Sequence[SocketKind],
    columns: Sequence[Mapping[Signature, Column]],
    bound_and_limit_s: tuple[float, float],
) -> KindsPlan:
    """Return the best whole numbers of mixes found in time."""
    need("scipy")
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    bound, time_limit_s = bound_and_limit_s
    flat = _flat(kinds, columns)
    if len(flat) > _MOST_CHOICES:
        _, prices, supply_prices = _master(demanded, kinds, columns)
        reduced = [
            kinds[owner].host.cost + supply_prices[owner]
            - float(prices[list(kinds[owner].classes)] @ np.array(column.serves))
            for owner, column in flat
        ]  # fmt: skip
        flat = [flat[at] for at in sorted(np.argsort(reduced, kind="stable")[:_MOST_CHOICES].tolist())]
    cost, serves, uses = _program(demanded, kinds, flat)
    supply = np.array([float(kind.supply) for kind in kinds])
    solved = milp(
        cost,
        constraints=[LinearConstraint(csc_array(serves), lb=demanded), LinearConstraint(csc_array(uses), ub=supply)],
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(cost)),
        options={"time_limit": time_limit_s, "mip_rel_gap": _GAP},
    )
    if solved.x is None:
        return KindsPlan(tuple({} for _ in kinds), float("inf"), bound)
    plans = [Counter[Signature]() for _ in kinds]
    for (owner, column), count in zip(flat, np.round(solved.x[: len(flat)]).astype(int).tolist(), strict=True):
        if count:
            plans[owner][column.signature] += count
    return KindsPlan(tuple(dict(plan) for plan in plans), float(solved.fun), bound)
