"""Column generation over socket mixes: a lower bound on sockets that is proven, and a plan close to it.

Gilmore and Gomory (Operations Research 9, 1961): a column is a mix that one socket can hold; the linear master problem
says how often each is used, and its dual prices find better mixes until there are none. Its optimum bounds every plan
from below.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.placement.mixes import Signature

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
#: Given the dual price per class: columns that may improve, and the value of the best (1 or less: none does).
Pricing = Callable[[Floats], tuple[list["Column"], float]]
#: Share by which a column must beat its cost to be worth adding.
_IMPROVES = 1e-7
#: Columns the integer problem of the remainder chooses from.
_MOST_CHOICES = 1500


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
        For generating columns; as much again at most for rounding [s].

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
    columns = {column.signature: column for column in start}
    bound, rounds, done = 0.0, 0, pricing is None
    while True:
        chosen = list(columns.values())
        usage, prices, value = _master(wanted, chosen)
        rounds += 1
        if pricing is None:
            bound = value
            break
        found, best = pricing(prices)
        bound = max(bound, float(prices @ wanted) / max(best, 1.0))  # Farley's bound holds before convergence, too
        fresh = [column for column in found if column.signature not in columns]
        done = best <= 1.0 + _IMPROVES or not fresh
        if done or time.perf_counter() - begun > time_limit_s:
            break
        columns |= {column.signature: column for column in fresh}
    left = max(time_limit_s - (time.perf_counter() - begun), 1.0)
    sockets = _rounded(wanted, chosen, usage, prices, left)
    proven = complete and (done or pricing is not None)
    lower = math.ceil(bound - 1e-6)
    return MixPlan(sockets, lower, proven, len(columns), rounds, time.perf_counter() - begun)


def _master(demand: Floats, columns: Sequence[Column]) -> tuple[Floats, Floats, float]:
    """Solve the linear problem; return how often each column is used, the price of each class, and the optimum."""
    from scipy.optimize import linprog

    solved = linprog(np.ones(len(columns)), A_ub=-_matrix(columns), b_ub=-demand, method="highs")
    assert solved.status == 0, f"BUG: the columns given do not serve every class: {solved.message}"
    return np.asarray(solved.x), -np.asarray(solved.ineqlin.marginals), float(solved.fun)


def _matrix(columns: Sequence[Column]) -> Any:
    from scipy.sparse import csc_array

    return csc_array(np.array([column.serves for column in columns], dtype=np.float64).T)


def _rounded(
    demand: Floats, columns: Sequence[Column], usage: Floats, prices: Floats, time_limit_s: float
) -> dict[Signature, int]:
    """Round down, then serve the remainder by an integer problem over the columns that cost least."""
    whole = np.floor(usage + 1e-9).astype(np.int64)
    serves = np.array([column.serves for column in columns], dtype=np.int64)
    rest = np.maximum(demand.astype(np.int64) - whole @ serves, 0)
    count = {columns[i].signature: int(whole[i]) for i in np.flatnonzero(whole).tolist()}
    if rest.any():
        reduced = 1.0 - serves @ prices
        near = np.argsort(reduced, kind="stable")[:_MOST_CHOICES]
        cover_all = [int(np.argmax(np.where(serves[:, k] > 0, -reduced, -np.inf))) for k in np.flatnonzero(rest)]
        choice = sorted({*near.tolist(), *np.flatnonzero(usage > 1e-9).tolist(), *cover_all})
        extra = _integer(rest, serves[choice], time_limit_s)
        for place in np.flatnonzero(extra):
            signature = columns[choice[place]].signature
            count[signature] = count.get(signature, 0) + int(extra[place])
    return count


def _integer(rest: Counts, serves: Counts, time_limit_s: float) -> Counts:
    """Return how often each column serves a small remainder; by diving where time runs out."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    dived = _dive(rest, serves)
    solved = milp(
        np.ones(len(serves)),
        constraints=LinearConstraint(serves.T.astype(np.float64), lb=rest.astype(np.float64)),
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(serves)),
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-4},
    )
    if solved.x is None:
        return dived
    exact = np.round(solved.x).astype(np.int64)
    return exact if exact.sum() < dived.sum() and (exact @ serves >= rest).all() else dived


def _dive(rest: Counts, serves: Counts) -> Counts:
    """Serve a remainder by taking, again and again, the column that serves most of what is left."""
    left, used = rest.copy(), np.zeros(len(serves), dtype=np.int64)
    while left.any():
        useful = np.minimum(serves, left).sum(axis=1)
        best = int(np.argmax(useful))
        assert useful[best] > 0, "BUG: no column serves what is left"
        left = np.maximum(left - serves[best], 0)
        used[best] += 1
    return used
