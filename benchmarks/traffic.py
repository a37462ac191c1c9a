"""Traffic that was never profiled: 64 to 1500 B with 1 k to 1 M flows, against the simulator.

Each NF is profiled under pressure on a grid of three packet sizes by four flow counts, chosen without looking at any
error: flow counts a factor of ten apart, because what misses a cache grows with their logarithm; packet sizes at both
ends and in the middle, because time per packet is straight in bytes but for one bend where the wire is full. Runs
alone, one each, at flow counts and sizes between those say where the NF slows down on the way. Then points drawn at
random (seeded; log-uniform, both attributes at once) are run alone and in mixes, and predicted. Goal: mean error 5 %.

    python benchmarks/traffic.py                   four NFs, some minutes on two cores
    python benchmarks/traffic.py --nf lpm --runs 60 --points 40
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import pressure_plan, solo_plan
from slomo.profiling.plans.plan import combine
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "e5-2620v4"
NFS = ("flowstats", "ip-router", "maglev", "snort")
FLOWS, SIZES = (1_000, 10_000, 100_000, 1_000_000), (64, 512, 1500)
#: Flow counts a quarter of a decade apart, and packet sizes; measured alone only.
FINE_FLOWS = tuple(round(10 ** (3 + step / 4)) for step in range(13))
FINE_SIZES = (64, 128, 256, 384, 512, 768, 1024, 1280, 1500)
NEIGHBOURS = ("snort", "pfsense", "maglev")
GOAL_PERCENT = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nf", action="append", help=f"repeatable; {', '.join(NFS)} by default")
    parser.add_argument("--runs", type=int, default=24, help="pressure runs per traffic profile")
    parser.add_argument("--points", type=int, default=24, help="traffic drawn per NF")
    parser.add_argument("--no-solo", action="store_true", help="leave the runs alone between profiles out")
    parser.add_argument("--models", type=Path, help="keep the trained models here, or take them from here")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    nfs = given.nf or list(NFS)
    library, testbed = profiled(nfs, given), SimulatedTestbed(MACHINE)
    if given.models:
        library.save(given.models)
    print(f"{'NF':16}{'alone':>8}{'mixes':>8}{'all':>8}{'p95':>8}{'bias':>8}   mean absolute error [%]")
    every: list[float] = []
    for nf in nfs:
        generator = np.random.default_rng([given.seed, len(every)])
        alone, mixes = [], []
        for _ in range(given.points):
            target = Workload(nf, traffic=traffic(generator))
            alone.append(error(library, testbed, target, ()))
            mixes.append(error(library, testbed, target, drawn(generator)))
        every += alone + mixes
        row(nf, alone, mixes)
    mean = np.abs(every).mean()
    mark = "" if mean <= GOAL_PERCENT else "  OFF"
    print(f"\nmean over all: {mean:.2f} %, p95 {np.quantile(np.abs(every), 0.95):.2f} %; goal {GOAL_PERCENT:g} %{mark}")
    return 0


def row(nf: str, alone: list[float], mixes: list[float]) -> None:
    both = np.array([*alone, *mixes])
    means = [np.abs(alone).mean(), np.abs(mixes).mean(), np.abs(both).mean(), np.quantile(np.abs(both), 0.95)]
    print(f"{nf:16}" + "".join(f"{value:8.2f}" for value in means) + f"{both.mean():+8.2f}", flush=True)


def profiled(nfs: list[str], given: argparse.Namespace) -> ModelLibrary:
    """Profile the NFs on the grid, their neighbours at the usual traffic, run the points between alone, and train."""
    if given.models and given.models.exists():
        return ModelLibrary.load(given.models)
    grid = [Traffic(size, flows) for size in SIZES for flows in FLOWS]
    workloads = [Workload(nf, traffic=item) for nf in nfs for item in grid]
    workloads += [Workload(nf) for nf in NEIGHBOURS]
    testbed = SimulatedTestbed(MACHINE)
    pressed = pressure_plan(list(dict.fromkeys(workloads)), MACHINE, "sobol", runs=given.runs, seed=given.seed)
    library = train(run_campaign(pressed, testbed, jobs=given.jobs), models=["slomo-xgb"], seed=given.seed)
    print(f"profiled with {len(pressed)} runs", file=sys.stderr, flush=True)
    if given.no_solo:
        return library
    between = [Traffic(size, flows) for size in SIZES for flows in FINE_FLOWS]
    between += [Traffic(size, flows) for size in FINE_SIZES for flows in FLOWS]
    points = [Workload(nf, traffic=item) for nf in nfs for item in dict.fromkeys(between) if item not in grid]
    alone = combine("alone", [solo_plan(points, MACHINE, seed=given.seed)])
    print(f"and {len(alone)} runs alone", file=sys.stderr, flush=True)
    return library.merge(train(run_campaign(alone, testbed, jobs=given.jobs), models=["none"], seed=given.seed))


def traffic(generator: np.random.Generator) -> Traffic:
    size, flows = np.exp(generator.uniform(np.log([64, 1_000]), np.log([1500, 1_000_000])))
    return replace(Traffic(), packet_size_b=round(float(size)), flow_count=round(float(flows)))


def drawn(generator: np.random.Generator) -> tuple[Workload, ...]:
    return tuple(Workload(str(name)) for name in generator.choice(NEIGHBOURS, size=generator.integers(1, 6)))


def error(library: ModelLibrary, testbed: SimulatedTestbed, target: Workload, beside: tuple[Workload, ...]) -> float:
    """Return the signed error of the target's throughput [%]."""
    measured = testbed.run(Colocation(MACHINE, target, beside), seed=7).target
    predicted = solve_server(library, [target, *beside], MACHINE).throughput_mpps[0]
    return 100.0 * (predicted / measured.throughput_mpps - 1.0)


if __name__ == "__main__":
    sys.exit(main())
