"""Fewer experiments: the accuracy of the shipped runs per network function against at most 60 chosen adaptively.

All profiles train the same model and are judged on the same mixes, which none has seen: mixes of the test stream, run
for this, as are the runs that the adaptive design asks for. `shipped` are all settings of the shipped dataset (design
`sources`), `random` thins them to the same budget: it shows what the choice of runs is worth. `grid` is the grid's own
choice of as many runs. Goals: the median over network functions of error over that of the shipped runs is at most 1,
and so is that over the grid's, in every seed.

    python benchmarks/adaptive.py                               the full measurement: both machines, three seeds
    python benchmarks/adaptive.py --machine e5-2620v4 --seeds 1 --mixes 40
    python benchmarks/adaptive.py --store DIR                   keeps the mixes that were run
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slomo.evaluation.evaluate import evaluate
from slomo.profiling.adaptive.campaign import adaptive_plan, run_adaptive
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.machine import load_machine

MACHINES = ("e5-2620v4", "silver-4110")
DESIGNS = ("adaptive", "random", "grid")
#: Error by network function.
Errors = Mapping[str, float]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", help="one with a shipped dataset; repeatable")
    parser.add_argument("--model", default="slomo-xgb", help="the model all profiles train; equilibrium: whole servers")
    parser.add_argument("--budget", type=int, default=60, help="runs per network function")
    parser.add_argument("--target-error", type=float, default=0.0001, help="out of reach by default: spends the budget")
    parser.add_argument("--mixes", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--store", type=Path, help="folder that keeps the mixes")
    parser.add_argument("--json", type=Path, help="write the errors to this file")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    by_machine = {machine: measured(machine, given) for machine in given.machine or MACHINES}
    if given.json:
        given.json.write_text(json.dumps(by_machine, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(machine: str, given: argparse.Namespace) -> dict[str, list[Errors]]:
    """Judge all designs on one machine, and print it."""
    shipped = find_dataset(f"slomo-{machine}").select(plan=["solo", "pressure"])
    shipped = shipped.rows(shipped.frame["offered_mpps"].isna().to_numpy())  # as much as it can serve
    mixes = unseen(machine, shipped, given)
    errors = {"shipped": [judged(shipped, mixes, 0, given.model)], **{name: [] for name in DESIGNS}}
    for seed in range(given.seed, given.seed + given.seeds):
        errors["adaptive"].append(judged(adaptive(machine, shipped, seed, given), mixes, seed, given.model))
        errors["random"].append(judged(thinned(shipped, seed, given.budget), mixes, seed, given.model))
        errors["grid"].append(judged(grid(machine, shipped, seed, given), mixes, seed, given.model))
    report(f"{machine}, {given.model}", errors)
    return errors


def unseen(machine: str, shipped: ProfileDataset, given: argparse.Namespace) -> ProfileDataset:
    """Run mixes of the test stream, going on where a store left off."""
    workloads = [shipped.workload(key) for key in shipped.targets]
    plan = mixes_plan(workloads, machine, given.mixes, stream="test", seed=1)
    store = given.store / f"adaptive-{machine}-{plan.fingerprint}.sqlite" if given.store else None
    print(f"{machine}: {len(plan)} mixes", file=sys.stderr)
    return run_campaign(plan, SimulatedTestbed(machine), store, given.jobs)


def adaptive(machine: str, shipped: ProfileDataset, seed: int, given: argparse.Namespace) -> ProfileDataset:
    """Profile adaptively on the simulator, and say what that saved."""
    workloads = [shipped.workload(key) for key in shipped.targets]
    settings = {"target_error": given.target_error, "budget": given.budget, "seed": seed}
    result = run_adaptive(adaptive_plan(workloads, load_machine(machine), **settings), SimulatedTestbed(machine))
    for outcome in result.outcomes:
        print(outcome, file=sys.stderr)
    return result.dataset


def grid(machine: str, shipped: ProfileDataset, seed: int, given: argparse.Namespace) -> ProfileDataset:
    """Run as many settings of the grid per network function; one run is the run alone."""
    workloads = [shipped.workload(key) for key in shipped.targets]
    plan = pressure_plan(workloads, machine, "grid", runs=given.budget - 1, seed=seed)
    return run_campaign(plan, SimulatedTestbed(machine), None, given.jobs)


def thinned(shipped: ProfileDataset, seed: int, budget: int) -> ProfileDataset:
    """Return as many runs per network function, drawn from the shipped ones at random; one is the run alone."""
    frame = shipped.frame
    pressure = frame[frame["plan"] == "pressure"].sample(frac=1.0, random_state=seed)
    drawn = pressure[pressure.groupby("target").cumcount() < budget - 1].index
    kept = frame.loc[sorted([*drawn, *frame.index[frame["plan"] == "solo"]])]
    return ProfileDataset(kept.reset_index(drop=True), shipped.environment)


def judged(profile: ProfileDataset, mixes: ProfileDataset, seed: int, model: str) -> Errors:
    """Train on a profile; return the mean error per network function on the mixes [%]."""
    families = ["slomo-smooth"] if model == "equilibrium" else [model]
    evaluation = evaluate(train(profile, models=families, seed=seed), mixes, [model])
    return {nf: errors[model].mape for nf, errors in evaluation.per_nf.items()}


def report(title: str, errors: Mapping[str, Sequence[Errors]]) -> None:
    """Print the mean error per network function over the seeds, and whether the goal is met."""
    names = sorted(errors["shipped"][0])
    mean = {design: {nf: statistics.fmean(run[nf] for run in runs) for nf in names} for design, runs in errors.items()}
    print(f"\n{title}: mean error on unseen mixes [%], {len(errors['adaptive'])} seeds\n")
    print(f"{'':22}" + "".join(f"{design:>10}" for design in errors))
    for nf in names:
        print(f"{nf:22}" + "".join(f"{mean[design][nf]:10.2f}" for design in errors))
    for label, over in (("mean", statistics.fmean), ("median", statistics.median)):
        print(f"{label:22}" + "".join(f"{over(mean[design].values()):10.2f}" for design in errors))
    whole = mean["shipped"]
    ratio = {design: statistics.median(mean[design][nf] / whole[nf] for nf in names) for design in errors}
    print(f"{'median of ratios':22}" + "".join(f"{ratio[design]:10.2f}" for design in errors))
    for design, others in (("shipped", errors["shipped"] * len(errors["adaptive"])), ("grid", errors["grid"])):
        pairs = list(zip(errors["adaptive"], others, strict=True))
        medians = [statistics.median(run[nf] / other[nf] for nf in names) for run, other in pairs]
        means = [statistics.fmean(run.values()) / statistics.fmean(other.values()) for run, other in pairs]
        told = ", ".join(f"{median:.2f}" for median in medians) + " (of means " + ", ".join(f"{m:.2f}" for m in means)
        print(("ok: " if max(medians) <= 1.0 else "OFF: ") + f"adaptive over {design} by seed {told})")


if __name__ == "__main__":
    sys.exit(main())
