"""Fewer experiments: the accuracy of the grid's 588 runs per network function against at most 60 chosen adaptively.

Both profiles train the same model and are judged on the same mixes, which neither has seen; the third line thins the
grid at random to the adaptive design's number of runs, so that what the choice of runs is worth can be seen too.
Goal: the median over network functions of the adaptive design's error is at most the grid's.

    python benchmarks/adaptive.py                               the full measurement
    python benchmarks/adaptive.py --nf flowstats --nf maglev    fewer network functions
    python benchmarks/adaptive.py --grid-runs 150               a thinner grid, for a quick look
    python benchmarks/adaptive.py --store DIR                   keeps every run; go on where it stopped
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from slomo.models.training import train
from slomo.prediction.evaluation import Evaluation, evaluate
from slomo.profiling.adaptive_campaign import adaptive_plan, run_adaptive
from slomo.profiling.campaign import run_campaign
from slomo.profiling.plan import ExperimentPlan
from slomo.profiling.plans import mixes_plan, pressure_plan
from slomo.records.profile import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload

NETWORK_FUNCTIONS = (
    "ip-router", "vpn", "flowstats", "stateless-firewall", "maglev", "snort", "suricata", "pfsense",
)  # fmt: skip
MODEL = "slomo-xgb"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--nf", action="append", help="a network function; repeatable")
    parser.add_argument("--budget", type=int, default=60, help="runs per network function")
    parser.add_argument("--target-error", type=float, default=0.001, help="out of reach by default: spends the budget")
    parser.add_argument("--grid-runs", type=int, help="points of the grid; all 588 by default")
    parser.add_argument("--mixes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--store", type=Path, help="folder that keeps the runs")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    nfs = given.nf or list(NETWORK_FUNCTIONS)
    mixes = run(mixes_plan(nfs, given.machine, given.mixes, stream="test", seed=given.seed + 1), given)
    found = {
        "adaptive": judged(adaptive(nfs, given), mixes, given.seed),
        "random": judged(
            run(pressure_plan(nfs, given.machine, runs=given.budget, seed=given.seed), given), mixes, given.seed
        ),
        "grid": judged(run(pressure_plan(nfs, given.machine, runs=given.grid_runs), given), mixes, given.seed),
    }
    report(found)
    if given.json:
        given.json.write_text(json.dumps({name: item.to_dict() for name, item in found.items()}, indent=1) + "\n")
    return 0


def adaptive(nfs: list[str], given: argparse.Namespace) -> ProfileDataset:
    """Profile adaptively, and say what that saved."""
    machine = load_machine(given.machine)
    plan = adaptive_plan(
        [Workload(nf) for nf in nfs],
        machine,
        target_error=given.target_error,
        budget=given.budget,
        seed=given.seed,
    )
    store = place(f"adaptive-{given.budget}-{given.target_error}-{len(nfs)}", given)
    result = run_adaptive(plan, SimulatedTestbed(given.machine), store, given.jobs)
    for outcome in result.outcomes:
        print(outcome)
    return result.dataset


def run(plan: ExperimentPlan, given: argparse.Namespace) -> ProfileDataset:
    """Run a fixed plan, going on where a store left off."""
    print(f"{plan.name}: {len(plan)} runs", file=sys.stderr)
    return run_campaign(
        plan, SimulatedTestbed(given.machine), place(f"{plan.name}-{plan.fingerprint}", given), given.jobs
    )


def place(name: str, given: argparse.Namespace) -> Path | None:
    """Return the file that keeps the runs of one profile."""
    return given.store / f"{given.machine}-{name}-{given.seed}.sqlite" if given.store else None


def judged(profile: ProfileDataset, mixes: ProfileDataset, seed: int) -> Evaluation:
    """Train on a profile and judge on the mixes."""
    return evaluate(train(profile, models=[MODEL], seed=seed), mixes)


def report(found: dict[str, Evaluation]) -> None:
    """Print the mean error per network function and profile, and whether the goal is met."""
    per_nf = {
        name: {nf: errors[MODEL].mape for nf, errors in evaluation.per_nf.items()} for name, evaluation in found.items()
    }
    print(f"\nmean error on unseen mixes [%]\n{'':22}" + "".join(f"{name:>10}" for name in found))
    for nf in per_nf["grid"]:
        print(f"{nf:22}" + "".join(f"{per_nf[name][nf]:10.2f}" for name in found))
    medians = {name: statistics.median(errors.values()) for name, errors in per_nf.items()}
    print(f"{'median':22}" + "".join(f"{medians[name]:10.2f}" for name in found))
    met = medians["adaptive"] <= medians["grid"]
    print("\n" + ("ok: " if met else "off: ") + f"median {medians['adaptive']:.2f} %, grid {medians['grid']:.2f} %")


if __name__ == "__main__":
    sys.exit(main())
