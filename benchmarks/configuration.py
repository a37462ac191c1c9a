"""Settings that were never profiled: rule-set sizes and match densities between profiles, against the simulator.

A string matcher of one's own (rules of 1 KiB each, read at random; every match costs a look-up in a table of 16 MiB) is
profiled under pressure with 1 k, 8 k and 64 k rules by match densities of 0, 0.4 and 0.8; then settings drawn at random
(seeded; rules log-uniform, densities uniform) are run alone and in mixes, and predicted. Shipped NFs: the automaton of
Snort and the trie of an IP router, profiled at four sizes.

    python benchmarks/configuration.py             some minutes on two cores
"""

import argparse
import sys

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import pressure_plan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import parse_network_function
from slomo.vocabulary.workload import Setting, Workload

MACHINE = "e5-2620v4"
MATCHER = """
description: A string matcher whose work grows with its rules and with what matches
settings: {rules: 8000, match_density: 0.2}
simulated:
  compute_cycles: 600
  instructions: 1400
  structures:
    - {name: rules, size_mib: $rules * 0.0009765625, reads: 12, mlp: 3}
    - {name: matches, size_mib: 16, reads: $match_density * 20, mlp: 2}
    - {name: hot, size_mib: 0.0625, reads: 6, mlp: 4}
"""
#: NF -> settings profiled; their product is the grid.
PROFILED: dict[str, dict[str, tuple[float, ...]]] = {
    "matcher": {"rules": (1_000, 8_000, 64_000), "match_density": (0.0, 0.4, 0.8)},
    "snort": {"automaton_mib": (2, 8, 32, 128)},
    "ip-router": {"trie_mib": (1, 4, 16, 64)},
}
NEIGHBOURS = ("flowstats", "pfsense", "maglev")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=24, help="pressure runs per profile")
    parser.add_argument("--points", type=int, default=16, help="settings drawn per NF")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    testbed = SimulatedTestbed(MACHINE, [parse_network_function(MATCHER, "matcher", default_name="matcher")])
    library = profiled(testbed, given)
    print(f"{'NF':16}{'alone':>8}{'mixes':>8}{'p95':>8}{'bias':>8}   mean absolute error [%]")
    every: list[float] = []
    for nf, settings in PROFILED.items():
        generator = np.random.default_rng([given.seed, len(every)])
        targets = [Workload(nf, drawn_settings(generator, settings)) for _ in range(given.points)]
        alone = [error(library, testbed, target, ()) for target in targets]
        mixes = [error(library, testbed, target, drawn(generator)) for target in targets]
        both = np.array(alone + mixes)
        every += both.tolist()
        sizes = [np.abs(alone).mean(), np.abs(mixes).mean(), np.quantile(np.abs(both), 0.95)]
        print(f"{nf:16}" + "".join(f"{value:8.2f}" for value in sizes) + f"{both.mean():+8.2f}", flush=True)
    print(f"\nmean over all: {np.abs(every).mean():.2f} %, p95 {np.quantile(np.abs(every), 0.95):.2f} %")
    return 0


def profiled(testbed: SimulatedTestbed, given: argparse.Namespace) -> ModelLibrary:
    workloads = [Workload(nf, point) for nf, settings in PROFILED.items() for point in grid(settings)]
    workloads += [Workload(nf) for nf in NEIGHBOURS]
    plan = pressure_plan(workloads, MACHINE, "sobol", runs=given.runs, seed=given.seed)
    print(f"profiling with {len(plan)} runs", file=sys.stderr, flush=True)
    return train(run_campaign(plan, testbed, jobs=given.jobs), models=["slomo-xgb"], seed=given.seed)


def grid(settings: dict[str, tuple[float, ...]]) -> list[dict[str, Setting]]:
    points: list[dict[str, Setting]] = [{}]
    for name, values in settings.items():
        points = [{**point, name: value} for point in points for value in values]
    return points


def drawn_settings(generator: np.random.Generator, settings: dict[str, tuple[float, ...]]) -> dict[str, Setting]:
    """Draw sizes log-uniform and shares uniform, over what was profiled."""
    point: dict[str, Setting] = {}
    for name, values in settings.items():
        low, high = values[0], values[-1]
        share = float(generator.uniform())
        point[name] = round(low + share * (high - low) if high <= 1.0 else low * (high / low) ** share, 3)
    return point


def drawn(generator: np.random.Generator) -> tuple[Workload, ...]:
    return tuple(Workload(str(name)) for name in generator.choice(NEIGHBOURS, size=generator.integers(1, 6)))


def error(library: ModelLibrary, testbed: SimulatedTestbed, target: Workload, beside: tuple[Workload, ...]) -> float:
    """Return the signed error of the target's throughput [%]."""
    measured = testbed.run(Colocation(MACHINE, target, beside), seed=7).target
    predicted = solve_server(library, [target, *beside], MACHINE).throughput_mpps[0]
    return 100.0 * (predicted / measured.throughput_mpps - 1.0)


if __name__ == "__main__":
    sys.exit(main())
