"""Traffic that was never profiled: flow counts and packet sizes between profiles, against the simulator.

Each NF is profiled at a few flow counts and packet sizes; then it runs alone and in mixes at values in between, which
are predicted by interpolating time per packet. Goal: mean error at most 5 %.

    python benchmarks/traffic.py                   two NFs, a minute or two on two cores
    python benchmarks/traffic.py --nf lpm --runs 120
"""

import argparse
import sys
from dataclasses import replace

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.models.training import train
from slomo.prediction.equilibrium import solve_server
from slomo.profiling.campaign import run_campaign
from slomo.profiling.plan import combine
from slomo.profiling.plans import pressure_plan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "e5-2620v4"
PROFILED = {"flow_count": (1_000, 10_000, 100_000, 1_000_000), "packet_size_b": (64, 256, 1500)}
ASKED = {"flow_count": (3_000, 30_000, 60_000, 300_000), "packet_size_b": (128, 512, 1024)}
NEIGHBOURS = ("snort", "pfsense", "maglev")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nf", action="append", help="repeatable; flowstats and ip-router by default")
    parser.add_argument("--runs", type=int, default=60, help="pressure runs per traffic profile")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    nfs = given.nf or ["flowstats", "ip-router"]
    library = profiled(nfs, given.runs, given.seed)
    generator, testbed = np.random.default_rng(given.seed), SimulatedTestbed(MACHINE)
    every = []
    for nf in nfs:
        for attribute, values in ASKED.items():
            for value in values:
                target = Workload(nf, traffic=Traffic(**{attribute: value}))
                errors = [
                    error(library, testbed, target, neighbours)
                    for neighbours in ((), *(drawn(generator, count) for count in (1, 2, 3, 5)))
                ]
                every += errors
                print(f"{target.key:32} alone {errors[0]:+6.2f} %   in mixes {np.abs(errors[1:]).mean():5.2f} %")
    print(f"\nmean absolute error {np.abs(every).mean():.2f} %, p95 {np.quantile(np.abs(every), 0.95):.2f} %, goal 5 %")
    return 0


def profiled(nfs: list[str], runs: int, seed: int) -> ModelLibrary:
    """Profile the NFs at every traffic profile, and their neighbours at the usual one, and train."""
    base = Traffic()
    traffic = [replace(base, **{name: value}) for name, values in PROFILED.items() for value in values]
    workloads = [Workload(nf, traffic=item) for nf in nfs for item in dict.fromkeys(traffic)]
    workloads += [Workload(nf) for nf in NEIGHBOURS if nf not in nfs]
    plan = combine("traffic", [pressure_plan(workloads, MACHINE, "sobol", runs=runs, seed=seed)])
    return train(run_campaign(plan, SimulatedTestbed(MACHINE)), models=["slomo-xgb"], seed=seed)


def drawn(generator: np.random.Generator, count: int) -> tuple[Workload, ...]:
    return tuple(Workload(str(name)) for name in generator.choice(NEIGHBOURS, size=count))


def error(library: ModelLibrary, testbed: SimulatedTestbed, target: Workload, beside: tuple[Workload, ...]) -> float:
    """Return the signed error of the target's throughput [%]."""
    measured = testbed.run(Colocation(MACHINE, target, beside), seed=7).target
    assert measured is not None
    predicted = solve_server(library, [target, *beside], MACHINE).throughput_mpps[0]
    return 100.0 * (predicted / measured.throughput_mpps - 1.0)


if __name__ == "__main__":
    sys.exit(main())
