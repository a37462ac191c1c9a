"""ResQ (NSDI'18) Fig. 10: how far Dobrescu's predictor over-estimates what network functions lose.

Competitors' solo access rates are summed, as trained on the synthetic competitor. Five competitors of one kind, as
there; the paper's bars are averages over nine kinds, the target's own among them, and 13 points is its largest. The
training load (Dobrescu, NSDI'12) reads at random from more data than the cache holds, at rising rates; its rate is
measured while it runs alone, as SLOMO's protocol does. Nine of 20 ways, the paper's 19.5 MB, and gentle rates
among those trained at.
"""

import sys
from collections.abc import Iterator

import numpy as np
from beside_paper import RESQ, TABLE_1, Line, report, run, solo, tenant

WAYS = (1 << 9) - 1


def trained(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return competitors' access rates in ascending order, and what is lost beside them [%]."""
    alone = solo(name, 64, WAYS).tenants[0].throughput_mpps
    curve = [(0.0, 0.0)]
    for reads, mpps in ((64, 0.03), (64, 0.1), (64, 0.3), (16, None), (64, None), (1000, None)):
        rated = {} if mpps is None else {"rate_mpps": mpps}
        competition = [
            tenant("synthetic", 1 + i, mask=WAYS, data_size_mib=30, reads_per_packet=reads, **rated) for i in range(5)
        ]
        rate = run(RESQ, competition).sockets[0]["L2MISS"]
        beside = run(RESQ, [tenant(name, 0, mask=WAYS), *competition]).tenants[0].throughput_mpps
        curve.append((rate, 100 * (1 - beside / alone)))
    rates, lost = zip(*sorted(curve), strict=True)
    return rates, lost


def over_estimates(name: str) -> list[float]:
    """Return predicted minus simulated loss beside five of each network function [points]."""
    alone = solo(name, 64, WAYS).tenants[0].throughput_mpps
    rates, lost = trained(name)
    errors = []
    for other in TABLE_1:
        summed = 5 * solo(other, 64, WAYS).tenants[0].vector["L2MISS"]
        tenants = [tenant(name, 0, mask=WAYS), *(tenant(other, 1 + i, mask=WAYS) for i in range(5))]
        actual = 100 * (1 - run(RESQ, tenants).tenants[0].throughput_mpps / alone)
        errors.append(float(np.interp(summed, rates, lost)) - actual)
    return errors


def lines() -> Iterator[Line]:
    errors = {name: over_estimates(name) for name in TABLE_1}
    for name, each in errors.items():
        what = f"{name}: largest over-estimate {max(each):.1f}, mean, points"
        yield Line("Fig. 10", what, "", float(np.mean(each)))
    mean = float(np.mean([np.mean(each) for each in errors.values()]))
    bars = max(float(np.mean(each)) for each in errors.values())
    yield Line("Fig. 10", "largest average over-estimate of an NF, points", "13", bars, 5, 13)
    largest = max(max(each) for each in errors.values())
    yield Line("Fig. 10", "largest over-estimate beside one kind, points", "", largest)  # the paper has averages alone
    yield Line("Fig. 10", "mean over-estimate over all NFs, points", "", mean)
    over = sum(np.mean(each) > 0 for each in errors.values())
    yield Line("Fig. 10", "NFs over-estimated on average, of nine", "all", float(over), 9, 9)


if __name__ == "__main__":
    sys.exit(report(lines()))
