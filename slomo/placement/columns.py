"""Column generation over socket mixes: a lower bound on sockets that is proven, and a plan close to it.

Gilmore and Gomory (Operations Research 9, 1961): a column is a mix that one socket can hold; the linear master problem
says how often each is used, and its dual prices find better mixes until there are none. Its optimum bounds every plan
from below.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.placement.mixes import Signature

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
#: Given the dual price per class: columns that may improve, and the value of the best (1 or less: none does).
Pricing = Callable[[Floats], tuple[list["Column"], float]]
#: Share by which a column must beat its cost to be worth adding.
_IMPROVES = 1e-7
#: Generating stops where optimum and bound are within this share of each other.
_CLOSE = 2e-4
#: A plan within this share of its bound is good enough.
_GOOD = 5e-4
#: Share of the time limit for the bound; the rest is for whole numbers.
_BOUND_SHARE = 0.65
#: Times prices near the optimum's are tried for columns that rounding may want.
_NEARBY = 60
#: Columns the integer problem of the remainder chooses from.
_MOST_CHOICES = 1500
#: Above this many columns, those that cost most at the present prices are dropped; they come back if prices turn.
_MOST_COLUMNS = 1500


@dataclass(frozen=True)
class Column:
    """One mix: its signature, and how many requests of each class it serves, shape ``(classes,)``."""

    signature: Signature
    serves: tuple[int, ...]


@dataclass(frozen=True)
class MixPlan:
    """A plan and how good it is.

    Attributes
    ----------
    sockets : dict of Signature to int
        How many sockets have which mix.
    lower_bound : int
        No plan can need fewer sockets (where `proven`).
    proven : bool
        Whether every mix that could improve the bound was considered.
    columns, rounds : int
        Mixes considered, and times prices were updated.
    seconds : float
        Time taken [s].
    """

    sockets: dict[Signature, int]
    lower_bound: int
    proven: bool = True
    columns: int = 0
    rounds: int = 0
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """Sockets in use."""
        return sum(self.sockets.values())

    @property
    def gap(self) -> float:
        """Share by which the plan exceeds its bound."""
        return self.count / self.lower_bound - 1.0 if self.lower_bound else 0.0

    @property
    def text(self) -> str:
        """One line for people.

        Examples
        --------
        >>> MixPlan({(0,): 101}, 100).text
        '101 sockets, lower bound 100 (proven), gap 1.00 %'
        """
        said = "proven" if self.proven else "not proven"
        return f"{self.count} sockets, lower bound {self.lower_bound} ({said}), gap {100 * self.gap:.2f} %"


def cover(
    demand: Sequence[int],
    start: Sequence[Column],
    pricing: Pricing | None = None,
    *,
    complete: bool = True,
    time_limit_s: float = 10.0,
) -> MixPlan:
    """Cover a demand with as few columns as possible.

    Parameters
    ----------
    demand : sequence of int
        Requests per class.
    start : sequence of Column
        Columns to begin with; together they serve every class.
    pricing : callable, optional
        Finds columns that improve; without it, `start` is all there is.
    complete : bool
        Whether `start` and `pricing` together consider every mix, so that the bound is proven.
    time_limit_s : float
        For generating columns, rounding included but for its last step [s].

    Returns
    -------
    MixPlan

    Examples
    --------
    >>> cover([5, 4], [Column((0, 1), (1, 1)), Column((0, 0), (2, 0))]).text
    '5 sockets, lower bound 5 (proven), gap 0.00 %'
    """
    begun = time.perf_counter()
    wanted = np.array(demand, dtype=np.float64)
    search = _Search(pricing, begun + _BOUND_SHARE * time_limit_s)
    root = search.solve(wanted, {column.signature: column for column in start})
    search.deadline = begun + time_limit_s
    sockets = _rounded(wanted, root, search, max(begun + time_limit_s - time.perf_counter(), 1.0))
    lower = math.ceil(root.bound - 1e-6)
    return MixPlan(sockets, lower, complete, len(root.columns), search.rounds, time.perf_counter() - begun)


@dataclass(frozen=True)
class _Solved:
    """The linear problem's columns, how often each is used, the price of each class, and a bound on its optimum."""

    columns: list[Column]
    usage: Floats
    prices: Floats
    bound: float


class _Search:
    """Solves the linear problem, generating columns until none improves or time is out."""

    def __init__(self, pricing: Pricing | None, deadline: float) -> None:
        self.pricing, self.deadline, self.rounds = pricing, deadline, 0

    def solve(self, demand: Floats, columns: dict[Signature, Column], most_rounds: int = 0) -> _Solved:
        """Return the optimum, or the best there was time for; with `most_rounds`, one for rounding that bounds nothing.

        A column that serves more of a class than there is demand counts as serving the demand, which brings the
        optimum closer to whole numbers; but pricing does not know of it, so that Farley's bound would not hold.
        """
        bound = 0.0
        for turn in range(most_rounds or 10_000):
            chosen = list(columns.values())
            usage, prices, value = _master(demand, chosen, clipped=self.pricing is None or most_rounds > 0)
            self.rounds += 1
            if self.pricing is None:
                return _Solved(chosen, usage, prices, value)
            found, best = self.pricing(prices)
            bound = max(bound, float(prices @ demand) / max(best, 1.0))  # Farley's bound holds before convergence, too
            fresh = [column for column in found if column.signature not in columns]
            close = math.ceil(bound - 1e-6) >= math.ceil(value - 1e-6) or value - bound < _CLOSE * value
            if best <= 1.0 + _IMPROVES or not fresh or close or time.perf_counter() > self.deadline:
                break
            if turn == most_rounds - 1:
                break
            if len(columns) > _MOST_COLUMNS:
                columns = _kept(chosen, usage, prices)
            columns |= {column.signature: column for column in fresh}
        return _Solved(chosen, usage, prices, bound)


