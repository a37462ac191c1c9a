"""Do conclusions hold on other hardware? The whole chain on a plain machine, and with each option of cores and caches.

Profiles three network functions, trains, predicts mixes that were never run, and places requests at 90 % of their solo
throughput, which the simulator judges; on one machine with true LRU (`recent`), with adaptive insertion into the LLC
(`adaptive`), with stream prefetchers (`prefetch`), and with two hyper-threads per core (`threads`: half as many cores,
tenants side by side on one). Three conclusions are asked of every row: the default is ahead of every baseline; its 90 %
intervals hold for 85 to 96 % of mixes; it breaks at most 5 % of its promises. Ends with 1 if one fails anywhere.

    python benchmarks/robustness.py rows.jsonl [--machine e5-2620v4] [--runs 40] [--mixes 40] [--seeds 11]

Rows lie in the file as they are done; what lies there is not run again.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import Machine, load_machine
from slomo.workflow.evaluate import evaluate
from slomo.workflow.place import compare
from slomo.workflow.profile import profile
from slomo.workflow.train import train

NETWORK_FUNCTIONS = ("lpm", "mazunat", "snort")
DEFAULT, BASELINES = "slomo-smooth", ("dobrescu", "dobrescu-curve", "bubbleup", "bubbleup-curve", "mean")
OPTIONS: dict[str, dict[str, Any]] = {
    "recent": {},
    "adaptive": {"llc_insertion": "adaptive"},
    "prefetch": {"l2_prefetcher": "stream"},
    "threads": {"threads_per_core": 2},
}
POLICIES = ("predicted", "dobrescu", "first-fit")
REQUESTS, SHARE = 24, 0.9


def row(machine: Machine, chosen: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return what the chain gives on a machine."""
    dataset = profile(NETWORK_FUNCTIONS, machine=machine, runs=chosen.runs, mixes=chosen.mixes, seed=seed)
    library = train(dataset, models=(DEFAULT, *BASELINES), seed=seed)
    judged = profile(NETWORK_FUNCTIONS, machine=machine, plan="mixes", mixes=chosen.mixes, stream="test", seed=seed)
    models = evaluate(library, judged).models
    default = next(iter(models.values()))
    baselines = {name: model.mape for name, model in models.items() if name.split()[0] in BASELINES}
    best = min(baselines, key=baselines.__getitem__)
    names = [NETWORK_FUNCTIONS[number % len(NETWORK_FUNCTIONS)] for number in range(REQUESTS)]
    requests = [Request(f"r{number}", name, SLO(min_share=SHARE)) for number, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder:  # a cluster names machines by their files
        stated = Path(folder) / f"{machine.name}.yaml"
        fields = {name: value for name, value in machine.to_dict().items() if name not in ("name", "schema_version")}
        stated.write_text(json.dumps(fields))
        placed = compare(Cluster.uniform(str(stated), REQUESTS), requests, library, POLICIES)
    return {
        "unconverged": len(dataset) - len(dataset.converged()),
        "predictions": default.predictions,
        "error": default.mape,
        "p95": default.p95,
        "hold": default.coverage,
        "baseline": best,
        "baseline_error": baselines[best],
        "broken": {each.policy: len({item.request for item in each.violations}) for each in placed},
        "servers": {each.policy: each.servers_used for each in placed},
    }


def failures(found: dict[str, Any]) -> list[str]:
    """Return the conclusions that do not hold."""
    broken = found["broken"]["predicted"]
    checks = {
        "ahead": found["error"] < found["baseline_error"],
        "intervals": 85.0 <= found["hold"] <= 96.0,
        "promises": broken <= 0.05 * REQUESTS,
    }
    return [name for name, holds in checks.items() if not holds]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="file of finished rows; made where there is none")
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--runs", type=int, default=40, help="of each NF beside the competitor")
    parser.add_argument("--mixes", type=int, default=40, help="to calibrate, and as many to judge")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    chosen = parser.parse_args()
    lines = chosen.rows.read_text().splitlines() if chosen.rows.exists() else []
    known = {tuple(line["key"]): line["found"] for line in map(json.loads, lines)}
    print(f"| Hardware, seed | Default % | Best baseline % | Hold % | Broken of {REQUESTS}: {', '.join(POLICIES)} |")
    print("| --- | --- | --- | --- | --- |")
    off = False
    for option in chosen.options:
        machine = replace(load_machine(chosen.machine), name=f"{chosen.machine}-{option}", **OPTIONS[option])
        for seed in chosen.seeds:
            key = (machine.name, machine.fingerprint, chosen.runs, chosen.mixes, seed)
            if key not in known:
                known[key] = row(machine, chosen, seed)
                with chosen.rows.open("a") as file:
                    file.write(json.dumps({"key": key, "found": known[key]}) + "\n")
            found = known[key]
            wrong = failures(found)
            off |= bool(wrong)
            mark = f"  OFF: {', '.join(wrong)}" if wrong else ""
            broken = ", ".join(f"{found['broken'][name]} on {found['servers'][name]}" for name in POLICIES)
            print(
                f"| {option}, {seed} | {found['error']:.2f} | {found['baseline_error']:.2f} ({found['baseline']}) | "
                f"{found['hold']:.0f} of {found['predictions']} | {broken} |{mark}",
                flush=True,
            )
    return int(off)


if __name__ == "__main__":
    sys.exit(main())
