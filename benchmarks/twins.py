"""Simulated twins of functions (`slomo nf fit`): what they lose in mixes, and cost their neighbours.

Each function is profiled beside the synthetic competitor, a twin is fitted to a dozen of these runs, and random mixes
are simulated twice: with the function, and with the twin in its place. Aims: the mean error of the share of solo
throughput that the twin loses is at most 3 percentage points, and its neighbours' throughputs differ by at most 3 %.

    python benchmarks/twins.py --seed 2911                       six functions on two machines, a quarter of an hour
    python benchmarks/twins.py --seed 2911 --wrong [--fit-machine]     fitted and run on a wrongly described machine
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.profile import profile
from slomo.workflow.twin import DEFAULT_RUNS, fit_twin

FUNCTIONS = ("flowstats", "ip-router", "maglev", "mazunat", "snort", "stats")
AIM = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--machine", action="append", help="repeatable; e5-2620v4 and silver-4110 by default")
    parser.add_argument("--nf", action="append", help=f"repeatable; {', '.join(FUNCTIONS)} by default")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="beside the competitor, per function")
    parser.add_argument("--mixes", type=int, default=6, help="per function")
    wrong = "tell the fit of 30 % less cache, 20 % more memory bandwidth and 10 % less latency than there are"
    parser.add_argument("--wrong", action="store_true", help=wrong)
    parser.add_argument("--fit-machine", action="store_true", help="as `slomo nf fit --fit-machine`")
    args = parser.parse_args()
    off = 0
    for machine in args.machine or ("e5-2620v4", "silver-4110"):
        for number, nf in enumerate(args.nf or FUNCTIONS):
            off += not report(machine, nf, np.random.default_rng([args.seed, number]), args)
    return off > 0


def report(machine: str, nf: str, rng: np.random.Generator, args: argparse.Namespace) -> bool:
    """Fit one twin, print how far it is off in mixes, and return whether it keeps the aims."""
    dataset = profile(nf, machine=machine, plan="pressure", design="sobol", runs=args.runs, seed=args.seed)
    stated = true = load_machine(machine)
    if args.wrong:
        stated = replace(
            true,
            llc_mib=0.7 * true.llc_mib,
            memory_peak_gb_s=1.2 * true.memory_peak_gb_s,
            dram_local_ns=0.9 * true.dram_local_ns,
        )
    try:
        twin = fit_twin(dataset, nf, machine=stated, runs=args.runs, fit_machine=args.fit_machine)
    except UnsupportedPredictionError as error:
        print(f"{machine} {nf}: refused: {error}", flush=True)
        return True
    real, fitted = SimulatedTestbed(true), SimulatedTestbed(twin.machine, [twin.function])
    own, others = [], []
    for _ in range(args.mixes):
        mix = [Workload(name) for name in rng.choice(FUNCTIONS, size=rng.integers(1, true.cores_per_socket))]
        measured = of_mix(real, Workload(nf), mix, args.seed)
        simulated = of_mix(fitted, Workload(twin.function.name), mix, args.seed)
        own.append(100.0 * (simulated[0] - measured[0]))
        others += (100.0 * (np.divide(simulated[1:], measured[1:]) - 1.0)).tolist()
    lost, cost = float(np.abs(own).mean()), float(np.abs(others).mean())
    print(
        f"{machine} {nf}: alone {100.0 * twin.solo_error:+.1f} %, beside competitors {twin.error_points:.1f} points; "
        f"mixes {lost:.1f} ({np.abs(own).max():.1f}) points, neighbours {cost:.1f} ({np.abs(others).max():.1f}) %"
        + ("" if max(lost, cost) <= AIM else "  OFF"),
        flush=True,
    )
    return max(lost, cost) <= AIM


def of_mix(testbed: SimulatedTestbed, target: Workload, mix: Sequence[Workload], seed: int) -> list[float]:
    """Return the share of solo throughput that the target keeps, then the throughputs of its neighbours [Mpps]."""
    alone, together = (
        testbed.run(Colocation(testbed.machine.name, target, beside), seed=seed).beside for beside in ((), tuple(mix))
    )
    assert alone is not None
    assert together is not None
    target_mpps, *neighbours = [tenant.throughput_mpps for tenant in together.tenants]
    return [target_mpps / alone.tenants[0].throughput_mpps, *neighbours]


if __name__ == "__main__":
    sys.exit(main())
