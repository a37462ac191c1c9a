"""What few runs are worth: 60 and 120 per network function, chosen in five ways, against the shipped ones.

Every profile trains the default (the equilibrium), and all are judged on the same mixes of the test stream, in which a
fifth of the targets has one neighbour. `adaptive` asks run by run (`slomo profile --design adaptive`), `random` draws
of the shipped runs (design `sources`), `grid` and `sobol` are the designs of those names, and `spread` picks, of 256
Sobol settings whose competition was measured once, those farthest from each other in measured pressure (logarithmic,
nothing at all among them). No mix calibrates or chooses anything.
Target: the median over functions of error over that of the shipped runs is at most 1 for 60 adaptive runs.

    python benchmarks/budgets.py                        both machines, both budgets, three seeds (half an hour)
    python benchmarks/budgets.py --quick                one machine, 60 runs, one seed, 40 mixes
    python benchmarks/budgets.py --design random --design spread
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slomo.evaluation.evaluate import evaluate
from slomo.profiling.adaptive.campaign import adaptive_plan, run_adaptive
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.profiling.plans.designs import Pressure, sobol
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload

MACHINES = ("e5-2620v4", "silver-4110")
DESIGNS = ("adaptive", "random", "grid", "sobol", "spread")
BUDGETS = (60, 120)
#: Settings whose competition is measured once, beside this network function, for `spread`.
POOL, PROBE = 256, "stateless-firewall"
#: What the competition is spread over, and the share of its largest value that counts as nothing.
PRESSURES, LEAST = ("L2MISS", "L3OCC", "LMB", "DDIOOCC"), 1e-3
#: Every fifth mix has one neighbour, which is what is asked most.
SIZES = (1, 2, 3, 5, 7)


@dataclass(frozen=True)
class Errors:
    """Mean error [% of what was measured] by network function, and of all targets with one neighbour."""

    per_nf: Mapping[str, float]
    one_neighbour: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=MACHINES, help="repeatable")
    parser.add_argument("--design", action="append", choices=DESIGNS, help="repeatable")
    parser.add_argument("--budget", action="append", type=int, help="runs per network function; repeatable")
    parser.add_argument("--mixes", type=int, help="mixes to judge on, 80 by default")
    parser.add_argument("--seeds", type=int, help="profiles of each kind, 3 by default")
    parser.add_argument("--seed", type=int, default=100, help="the first of the seeds")
    parser.add_argument("--quick", action="store_true", help="silver-4110, 60 runs, one seed, 40 mixes, unless said")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--json", type=Path, help="write the errors to this file")
    given = parser.parse_args()
    given.machine = given.machine or (["silver-4110"] if given.quick else list(MACHINES))
    given.budget = given.budget or ([BUDGETS[0]] if given.quick else list(BUDGETS))
    given.mixes, given.seeds = given.mixes or (40 if given.quick else 80), given.seeds or (1 if given.quick else 3)
    given.design = given.design or list(DESIGNS)
    return given


def main() -> int:
    given = arguments()
    every = {machine: measured(machine, given) for machine in given.machine}
    if given.json:
        plain = {m: {k: [vars(e) for e in runs] for k, runs in by.items()} for m, by in every.items()}
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(machine: str, given: argparse.Namespace) -> dict[str, list[Errors]]:
    """Judge all profiles of one machine, and print it."""
    shipped = find_dataset(f"slomo-{machine}").select(plan=["solo", "pressure"])
    shipped = shipped.rows(shipped.frame["offered_mpps"].isna().to_numpy())  # as much as it can serve
    workloads = [shipped.workload(key) for key in shipped.targets]
    plan = mixes_plan(workloads, machine, given.mixes, SIZES, stream="test", seed=given.seed)
    mixes = run(plan, machine, given)
    errors = {"shipped": [judged(shipped, mixes, given.seed)]}
    errors |= {f"{design}, {budget}": [] for budget in given.budget for design in given.design}
    for seed in range(given.seed, given.seed + given.seeds):
        for design in given.design:
            for budget, profile in profiles(design, machine, shipped, seed, given):
                errors[f"{design}, {budget}"].append(one := judged(profile, mixes, seed))
                mean = statistics.fmean(one.per_nf.values())
                print(f"{machine}: {design}, {budget}, seed {seed}: {mean:.2f} %", file=sys.stderr, flush=True)
    report(machine, errors)
    return errors


def profiles(
    design: str, machine: str, shipped: ProfileDataset, seed: int, given: argparse.Namespace
) -> Iterator[tuple[int, ProfileDataset]]:
    """Yield a profile of each budget, the run alone included; a design's first points are its smaller profile."""
    workloads = [shipped.workload(key) for key in shipped.targets]
    if design == "random":
        yield from ((budget, thinned(shipped, budget, seed)) for budget in given.budget)
    elif design == "adaptive":
        for budget in given.budget:
            settings = {"target_error": 1e-4, "budget": budget, "seed": seed}  # out of reach: spends the budget
            asking = adaptive_plan(workloads, load_machine(machine), **settings)
            yield budget, run_adaptive(asking, SimulatedTestbed(machine)).dataset
    elif design == "grid":
        for budget in given.budget:
            plan = pressure_plan(workloads, machine, "grid", runs=budget - 1, seed=seed)
            yield budget, run(plan, machine, given)
    else:
        most = max(given.budget) - 1
        points = sobol(most, seed) if design == "sobol" else spread(machine, most, seed, given)
        every = run(pressure_plan(workloads, machine, points, seed=seed), machine, given)
        for budget in given.budget:
            plan = pressure_plan(workloads, machine, points[: budget - 1], seed=seed)
            kept = every.frame["run_key"].isin({item.key for item in plan.colocations})
            yield budget, ProfileDataset(every.frame[kept].reset_index(drop=True), every.environment)


