"""ResQ's (NSDI'18) SLO terms with latency targets, at both packet sizes: servers, and which promises break.

Every term is promised 90 % of solo throughput and the 95th percentile of latency that its profile has at the highest
load it was measured at (section 6: "90 % and 100 % of what a single instance can sustain in isolation"). 9 cores per
server. The simulator runs what was decided, ways and packet buffers included, at the loads promised. Profiles are
measured first.

    python benchmarks/resq/latency.py --json latency.json
    python benchmarks/resq/latency.py --packet 1518 --terms 40 --policy resq-greedy

Target: at most 5 % broken at either size.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO
from slomo.placement.workloads import RESQ_FAMILIES, resq_requests
from slomo.testbed.registry import make_testbed
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.place import make_judge
from slomo.workflow.profile_ways import profile_ways

MACHINE, CORES = "e5-2695v4", 9
LIMIT = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", type=Path, help="trained models at 64 B; policies that predict are left out without"
    )
    parser.add_argument("--profiles", type=Path, help="where profiles are kept between runs")
    parser.add_argument("--packet", type=int, action="append", metavar="B", help="frame size, repeatable; 64 and 1518")
    parser.add_argument("--family", action="append", choices=list(RESQ_FAMILIES), help="combination by default")
    parser.add_argument("--policy", action="append", help="repeatable; those of ResQ by default, with models ours, too")
    parser.add_argument("--terms", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    library = ModelLibrary([]) if given.models is None else ModelLibrary.load(given.models)
    policies = given.policy or ["resq-greedy", "resq-milp"] + ["slomo-search", "predicted"] * bool(len(library))
    judge, rows = make_judge(), []
    for size_b in given.packet or (64, 1518):
        profiles = measured(size_b, given.profiles)
        for family in given.family or ("combination",):
            requests = terms(family, size_b, profiles, given)
            for policy in policies:
                cluster = Cluster.uniform(MACHINE, 4 * given.terms, cores_reserved=18 - CORES, sockets=1)
                placer = Placer(
                    library, cluster, policy, profiles=() if policy == "predicted" and not profiles else profiles
                )
                begun = time.perf_counter()
                placer.place_all(requests)
                took_s = time.perf_counter() - begun
                made = judge.judge(placer, requests=len(requests))
                late = {item.request for item in made.violations if item.what == "latency"}
                slow = {item.request for item in made.violations if item.what == "throughput"}
                share = made.violated_share
                rows.append({
                    "packet_b": size_b, "family": family, "policy": policy, "servers": made.servers_used,
                    "placed": made.placed, "asked": len(requests), "late": len(late), "slow": len(slow),
                })  # fmt: skip
                verdict = "ok" if share <= LIMIT else "OFF"
                head = f"{size_b:5d} B {family:12} {policy:14} servers {made.servers_used:3d}"
                broken = (
                    f"latency broken {len(late):3d}  throughput broken {len(slow):3d}  {100 * share:5.1f} % (limit 5)"
                )
                print(
                    f"{head}  placed {made.placed:3d} of {len(requests)}  {broken}  {took_s:.1f} s  {verdict}",
                    flush=True,
                )
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "rows": rows}, indent=1) + "\n")
    return 1 if any(row["late"] + row["slow"] > LIMIT * row["placed"] for row in rows) else 0


def measured(size_b: int, path: Path | None) -> list[PartitionProfile]:
    """Return the profiles of ResQ's network functions at a frame size, with the buffers of 9 network functions."""
    names = sorted({request.label for request in resq_requests("combination", 400)})
    profiles = [*load_profiles(path)] if path is not None and path.exists() else []
    mine = {workload(name, size_b).key for name in names}
    if mine - {key for profile in profiles for key in profile.responses}:
        machine = load_machine(MACHINE)
        workloads = [workload(name, size_b) for name in names]
        profiles.append(profile_ways(make_testbed("simulated", machine), machine, workloads, cores=CORES))
        if path is not None:
            save_profiles(profiles, path)
    return [profile for profile in profiles if mine & {*profile.responses}]


def workload(name: str, size_b: int) -> Workload:
    return Workload(name, traffic=Traffic(packet_size_b=size_b))


def terms(family: str, size_b: int, profiles: list[PartitionProfile], given: argparse.Namespace) -> list:
    by_key = {key: response for profile in profiles for key, response in profile.responses.items()}
    requests = []
    for request in resq_requests(family, given.terms, seed=given.seed):
        item = workload(request.chain[0].nf, size_b)
        slo = SLO(min_share=0.9, p95_us=by_key[item.key].latency[-1][1])
        requests.append(replace(request, chain=(item,), slo=slo, replicas=given.replicas))
    return requests


if __name__ == "__main__":
    sys.exit(main())
