"""ResQ (NSDI'18) Fig. 6: throughput over the ways of the last-level cache, and its classes of sensitivity.

Fig. 8 tells what the classes mean: with an equal part of the cache (10 %, two ways) every sensitive network function
falls below 90 % of what it does alone, no insensitive one does. Section 5.2 finds every curve concave.
"""

import sys
from collections.abc import Iterator

from beside_paper import RESQ, TABLE_1, Line, report, solo

from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function

WAYS = (1, 2, 3, 5, 7, 10, 14, 20)
#: Noise of a run, by which a curve may be bent the other way.
NOISE = 0.003


def curve(name: str) -> list[float]:
    """Return throughput as a share of that with all ways."""
    rates = [solo(name, 64, (1 << ways) - 1).tenants[0].throughput_mpps for ways in WAYS]
    return [rate / rates[-1] for rate in rates]


def bend(shares: list[float]) -> float:
    """Return by how much a point lies below the line between its neighbours, at most."""
    worst = 0.0
    for at in range(1, len(WAYS) - 1):
        part = (WAYS[at] - WAYS[at - 1]) / (WAYS[at + 1] - WAYS[at - 1])
        worst = max(worst, shares[at - 1] + part * (shares[at + 1] - shares[at - 1]) - shares[at])
    return worst


def lines() -> Iterator[Line]:
    for name in TABLE_1:
        shares, klass = curve(name), load_network_function(name).klass
        for ways, share in zip(WAYS, shares, strict=True):
            if ways == 2 and klass == "sensitive":
                yield Line("Fig. 6", f"{name} (sensitive), 2 ways: share of throughput", "<0.9", share, 0, 0.9)
            elif ways == 2 and klass == "insensitive":
                yield Line("Fig. 6", f"{name} (insensitive), 2 ways: share of throughput", ">0.9", share, 0.9, 1.01)
            else:
                yield Line("Fig. 6", f"{name}, {ways} ways: share of throughput", "", share)
        yield Line("Fig. 6", f"{name}: a point below the line of its neighbours by", "concave", bend(shares), 0, NOISE)
    assert load_machine(RESQ).full_way_mask == (1 << WAYS[-1]) - 1, "the last point is all ways"


if __name__ == "__main__":
    sys.exit(report(lines()))
