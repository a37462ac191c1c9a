"""Whether simulations have converged: random partitions beside hogs, a warm-up eight times as long, other seeds.

Run ``python benchmarks/convergence.py ROWS.jsonl [PARTITIONS]`` (200 by default); rows lie in the file as they are
done, and what lies there is not run again. Each partition draws a machine, one to three
network functions, two to five synthetic hogs, their way masks (none, apart, nested, overlapping) and the load. It is
simulated at the default fidelity with five seeds, and once more precisely with a warm-up eight times as long. Leaves
with 1 if a tenant that says it has converged changes by more than 1 % with the warm-up, or by more than 2 % between
seeds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.result import SimulationResult
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import load_network_function, network_function_names
from slomo.vocabulary.workload import Traffic, Workload

MACHINES = ("e5-2620v4", "e5-2695v4", "silver-4110", "gold-6430")
SEEDS = 5
VICTIMS = [
    name
    for name in network_function_names()
    if name != "synthetic" and not name.endswith("-regex") and name != "firewall"
]


def contiguous(first: int, ways: int) -> int:
    return ((1 << ways) - 1) << first


def masks(machine: Machine, kind: str, draw: np.random.Generator) -> tuple[int | None, int | None]:
    """Return the masks of the network functions and of the hogs."""
    ways = machine.llc_ways
    own = int(draw.integers(2, ways - 1))
    if kind == "apart":
        pair = contiguous(0, own), contiguous(own, ways - own)
    elif kind == "nested":
        hogs = int(draw.integers(2, ways - 1))
        pair = machine.full_way_mask, contiguous(int(draw.integers(0, ways - hogs + 1)), hogs)
    elif kind == "overlapping":
        shared = int(draw.integers(1, min(own, ways - own) + 1))
        pair = contiguous(0, own + shared // 2), contiguous(own - (shared + 1) // 2, ways - own + (shared + 1) // 2)
    else:
        return None, None
    return pair if draw.integers(2) else (_turned(pair[0], ways), _turned(pair[1], ways))


def _turned(mask: int, ways: int) -> int:
    return int(f"{mask:0{ways}b}"[::-1], 2)


def partition(number: int) -> tuple[Machine, list[Tenant], str]:
    """Draw a partition."""
    draw = np.random.default_rng([20, number])
    machine = load_machine(MACHINES[number % len(MACHINES)])
    kind = ("none", "apart", "nested", "overlapping")[number // len(MACHINES) % 4]
    mine, theirs = masks(machine, kind, draw)
    tenants = []
    for _ in range(int(draw.integers(1, 4))):
        load = None if draw.random() < 0.7 else round(float(draw.uniform(0.05, 1.0)), 2)
        name = str(draw.choice(VICTIMS))
        traffic = Traffic(packet_size_b=int(draw.choice([64, 256, 1500])), offered_mpps=load)
        tenants.append(Tenant(Workload(name, {}, traffic), load_network_function(name), len(tenants), mine))
    for _ in range(int(draw.integers(2, 6))):
        knobs = {
            "data_size_mib": int(draw.choice([4, 10, 20, 40])),
            "reads_per_packet": int(draw.choice([100, 1000])),
            "pattern": str(draw.choice(["random", "sequential"])),
        }
        hog = Workload("synthetic", knobs)
        tenants.append(Tenant(hog, load_network_function("synthetic"), len(tenants), theirs))
    label = f"{machine.name} {kind:11} " + " ".join(
        each.workload.nf
        + ("" if each.workload.traffic.offered_mpps is None else f"@{each.workload.traffic.offered_mpps}")
        for each in tenants
        if each.workload.nf != "synthetic"
    )
    return machine, tenants, f"{label} + {sum(each.workload.nf == 'synthetic' for each in tenants)} hogs"


def rates(result: SimulationResult) -> np.ndarray:
    return np.array([each.throughput_mpps for each in result.tenants])


def row(number: int) -> dict[str, Any]:
    """Play one partition; return how much its tenants change, in per cent, and the processor time."""
    machine, tenants, label = partition(number)
    start = time.process_time()
    runs = [simulate(machine, tenants, seed=seed) for seed in range(SEEDS)]
    middle = time.process_time()
    longer = simulate(
        machine, tenants, seed=0, least_warm_up_us=8 * runs[0].warm_up_us, tolerance=0.003, budget=400_000_000
    )
    every = np.array([rates(run) for run in runs])
    return {
        "number": number,
        "label": label,
        "tenants": [each.workload.nf for each in tenants],
        "converged": np.all([[each.converged for each in run.tenants] for run in runs], axis=0).tolist(),
        "change": (100 * np.abs(rates(longer) / rates(runs[0]) - 1)).tolist(),
        "spread": (100 * (every.max(axis=0) - every.min(axis=0)) / every.mean(axis=0)).tolist(),
        "run_s": (middle - start) / SEEDS,
        "longer_s": time.process_time() - middle,
    }


def main(path: Path, count: int) -> int:
    """Print what changed and how much; return the exit code."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {each["number"]: each for each in map(json.loads, lines)}
    for number in range(count):
        if number not in known:
            known[number] = row(number)
            with path.open("a") as file:
                file.write(json.dumps(known[number]) + "\n")
        each = known[number]
        if max(each["change"]) > 1 or max(each["spread"]) > 2 or not all(each["converged"]):
            told = zip(each["tenants"], each["change"], each["spread"], strict=True)
            names = "; ".join(f"{name} {change:.2f} {spread:.2f}" for name, change, spread in told)
            print(number, each["label"], "" if all(each["converged"]) else "NOT ALL CONVERGED", names, flush=True)
    rows = [known[number] for number in range(count)]
    sure = np.concatenate([each["converged"] for each in rows])
    changes, spreads = (np.concatenate([each[name] for each in rows])[sure] for name in ("change", "spread"))
    print(f"{count} partitions, {sure.sum()} tenants; {(~sure).sum()} more say that they have not converged")
    print(f"warm-up eight times as long: mean {changes.mean():.2f} %, most {changes.max():.2f} %, limit 1 %")
    print(f"{SEEDS} seeds, largest less smallest: mean {spreads.mean():.2f} %, most {spreads.max():.2f} %, limit 2 %")
    spent = [np.mean([each[name] for each in rows]) for name in ("run_s", "longer_s")]
    print(f"processor time: {spent[0]:.2f} s a run, {spent[1]:.2f} s with the longer warm-up")
    good = changes.max() <= 1.0 and spreads.max() <= 2.0
    print("ok" if good else "OFF")
    return 0 if good else 1


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200))
