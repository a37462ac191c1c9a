"""Do intervals hold what they promise: by machine, profile, method, number of neighbours, like and unlike, and per NF.

Models are trained on each profile (the shipped grid, or 120 or 60 of its runs per function, drawn at random), their
intervals calibrated on the calibration mixes, and judged on mixes of the other half of all mixes, under seeds that
nothing was developed on. A mix of like neighbours is a target beside n of one kind; every tenant of a mix is a target.
Targets: 85 to 95 % in every cell of 60 predictions or more and at least 80 % per function, where 90 % are promised, at
no more than 1.5 times the median width that the cell had before intervals knew neighbourhoods, where they held then
(`interval_coverage_before.json`: that version on the same mixes).

    python benchmarks/interval_coverage.py   the full measurement (three machines; half an hour on two cores)
    python benchmarks/interval_coverage.py --machine silver-4110 --profile grid
    python benchmarks/interval_coverage.py --quick   one machine and profile, 70 unlike mixes, few like ones
    python benchmarks/interval_coverage.py --store DIR   keeps every run; go on where it stopped
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.equilibrium.server import solve_joint
from slomo.models.base import Floats
from slomo.models.neighbourhood import NEIGHBOURHOODS, beside
from slomo.models.nf_model import NFModel
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan, stream_of
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.calibration import mix_rows
from slomo.training.choice import ORDER
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.workload import Workload

#: Machines with a shipped dataset, and one that is profiled for this.
MACHINES = ("e5-2620v4", "silver-4110", "e5-2695v4")
OTHERS = ("lpm", "stats", "mazunat", "snort", "endre", "firewall")
PROFILES = {"grid": None, "120 runs": 120, "60 runs": 60}
METHODS = ("default", "equilibrium")
#: Judged: cells of this many predictions, within these shares; per function at least this one.
ENOUGH, LEAST, MOST, LEAST_PER_NF = 60, 85.0, 95.0, 80.0
WIDER = 1.5
#: Most like neighbours in the quick measurement.
SMALL = 2
BEFORE = Path(__file__).with_name("interval_coverage_before.json")


@dataclass(frozen=True)
class Cell:
    """Predictions of one kind of neighbourhood."""

    predictions: int
    coverage: float
    half_width: float
    error: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=MACHINES, help="repeatable")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="repeatable")
    parser.add_argument("--mixes", type=int, help="unlike mixes to judge on, 210 by default")
    parser.add_argument("--quick", action="store_true", help="silver-4110 with 60 runs, fewer mixes, unless said")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--store", type=Path, help="folder that keeps the runs")
    parser.add_argument("--json", type=Path, help="write all cells to this file")
    given = parser.parse_args()
    if given.quick:
        given.machine, given.profile = given.machine or ["silver-4110"], given.profile or ["60 runs"]
    given.mixes = given.mixes or (70 if given.quick else 210)
    return given


def main() -> int:
    given = arguments()
    before = json.loads(BEFORE.read_text()) if BEFORE.exists() else {}
    every: dict[str, dict[str, Cell]] = {}
    missed = 0
    for machine in given.machine or MACHINES:
        test = judged_mixes(machine, given)
        for name in given.profile or PROFILES:
            if (dataset := profile(machine, PROFILES[name], given)) is None:
                continue
            models = list(train(dataset, models=list(ORDER), seed=given.seed).values())
            rows = mix_rows(test, models, machine)
            for method in METHODS:
                title = f"{machine}, {name}, {method}"
                ends = predicted(models, rows, method)
                every[title] = cells(models, rows, ends)
                missed += shown(title, every[title], per_function(models, rows, ends), before.get(title, {}))
    if given.json:
        given.json.write_text(
            json.dumps({k: {c: vars(x) for c, x in v.items()} for k, v in every.items()}, indent=1) + "\n"
        )
    print("\nok: all cells" if not missed else f"\nOFF: {missed} cells or functions")
    return 0


def judged_mixes(machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Run unlike mixes and mixes of like neighbours, all of the half that calibrates nothing."""
    names = functions(machine)
    unlike = mixes_plan(names, machine, given.mixes, stream="test", seed=given.seed)
    like = (
        Colocation(machine, Workload(one), (Workload(other),) * count)
        for count in range(1, 8)
        for one in names
        for other in names
    )
    once = {
        mix.key: mix for mix in like if stream_of(mix) == "test"
    }  # one beside one, the other way round: the same mix
    if given.quick:  # few neighbours are the commonest questions
        once = {key: mix for key, mix in once.items() if len(mix.competitors) <= SMALL}
    plan = ExperimentPlan("like", tuple(once.values()), seed=given.seed)
    return run(unlike, machine, given).merge(run(plan, machine, given))


