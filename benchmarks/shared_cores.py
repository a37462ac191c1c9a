"""NFs on one core beside a noisy neighbour on another: predicted from models of whole cores, against the simulation.

    python benchmarks/shared_cores.py --mixes 12

Two NFs, then four, drawn from the shipped ones share core 0 under CFS; FlowStats, which reads most, has core
1. Models are those of the shipped dataset of the E5-2620 v4, which never saw a shared core. Aim: mean error of at
most 3 %. A window of 240 ms cuts turns of 6 to 13 ms, which alone moves what is counted by up to a tenth; so what an NF
served is divided by the core's time that it had in the window and taken times its fair part; the error of the plain
count is printed beside.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import slomo
from slomo.records.storage import load_dataset
from slomo.training.training import train
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.simulate import simulate_chains

MACHINE = "e5-2620v4"
SHIPPED = Path(__file__).parent.parent / "datasets" / f"slomo-{MACHINE}"
NOISE = Workload("flowstats")
AIM_PERCENT = 3.0
COUNTED_MS = 240.0


def simulated(names: list[str], seed: int) -> tuple[list[float], list[float]]:
    """Return what each NF of core 0 serves in the simulation [Mpps]: with its fair part of the core, and as counted."""
    stages = [ChainStage(f"nf{i}", 0, workload=Workload(name)) for i, name in enumerate(names)]
    stages.append(ChainStage("noise", 1, workload=NOISE))
    chains = tuple(ServiceChain(f"to-{stage.name}", (stage.name,)) for stage in stages)
    system = ChainSystem(tuple(stages), chains, machine=MACHINE, queue_capacity=2048)
    result = simulate_chains(system, "cfs", duration_ms=COUNTED_MS, warm_ms=96.0, seed=seed)
    counted = [result.chains[f"to-nf{i}"].throughput_mpps for i in range(len(names))]
    times = [result.stages[f"nf{i}"].cpu_share * len(names) for i in range(len(names))]
    return [mpps / time for mpps, time in zip(counted, times, strict=True)], counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mixes", type=int, default=12, help="of each size")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    library = train(load_dataset(SHIPPED))
    names = sorted({model.workload.nf for model in library.values()} - {"synthetic"})
    rng = np.random.default_rng(given.seed)
    missed = False
    for size in (2, 4):
        errors = []
        for mix in range(given.mixes):
            here = [str(name) for name in rng.choice(names, size, replace=False)]
            truth, counted = simulated(here, mix)
            for i, name in enumerate(here):
                others = [*here[:i], *here[i + 1 :]]
                guess = slomo.predict(name, [NOISE], library, machine=MACHINE, shares_core_with=others)
                inside = guess.interval[0] <= truth[i] <= guess.interval[1]
                plain = 100 * (guess.throughput_mpps / counted[i] - 1)
                low, high = slomo.predict(
                    name, [NOISE], library, machine=MACHINE, shares_core_with=others, window_s=COUNTED_MS / 1e3
                ).interval
                errors.append((100 * (guess.throughput_mpps / truth[i] - 1), inside, plain, low <= counted[i] <= high))
                print(f"{name:20} with {', '.join(others):40} {truth[i]:7.3f} {errors[-1][0]:+6.2f} %", flush=True)
        values = np.abs([error for error, *_ in errors])
        held, counted_held = (100 * np.mean([row[which] for row in errors]) for which in (1, 3))
        verdict = "" if values.mean() <= AIM_PERCENT else "OFF"
        missed |= bool(verdict)
        plain = np.mean(np.abs([row[2] for row in errors]))
        print(
            f"{size} on a core: mean {values.mean():.2f} % (aim {AIM_PERCENT:g}), p95 {np.percentile(values, 95):.2f}, "
            f"bias {np.mean([error for error, *_ in errors]):+.2f} %, 90 % intervals hold {held:.0f} %, "
            f"as counted mean {plain:.2f} %, intervals for so long a window hold {counted_held:.0f} % {verdict}"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
