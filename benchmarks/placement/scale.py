"""How far and how fast: 100 000 instances, with cache allocation and with predictions in the loop.

With cache allocation every network function has about three (ways, cores) options on servers of 20 ways x 12 cores;
planned by column generation over mixes, from a first plan that fills servers by value. With predictions, the nine
network functions of ResQ (NSDI'18) share caches, and their models say which mixes hold. Then one `admit` at a time on
the full cluster. Times are wall time, of `admit` also this thread's time on a core, which a busy machine does not
stretch.

Small cases compare `slomo-search` with the optimum of an integer program over every mix that holds.

    python benchmarks/placement/scale.py                     cache allocation at 1k, 10k and 100k instances
    python benchmarks/placement/scale.py --models DIR        and with predictions from trained models
"""

import argparse
import math
import resource
import sys
import time
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, host_of
from slomo.placement.online.placer import Placer
from slomo.placement.planning.columns import Column
from slomo.placement.planning.pricing import Item, Knapsack
from slomo.placement.planning.rounding import fill_by_value
from slomo.placement.policies.search import cover
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import load_machine

SIZES = (1_000, 10_000, 100_000)
SMALL = (10, 20, 40)
HOST = Host("e5-2695v4", 12, 20)
#: Goals of issue 5.
GOALS = {
    "plan_s": 15.0,
    "plan_gap": 0.005,
    "pack_s": 0.1,
    "predicted_s": 60.0,
    "predicted_gap": 0.03,
    "admit_p99_ms": 2.0,
    "small_gap": 0.01,
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
        seconds = {size: predicted(size, library, machine, given.seed) for size in given.size or SIZES}
        growth(seconds)
        print("\nsmall cases: slomo-search beside the proven optimum, 10 draws each")
        for size in SMALL:
            small(size, library, machine, given.seed)
    return 0


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def off(goal: str, value: float) -> str:
    return f" OFF (goal {GOALS[goal]:g})" if value > GOALS[goal] else ""


def growth(seconds: dict[int, float]) -> None:
    """Print how time grows beside n log n, from the smallest size on."""
    base = min(seconds)
    for size, took in seconds.items():
        expected = size * math.log(size) / (base * math.log(base))
        print(f"{size:7d} instances: {took / seconds[base]:.1f} times the time of {base}, n log n {expected:.1f}")


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
    knapsack = Knapsack(HOST, items, kinds)
    start = time.perf_counter()
    packed = first_plan(table, demand, knapsack)
    packed_s = time.perf_counter() - start
    first = {item.klass: item for item in reversed(items)}
    klass = {item.piece: item.klass for item in items}
    columns = [column(mix, klass, kinds) for mix in [*packed, *((item.piece,) for item in first.values())]]
    plan = cover(demand.tolist(), columns, knapsack, time_limit_s=12.0)
    print(
        f"{size:7d} instances: first plan {sum(packed.values())} servers, {packed_s:.3f} s{off('pack_s', packed_s)}; "
        f"mixes {plan.text}{off('plan_gap', plan.gap)}, {plan.seconds:.2f} s{off('plan_s', plan.seconds)}"
    )


def first_plan(
    table: list[list[tuple[int, int]]], demand: np.ndarray, knapsack: Knapsack
) -> dict[tuple[int, ...], int]:
    """Return `slomo-search`'s plan before any column is generated."""
    shares = [min(max(cores / HOST.cores, ways / HOST.ways) for cores, ways in steps) for steps in table]
    return fill_by_value(demand, np.array(shares), knapsack, passes=3).best


def column(mix: tuple[int, ...], klass: dict[int, int], kinds: int) -> Column:
    return Column(mix, tuple(np.bincount([klass[piece] for piece in mix], minlength=kinds).tolist()))


def predicted(size: int, library: ModelLibrary, machine: str, seed: int) -> float:
    """Place, admit on top; return the seconds of the last plan."""
    generator = np.random.default_rng(seed)
    keys = [key for key in library.workloads(machine) if not key.startswith("synthetic")]
    chosen = generator.integers(0, len(keys), size)
    workloads = [library[machine, key].workload for key in keys]
    shares = (0.9, 0.85, 0.8)
    requests = [Request(f"r{i}", (workloads[k],), SLO(min_share=shares[i % 3])) for i, k in enumerate(chosen)]
    cluster = Cluster.uniform(machine, max(size // 2, 10))
    for policy in ("predicted", "slomo-search"):
        placer = Placer(library, cluster, policy)
        start = time.perf_counter()
        decisions = placer.place_all(requests)
        took = time.perf_counter() - start
        refused = sum(not decision.accepted for decision in decisions)
        bound = getattr(placer.policy, "last", None)
        print(
            f"{size:7d} instances: {policy} {placer.servers_used} servers, {refused} refused, "
            f"{took:.2f} s{off('predicted_s', took)}, "
            f"{placer.policy.oracle.book.mixes_predicted} mixes predicted"
            + (f"; {bound.text}{off('predicted_gap', bound.gap)}" if bound else "")
        )
    times, busy = [], []
    for i in range(1000):
        request = Request(f"n{i}", (workloads[int(generator.integers(0, len(keys)))],), SLO(min_share=0.9))
        start, start_busy = time.perf_counter(), time.thread_time()
        placer.admit(request)
        times.append(1e3 * (time.perf_counter() - start))
        busy.append(1e3 * (time.thread_time() - start_busy))
    wall, core = np.percentile(times, (50, 99)), np.percentile(busy, (50, 99))
    print(
        f"{size:7d} instances: one admit p50 {wall[0]:.2f} ms, p99 {wall[1]:.2f} ms (on a core {core[0]:.2f} and "
        f"{core[1]:.2f} ms); peak memory so far {peak_mib():.0f} MiB{off('admit_p99_ms', core[1])}",
        flush=True,
    )
    return took


def small(size: int, library: ModelLibrary, machine: str, seed: int, draws: int = 10) -> None:
    """Compare with an integer program over every mix that holds, judged one by one, on 9 cores as in ResQ."""
    keys = [key for key in library.workloads(machine) if not key.startswith("synthetic")]
    cluster = Cluster.uniform(machine, size, cores_reserved=max(load_machine(machine).cores_per_socket - 9, 0))
    ours, best = [], []
    for draw in range(draws):
        generator = np.random.default_rng([seed, size, draw])
        chosen = generator.integers(0, len(keys), size)
        workloads = [library[machine, key].workload for key in keys]
        requests = [Request(f"r{i}", (workloads[k],), SLO(min_share=0.9)) for i, k in enumerate(chosen)]
        placer = Placer(library, cluster, "slomo-search")
        placer.place_all(requests)
        ours.append(placer.servers_used)
        best.append(optimum(placer, np.bincount(chosen, minlength=len(keys)), keys))
    same = sum(a == b for a, b in zip(ours, best, strict=True))
    gap = sum(ours) / sum(best) - 1
    over = f"{100 * gap:.2f} %{off('small_gap', gap)}"
    print(f"{size:7d} instances: {sum(ours)} servers in all, optimum {sum(best)} ({over}), same in {same} of {draws}")


def optimum(placer: Placer, demand: np.ndarray, keys: list[str]) -> int:
    """Return the fewest servers for single instances by an integer program over all mixes that hold in every part."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csc_array

    host = host_of(placer.cluster.servers[0])
    needs = {key: 0.9 * placer.estimates.solo_mpps(host.machine, key) for key in keys}
    mixes: list[tuple[int, ...]] = []
    level = [(k,) for k in range(len(keys)) if demand[k]]
    for size in range(1, host.cores + 1):
        rates = placer.estimates.rates(host.machine, [[keys[k] for k in mix] for mix in level], [size] * len(level))
        holds = [m for m, r in zip(level, rates, strict=True) if all(r[keys[k]][1] / needs[keys[k]] >= 1 for k in m)]
        mixes += holds
        holding = set(holds)
        grown = [(*m, k) for m in holds for k in range(m[-1], len(keys)) if m.count(k) < demand[k]]
        level = [m for m in grown if all(m[:at] + m[at + 1 :] in holding for at in range(len(m)))]
    serves = np.array([np.bincount(mix, minlength=len(keys)) for mix in mixes])
    solved = milp(
        np.ones(len(mixes)), constraints=LinearConstraint(csc_array(serves.T.astype(float)), lb=demand),
        bounds=Bounds(0, np.inf), integrality=np.ones(len(mixes)), options={"mip_rel_gap": 0.0, "time_limit": 120.0},
    )  # fmt: skip
    return math.ceil(solved.mip_dual_bound - 1e-6)


if __name__ == "__main__":
    sys.exit(main())
