"""Turn a plan with fractions of sockets into one with whole sockets: round down, fill up, solve an integer program.

Belov and Scheithauer's sequential value correction (INFORMS Journal on Computing 19, 2007): each socket takes the most
valuable mix of the remaining demand; classes that end up in poorly filled sockets get a higher value in the next pass.
At the end an integer program over all examined mixes improves the remainder.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Signature
from slomo.placement.planning.columns import Column, Counts, Pricing, Relaxed, served, whole_numbers
from slomo.vocabulary.vector import Floats

#: Number of sockets up to which a plan is made from scratch.
_SMALL = 50
#: Relative gap to the bound at which a plan is good enough.
_GOOD = 5e-4
#: Number of columns in the integer program of the remainder, and its share of the time.
_MOST_CHOICES, _SOLVER_SHARE = 1500, 0.5


class Listed:
    """Finds valuable mixes in a given list."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns, self._serves = columns, served(columns)

    def __call__(self, prices: Floats) -> tuple[list[Column], float]:
        """Return the best mix of the list, and its value."""
        values = self._serves @ prices
        best = int(np.argmax(values))
        return [self._columns[best]], float(values[best])

    def fill(self, prices: Floats, left: Counts) -> Column | None:
        """Return the listed mix that serves most of the requests that are left."""
        values = np.minimum(self._serves, left) @ prices
        best = int(np.argmax(values))
        return self._columns[best] if values[best] > 0.0 else None


def whole_plan(demand: Counts, root: Relaxed, pricing: Pricing, deadline: float) -> dict[Signature, int]:
    """Return how many sockets run each mix, in whole numbers near the fractional plan `root`.

    At least one plan is made before the deadline [s of `time.perf_counter`] counts, and a second is left to the
    solver.
    """
    small = root.usage.sum() <= _SMALL  # then nothing is settled by rounding down
    whole = np.floor(root.usage + 1e-9).astype(np.int64) * (not small)
    rest = np.maximum(demand - whole @ served(root.columns), 0)
    bound = root.bound - 1e-6
    target = max(math.ceil(bound), math.floor(bound * (1.0 + _GOOD))) - int(whole.sum())
    base = Counter({root.columns[i].signature: int(whole[i]) for i in np.flatnonzero(whole).tolist()})
    if rest.any():
        now = time.perf_counter()
        until = now + (1.0 - _SOLVER_SHARE) * (deadline - now)
        filled = fill_by_value(rest, root.prices, pricing, target=target, deadline=until)
        best = filled.best
        if sum(best.values()) > target:
            pool = {column.signature: column for column in (*root.columns, *filled.seen.values())}
            solved = _integer(rest, list(pool.values()), root.prices, max(deadline - time.perf_counter(), 1.0))
            best = solved if solved is not None and sum(solved.values()) < sum(best.values()) else best
        base.update(best)
    return dict(base)


@dataclass
class Filled:
    """The best plan over all passes, and every mix used."""

    #: Number of sockets with each mix.
    best: Counter[Signature]
    #: Mixes used in any pass.
    seen: dict[Signature, Column]


def fill_by_value(
    demand: Counts,
    prices: Floats,
    pricing: Pricing,
    *,
    passes: int = 40,
    target: int = 0,
    deadline: float = math.inf,
) -> Filled:
    """Fill socket after socket with the most valuable mix; correct the values after each pass.

    `prices` are what a request of each class is worth to begin with, as a share of a socket. It ends after some
    passes, at `target` sockets, or with the pass in which the deadline [s of `time.perf_counter`] falls.
    """
    generator = np.random.default_rng(0)
    filled = Filled(Counter(), {})
    price = np.maximum(prices, 1e-6)
    for number in range(passes):
        plan, price = _pass(demand, price, pricing, filled.seen, generator)
        if not filled.best or sum(plan.values()) < sum(filled.best.values()):
            filled.best = plan
        if sum(filled.best.values()) <= target or time.perf_counter() > deadline:
            break
        if number % 8 == 7:  # from afresh, else the prices wander off
            price = np.maximum(prices, 1e-6) * generator.uniform(0.9, 1.1, len(prices))
    return filled


def _pass(
    demand: Counts, price: Floats, pricing: Pricing, seen: dict[Signature, Column], generator: np.random.Generator
) -> tuple[Counter[Signature], Floats]:
    """Fill sockets until all requests are served; return the plan, and corrected values."""
    left, price, plan = demand.copy(), price.copy(), Counter[Signature]()
    while left.any():
        column = pricing.fill(price, left)
        assert column is not None, "BUG: the mixes given do not serve every class"
        seen[column.signature] = column
        serves = np.array(column.serves)
        useful = (serves > 0) & (left > 0)
        times = max(int(np.min(left[useful] // serves[useful])), 1)
        value = float(np.minimum(serves, left) @ price)
        plan[column.signature] += times
        left = np.maximum(left - times * serves, 0)
        share = times * serves / (demand * generator.uniform(1.0, 1.5) + times * serves + 1e-9)
        price *= 1.0 + share * (1.0 / max(value, 0.2) - 1.0)
    return plan, price


def _integer(rest: Counts, columns: Sequence[Column], prices: Floats, time_limit_s: float) -> Counter[Signature] | None:
    """Return the best plan for the remaining requests from given mixes; None if none is found in time."""
    serves = served(columns)
    choice = np.argsort(1.0 - np.minimum(serves, rest) @ prices, kind="stable")[:_MOST_CHOICES]
    chosen = serves[choice].T.astype(np.float64)
    count = whole_numbers(np.ones(len(choice)), chosen, rest.astype(np.float64), time_limit=time_limit_s, gap=1e-4)
    if count is None or (count @ serves[choice] < rest).any():
        return None
    return Counter({columns[choice[i]].signature: int(count[i]) for i in np.flatnonzero(count).tolist()})
