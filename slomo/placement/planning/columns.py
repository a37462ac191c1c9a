"""Plan by column generation: choose how many sockets run each mix; gives a proven lower bound on sockets.

Gilmore and Gomory (Operations Research 9, 1961): a column is a mix that fits one socket. The linear master problem says
how often each is used, and its dual prices lead to better mixes until there are none. Its optimum is a lower bound for
every plan; if time runs out, Farley's bound (Operations Research 38, 1990) replaces it.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slomo.extras import need
from slomo.placement.feasibility.mixes import Signature
from slomo.vocabulary.vector import Floats

Counts = NDArray[np.int64]
#: Relative margin by which a column's value must exceed its cost to be added.
_IMPROVES = 1e-7
#: Generation stops if optimum and bound differ by less than this share.
_CLOSE = 2e-4
#: With more columns, those with the highest reduced cost are dropped; they return if prices change.
_MOST_COLUMNS = 1500


@dataclass(frozen=True)
class Column:
    """One mix, and how many requests of each class it serves, shape ``(classes,)``."""

    signature: Signature
    serves: tuple[int, ...]


class Pricing(Protocol):
    """Finds mixes that can improve the plan (the pricing problem of column generation)."""

    def __call__(self, prices: Floats) -> tuple[list[Column], float]:
        """Return mixes that may improve the plan at these prices of requests, and a bound on any mix's value."""
        ...

    def fill(self, prices: Floats, left: Counts) -> Column | None:
        """Return the most valuable mix of the requests that are left; None if no mix serves any of them."""
        ...


@dataclass(frozen=True)
class Either:
    """Finds mixes that improve the plan, by one method for each sort of mix (shared cache, own ways, ...)."""

    #: One for each sort.
    pricings: tuple[Pricing, ...]

    def __call__(self, prices: Floats) -> tuple[list[Column], float]:
        """Return improving mixes of every sort, and an upper bound on any mix's value."""
        priced = [pricing(prices) for pricing in self.pricings]
        return [column for columns, _ in priced for column in columns], max(best for _, best in priced)

    def fill(self, prices: Floats, left: Counts) -> Column | None:
        """Return the most valuable mix, of any sort, of the requests that are left."""
        filled = [column for pricing in self.pricings if (column := pricing.fill(prices, left)) is not None]
        return max(filled, key=lambda column: float(prices @ np.array(column.serves)), default=None)


@dataclass(frozen=True)
class Relaxed:
    """The plan if sockets could be used in fractions: mixes, how often each is used, prices, lower bound."""

    columns: list[Column]
    usage: Floats
    prices: Floats
    bound: float


def relaxed(demand: Floats, columns: dict[Signature, Column], pricing: Pricing | None, deadline: float) -> Relaxed:
    """Return the best plan with fractions of sockets, as far as the time limit allows.

    Without pricing, a column that serves more of a class than the demand counts as serving the demand, which tightens
    the relaxation. Pricing does not know of that, so Farley's bound would not hold.
    """
    bound = 0.0
    while True:
        chosen = list(columns.values())
        serves = served(chosen).astype(np.float64).T
        serves = np.minimum(serves, demand[:, np.newaxis]) if pricing is None else serves
        value, usage, prices = linear_plan(np.ones(len(chosen)), serves, demand)
        if pricing is None:
            return Relaxed(chosen, usage, prices, value)
        priced, best = pricing(prices)
        bound = max(bound, float(prices @ demand) / max(best, 1.0))
        fresh = {column.signature: column for column in priced if column.signature not in columns}
        close = math.ceil(bound - 1e-6) >= math.ceil(value - 1e-6) or value - bound < _CLOSE * value
        if best <= 1.0 + _IMPROVES or not fresh or close or time.perf_counter() > deadline:
            return Relaxed(chosen, usage, prices, bound)
        columns = (_kept(chosen, usage, prices) if len(columns) > _MOST_COLUMNS else columns) | fresh


def linear_plan(
    cost: Floats, serves: Floats, demand: Floats, uses: Floats | None = None, supply: Floats | None = None
) -> tuple[float, Floats, Floats]:
    """Return the cheapest plan with fractions of columns: its cost, uses of each column, price of each limit.

    `serves` has shape (classes, columns); `uses` (kinds of sockets, columns) and `supply` limit the sockets of each
    kind. Prices are those of the classes, then those of the kinds.
    """
    need("scipy")
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    table = -serves if uses is None else np.vstack([-serves, uses])
    limits = -demand if supply is None else np.concatenate([-demand, supply])
    solved = linprog(cost, A_ub=csc_array(table), b_ub=limits, method="highs")
    assert solved.status == 0, f"BUG: the columns given do not serve every class: {solved.message}"
    return float(solved.fun), np.asarray(solved.x), -np.asarray(solved.ineqlin.marginals)


def whole_numbers(
    cost: Floats,
    serves: Floats,
    demand: Floats,
    uses: Floats | None = None,
    supply: Floats | None = None,
    *,
    gap: float,
    **limit: float,
) -> Counts | None:
    """Return how often each column is used, as integers within a relative gap; None if none are found in time.

    `limit` is `time_limit` [s], or `node_limit`, under which a loaded machine finds the same numbers as an idle one.
    """
    need("scipy")
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    limits = [LinearConstraint(csc_array(serves), lb=demand)]
    if uses is not None:
        limits.append(LinearConstraint(csc_array(uses), ub=supply))
    solved = milp(
        cost,
        constraints=limits,
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(cost)),
        options={"mip_rel_gap": gap, **limit},
    )
    return None if solved.x is None else np.round(solved.x).astype(np.int64)


def served(columns: Sequence[Column]) -> Counts:
    """Return how many requests of each class each mix serves, shape ``(columns, classes)``."""
    return np.array([column.serves for column in columns], dtype=np.int64)


def _kept(columns: Sequence[Column], usage: Floats, prices: Floats) -> dict[Signature, Column]:
    """Return the mixes in use, and the better half of the others."""
    reduced = 1.0 - served(columns) @ prices
    order = np.argsort(np.where(usage > 1e-9, -1.0, reduced), kind="stable")[: _MOST_COLUMNS // 2]
    used = np.flatnonzero(usage > 1e-9)
    return {columns[i].signature: columns[i] for i in sorted({*order.tolist(), *used.tolist()})}
