"""Find valuable mixes in a shared cache, where the mix decides throughputs, and throughputs the instances needed.

Gilmore and Gomory (Operations Research 9, 1961) price columns by a knapsack. Here sizes are not fixed: beside others, a
request needs as many instances as keep its promise. All useful mixes are tabulated
(`slomo.placement.feasibility.rates`); within one, each kind of network function is a small knapsack of its own, since
equal tenants have equal rates. Every mix whose sub-mixes all hold is examined, with no idle tenants. The bound
therefore holds for all plans of such mixes that keep a request's instances on one socket, whatever form the predictions
have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Host, Pieces
from slomo.placement.feasibility.rates import RateTable
from slomo.placement.planning.columns import Column, Counts
from slomo.vocabulary.vector import Floats

#: Number of mixes returned per round, best first, beside the best one for every kind.
_MOST_FOUND = 40


@dataclass(frozen=True)
class Demanded:
    """One class of requests, all for one network function."""

    #: Number of the class.
    klass: int
    #: Workload key.
    workload: str
    #: Requests.
    count: int
    #: Instances on one socket -> piece, and each instance's need [Mpps].
    pieces: Mapping[int, tuple[int, float]]


def classes_of(
    pieces: Pieces, splits: Mapping[int, Mapping[int, int]], demand: Mapping[int, int]
) -> list[Demanded] | None:
    """Return requests as classes (`splits` of pieces too); None with chains or functions without a promise."""
    classes = []
    for klass, (number, count) in enumerate(demand.items()):
        cut = pieces[number]
        if cut.exclusive or cut.needed_mpps <= 0.0 or len(cut.workloads) != cut.instances:
            return None
        every = splits.get(number, {cut.instances: number})
        ways = {instances: (piece, pieces[piece].needed_mpps) for instances, piece in every.items()}
        classes.append(Demanded(klass, cut.workloads[0], count, ways))
    return classes


class SharedPricing:
    """Finds the most valuable mixes in a shared cache at given prices of requests; `finished` if it left none out."""

    def __init__(self, host: Host, table: RateTable, demanded: Sequence[Demanded]) -> None:
        self.classes = len(demanded)
        self.finished = table.reach >= host.cores
        self._wanted = np.array([item.count for item in demanded], dtype=np.int64)
        demanded_workloads = {item.workload for item in demanded}
        self._kinds = [
            _Kind([item for item in demanded if item.workload == workload], host.cores)
            for workload in table.floors
            if workload in demanded_workloads
        ]
        mine = [number for number, workload in enumerate(table.floors) if workload in demanded_workloads]
        others = [number for number in range(len(table.floors)) if number not in mine]
        possible = (table.counts[:, others] == 0).all(axis=1) & (table.counts.sum(axis=1) <= host.cores)
        counts, least = table.counts[possible][:, mine].astype(np.int64), table.least[possible][:, mine]
        cells = np.zeros_like(counts)
        useful = np.ones(len(counts), dtype=bool)
        for number, kind in enumerate(self._kinds):
            level = kind.levels(least[:, number])
            useful &= (counts[:, number] == 0) | (level > 0)  # who serves nobody is not there
            cells[:, number] = level * (host.cores + 1) + counts[:, number]
        self._cells = np.ascontiguousarray(cells[useful])
        self._counts = counts[useful]

    def __call__(self, prices: Floats) -> tuple[list[Column], float]:
        """Return mixes whose value exceeds their cost, and the highest value."""
        values = self._values(prices, self._wanted)
        order = np.argsort(-values, kind="stable")[:_MOST_FOUND]
        best = {int(np.argmax(np.where(self._counts[:, k] > 0, values, -1.0))) for k in range(len(self._kinds))}
        rows = dict.fromkeys([*order.tolist(), *sorted(best)])
        return [self._column(row) for row in rows if values[row] > 1.0 + 1e-7], float(values.max(initial=0.0))

    def fill(self, prices: Floats, left: Counts) -> Column | None:
        """Return the most valuable mix of the requests that are left."""
        values = self._values(prices, left)
        row = int(np.argmax(values)) if len(values) else -1
        return self._column(row) if row >= 0 and values[row] > 0.0 else None

    def best(self, prices: Floats, left: Counts, most: int) -> list[Column]:
        """Return the most valuable mixes of the requests that are left, best first."""
        values = self._values(prices, left)
        rows = np.argsort(-values, kind="stable")[:most].tolist()
        return [self._column(row) for row in rows if values[row] > 0.0]

    def _values(self, prices: Floats, left: Counts) -> Floats:
        total = np.zeros(len(self._cells))
        for number, kind in enumerate(self._kinds):
            total += kind.solve(prices, left).ravel()[self._cells[:, number]]
        return total

    def _column(self, row: int) -> Column:
        """Return the mix in a row of the last result."""
        pieces: list[int] = []
        serves = [0] * self.classes
        for number, kind in enumerate(self._kinds):
            for klass, piece in kind.taken(int(self._cells[row, number])):
                pieces.append(piece)
                serves[klass] += 1
        return Column(tuple(sorted(pieces)), tuple(serves))


class _Kind:
    """Requests for one network function: which of them some tenants at a given throughput serve best.

    A level is the number of thresholds (an instance's need, over all classes and splits) that a rate reaches.
    """

    def __init__(self, demanded: Sequence[Demanded], cores: int) -> None:
        self.demanded, self.cores = demanded, cores
        self._classes = [item.klass for item in demanded]
        needs = {need for item in demanded for _, need in item.pieces.values()}
        self.thresholds = sorted(needs)
        #: instances that a request of each class needs at each level; more than the cores if none suffices
        self.takes = np.full((len(self.thresholds) + 1, len(demanded)), cores + 1, dtype=np.int64)
        for level in range(1, len(self.thresholds) + 1):
            for number, item in enumerate(demanded):
                fitting = [k for k, (_, need) in item.pieces.items() if need <= self.thresholds[level - 1]]
                self.takes[level, number] = min(fitting, default=cores + 1)
        self._whole = bool(np.isin(self.takes, (1, cores + 1)).all())
        self._last: tuple[bytes, bytes] | None = None
        self._value: Floats = np.zeros(0)
        self._choice: list[Counts] = []
        self._order: list[list[int]] = []

    def levels(self, low_mpps: Floats) -> Counts:
        """Return which promises each throughput can keep, as levels; NaN keeps none."""
        level = np.zeros(len(low_mpps), dtype=np.int64)
        for need in self.thresholds:
            level += low_mpps / need - 1.0 >= 0.0
        return level

    def solve(self, prices: Floats, left: Counts) -> Floats:
        """Return the highest value for every level and number of tenants."""
        mine, there = prices[self._classes], left[self._classes]
        problem_key = (mine.tobytes(), there.tobytes())
        if problem_key != self._last:
            self._value = self._one_each(mine, there) if self._whole else self._several(mine, there)
            self._last = problem_key
        return self._value

    def _one_each(self, prices: Floats, left: Counts) -> Floats:
        """Solve for requests of one tenant each: the most valuable requests that a level serves, one per tenant."""
        value = np.full((len(self.takes), self.cores + 1), -np.inf)
        value[:, 0] = 0.0
        best: list[tuple[float, int]] = []
        self._order = [[]]
        for level in range(1, len(self.takes)):
            fresh = np.flatnonzero((self.takes[level] == 1) & (self.takes[level - 1] > 1)).tolist()
            more = [(float(prices[n]), n) for n in fresh for _ in range(min(int(left[n]), self.cores))]
            best = sorted([*best, *more], reverse=True)[: self.cores]
            value[level, 1 : len(best) + 1] = np.cumsum([price for price, _ in best])
            self._order.append([number for _, number in best])
        return value

    def _several(self, prices: Floats, left: Counts) -> Floats:
        """Return the highest value for every level and number of tenants, if requests may need several tenants each."""
        value = np.full((len(self.takes), self.cores + 1), -np.inf)
        value[:, 0] = 0.0
        self._choice = []
        for number in range(len(self.demanded)):
            base, chosen = value.copy(), np.zeros(value.shape, dtype=np.int64)
            for copies in range(1, min(int(left[number]), self.cores) + 1):
                _improve(base, value, chosen, self.takes[:, number] * copies, copies, copies * prices[number])
            self._choice.append(chosen)
        return value

    def taken(self, cell: int) -> list[tuple[int, int]]:
        """Return class and piece (instances placed together) of every request that a cell of the last result serves."""
        level, tenants = divmod(cell, self.cores + 1)
        if self._whole:
            chosen = [self.demanded[number] for number in self._order[level][:tenants]]
            return [(item.klass, item.pieces[1][0]) for item in chosen]
        served: list[tuple[int, int]] = []
        for number in range(len(self.demanded) - 1, -1, -1):
            item, copies = self.demanded[number], int(self._choice[number][level, tenants])
            if copies:
                takes = int(self.takes[level, number])
                tenants -= copies * takes
                served += [(item.klass, item.pieces[takes][0])] * copies
        return served


def _improve(base: Floats, value: Floats, chosen: Counts, size: Counts, copies: int, worth: float) -> None:
    """Raise the value, where possible, by serving `copies` more requests of one class, each with `size` tenants."""
    width = base.shape[1]
    for first in sorted(set(size[size < width].tolist())):
        rows = np.flatnonzero(size == first)
        offered = base[rows, : width - first] + worth
        level, place = np.nonzero(offered > value[rows, first:])
        value[rows[level], first + place] = offered[level, place]
        chosen[rows[level], first + place] = copies
