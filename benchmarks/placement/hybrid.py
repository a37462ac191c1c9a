"""Own ways, a shared cache, or either on every socket: servers that `slomo-search` takes, and promises that break.

Requests of many different SLOs (70 to 96 % of solo), drawn from a seed. The simulator judges.

    python benchmarks/placement/prepare.py DIR --machine silver-4110 --nf maglev --nf snort
    python benchmarks/placement/hybrid.py DIR --seed 7000

Target: either refuses no more than the better of both, takes no more servers where it refuses as many, and breaks no
more.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import load_profiles
from slomo.placement.online.placer import Placer
from slomo.placement.policies.search import MixSearch
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.workflow.place import make_judge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--requests", type=int, default=60)
    given = parser.parse_args()
    library, profiles = ModelLibrary.load(given.directory / "models"), load_profiles(given.directory / "profiles.json")
    machine, judge, worse = library.machines[0], make_judge(), 0
    nfs = sorted({key.split("@")[0] for key in library.workloads(machine) if not key.startswith("synthetic")})
    for seed in range(given.seed, given.seed + given.draws):
        draw, outcomes, breaks = np.random.default_rng(seed), list[tuple[int, int]](), list[int]()
        requests = [
            Request(f"r{i}", str(draw.choice(nfs)), SLO(min_share=float(draw.integers(70, 97)) / 100))
            for i in range(given.requests)
        ]
        for name in ("own ways", "shared", "either"):
            known = () if name == "shared" else profiles
            placer = Placer(library, Cluster.uniform(machine, given.requests), "slomo-search", profiles=known)
            assert isinstance(placer.policy, MixSearch)
            placer.policy.shares = name == "either"
            refused = sum(not decision.accepted for decision in placer.place_all(requests))
            broken = len({item.request for item in judge.judge(placer, requests=len(requests)).violations})
            outcomes.append((refused, placer.servers_used))
            breaks.append(broken)
            is_off = name == "either" and (outcomes[-1] > min(outcomes) or broken > min(breaks))
            worse += is_off
            print(f"{machine} {seed} {name:9} servers {placer.servers_used:3d}  refused {refused:2d}  "
                  f"broken {broken:2d}{'  OFF' if is_off else ''}", flush=True)  # fmt: skip
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