def profile(machine: str, budget: int | None, given: argparse.Namespace) -> ProfileDataset | None:
    """Return a profile with its calibration mixes; None for a grid that is not shipped."""
    if machine == MACHINES[-1]:
        if budget is None:
            return None
        names = functions(machine)
        pressure = run(pressure_plan(names, machine, runs=120, seed=given.seed), machine, given)
        whole = pressure.merge(
            run(mixes_plan(names, machine, 200, stream="calibration", seed=given.seed), machine, given)
        )
    else:
        whole = find_dataset(f"slomo-{machine}")
    if budget is None:
        return whole
    frame = whole.frame
    pressure_rows = frame[frame["plan"] == "pressure"].sample(frac=1.0, random_state=given.seed)
    drawn = pressure_rows[pressure_rows.groupby("target").cumcount() < budget].index
    kept = frame.loc[sorted([*drawn, *frame.index[frame["plan"] != "pressure"]])]
    return ProfileDataset(kept.reset_index(drop=True), whole.environment)


def functions(machine: str) -> tuple[str, ...]:
    """Return the network functions measured on a machine."""
    if machine == MACHINES[-1]:
        return OTHERS
    shipped = find_dataset(f"slomo-{machine}")
    return tuple(dict.fromkeys(shipped.workload(key).nf for key in shipped.targets))


def run(plan: ExperimentPlan, machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Run a plan, going on where a store left off."""
    store = None
    if given.store:
        given.store.mkdir(parents=True, exist_ok=True)
        store = given.store / f"coverage-{machine}-{plan.fingerprint}.sqlite"
    print(f"{machine}: {plan.name}, {len(plan)} runs", file=sys.stderr, flush=True)
    return run_campaign(plan, SimulatedTestbed(machine), store=store, jobs=given.jobs)


def predicted(models: list[NFModel], rows: MixRows, method: str) -> tuple[Floats, Floats, Floats]:
    """Return throughput and both ends of each interval [Mpps]."""
    if method == "equilibrium":
        joint = solve_joint(models, np.column_stack([rows.target, rows.members]), coverage=0.9)
        return joint.throughput_mpps[:, 0], joint.low_mpps[:, 0], joint.high_mpps[:, 0]
    mpps, kind = predict_mixes(models, rows, DEFAULT_MODEL), beside(rows.members)
    low, high = np.zeros(len(mpps)), np.zeros(len(mpps))
    for number, model in enumerate(models):
        here = rows.target == number
        low[here], high[here] = model.calibration[model.named(DEFAULT_MODEL)].interval_mpps(
            mpps[here], model.solo_mpps, 0.9, kind[here]
        )
    return mpps, low, high


def cells(models: list[NFModel], rows: MixRows, ends: tuple[Floats, Floats, Floats]) -> dict[str, Cell]:
    """Return what holds in each kind of neighbourhood."""
    mpps, low, high = ends
    kind, solo = beside(rows.members), np.array([model.solo_mpps for model in models])[rows.target]
    return {
        NEIGHBOURHOODS[number]: Cell(
            int(here.sum()),
            float(100.0 * ((low <= rows.mpps) & (rows.mpps <= high))[here].mean()),
            float(100.0 * np.median(((high - low) / 2.0 / solo)[here])),
            float(100.0 * np.abs(mpps / rows.mpps - 1.0)[here].mean()),
        )
        for number in range(len(NEIGHBOURHOODS))
        if (here := kind == number).any()
    }


def per_function(models: list[NFModel], rows: MixRows, ends: tuple[Floats, Floats, Floats]) -> dict[str, float]:
    """Return the coverage of each function with enough predictions."""
    inside = (ends[1] <= rows.mpps) & (rows.mpps <= ends[2])
    owners = ((model.workload.nf, rows.target == number) for number, model in enumerate(models))
    return {nf: float(100.0 * inside[here].mean()) for nf, here in owners if here.sum() >= ENOUGH}


def shown(
    title: str, by_neighbours: Mapping[str, Cell], functions: Mapping[str, float], before: Mapping[str, dict]
) -> int:
    """Print all cells of one method beside their targets; return how many miss them."""
    print(f"\n{title} [%]\n{'neighbours':14}{'n':>6}{'held':>8}{'width':>8}{'before':>8}{'held':>8}{'error':>8}")
    missed = 0
    for name, cell in by_neighbours.items():
        old = before.get(name)
        faults = list(_faults(cell, old))
        missed += len(faults)
        was = f"{old['half_width']:8.2f}{old['coverage']:8.1f}" if old else f"{'-':>8}{'-':>8}"
        line = f"{name:14}{cell.predictions:6}{cell.coverage:8.1f}{cell.half_width:8.2f}{was}{cell.error:8.2f}"
        print(line + "".join(f"  OFF: {fault}" for fault in faults), flush=True)
    low = {nf: held for nf, held in functions.items() if held < LEAST_PER_NF}
    least = min(functions.items(), key=lambda item: item[1], default=None)
    if least:
        print(f"least of a function: {least[1]:.1f} ({least[0]})" + "".join(f"  OFF: {nf}" for nf in low))
    return missed + len(low)


def _faults(cell: Cell, old: Mapping[str, float] | None) -> Iterator[str]:
    if cell.predictions < ENOUGH:
        return
    if not LEAST <= cell.coverage <= MOST:
        yield "coverage"
    if old and old["coverage"] >= LEAST and cell.half_width > WIDER * old["half_width"]:
        yield "width"


if __name__ == "__main__":
    sys.exit(main())
