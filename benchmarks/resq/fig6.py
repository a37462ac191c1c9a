"""ResQ (NSDI'18) Fig. 6: throughput over the ways of the last-level cache, and its classes of sensitivity.

Fig. 8 tells what the classes mean: with an equal part of the cache (10 %, two ways) every sensitive network function
falls below 90 % of what it does alone, no insensitive one does. Section 5.2 finds every curve concave. Its profiler
measures both ends and the middle, and splits further while a middle is more than 1 % off the line between its ends.
The curves here have the points that it would measure, and a point counts as below the line of its neighbours from the
same 1 % on. (Until 27 November 2026: eight given numbers of ways, and from 0.3 % on.)
"""

import sys
from collections.abc import Iterator
from itertools import pairwise

from beside_paper import RESQ, TABLE_1, Line, report, solo

from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function

#: Section 5.2: interpolation error at which the profiler stops.
TOLERANCE = 0.01


def curve(name: str) -> dict[int, float]:
    """Return throughput by number of ways, as a share of that with all, where the paper's profiler would measure it."""
    ways = load_machine(RESQ).llc_ways
    points = {each: share(name, each) for each in (1, ways)}
    stretches = [(1, ways)]
    while stretches:
        low, high = stretches.pop()
        middle = (low + high) // 2
        if middle == low:
            continue
        points[middle] = share(name, middle)
        if abs(below_line(points, low, middle, high)) > TOLERANCE:
            stretches += [(low, middle), (middle, high)]
    return dict(sorted(points.items()))


def share(name: str, ways: int) -> float:
    """Return throughput with so many ways over that with all."""
    alone = solo(name, 64, load_machine(RESQ).full_way_mask).tenants[0].throughput_mpps
    return solo(name, 64, (1 << ways) - 1).tenants[0].throughput_mpps / alone


def below_line(points: dict[int, float], low: int, middle: int, high: int) -> float:
    """Return by which share of itself a point lies below the line between two others."""
    line = points[low] + (middle - low) / (high - low) * (points[high] - points[low])
    return line / points[middle] - 1.0


def bend(points: dict[int, float]) -> float:
    """Return by how much a point lies below the line between its neighbours, at most; 0 if none does."""
    neighbours = pairwise(pairwise(points))
    return max(0.0, *(below_line(points, low, middle, high) for (low, middle), (_, high) in neighbours))


def lines() -> Iterator[Line]:
    for name in TABLE_1:
        klass, points = load_network_function(name).klass, curve(name)
        for ways, part in points.items():
            yield Line("Fig. 6", f"{name}, {ways} ways: share of throughput", "", part)
        if klass == "sensitive":
            yield Line("Fig. 6", f"{name} (sensitive), 2 ways: share of throughput", "<0.9", share(name, 2), 0, 0.9)
        elif klass == "insensitive":
            what = f"{name} (insensitive), 2 ways: share of throughput"
            yield Line("Fig. 6", what, ">0.9", share(name, 2), 0.9, 1.01)
        what = f"{name}: a point below the line of its neighbours by, share"
        yield Line("Fig. 6", what, "concave", bend(points), 0, TOLERANCE)


if __name__ == "__main__":
    sys.exit(report(lines()))
