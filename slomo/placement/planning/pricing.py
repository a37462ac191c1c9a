"""Find valuable mixes for a plan: by dynamic programming if NFs own cache ways, else by listing all mixes.

With exclusive ways, a piece uses cores and ways whatever its neighbours do: a knapsack of two dimensions. In a shared
cache every mix must be predicted. Mixes grow piece by piece from feasible mixes, as more competitors never help.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.placement.feasibility.mixes import Host, Signature
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.planning.columns import Column, Counts
from slomo.vocabulary.vector import Floats

#: Largest number of mixes judged by :func:`enumerate_mixes`.
_MOST_JUDGED = 60_000


@dataclass(frozen=True)
class Item:
    """One way to serve a request of a class: a piece (instances placed together) with its cores and ways."""

    piece: int
    klass: int
    cores: int
    ways: int


class Knapsack:
    """Finds the most valuable mixes of pieces (instances placed together) that own cores and ways (a knapsack problem).

    `items` are all ways to serve all classes.
    """

    def __init__(self, host: Host, items: Sequence[Item], classes: int) -> None:
        self.host, self.classes = host, classes
        self.items = [item for item in items if item.cores <= host.cores and item.ways <= host.ways]
        self._ways_to_serve: dict[int, list[Item]] = {klass: [] for klass in range(classes)}
        for item in self.items:
            self._ways_to_serve[item.klass].append(item)

    def __call__(self, prices: Floats) -> tuple[list[Column], float]:
        """Return the best mix that contains each item, and the highest value of any mix."""
        useful = self._useful(prices)
        value, choice = self._table(useful, prices)
        best: dict[int, tuple[float, Item]] = {}
        for item in self.items:
            worth = prices[item.klass] + value[self.host.cores - item.cores, self.host.ways - item.ways]
            if worth > best.get(item.klass, (1.0 + 1e-7, item))[0]:
                best[item.klass] = (worth, item)
        columns = [self._column([item], useful, choice) for _, item in sorted(best.values(), key=lambda p: -p[0])]
        return columns, float(value[-1, -1])

    def fill(self, prices: Floats, left: Counts) -> Column | None:
        """Return the most valuable mix with at most `left` requests of each class."""
        values = np.where(left > 0, prices, 0.0)
        useful = self._useful(values)
        if not useful:
            return None
        column = self._column([], useful, self._table(useful, values)[1])
        if (np.array(column.serves) <= left).all():
            return column
        return self._bounded(values, left)

    def _useful(self, prices: Floats) -> list[Item]:
        """Return the most valuable item of each size."""
        cells: dict[tuple[int, int], Item] = {}
        for item in self.items:
            key = (item.cores, item.ways)
            if prices[item.klass] > 1e-12 and (key not in cells or prices[item.klass] > prices[cells[key].klass]):
                cells[key] = item
        return list(cells.values())

    def _table(self, useful: Sequence[Item], prices: Floats) -> tuple[Floats, Counts]:
        """Return the highest value for every size of socket, and the item to add there (-1: none)."""
        value = np.zeros((self.host.cores + 1, self.host.ways + 1))
        choice = np.full(value.shape, -1, dtype=np.int64)
        need_cores = np.array([item.cores for item in useful], dtype=np.int64)
        worth = np.array([prices[item.klass] for item in useful])
        ways = np.arange(self.host.ways + 1) - np.array([item.ways for item in useful], dtype=np.int64)[:, np.newaxis]
        columns = np.arange(self.host.ways + 1)
        for cores in range(1, self.host.cores + 1):  # an item takes a core: larger sockets build on smaller ones
            rows = np.flatnonzero(need_cores <= cores)
            if len(rows):
                total = worth[rows, np.newaxis] + value[(cores - need_cores[rows])[:, np.newaxis], ways[rows]]
                total[ways[rows] < 0] = 0.0
                top = np.argmax(total, axis=0)
                value[cores] = total[top, columns]
                choice[cores] = np.where(value[cores] > 0.0, rows[top], -1)
        return value, choice

    def _bounded(self, prices: Floats, left: Counts) -> Column:
        """Return the most valuable mix with at most `left` requests of each class, built step by step."""
        value = np.zeros((self.host.cores + 1, self.host.ways + 1))
        steps: list[tuple[list[Item], NDArray[np.int8]]] = []
        for klass in np.flatnonzero(prices > 1e-12).tolist():
            items = self._ways_to_serve[klass]
            for _ in range(min(int(left[klass]), self.host.cores)):
                better, taken = value.copy(), np.full(value.shape, -1, dtype=np.int8)
                for number, item in enumerate(items):
                    cores, ways = value.shape[0] - item.cores, value.shape[1] - item.ways
                    offered = value[:cores, :ways] + prices[klass]
                    here = offered > better[item.cores :, item.ways :]
                    better[item.cores :, item.ways :][here] = offered[here]
                    taken[item.cores :, item.ways :][here] = number
                if (taken < 0).all():
                    break
                value = better
                steps.append((items, taken))
        cores, ways = self.host.cores, self.host.ways
        mix_items: list[Item] = []
        for items, taken in reversed(steps):
            number = int(taken[cores, ways])
            if number >= 0:
                mix_items.append(items[number])
                cores, ways = cores - items[number].cores, ways - items[number].ways
        return self._serving(mix_items)

    def _column(self, first: Sequence[Item], useful: Sequence[Item], choice: Counts) -> Column:
        """Return the best mix that contains given items, from a table of choices."""
        taken = list(first)
        cores = self.host.cores - sum(item.cores for item in first)
        ways = self.host.ways - sum(item.ways for item in first)
        while choice[cores, ways] >= 0:
            item = useful[choice[cores, ways]]
            taken.append(item)
            cores, ways = cores - item.cores, ways - item.ways
        return self._serving(taken)

    def _serving(self, items: Sequence[Item]) -> Column:
        serves = np.bincount([item.klass for item in items], minlength=self.classes)
        return Column(tuple(sorted(item.piece for item in items)), tuple(serves.tolist()))


def enumerate_mixes(oracle: Oracle, host: Host, demand: Mapping[int, int]) -> tuple[list[Signature], bool]:
    """Return the mixes to which nothing can be added without breaking a promise, and whether all were found.

    >>> from slomo.models.library import ModelLibrary
    >>> from slomo.placement.feasibility.estimates import ThroughputEstimates
    >>> from slomo.placement.feasibility.mixes import Piece, Pieces
    >>> pieces = Pieces()
    >>> one = pieces.number(Piece(("lpm",)))
    >>> oracle = Oracle(pieces, ThroughputEstimates(ModelLibrary([])), predicts=False)
    >>> enumerate_mixes(oracle, Host("m", 3, 4), {one: 9})
    ([(0, 0, 0)], True)
    """
    kinds = sorted(piece for piece, count in demand.items() if count)
    level: list[Signature] = [()]
    maximal: list[Signature] = []
    judged = 0
    while level:
        grown = {(*base, piece) for base in level for piece in kinds if not base or piece >= base[-1]}
        mixes = sorted(mix for mix in grown if mix.count(mix[-1]) <= demand[mix[-1]])
        judged += len(mixes)
        if judged > _MOST_JUDGED:
            return maximal + [mix for mix in level if mix], False
        holds = [mix for mix, verdict in zip(mixes, oracle.verdicts(host, mixes), strict=True) if verdict.ok]
        inside = {mix[:i] + mix[i + 1 :] for mix in holds for i in range(len(mix))}
        maximal += [mix for mix in level if mix and mix not in inside]
        level = holds
    return maximal, True
