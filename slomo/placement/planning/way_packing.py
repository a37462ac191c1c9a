"""Best fit for pieces with exclusive cores and ways: sockets with equal remainders are filled together.

ResQ (NSDI'18) section 5.3.1 packs instances one by one, first fit decreasing. The remainder of a socket is a pair of
small numbers, so a hundred thousand instances take a few hundred steps. Where a class can be served in several ways,
those are used that fill cores and cache evenly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.placement.feasibility.mixes import Host, Signature
from slomo.placement.planning.pricing import Item

_SHARES = np.linspace(0.0, 1.0, 41)


def pack_ways(host: Host, items: Sequence[Item], demand: Mapping[int, int]) -> dict[Signature, int]:
    """Pack classes of pieces on sockets.

    Parameters
    ----------
    host : Host
        Kind of socket.
    items : sequence of Item
        Every way to serve every class.
    demand : mapping of int to int
        Class -> how many.

    Returns
    -------
    dict of Signature to int
        Number of sockets of each mix.

    Examples
    --------
    >>> pack_ways(Host("m", 4, 10), [Item(0, 0, 1, 5), Item(1, 1, 1, 2)], {0: 4, 1: 1})
    {(0, 0): 2, (1,): 1}
    """
    fitting = [item for item in items if item.cores <= host.cores and item.ways <= host.ways]
    share = _balance(host, fitting, demand)
    best = _smallest(host, fitting, share)
    buckets: dict[tuple[int, int], Counter[Signature]] = {}
    left = np.zeros((host.cores + 1, host.ways + 1), dtype=np.int64)
    for klass, item in sorted(best.items(), key=lambda pair: (-_size(host, pair[1], share), pair[0])):
        _place(host, left, buckets, item, demand.get(klass, 0))
    total: Counter[Signature] = Counter()
    for bucket in buckets.values():
        total.update(bucket)
    return {mix: count for mix, count in sorted(total.items()) if count}


def _size(host: Host, item: Item, share: float) -> float:
    return share * item.cores / host.cores + (1.0 - share) * item.ways / host.ways


def _smallest(host: Host, items: Sequence[Item], share: float) -> dict[int, Item]:
    """Return the smallest item of each class; of equal ones the first."""
    chosen: dict[int, Item] = {}
    for item in items:
        if item.klass not in chosen or _size(host, item, share) < _size(host, chosen[item.klass], share):
            chosen[item.klass] = item
    return chosen


def _balance(host: Host, items: Sequence[Item], demand: Mapping[int, int]) -> float:
    """Return the weight of cores against ways whose cheapest items fill both most evenly."""
    best = (float("inf"), 0.5)
    for share in _SHARES.tolist():
        chosen = _smallest(host, items, share)
        cores = sum(demand.get(k, 0) * item.cores for k, item in chosen.items()) / host.cores
        ways = sum(demand.get(k, 0) * item.ways for k, item in chosen.items()) / host.ways
        best = min(best, (max(cores, ways), share))
    return best[1]


def _place(
    host: Host,
    left: NDArray[np.int64],
    buckets: dict[tuple[int, int], Counter[Signature]],
    item: Item,
    count: int,
) -> None:
    """Put `count` copies of an item on the sockets with least remainder, opening sockets if none fits."""
    deepest = min(host.cores // item.cores, host.ways // item.ways if item.ways else host.cores)
    while count > 0:
        cores, ways = np.nonzero(left[item.cores :, item.ways :])
        if len(cores):
            rest = cores / host.cores + ways / host.ways
            at = int(np.argmin(rest))
            cell = (int(cores[at]) + item.cores, int(ways[at]) + item.ways)
            moved = min(count, int(left[cell]))
            _shift(left, buckets, (cell, item), (moved, 1))
            count -= moved
        else:
            full, rest_count = divmod(count, deepest)
            for sockets, copies in ((full, deepest), (1, rest_count)):
                if sockets and copies:
                    cell = (host.cores, host.ways)
                    left[cell] += sockets
                    buckets.setdefault(cell, Counter())[()] += sockets
                    _shift(left, buckets, (cell, item), (sockets, copies))
            return


def _shift(
    left: NDArray[np.int64],
    buckets: dict[tuple[int, int], Counter[Signature]],
    what: tuple[tuple[int, int], Item],
    amount: tuple[int, int],
) -> None:
    """Move sockets to the group of their new remainder after adding copies of an item."""
    (cell, item), (sockets, copies) = what, amount
    target = (cell[0] - copies * item.cores, cell[1] - copies * item.ways)
    source, sink = buckets[cell], buckets.setdefault(target, Counter())
    remaining = sockets
    for mix in list(source):
        part = min(source[mix], remaining)
        source[mix] -= part
        if not source[mix]:
            del source[mix]
        sink[tuple(sorted((*mix, *([item.piece] * copies))))] += part
        remaining -= part
        if not remaining:
            break
    left[cell] -= sockets
    left[target] += sockets
