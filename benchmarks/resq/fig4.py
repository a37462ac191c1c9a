"""ResQ (NSDI'18) Fig. 4: throughput lost beside streams that fill the memory channels, as Intel's MLC does.

Every network function has a way of its own and the streams have the others, as in the paper's runs with CAT, so that
what is lost is lost to memory; beside it what is lost where the cache is shared, too.
"""

import sys
from collections.abc import Iterator

from beside_paper import COMPETITORS, RESQ, TABLE_1, Line, report, run, solo, tenant

from slomo.vocabulary.machine import load_machine


def lost(name: str, ways: int | None) -> float:
    """Return the throughput lost beside streams, with so many ways of its own or a shared cache [%]."""
    own = None if ways is None else (1 << ways) - 1
    rest = None if own is None else load_machine(RESQ).full_way_mask & ~own
    streams = [
        tenant("synthetic", 1 + i, mask=rest, data_size_mib=512, reads_per_packet=10_000, pattern="sequential")
        for i in range(COMPETITORS)
    ]
    beside = run(RESQ, [tenant(name, 0, mask=own), *streams]).tenants[0].throughput_mpps
    return 100 * (1 - beside / solo(name, 64, own).tenants[0].throughput_mpps)


def lines() -> Iterator[Line]:
    for ways, limits in ((1, (40, 50)), (4, (None, None)), (None, (None, None))):
        losses = {name: lost(name, ways) for name in TABLE_1}
        how = "cache shared" if ways is None else f"{ways} way{'s' * (ways > 1)} of its own"
        for name, value in losses.items():
            if name == "mazunat":
                yield Line("Fig. 4", f"{name}, {how}: % lost", "up to 50", value, *limits)
            else:
                yield Line("Fig. 4", f"{name}, {how}: % lost", "", value)


if __name__ == "__main__":
    sys.exit(report(lines()))
