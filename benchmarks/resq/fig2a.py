"""ResQ (NSDI'18) Fig. 2a: throughput lost beside 11 instances of another network function, nothing isolated."""

import sys
from collections.abc import Iterator

from beside_paper import TABLE_1, Line, comparable, report, worst


def lines() -> Iterator[Line]:
    """Yield the worst over competitors, at both packet sizes."""
    most = dict.fromkeys(TABLE_1, 0.0)
    for size_b in (64, 1518):
        for name in comparable(size_b):
            value, other = worst(name, size_b, False)
            most[name] = max(most[name], value)
            yield Line("Fig. 2a", f"{name}, {size_b} B, worst beside 11 x {other}: % lost", "", value)
    yield Line("Fig. 2a", "worst of all: % lost", "44.3", max(most.values()), 35, 55)
    yield Line("Fig. 2a", "NFs that lose more than 10 %", "7", sum(value > 10 for value in most.values()), 7, 9)
    yield Line("Fig. 2a", "NFs that lose more than 20 %", "5", sum(value > 20 for value in most.values()), 4, 6)


if __name__ == "__main__":
    sys.exit(report(lines()))
