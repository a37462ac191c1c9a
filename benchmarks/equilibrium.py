"""Whole servers: throughput and vectors of every NF at the equilibrium, against the simulator, a third at reduced load.

On each of SLOMO's two machines (trained on the shipped datasets) and on ResQ's (with its nine network functions,
profiled here), unseen mixes of 2 to 8 unlike NFs are run and predicted; in a third of them about half the NFs are
offered less than they could serve. Intervals are calibrated on other such mixes, from the half of all mixes that tests
never use. Goals: mean error at most 2 %, p95 at most 6 %, half the error of `slomo` and a fifth of Dobrescu's, vectors
within 10 % (median), 90 % intervals that hold 88 to 94 %.

    python benchmarks/equilibrium.py                      300 mixes on each machine; what was run is kept in --keep
    python benchmarks/equilibrium.py e5-2620v4 --mixes 50
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import Stream, mixes_plan, pressure_plan
from slomo.profiling.plans.plan import ExperimentPlan, combine
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import workload_from_columns
from slomo.records.storage import load_dataset
from slomo.simulator.engine import DEFAULT_ACCESSES
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.server_response_fit import recalibrated
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import load_network_function, network_function_names
from slomo.vocabulary.workload import Workload

MACHINES = ("e5-2620v4", "silver-4110", "e5-2695v4")
SHIPPED = Path(__file__).parent.parent / "datasets"
VECTOR = {"occupancy": "L3OCC", "CAR": "L2MISS", "memory reads": "READ"}
#: Below this a share of what an NF reads from memory says little; the error in GB/s is printed for all [GB/s].
WORTH_READING_GBPS = 0.1
#: method, sensitivity model, composition rule
METHODS = {
    "equilibrium": ("equilibrium", "default", None),
    "slomo-xgb, composed": ("composed", "slomo-xgb", None),
    "slomo, as published": ("composed", "slomo-gbr", "published"),
    "dobrescu": ("composed", "dobrescu", None),
    "none": ("composed", "none", None),
}
Row = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=MACHINES)
    parser.add_argument("--mixes", type=int, default=300)
    parser.add_argument("--calibration", type=int, default=300, help="mixes that set the width of intervals")
    parser.add_argument("--reduced", type=float, default=1 / 3, help="share of the mixes at reduced load")
    parser.add_argument("--runs", type=int, default=150, help="runs per NF where the machine has no shipped dataset")
    parser.add_argument("--longer", type=int, default=4, help="times longer than by default that mixes run")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "slomo-equilibrium")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    for machine in given.machines:
        begun = time.perf_counter()
        library = models_of(machine, given)
        library = recalibrated(library, mixes_of(library, machine, "calibration", given.calibration, given))
        rows = compared(library, machine, mixes_of(library, machine, "test", given.mixes, given))
        print(f"\n## {machine}: {len(rows)} predictions, {time.perf_counter() - begun:.0f} s")
        report(rows)
        took = 1e3 * time_of_call(library, machine)
        print(f"one call of solve_server, 8 NFs: median {took:.2f} ms on this machine now", flush=True)
    return 0


def models_of(machine: str, given: argparse.Namespace) -> ModelLibrary:
    """Train on the shipped dataset, or on a profile made here; or load what an earlier run kept."""
    folder = given.keep / machine / "models"
    if folder.exists():
        return ModelLibrary.load(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shipped = SHIPPED / f"slomo-{machine}"
    library = train(load_dataset(shipped) if shipped.exists() else profiled(machine, given), seed=given.seed)
    library.save(folder)
    return library


def profiled(machine: str, given: argparse.Namespace) -> ProfileDataset:
    """Profile ResQ's network functions."""
    nfs = [name for name in network_function_names() if "resq" in load_network_function(name).tags]
    pressure = pressure_plan(nfs, machine, "sobol", runs=given.runs, seed=given.seed)
    mixes = mixes_plan(nfs, machine, 200, stream="calibration", seed=given.seed)
    store = given.keep / machine / f"profile-{given.runs}-{given.seed}.sqlite"
    return run_campaign(combine("profile", [pressure, mixes]), SimulatedTestbed(machine), store, given.jobs)


def mixes_of(
    library: ModelLibrary, machine: str, stream: Stream, count: int, given: argparse.Namespace
) -> ProfileDataset:
    """Run mixes of one stream, `given.reduced` of them at reduced load."""
    generator = np.random.default_rng([given.seed, stream == "test"])
    solo = {model.workload.nf: model.solo_mpps for model in library.values()}
    drawn = mixes_plan(list(solo), machine, count, stream=stream, seed=given.seed + 1)
    colocations = tuple(
        reduced(colocation, solo, generator) if generator.random() < given.reduced else colocation
        for colocation in drawn.colocations
    )
    plan = ExperimentPlan(f"mixes-{stream}", colocations, seed=given.seed + 1)
    testbed = SimulatedTestbed(machine, accesses=given.longer * DEFAULT_ACCESSES)
    store = given.keep / machine / f"{stream}-{count}-{given.reduced:.3f}-{given.longer}-{given.seed}.sqlite"
    return run_campaign(plan, testbed, store, given.jobs)


