"""ResQ (NSDI'18) Fig. 3: speed of memory accesses over the load on memory. Fitted: the curve is the memory model's.

Streams take the bandwidth a hundred lines at a time, as Intel's Memory Latency Checker does with delays between
accesses; one core chases pointers through more data than the cache holds, whose time per miss is the latency. It has a
way of its own, or it would lose hits as well. How many cores streamed is not in the paper; eleven do here, as in the
other runs of its section 4. What they have in flight decides how slow a full memory is (Little's law): 0.26 with 17.
"""

import sys
from collections.abc import Iterator

import numpy as np
from beside_paper import COMPETITORS, RESQ, Line, report, run, tenant

from slomo.vocabulary.machine import load_machine


def points() -> list[tuple[float, float]]:
    """Return share of the usable bandwidth -> latency of a miss [ns]."""
    chase = tenant("synthetic", 0, mask=1, data_size_mib=512, reads_per_packet=100, pattern="chain")
    measured = []
    for rates in [()] + [(each,) * count for count in (2, 4, 8, COMPETITORS) for each in (0.1, 0.2, 0.4, 0.8, 2.0)]:
        others = [
            tenant(
                "synthetic",
                1 + i,
                mask=load_machine(RESQ).full_way_mask & ~1,
                data_size_mib=512,
                reads_per_packet=100,
                pattern="sequential",
                rate_mpps=rate,
            )
            for i, rate in enumerate(rates)
        ]
        result = run(RESQ, [chase, *others])
        used = (result.sockets[0]["READ"] + result.sockets[0]["WRITE"]) / load_machine(RESQ).usable_memory_gb_s
        measured.append((used, 1.0 / result.tenants[0].throughput_mpps))
    return sorted(measured)


def lines() -> Iterator[Line]:
    measured = points()
    idle = measured[0][1]
    speed = [(used, idle / each) for used, each in measured]
    for used, each in speed:
        yield Line("Fig. 3", f"memory {100 * used:.0f} % used: speed of an access, share of unloaded", "", each)
    below = [pair for pair in speed if pair[0] <= 0.9]
    used, speeds = (np.array(part) for part in zip(*below, strict=True))
    slope, start = np.polyfit(used, speeds, 1)
    bend = float(np.abs(start + slope * used - speeds).max())
    yield Line("Fig. 3", "largest distance from a line up to 90 %", "linear", bend, 0, 0.03, fitted=True)
    yield Line(
        "Fig. 3", "slowest access, share of unloaded", "0.40", min(each for _, each in speed), 0.3, 0.5, fitted=True
    )


if __name__ == "__main__":
    sys.exit(report(lines()))