def _master(demand: Floats, columns: Sequence[Column], *, clipped: bool) -> tuple[Floats, Floats, float]:
    """Solve the linear problem; return how often each column is used, the price of each class, and the optimum."""
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    serves = np.minimum(_serves(columns), demand) if clipped else _serves(columns).astype(np.float64)
    solved = linprog(np.ones(len(columns)), A_ub=csc_array(-serves.T), b_ub=-demand, method="highs")
    assert solved.status == 0, f"BUG: the columns given do not serve every class: {solved.message}"
    return np.asarray(solved.x), -np.asarray(solved.ineqlin.marginals), float(solved.fun)


def _serves(columns: Sequence[Column]) -> Counts:
    return np.array([column.serves for column in columns], dtype=np.int64)


def _kept(columns: Sequence[Column], usage: Floats, prices: Floats) -> dict[Signature, Column]:
    """Return the columns in use, and the half of the others that costs least."""
    reduced = 1.0 - _serves(columns) @ prices
    order = np.argsort(np.where(usage > 1e-9, -1.0, reduced), kind="stable")[: _MOST_COLUMNS // 2]
    used = np.flatnonzero(usage > 1e-9)
    return {columns[i].signature: columns[i] for i in sorted({*order.tolist(), *used.tolist()})}


def _rounded(demand: Floats, root: _Solved, search: _Search, time_limit_s: float) -> dict[Signature, int]:
    """Dive to whole numbers; then let a solver improve on what was not whole to begin with, as long as time is left."""
    dived = _dive(demand.astype(np.int64), root, search)
    if sum(dived.values()) <= math.ceil(root.bound * (1.0 + _GOOD) - 1e-6):
        return dived
    root = _enriched(root, search.pricing, time.perf_counter() + time_limit_s / 4)
    whole = np.floor(root.usage + 1e-9).astype(np.int64)
    rest = np.maximum(demand.astype(np.int64) - whole @ _serves(root.columns), 0)
    exact = _integer(rest, root, time_limit_s) if rest.any() else np.zeros(len(root.columns), dtype=np.int64)
    if exact is None or int(whole.sum() + exact.sum()) >= sum(dived.values()):
        return dived
    total = whole + exact
    return {root.columns[i].signature: int(total[i]) for i in np.flatnonzero(total).tolist()}


def _enriched(root: _Solved, pricing: Pricing | None, deadline: float) -> _Solved:
    """Add columns that are best at prices near the optimum's: whole numbers need more of them than fractions do."""
    if pricing is None:
        return root
    generator = np.random.default_rng(0)
    columns = {column.signature: column for column in root.columns}
    for _ in range(_NEARBY):
        prices = root.prices * generator.uniform(0.7, 1.3, len(root.prices))
        found, best = pricing(prices)
        found, _ = pricing(1.5 * prices / max(best, 1e-9))
        columns |= {column.signature: column for column in found}
        if time.perf_counter() > deadline:
            break
    extra = len(columns) - len(root.columns)
    return _Solved(list(columns.values()), np.concatenate([root.usage, np.zeros(extra)]), root.prices, root.bound)


def _integer(rest: Counts, root: _Solved, time_limit_s: float) -> Counts | None:
    """Return how often each column serves a remainder, or None where the solver finds nothing in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    serves = _serves(root.columns)
    reduced = np.where(root.usage > 1e-9, -1.0, 1.0 - serves @ root.prices)
    choice = np.argsort(reduced, kind="stable")[:_MOST_CHOICES]
    solved = milp(
        np.ones(len(choice)),
        constraints=LinearConstraint(csc_array(serves[choice].T.astype(np.float64)), lb=rest.astype(np.float64)),
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(choice)),
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-4},
    )
    if solved.x is None:
        return None
    found = np.zeros(len(root.columns), dtype=np.int64)
    found[choice] = np.round(solved.x).astype(np.int64)
    return found if (found @ serves >= rest).all() else None


def _dive(demand: Counts, root: _Solved, search: _Search) -> dict[Signature, int]:
    """Fix what is whole or nearly so and solve for the rest, with new columns while there is time."""
    left, count, solved = demand.copy(), Counter[Signature](), root
    while left.any():
        serves = np.array(_serves(solved.columns))
        step = np.floor(solved.usage + 1e-9).astype(np.int64)
        if not step.any():
            fraction = solved.usage * (np.minimum(serves, left).sum(axis=1) > 0)
            step[fraction >= max(float(fraction.max()) - 0.05, 0.3)] = 1
            step[int(np.argmax(fraction))] = 1
        for i in np.flatnonzero(step).tolist():
            useful = np.minimum(serves[i], left) > 0
            take = min(int(step[i]), int(np.max(-(-left[useful] // serves[i][useful]), initial=0)))
            left = np.maximum(left - take * serves[i], 0)
            count[solved.columns[i].signature] += take
        if left.any():
            columns = {column.signature: column for column in solved.columns}
            solved = search.solve(left.astype(np.float64), columns, 3 if time.perf_counter() < search.deadline else 1)
    return {signature: number for signature, number in count.items() if number}
