"""Requests that all differ, and admissions without end: how long a plan takes, and whether memory stays flat.

Every request has an SLO of its own (shares of solo drawn from 0.70 to 0.95); what is promised is rounded up to a grid,
whose cost is printed. Then `admit` and `remove` go on for as many calls as are asked for.

    python benchmarks/placement/churn.py DIR --requests 2000 --requests 10000 --calls 100000 --json churn.json

Targets: 10,000 different SLOs in under 60 s, growing no faster than n log n; `admit` p99 below 2 ms after warm-up; less
than 20 MiB of growth in 100,000 calls.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--requests", type=int, action="append", help="repeatable; 2000 and 10000 by default")
    parser.add_argument("--calls", type=int, default=100_000, help="admissions and removals")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    library = ModelLibrary.load(given.directory / "models")
    machine = library.machines[0]
    nfs = sorted({key.split("@")[0] for key in library.workloads(machine) if not key.startswith("synthetic")})
    rows, first = [], None
    for count in given.requests or (2_000, 10_000):
        placer, row = planned(library, machine, nfs, count, given.seed)
        first = first or row
        expected = count * math.log(count) / (first["requests"] * math.log(first["requests"]))
        row["growth"], row["n_log_n"] = row["plan_s"] / first["plan_s"], expected
        print(
            f"{count:6d} different SLOs: {row['servers']} servers, {row['refused']} refused, {row['plan_s']:.1f} s "
            f"(target 60 s for 10,000){off(row['plan_s'] > 60.0 and count <= 10_000)}, "
            f"{row['growth']:.2f} times the first, n log n {expected:.2f}; rounding costs "
            f"{100 * row['grid_mean']:.2f} % of solo per request, at most {100 * row['grid_most']:.2f} %",
            flush=True,
        )
        rows.append(row)
    churned = churn(placer, nfs, given.calls, given.seed)
    print(
        f"{given.calls} calls: admit p50 {churned['p50_ms']:.2f} ms, p99 {churned['p99_ms']:.2f} ms (on a core "
        f"{churned['p99_core_ms']:.2f} ms; target 2 ms){off(churned['p99_core_ms'] > 2.0)}, "
        f"memory grew by {churned['grown_mib']:.1f} MiB (target 20 MiB){off(churned['grown_mib'] > 20.0)}"
    )
    if given.json:
        given.json.write_text(json.dumps({"plans": rows, "churn": churned}, indent=1) + "\n")
    return 0


def drawn(nfs: list[str], count: int, seed: int, name: str) -> list[Request]:
    generator = np.random.default_rng([seed, count])
    chosen, shares = generator.choice(nfs, size=count), generator.uniform(0.70, 0.95, count)
    pairs = enumerate(zip(chosen.tolist(), shares.tolist(), strict=True))
    return [Request(f"{name}{i}", nf, SLO(min_share=share)) for i, (nf, share) in pairs]


def planned(library: ModelLibrary, machine: str, nfs: list[str], count: int, seed: int) -> tuple[Placer, dict]:
    placer = Placer(library, Cluster.uniform(machine, max(count // 2, 10)))
    requests = drawn(nfs, count, seed, "r")
    begun = time.perf_counter()
    decisions = placer.place_all(requests)
    took_s = time.perf_counter() - begun
    estimates = placer.estimates
    costs = []
    for request in requests[:2000]:
        need = estimates.wanted_mpps(request, machine)
        solo = estimates.solo_mpps(machine, request.chain[0].key)
        costs.append((estimates.rounded(request, machine, need) - need) / solo)
    refused = sum(not decision.accepted for decision in decisions)
    return placer, {
        "requests": count, "servers": placer.servers_used, "refused": refused, "plan_s": took_s,
        "grid_mean": float(np.mean(costs)), "grid_most": float(np.max(costs)),
    }  # fmt: skip


def resident_mib() -> float:
    """Return this process's resident memory now [MiB]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def churn(placer: Placer, nfs: list[str], calls: int, seed: int) -> dict:
    warm, times, busy = min(max(calls // 10, 100), calls // 2), [], []
    requests = drawn(nfs, calls // 2, seed + 1, "c")
    begun_mib = 0.0
    for number, request in enumerate(requests):
        if number == warm // 2:
            begun_mib = resident_mib()
        start, core = time.perf_counter(), time.thread_time()
        accepted = placer.admit(request).accepted
        if number >= warm // 2:
            times.append(1e3 * (time.perf_counter() - start))
            busy.append(1e3 * (time.thread_time() - core))
        if accepted:
            placer.remove(request.id)
    spread = np.percentile(times, [50, 99])
    return {
        "calls": calls, "p50_ms": float(spread[0]), "p99_ms": float(spread[1]),
        "p99_core_ms": float(np.percentile(busy, 99)), "grown_mib": resident_mib() - begun_mib, **placer.stats(),
    }  # fmt: skip


def off(missed: bool) -> str:
    return " OFF" if missed else ""


if __name__ == "__main__":
    sys.exit(main())
