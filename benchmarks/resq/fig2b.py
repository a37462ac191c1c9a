"""ResQ (NSDI'18) Fig. 2b: how much the 95th percentile of latency grows beside 11 other instances, nothing isolated.

The paper does not say at which load, nor whether the way to the generator and back is in its latency; here it is the
time in the server alone, of which any delay is a larger part. A full queue would make latency grow as throughput falls
(by 80 % where 44 % are lost). Here every target is offered half of what it serves alone; competitors are saturated. A
target too slow for 5000 packets within the simulator's budget has no percentile and is left out.
"""

import sys
from collections.abc import Iterator
from math import isnan, nan

from beside_paper import COMPETITORS, RESQ, Line, comparable, report, run, solo, tenant

from slomo.simulator.engine import Tenant
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

PORT_GBPS, LOAD = 10.0, 0.5
#: Figure 2's caption: they change packets where the paper's generator embeds its timestamp.
TIMESTAMP_LOST = ("mazunat", "ipsec")
PAPER_GROWTH = 0.245


def p95_us(name: str, size_b: int, load: float, competitor: str | None) -> float:
    """Return the 95th percentile of a target's latency at a share of its solo throughput [us]."""
    offered = load * solo(name, size_b).tenants[0].throughput_mpps
    workload = Workload(name, traffic=Traffic(packet_size_b=size_b, offered_mpps=offered))
    target = Tenant(workload, load_network_function(name), 0, None)
    port = PORT_GBPS if size_b > 1000 else None
    others = [tenant(competitor, 1 + i, size_b, port=port) for i in range(COMPETITORS)] if competitor else []
    return run(RESQ, [target, *others]).tenants[0].latency_us.get("p95", nan)


def lines() -> Iterator[Line]:
    most, ways_us = 0.0, 0.0
    for size_b in (64, 1518):
        for name in comparable(size_b):
            if name in TIMESTAMP_LOST:
                continue
            alone = p95_us(name, size_b, LOAD, None)
            beside = {other: p95_us(name, size_b, LOAD, other) for other in comparable(size_b) if other != name}
            beside = {other: value for other, value in beside.items() if not isnan(value)}
            if not beside:
                continue
            other = max(beside, key=beside.__getitem__)
            grown = beside[other] / alone - 1
            most = max(most, grown)
            ways_us = max(ways_us, (beside[other] - alone) / PAPER_GROWTH - alone)
            what = f"{name}, {size_b} B, load {LOAD}, worst beside 11 x {other}: p95 +%"
            yield Line("Fig. 2b", what, "", 100 * grown)
    yield Line("Fig. 2b", f"worst of all at load {LOAD}: p95 +%", "24.5", 100 * most, 15, 35)
    yield Line("Fig. 2b", "way to the generator and back with which that would be 24.5: us", "", ways_us)


if __name__ == "__main__":
    sys.exit(report(lines()))