def thinned(shipped: ProfileDataset, budget: int, seed: int) -> ProfileDataset:
    """Return as many runs per network function, drawn from the shipped ones at random; one is the run alone."""
    frame = shipped.frame
    pressure = frame[frame["plan"] == "pressure"].sample(frac=1.0, random_state=seed)
    drawn = pressure[pressure.groupby("target").cumcount() < budget - 1].index
    kept = frame.loc[sorted([*drawn, *frame.index[frame["plan"] == "solo"]])]
    return ProfileDataset(kept.reset_index(drop=True), shipped.environment)


def spread(machine: str, points: int, seed: int, given: argparse.Namespace) -> tuple[Pressure, ...]:
    """Return settings whose measured competitions are far from each other, each the farthest from those before it."""
    pool = tuple(dict.fromkeys(sobol(POOL, seed)))
    plan = pressure_plan(Workload(PROBE), machine, pool, seed=seed)
    frame = run(plan, machine, given).frame.set_index("run_key")
    keys = [next(item.key for item in plan.colocations if item.competitors == point.competitors) for point in pool]
    felt = frame.loc[keys, [f"competition.{name}" for name in PRESSURES]].to_numpy(dtype=float)
    most = felt.max(axis=0)
    at = np.log(np.maximum(felt / most, LEAST)) / -np.log(LEAST)
    away = np.linalg.norm(at + 1.0, axis=1)  # from no competition at all
    chosen: list[int] = []
    for _ in range(min(points, len(pool))):
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, np.linalg.norm(at - at[chosen[-1]], axis=1))
    return tuple(pool[number] for number in chosen)


def judged(profile: ProfileDataset, mixes: ProfileDataset, seed: int) -> Errors:
    """Train the default on a profile; return its mean errors on the mixes [%]."""
    library = train(profile, models=["none"], seed=seed)  # the equilibrium is trained whatever the families
    frame = evaluate(library, mixes, [DEFAULT_MODEL]).to_frame()
    size = frame["error_percent"].abs()
    return Errors(size.groupby(frame["target"]).mean().to_dict(), float(size[frame["competitor_count"] == 1].mean()))


def run(plan: ExperimentPlan, machine: str, given: argparse.Namespace) -> ProfileDataset:
    print(f"{machine}: {plan.name}, {len(plan)} runs", file=sys.stderr, flush=True)
    return run_campaign(plan, SimulatedTestbed(machine), jobs=given.jobs)


def report(machine: str, errors: Mapping[str, Sequence[Errors]]) -> None:
    """Print each profile's errors, over functions and seeds, and whether the target is met."""
    whole = errors["shipped"][0].per_nf
    seeds = max(len(runs) for runs in errors.values())
    print(f"\n{machine}: error of the default on unseen mixes [%], {seeds} seeds; ratios to the shipped runs'")
    heads = ("mean", "median", "1 neighbour", "ratio", "by seed")
    print(f"{'':16}" + "".join(f"{head:>13}" for head in heads))
    for title, runs in errors.items():
        mean = {nf: statistics.fmean(one.per_nf[nf] for one in runs) for nf in whole}
        by_seed = [statistics.median(one.per_nf[nf] / whole[nf] for nf in whole) for one in runs]
        cells = [statistics.fmean(mean.values()), statistics.median(mean.values())]
        cells += [statistics.fmean(one.one_neighbour for one in runs)]
        cells += [statistics.median(mean[nf] / whole[nf] for nf in whole)]
        said = ", ".join(f"{ratio:.2f}" for ratio in by_seed)
        print(f"{title:16}" + "".join(f"{cell:13.2f}" for cell in cells) + f"  {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