def reduced(colocation: Colocation, solo: dict[str, float], generator: np.random.Generator) -> Colocation:
    """Offer about half the NFs, at least one, 15 to 95 % of their solo throughput."""
    chosen = generator.random(len(colocation.tenants)) < 0.5
    chosen[generator.integers(len(chosen))] = True
    shares = generator.uniform(0.15, 0.95, len(chosen))
    tenants = [
        workload.offered(round(float(share) * solo[workload.nf], 4)) if less else workload
        for workload, less, share in zip(colocation.tenants, chosen, shares, strict=True)
    ]
    return Colocation(colocation.machine, tenants[0], tuple(tenants[1:]))


def compared(library: ModelLibrary, machine: str, runs: ProfileDataset) -> list[Row]:
    """Predict every server by every method and set it beside what ran; one row per NF."""
    rows: list[Row] = []
    for _, frame in runs.frame.groupby("run_key", sort=False):
        samples: list[Row] = frame.sort_values("tenant").to_dict("records")  # type: ignore[assignment]
        rows += compare(library, machine, [workload_from_columns(sample) for sample in samples], samples)
    return rows


def compare(library: ModelLibrary, machine: str, workloads: list[Workload], samples: list[Row]) -> list[Row]:
    servers = {
        name: solve_server(library, workloads, machine, method=method, model=model, compat=compat)  # type: ignore[arg-type]
        for name, (method, model, compat) in METHODS.items()
    }
    mixed = any(workload.traffic.offered_mpps is not None for workload in workloads)
    rows = []
    for number, sample in enumerate(samples):
        ours, measured = servers["equilibrium"].tenants[number], float(sample["throughput_mpps"])
        row: Row = {"nf": ours.workload.nf, "reduced": ours.workload.traffic.offered_mpps is not None, "mixed": mixed}
        row["load"] = ours.load
        for name, server in servers.items():
            row[name] = 100.0 * (server.throughput_mpps[number] / measured - 1.0)
        for name, metric in VECTOR.items():
            found_here = np.nan if ours.vector is None else ours.vector[metric]  # fallen back: no vector
            row[name] = 100.0 * (found_here / max(float(sample[f"own.{metric}"]), 1e-6) - 1.0)
            row[f"{name} off"] = abs(found_here - float(sample[f"own.{metric}"]))
            row[f"{name} measured"] = float(sample[f"own.{metric}"])
        row["inside"] = ours.interval[0] <= measured <= ours.interval[1]
        row["width"] = 50.0 * (ours.interval[1] - ours.interval[0]) / measured
        row["rounds"] = servers["equilibrium"].sockets[0].rounds
        row["bound"] = servers["equilibrium"].sockets[0].bound
        row["fell back"] = servers["equilibrium"].fallback is not None
        rows.append(row)
    return rows


def report(rows: list[Row]) -> None:
    """Print errors by method, then errors of the vectors, then how the rounds went."""
    for title, kept in (
        ("all NFs", rows),
        ("saturated NFs", [row for row in rows if not row["reduced"]]),
        ("NFs at reduced load", [row for row in rows if row["reduced"]]),
        ("mixes at full load", [row for row in rows if not row["mixed"]]),
    ):
        if kept:
            section(title, kept)
    print("\ncoverage by NF [%]: ", end="")
    for nf in sorted({row["nf"] for row in rows}):
        print(f"{nf} {100 * np.mean([row['inside'] for row in rows if row['nf'] == nf]):.0f}", end="  ")
    rounds = [float(row["rounds"]) for row in rows]
    fell = sum(bool(row["fell back"]) for row in rows)
    print(f"\nrounds: median {np.median(rounds):.0f}, most {max(rounds):.0f}; fell back: {fell}")
    bounds = [100.0 * row["bound"] for row in rows]
    print(f"estimated bound: median {np.median(bounds):.2f} %, most {max(bounds):.2f} % of the largest solo")


def section(title: str, rows: list[Row]) -> None:
    print(f"\n{title}: {len(rows)} predictions{'':14}{'mean':>8}{'p95':>8}{'bias':>8}{'x ours':>8}  [%]")
    ours = np.mean([abs(row["equilibrium"]) for row in rows])
    for name in METHODS:
        error = np.array([row[name] for row in rows])
        mean, most = np.abs(error).mean(), np.quantile(np.abs(error), 0.95)
        print(f"  {name:36}{mean:8.2f}{most:8.2f}{error.mean():+8.2f}{mean / ours:8.2f}")
    medians = ", ".join(f"{name} {np.nanmedian([abs(row[name]) for row in rows]):.1f}" for name in VECTOR)
    print(f"  median error of vectors at the equilibrium [%]: {medians}")
    reading = [abs(row["memory reads"]) for row in rows if row["memory reads measured"] > WORTH_READING_GBPS]
    off = np.nanmedian([row["memory reads off"] for row in rows])
    print(
        f"  memory reads: median {off:.4f} GB/s off; of the {len(reading)} that read more than "
        f"{WORTH_READING_GBPS} GB/s, {np.nanmedian(reading or [np.nan]):.1f} %"
    )
    widths = np.median([row["width"] for row in rows])
    print(f"  90 % intervals hold {100 * np.mean([row['inside'] for row in rows]):.1f} %, median +- {widths:.1f} %")


def time_of_call(library: ModelLibrary, machine: str) -> float:
    """Return the median time of one whole-server prediction of 8 NFs [s]."""
    names = [model.workload for model in library.values()][:8]
    took = []
    for _ in range(60):
        started = time.perf_counter()
        solve_server(library, names, machine)
        took.append(time.perf_counter() - started)
    return float(np.median(took))


if __name__ == "__main__":
    sys.exit(main())
