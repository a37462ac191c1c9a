"""How far and how fast: 100 000 instances, with cache allocation and with predictions in the loop.

With cache allocation every network function has about three (ways, cores) options on servers of 20 ways x 12 cores;
planned by column generation over mixes, beside bucketed best fit. With predictions, the nine network functions of ResQ
(NSDI'18) share caches, and their models say which mixes hold. Then one `admit` at a time on the full cluster.

    python benchmarks/placement/scale.py                     cache allocation at 1k, 10k and 100k instances
    python benchmarks/placement/scale.py --models DIR        and with predictions from trained models
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.columns import Column, cover
from slomo.placement.mixes import Host, Piece, Pieces
from slomo.placement.placer import Placer
from slomo.placement.pricing import Item, Knapsack
from slomo.placement.problem import SLO, Cluster, Request
from slomo.placement.way_packing import pack_ways

SIZES = (1_000, 10_000, 100_000)
HOST = Host("e5-2695v4", 12, 20)
#: Goals of issue 5.
GOALS = {
    "plan_s": 15.0,
    "plan_gap": 0.005,
    "pack_s": 0.1,
    "predicted_s": 60.0,
    "predicted_gap": 0.03,
    "admit_p99_ms": 2.0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="directory of trained models of one machine")
    parser.add_argument("--machine", help="machine of the models")
    parser.add_argument("--kinds", type=int, default=120, help="network functions with cache allocation")
    parser.add_argument("--size", type=int, action="append", help="instances, repeatable; 1k, 10k and 100k by default")
    parser.add_argument("--skip-ways", action="store_true", help="only with predictions")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("with cache allocation, 20 ways x 12 cores, about 3 options per network function")
    for size in () if given.skip_ways else given.size or SIZES:
        partitioned(size, given.kinds, given.seed)
    if given.models:
        library = ModelLibrary.load(given.models)
        machine = given.machine or library.machines[0]
        print(f"\nwith predictions in the loop, {machine}, no cache allocation")
        for size in given.size or SIZES:
            predicted(size, library, machine, given.seed)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak_mib:.0f} MiB")
    return 0


def options(kinds: int, generator: np.random.Generator) -> list[list[tuple[int, int]]]:
    """Return (cores, ways) options per network function: more cores, fewer ways."""
    table = []
    for _ in range(kinds):
        ways = int(generator.integers(2, 9))
        steps = [(1, ways)]
        for cores in (2, 3):
            fewer = round(steps[-1][1] * generator.uniform(0.5, 0.85))
            if fewer < steps[-1][1] and fewer >= 1:
                steps.append((cores, fewer))
        table.append(steps)
    return table


def partitioned(size: int, kinds: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = options(kinds, generator)
    demand = np.bincount(generator.integers(0, kinds, size), minlength=kinds)
    pieces = Pieces()
    items = [
        Item(pieces.number(Piece((f"nf{k}",) * cores, 1.0, (ways,) + (0,) * (cores - 1))), k, cores, ways)
        for k, steps in enumerate(table)
        for cores, ways in steps
    ]
    wanted = dict(enumerate(demand.tolist()))
    start = time.perf_counter()
    packed = pack_ways(HOST, items, wanted)
    packed_s = time.perf_counter() - start
    first = {item.klass: item for item in reversed(items)}
    klass = {item.piece: item.klass for item in items}
    columns = [column(mix, klass, kinds) for mix in [*packed, *((item.piece,) for item in first.values())]]
    plan = cover(demand.tolist(), columns, Knapsack(HOST, items, kinds), time_limit_s=12.0)
    print(
        f"{size:7d} instances: best fit {sum(packed.values())} servers, {packed_s:.3f} s; "
        f"mixes {plan.text}, {plan.rounds} rounds, {plan.columns} columns, {plan.seconds:.2f} s"
    )


def column(mix: tuple[int, ...], klass: dict[int, int], kinds: int) -> Column:
    return Column(mix, tuple(np.bincount([klass[piece] for piece in mix], minlength=kinds).tolist()))


def predicted(size: int, library: ModelLibrary, machine: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    keys = [key for key in library.workloads(machine) if not key.startswith("synthetic")]
    chosen = generator.integers(0, len(keys), size)
    workloads = [library[machine, key].workload for key in keys]
    shares = (0.9, 0.85, 0.8)
    requests = [Request(f"r{i}", (workloads[k],), SLO(min_share=shares[i % 3])) for i, k in enumerate(chosen)]
    cluster = Cluster.uniform(machine, max(size // 2, 10))
    for policy in ("slomo", "slomo-search"):
        placer = Placer(library, cluster, policy)
        start = time.perf_counter()
        decisions = placer.place_all(requests)
        took = time.perf_counter() - start
        refused = sum(not decision.accepted for decision in decisions)
        bound = getattr(placer.policy, "last", None)
        print(
            f"{size:7d} instances: {policy} {placer.servers_used} servers, {refused} refused, {took:.2f} s, "
            f"{placer.policy.oracle.asked} mixes judged" + (f"; {bound.text}" if bound else "")
        )
    times = []
    for i in range(1000):
        start = time.perf_counter()
        placer.admit(Request(f"n{i}", (workloads[int(generator.integers(0, len(keys)))],), SLO(min_share=0.9)))
        times.append(1e3 * (time.perf_counter() - start))
    print(
        f"{size:7d} instances: one admit p50 {np.percentile(times, 50):.2f} ms, p99 {np.percentile(times, 99):.2f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
