"""Whole servers: throughput and vectors of every NF at the equilibrium, against the simulator, some at reduced load.

Profiles of SLOMO's eight network functions (the shipped dataset, or any given) train all models; unseen mixes of 2 to 8
NFs, half of them offered less than they could serve, are then run on the simulator and predicted. Printed: error of
throughput by method, median error of occupancy, cache access rate (CAR) and memory reads per NF, coverage, rounds, and
the time of one call. Goals: mean error at most 2 %, p95 at most 6 %, half the error of `slomo`, vectors within 10 %.

    python benchmarks/equilibrium.py DATASET                  100 mixes
    python benchmarks/equilibrium.py DATASET --mixes 300      the full measurement
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.models.training import train
from slomo.prediction.equilibrium import solve_server
from slomo.profiling.plans import mixes_plan
from slomo.records.run import Phase
from slomo.records.storage import load_dataset
from slomo.simulator.engine import DEFAULT_ACCESSES
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload

VECTOR = ("L3OCC", "L2MISS", "READ")
#: method, sensitivity model, composition rule
METHODS = {
    "equilibrium": ("equilibrium", "slomo-xgb", None),
    "slomo-xgb, composed": ("slomo", "slomo-xgb", None),
    "slomo, as published": ("slomo", "slomo", "slomo"),
    "dobrescu": ("slomo", "dobrescu", None),
    "none": ("slomo", "none", None),
}
Row = dict[str, float | str | bool]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="profile of one machine")
    parser.add_argument("--mixes", type=int, default=100)
    parser.add_argument(
        "--reduced", type=float, default=0.5, help="share of the mixes in which half the NFs are offered less"
    )
    parser.add_argument(
        "--longer", type=int, default=4, help="times longer that mixes at reduced load run: arrivals vary"
    )
    parser.add_argument("--models", type=Path, help="keep the trained models here, or take them from here")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    library = models_of(given)
    machine = library.machines[0]
    rows: list[Row] = []
    saturated, longer = SimulatedTestbed(machine), SimulatedTestbed(machine, accesses=given.longer * DEFAULT_ACCESSES)
    for colocation in mixes(library, machine, given):
        reduced = any(workload.traffic.offered_mpps is not None for workload in colocation.tenants)
        phase = (longer if reduced else saturated).run(colocation, seed=given.seed + 1).beside
        assert phase is not None
        rows += compare(library, machine, colocation, phase)
    report(rows)
    print(f"one call of solve_server, 8 NFs: median {1e3 * time_of_call(library, machine):.2f} ms on this machine now")
    return 0


def models_of(given: argparse.Namespace) -> ModelLibrary:
    """Train on the dataset, or load what an earlier run kept."""
    if given.models and given.models.exists():
        return ModelLibrary.load(given.models)
    library = train(load_dataset(given.dataset), seed=given.seed)
    if given.models:
        library.save(given.models)
    return library


def mixes(library: ModelLibrary, machine: str, given: argparse.Namespace) -> list[Colocation]:
    """Return unseen mixes; in some of them about half the NFs are offered 15 to 95 % of their solo throughput."""
    generator = np.random.default_rng(given.seed)
    solo = {model.workload.nf: model.solo_mpps for model in library.values()}
    plan = mixes_plan(list(solo), machine, given.mixes, stream="test", seed=given.seed + 1)
    result = []
    for colocation in plan.colocations:
        reduced = generator.random() < given.reduced
        tenants = [
            Workload(nf.nf, traffic=Traffic(offered_mpps=round(float(generator.uniform(0.15, 0.95)) * solo[nf.nf], 4)))
            if reduced and generator.random() < 0.5
            else nf
            for nf in colocation.tenants
        ]
        result.append(Colocation(machine, tenants[0], tuple(tenants[1:])))
    return result


def compare(library: ModelLibrary, machine: str, colocation: Colocation, phase: Phase) -> list[Row]:
    """Predict one server by every method and set it beside what ran."""
    found = {}
    for name, (method, model, compat) in METHODS.items():
        found[name] = solve_server(library, colocation.tenants, machine, method=method, model=model, compat=compat)  # type: ignore[arg-type]
    rows: list[Row] = []
    for number, sample in enumerate(phase.tenants):
        ours = found["equilibrium"].tenants[number]
        assert ours.vector is not None
        row: Row = {"nf": ours.workload.nf, "reduced": ours.workload.traffic.offered_mpps is not None}
        for name, server in found.items():
            row[name] = 100.0 * (server.throughput_mpps[number] / sample.throughput_mpps - 1.0)
        for metric in VECTOR:
            row[metric] = 100.0 * (ours.vector[metric] / max(sample.vector[metric], 1e-6) - 1.0)
        row["inside"] = ours.interval[0] <= sample.throughput_mpps <= ours.interval[1]
        row["rounds"] = found["equilibrium"].sockets[0].rounds
        row["fell back"] = found["equilibrium"].fallback is not None
        rows.append(row)
    return rows


def report(rows: list[Row]) -> None:
    """Print errors by method, then errors of the vectors, then how the rounds went."""
    for title, kept in (
        ("all NFs", rows),
        ("saturated", [row for row in rows if not row["reduced"]]),
        ("at reduced load", [row for row in rows if row["reduced"]]),
    ):
        if not kept:
            continue
        print(f"\n{title}: {len(kept)} predictions{'':14}{'mean':>8}{'p95':>8}{'bias':>8}  [%]")
        for name in METHODS:
            error = np.array([float(row[name]) for row in kept])
            print(f"  {name:36}{np.abs(error).mean():8.2f}{np.quantile(np.abs(error), 0.95):8.2f}{error.mean():+8.2f}")
        medians = ", ".join(f"{name} {np.median([abs(float(row[name])) for row in kept]):.1f}" for name in VECTOR)
        print(f"  median error of vectors at the equilibrium [%]: {medians}")
        print(f"  90 % intervals hold {100 * np.mean([bool(row['inside']) for row in kept]):.1f} %")
    rounds = [float(row["rounds"]) for row in rows]
    fell = sum(bool(row["fell back"]) for row in rows)
    print(f"\nrounds: median {np.median(rounds):.0f}, most {max(rounds):.0f}; fell back: {fell}")


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
