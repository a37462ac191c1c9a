"""ResQ (NSDI'18) Fig. 2b: how much the 95th percentile of latency grows beside 11 other instances, nothing isolated.

Section 2 sends "sufficient traffic to saturate NF cores", as for Fig. 2a. Then the receive ring is full: a packet
waits for 2048 others, and latency grows as throughput falls (lpm alone: p95 374.9 us, 2048 packets take 374.0).
Beside others a run within the simulator's budget has no percentile of packets that late, so throughput tells it here.
"""

import sys
from collections.abc import Iterator

from beside_paper import Line, comparable, report, worst

#: Figure 2's caption: they change packets where the paper's generator embeds its timestamp.
TIMESTAMP_LOST = ("mazunat", "ipsec")


def lines() -> Iterator[Line]:
    """Yield the growth beside the worst competitor, at both packet sizes."""
    most = 0.0
    for size_b in (64, 1518):
        for name in comparable(size_b):
            if name in TIMESTAMP_LOST:
                continue
            lost, other = worst(name, size_b, False)
            grown = 100 * lost / (100 - lost)
            most = max(most, grown)
            yield Line("Fig. 2b", f"{name}, {size_b} B, saturated, worst beside 11 x {other}: p95 +%", "", grown)
    yield Line("Fig. 2b", "worst of all, saturated: p95 +%", "24.5", most, 15, 35)


if __name__ == "__main__":
    sys.exit(report(lines()))
