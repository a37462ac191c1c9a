"""Random operations over policies and verbs: how many constraints are broken after any of them.

Admit, place, remove, update, drain, fail, taint, pre-empt, restore, re-optimise and more, drawn at random on a cluster
of racks, with constraints of every kind; after each one all constraints are recomputed from snapshots alone.

    python benchmarks/placement/operations.py --seed 1 --operations 1000000      three functions made by hand
    python benchmarks/placement/prepare.py DIR --machine e5-2620v4
    python benchmarks/placement/operations.py DIR --seed 1

Target: none of 1,000,000 operations breaks one.
"""

import argparse
import sys
import time
from pathlib import Path

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.policies.registry import policy_class, policy_names
from tests.placement.conftest import FUNCTIONS, MACHINE, nf_model, nf_profiles
from tests.placement.operations import RandomOperations, constrained_cluster

#: Operations on one cluster before the next is begun.
_ROUND = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="what prepare.py wrote; three functions made by hand")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--operations", type=int, default=1_000_000, help="over all policies")
    parser.add_argument("--policy", action="append", help="all; with a directory those that need no profiles")
    given = parser.parse_args()
    profiles, machine = [], MACHINE
    if given.directory is None:
        library, profiles = ModelLibrary([nf_model(nf) for nf in FUNCTIONS]), nf_profiles()
    else:
        library = ModelLibrary.load(given.directory / "models")
        machine = library.machines[0]
    functions = sorted({key.split("@")[0] for key in library.workloads(machine) if not key.startswith("synthetic")})
    names = given.policy or [name for name in policy_names() if profiles or not policy_class(name).needs_profiles]
    done, broken, begun, number = 0, 0, time.perf_counter(), given.seed
    while done < given.operations:
        plain = number // len(names) % 3 == 0  # where new requests and moves are planned together
        cluster = constrained_cluster(machine, racks=4 if plain else 3, plain=plain)
        placer = Placer(library, cluster, names[number % len(names)], profiles=profiles)
        operations = RandomOperations(placer, functions, number)
        for _ in range(min(_ROUND, given.operations - done)):
            said = operations.step()
            done, broken = done + 1, broken + len(said)
            if said:
                print(f"policy {placer.policy.name}, seed {number}: {'; '.join(said)}", flush=True)
                break
        number += 1
        print(f"{done} operations, {broken} broken, {time.perf_counter() - begun:.0f} s", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
