"""ResQ (NSDI'18) Fig. 7: p95 of latency over load rises and is convex; ways hardly change it (section 5.2)."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from beside_paper import RESQ, TABLE_1, Line, report, solo

from slomo.simulator.engine import Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
WAYS = (20, 8, 4)
#: A run keeps the latency of its last 4096 packets, which wait one behind the other: the median of so many runs.
RUNS = 9
#: Of the latency at half load: by how much noise may bend a curve the other way.
NOISE = 0.03


def p95_us(name: str, load: float, ways: int) -> float:
    """Return the 95th percentile at a share of what so many ways can serve [us]."""
    mask = (1 << ways) - 1
    offered = load * solo(name, 64, mask).tenants[0].throughput_mpps
    workload = Workload(name, traffic=Traffic(packet_size_b=64, offered_mpps=offered))
    target = Tenant(workload, load_network_function(name), 0, mask)
    runs = (simulate(load_machine(RESQ), [target], seed=seed) for seed in range(RUNS))
    return median(result.tenants[0].latency_us["p95"] for result in runs)


def lines() -> Iterator[Line]:
    for name in TABLE_1:
        curves = {ways: [p95_us(name, load, ways) for load in LOADS] for ways in WAYS}
        full = curves[WAYS[0]]
        for load, value in zip(LOADS, full, strict=True):
            yield Line("Fig. 7", f"{name}, load {load}: p95, us", "", value)
        half = full[LOADS.index(0.5)]
        falls = max(before - after for before, after in pairwise(full)) / half
        yield Line("Fig. 7", f"{name}: falls anywhere by, share", "rises", max(falls, 0.0), 0, NOISE)
        slopes = [(full[at + 1] - full[at]) / (LOADS[at + 1] - LOADS[at]) * 0.1 / half for at in range(len(LOADS) - 1)]
        bent = max(before - after for before, after in pairwise(slopes))
        yield Line("Fig. 7", f"{name}: slope falls by, share per tenth of load", "convex", max(bent, 0.0), 0, NOISE)
        apart = max(abs(curves[ways][LOADS.index(0.8)] / full[LOADS.index(0.8)] - 1) for ways in WAYS[1:])
        yield Line("Fig. 7", f"{name}: 4 and 8 ways differ at load 0.8 by, share", "slightly", apart)


if __name__ == "__main__":
    sys.exit(report(lines()))
