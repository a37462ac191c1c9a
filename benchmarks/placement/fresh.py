"""Fresh workloads against an oracle: how many SLOs break, and how many servers more than the fewest.

A seed on the command line draws network functions and SLOs that nothing was set on. Families: every SLO at 70, 80, 90
or 95 % of solo throughput on one kind of server; a mixed cluster; offered load (each request is offered 20 to 70 % of
what it can, and promised that). The simulator judges; the oracle packs with the simulator as predictor.

    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 ...      for each machine
    python benchmarks/placement/fresh.py DIR [DIR ...] --seed 4711 --json fresh.json

Targets: at most 5 % broken in every family at 0.95; servers at most 1.10 times the oracle's on one kind, 1.15 times on
mixed clusters and with offered load.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from oracle import Truth, oracle

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.place import make_judge

SHARES = (0.7, 0.8, 0.9, 0.95)
TARGETS = {"one kind": 1.10, "mixed": 1.15, "offered": 1.15}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="+", help="what prepare.py wrote, one per machine")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--policy", default="predicted")
    parser.add_argument("--model", default="default")
    parser.add_argument("--cores", type=int, action="append", help="of the largest machine; 9 and 18 by default")
    parser.add_argument("--family", action="append", choices=list(TARGETS), help="all by default")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args()
    library = ModelLibrary([m for d in given.directory for m in ModelLibrary.load(d / "models").values()])
    bench, rows = Bench(library, given), []
    families = given.family or list(TARGETS)
    for machine in library.machines if "one kind" in families else ():
        most = load_machine(machine).cores_per_socket
        for cores in sorted({c for c in given.cores or (9, 18) if c <= most} if most > 8 else {most}):
            rows += [bench.one_kind(machine, cores, share) for share in SHARES]
    if "mixed" in families and len(library.machines) > 1:
        rows += [bench.mixed(share) for share in (0.8, 0.9)]
    if "offered" in families:
        rows += [bench.offered(machine) for machine in library.machines]
    broken, placed = (sum(row[name] for row in rows) for name in ("broken", "placed"))
    print(
        f"\nbroken {broken} of {placed} ({100 * broken / max(placed, 1):.2f} %, target 5)", off(broken > 0.05 * placed)
    )
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "rows": rows}, indent=1) + "\n")
    return 0


class Bench:
    """Draws, places, judges, and asks the oracle."""

    def __init__(self, library: ModelLibrary, given: argparse.Namespace) -> None:
        self.library, self.given, self.truth, self.judge = library, given, Truth(), make_judge()
        keys = [set(library.workloads(machine)) for machine in library.machines]
        self.nfs = sorted(key.split("@")[0] for key in set.intersection(*keys) if not key.startswith("synthetic"))
        self._draws = 0

    def drawn(self) -> list[str]:
        """Return fresh network functions."""
        self._draws += 1
        generator = np.random.default_rng([self.given.seed, self._draws])
        return [str(nf) for nf in generator.choice(self.nfs, size=self.given.requests)]

    def one_kind(self, machine: str, cores: int, share: float) -> dict:
        """Measure one kind of server at one SLO."""
        requests = [Request(f"r{i}", nf, SLO(min_share=share)) for i, nf in enumerate(self.drawn())]
        reserved = load_machine(machine).cores_per_socket - cores
        cluster = Cluster.uniform(machine, len(requests), cores_reserved=reserved)
        return self.row("one kind", f"{machine}, {cores} cores, {share:.0%}", cluster, requests)

    def mixed(self, share: float) -> dict:
        """Measure a cluster of all machines."""
        reference = self.library.machines[0]
        requests = [Request(f"r{i}", nf, SLO(min_share=share)) for i, nf in enumerate(self.drawn())]
        servers = [Server(f"{m}-{i}", m) for i in range(len(requests)) for m in self.library.machines]
        limit = {m: max(len(requests) // 8, 2) for m in self.library.machines}
        kept = [server for server in servers if int(server.name.rsplit("-", 1)[1]) < limit[server.machine]]
        return self.row("mixed", f"{len(self.library.machines)} machines, {share:.0%}", Cluster(tuple(kept)), requests,
                        reference)  # fmt: skip

    def offered(self, machine: str) -> dict:
        """Measure requests that are offered less than they can."""
        generator = np.random.default_rng([self.given.seed, 77, self._draws])
        requests = []
        for i, nf in enumerate(self.drawn()):
            solo = self.library[machine, Workload(nf).key].solo_mpps
            load = round(float(generator.uniform(0.2, 0.7)) * solo, 4)
            workload = Workload(nf, traffic=Traffic(offered_mpps=load))
            requests.append(Request(f"r{i}", workload, SLO(min_mpps=0.98 * load)))
        return self.row("offered", machine, Cluster.uniform(machine, len(requests)), requests)

    def row(self, family: str, what: str, cluster: Cluster, requests: list, reference: str | None = None) -> dict:
        """Place, judge, and ask the oracle."""
        given, begun = self.given, time.perf_counter()
        how = {"model": given.model, "confidence": given.confidence, "reference_machine": reference}
        placer = Placer(self.library, cluster, given.policy, **how)
        placer.place_all(requests)
        took_s = time.perf_counter() - begun
        judged = self.judge.judge(placer, requests=len(requests))
        kinds: dict[tuple[str, int], int] = {}
        for server in cluster.servers:
            kinds[server.machine, server.cores] = kinds.get((server.machine, server.cores), 0) + 1
        best = oracle(self.truth, requests, kinds, lambda machine, r: placer.estimates.wanted_mpps(r, machine))
        row = {
            "family": family, "what": what, "requests": len(requests), "placed": judged.placed,
            "broken": len({item.request for item in judged.violations}), "servers": judged.servers_used,
            "oracle": best, "ratio": judged.servers_used / best, "target": TARGETS[family], "plan_s": took_s,
        }  # fmt: skip
        print(
            f"{family:9} {what:30} placed {row['placed']:3d} broken {row['broken']:2d}  servers {row['servers']:3d} "
            f"oracle {best:3d}  ratio {row['ratio']:.2f} (target {TARGETS[family]:.2f})  {took_s:.1f} s",
            off(row["ratio"] > row["target"]), flush=True,
        )  # fmt: skip
        return row


def off(missed: bool) -> str:
    return " OFF" if missed else ""


if __name__ == "__main__":
    sys.exit(main())
