"""ResQ (NSDI'18) Fig. 7: p95 of latency over load rises and is convex; ways hardly change it (section 5.2).

A function sends the packets of a batch together: 8 at most those of Click, 32 the others. With ``--one`` it sends each
by itself, which is the only thing changed.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import mean, stdev

import numpy as np
from beside_paper import RESQ, TABLE_1, Line, report, seeds, solo

from slomo.simulator.engine import Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
WAYS = (20, 8, 4)
#: A run keeps the latency of its last 4096 packets, which wait one behind the other: the mean of so many runs.
RUNS = 16
#: Standard errors by which a curve may be bent the other way before it is called off.
ERRORS = 3.0


def p95_us(name: str, load: float, ways: int, burst: int | None = None) -> tuple[float, float]:
    """Return the 95th percentile at a share of what so many ways can serve, and its standard error [us]."""
    mask, function = (1 << ways) - 1, load_network_function(name)
    if burst is not None:
        function = replace(function, simulated={**function.simulated, "burst": burst})
    offered = load * solo(name, 64, mask).tenants[0].throughput_mpps
    workload = Workload(name, traffic=Traffic(packet_size_b=64, offered_mpps=offered))
    target = Tenant(workload, function, 0, mask)
    runs = [simulate(load_machine(RESQ), [target], seed=seed).tenants[0].latency_us["p95"] for seed in seeds(RUNS)]
    return mean(runs), stdev(runs) / math.sqrt(RUNS)


def slope(before: int, curve: list[tuple[float, float]]) -> tuple[float, float]:
    """Return by how much the curve rises per tenth of load from one point to the next, and its standard error [us]."""
    (low, low_error), (high, high_error) = curve[before : before + 2]
    tenths = 10 * (LOADS[before + 1] - LOADS[before])
    return (high - low) / tenths, math.hypot(low_error, high_error) / tenths


def most_errors(falls: Iterable[tuple[float, float]]) -> float:
    """Return the largest fall in standard errors; 0 where nothing falls."""
    return max((fall / error if error else math.inf for fall, error in falls if fall > 0), default=0.0)


def bent(curve: list[tuple[float, float]]) -> float:
    """Return by how many standard errors the slope of a curve falls from one stretch to the next."""
    slopes = [slope(at, curve) for at in range(len(LOADS) - 1)]
    return most_errors((before - after, math.hypot(one, other)) for (before, one), (after, other) in pairwise(slopes))


def way_us(curve: list[tuple[float, float]]) -> float:
    """Return the least time outside the server with which each point is within 1 % of the line of its neighbours."""
    p95_us = [value for value, _ in curve]
    inner = range(1, len(LOADS) - 1)
    lines = [np.interp(LOADS[at], [LOADS[at - 1], LOADS[at + 1]], [p95_us[at - 1], p95_us[at + 1]]) for at in inner]
    return max(0.0, *(100 * (p95_us[at] - line) - p95_us[at] for at, line in zip(inner, lines, strict=True)))


def one_by_one() -> Iterator[Line]:
    for name in TABLE_1:
        alone = [p95_us(name, load, WAYS[0], burst=1) for load in LOADS]
        what = f"{name}, packets sent one by one: slope falls by, standard errors"
        yield Line("Fig. 7", what, "convex", bent(alone), 0, ERRORS)


def lines() -> Iterator[Line]:
    for name in TABLE_1:
        full = [p95_us(name, load, WAYS[0]) for load in LOADS]
        for load, (value, _) in zip(LOADS, full, strict=True):
            yield Line("Fig. 7", f"{name}, load {load}: p95, us", "", value)
        falls = [(low - high, math.hypot(one, other)) for (low, one), (high, other) in pairwise(full)]
        yield Line("Fig. 7", f"{name}: falls anywhere by, standard errors", "rises", most_errors(falls), 0, ERRORS)
        yield Line("Fig. 7", f"{name}: slope falls by, standard errors", "convex", bent(full), 0, ERRORS)
        yield Line("Fig. 7", f"{name}: us on the way with which it is bent by less than 1 %", "", way_us(full))
        at = LOADS.index(0.8)
        apart = max(abs(p95_us(name, LOADS[at], ways)[0] / full[at][0] - 1) for ways in WAYS[1:])
        yield Line("Fig. 7", f"{name}: 4 and 8 ways differ at load 0.8 by, share", "slightly", apart)


if __name__ == "__main__":
    sys.exit(report(one_by_one() if "--one" in sys.argv else lines()))
