"""Baselines with every advantage: each as its authors would build it, on our data, budget and calibration.

Dobrescu (NSDI'12) and Bubble-Up (MICRO'11) read one metric of the competitors' solo runs; SLOMO (SIGCOMM'20) fits
a line to it, their authors drew curves. Both forms are trained on the same rows as ours. The default also learns from
calibration mixes, so all other models are trained once more with these mixes as runs. The best of a baseline's four
errors counts.
`slomo, published rule` is SLOMO's model family composed by its published rule *on our grid*, not SLOMO as published.
Target: the default at least twice as good as the better form of each.

    python benchmarks/baselines.py                      the shipped grids, 210 mixes of the test stream a machine
    python benchmarks/baselines.py --quick              60 runs, 70 mixes, one machine
    python benchmarks/baselines.py --runs 60            60 runs per function, drawn from the grid at random
    python benchmarks/baselines.py --design slomo-grid --runs 60    profiles on SLOMO's published levels instead
"""

import argparse
import sys
from pathlib import Path

from mixes_as_runs import mixes_as_runs

from slomo.evaluation.baselines import FORMS, beside_baselines
from slomo.evaluation.evaluate import Errors, evaluate
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.defaults import EQUILIBRIUM

MACHINES = ("e5-2620v4", "silver-4110")
OURS = ("equilibrium", "composed", "slomo-xgb", "slomo-smooth", "slomo-gp", "slomo-gbr")
NULL = ("mean", "none")
TIMES = 2.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=MACHINES, help="repeatable")
    parser.add_argument("--runs", type=int, help="runs per network function; the whole grid by default")
    parser.add_argument("--design", default="grid", choices=("grid", "slomo-grid"))
    parser.add_argument("--mixes", type=int, help="mixes to judge on, 210 by default")
    parser.add_argument("--quick", action="store_true", help="silver-4110, 60 runs and 70 mixes, unless said")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--store", type=Path, help="folder that keeps the runs")
    given = parser.parse_args()
    if given.quick:
        given.machine, given.runs = given.machine or ["silver-4110"], given.runs or 60
    given.mixes = given.mixes or (70 if given.quick else 210)
    return given


def main() -> int:
    given = arguments()
    missed = 0
    for machine in given.machine or MACHINES:
        shipped = find_dataset(f"slomo-{machine}")
        names = tuple(shipped.workload(key).nf for key in shipped.targets)
        mixes = run(mixes_plan(names, machine, given.mixes, stream="test", seed=given.seed), machine, given)
        measured = profile(shipped, names, machine, given)
        library = train(measured, seed=given.seed)
        names = (*OURS, *(form for forms in FORMS.values() for form in forms), *NULL)
        errors = dict(evaluate(library, mixes, names).models)
        published = evaluate(library, mixes, ["slomo-gbr"], compat="published").models["slomo-gbr"]
        others = [name for name in names if name != EQUILIBRIUM]
        learned = train(mixes_as_runs(library, measured), seed=given.seed)
        with_mixes = dict(evaluate(learned, mixes, others).models)
        missed += report(f"{machine}, {given.design}", {**errors, "slomo, published rule": published}, with_mixes)
    return 0 if not missed else 1


def profile(shipped: ProfileDataset, names: tuple[str, ...], machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Return pressure rows of the design asked for, and the shipped calibration mixes."""
    frame = shipped.frame
    if given.design == "slomo-grid":
        plan = pressure_plan(names, machine, "slomo-grid", runs=given.runs, seed=given.seed)
        return run(plan, machine, given).merge(shipped.select(plan="mix"))
    if given.runs is None:
        return shipped
    pressure = frame[frame["plan"] == "pressure"].sample(frac=1.0, random_state=given.seed)
    drawn = pressure[pressure.groupby("target").cumcount() < given.runs].index
    kept = frame.loc[sorted([*drawn, *frame.index[frame["plan"] != "pressure"]])]
    return ProfileDataset(kept.reset_index(drop=True), shipped.environment)


def run(plan: ExperimentPlan, machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Run a plan, going on where a store left off."""
    store = given.store / f"baselines-{machine}-{plan.fingerprint}.sqlite" if given.store else None
    print(f"{machine}: {plan.name}, {len(plan)} runs", file=sys.stderr, flush=True)
    return run_campaign(plan, SimulatedTestbed(machine), store=store, jobs=given.jobs)


def report(title: str, errors: dict[str, Errors], with_mixes: dict[str, Errors]) -> int:
    """Print all models, and how many times as far off the best form of each baseline is; return misses."""
    head = f"{'mean':>8}{'p95':>8}{'held':>8}{'width':>8}"
    print(f"\n{title} [%]\n{'':24}{head}   mixes learned as runs:{head}")
    for name, error in errors.items():
        cells = [f"{each.mape:8.2f}{each.p95:8.2f}{each.coverage:8.1f}{each.width:8.2f}" for each in
                 (error, with_mixes.get(name)) if each]  # fmt: skip
        print(f"{name:24}" + f"{'':25}".join(cells))
    missed = 0
    best = {name: min(each[name].mape for each in (errors, with_mixes) if name in each) for name in errors}
    for name, baseline in beside_baselines(best).items():
        missed += baseline["times"] < TIMES
        said = "ok " if baseline["times"] >= TIMES else "OFF"
        print(f"{said} {name}: {baseline['times']:.1f} times as far off as the default, in its best form", end=" ")
        print(f"({baseline['form']})", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
