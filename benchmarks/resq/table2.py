"""ResQ (NSDI'18) section 4.2 and Table 2: cache isolation alone, each network function with 2048 packet buffers.

Held out: two memory channels would fit the bandwidth used here, but not Fig. 3 (benchmarks/memory_fit.py).
"""

import sys
from collections.abc import Iterator

from beside_paper import RESQ, Line, comparable, report, shared, worst

from slomo.vocabulary.machine import load_machine

PAPER = {(64, "mazunat"): "2.4", (64, "stats"): "0.3", (1518, "mazunat"): "12.2", (1518, "stats"): "14.7"}


def lines() -> Iterator[Line]:
    """Give the target one way of its own, 11 competitors the others."""
    for size_b, paper, low, high in ((64, "<3", -1, 3), (1518, "12.2-14.7", 12.2, 14.7)):
        losses = {name: worst(name, size_b, True) for name in comparable(size_b)}
        for name, (value, other) in losses.items():
            what = f"{name}, {size_b} B, worst beside 11 x {other}: % lost"
            yield Line("CAT", what, PAPER.get((size_b, name), ""), value)
        name = max(losses, key=lambda key: losses[key][0])
        yield Line("CAT", f"worst of all at {size_b} B ({name}): % lost", paper, losses[name][0], low, high)
        vector = shared(name, losses[name][1], size_b, True).sockets[0]
        used = 100 * (vector["READ"] + vector["WRITE"]) / load_machine(RESQ).usable_memory_gb_s
        limits = (28, 34) if size_b == 64 else (94, 99)
        what = f"memory bandwidth used then at {size_b} B: %"
        yield Line("Table 2", what, "31" if size_b == 64 else "94-99", used, *limits)


if __name__ == "__main__":
    sys.exit(report(lines()))
