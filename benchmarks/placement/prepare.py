"""Profile and train what the placement benchmarks need: models, and throughput over cache ways and load.

    python benchmarks/placement/prepare.py DIR                        ResQ's machine and network functions
    python benchmarks/placement/prepare.py DIR --machine e5-2620v4 --nf lpm --nf stats

Every run is kept in DIR; the same command again goes on where it stopped.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.registry import make_testbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function, network_function_names
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.profile import profile
from slomo.workflow.profile_ways import profile_ways
from slomo.workflow.train import train


def resq_functions() -> list[str]:
    return [name for name in network_function_names() if "resq" in load_network_function(name).tags]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--machine", default="e5-2695v4")
    parser.add_argument("--nf", action="append", help="network function, repeatable; ResQ's by default")
    parser.add_argument(
        "--runs", type=int, default=64, help="settings of the synthetic competitor per network function"
    )
    parser.add_argument("--mixes", type=int, default=200, help="mixes that set the width of intervals")
    parser.add_argument("--repeats", type=int, default=400, help="mixes of one to three kinds, as packing makes them")
    parser.add_argument("--most", type=int, default=9, help="tenants of such a mix, at most")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    nfs = given.nf or resq_functions()
    given.directory.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    most = min(given.most, load_machine(given.machine).cores_per_socket)
    ways(given.directory / "profiles.json", nfs, given.machine)
    print(f"profiles over cache ways and load: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    dataset = profile(
        nfs, machine=given.machine, plan="all", design="sobol", runs=given.runs, mixes=given.mixes,
        store=given.directory / "profile.sqlite", jobs=given.jobs, seed=given.seed,
    )  # fmt: skip
    print(f"{len(dataset)} rows after {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    repeated = run_campaign(
        repeats_plan(nfs, given.machine, given.repeats, given.seed, most),
        make_testbed("simulated", given.machine),
        given.directory / "repeats.sqlite",
        given.jobs,
    )
    dataset = dataset.merge(repeated)
    train(dataset, seed=given.seed).save(given.directory / "models")
    print(f"models after {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return 0


def repeats_plan(nfs: list[str], machine: str, count: int, seed: int, most: int) -> ExperimentPlan:
    """Return mixes as packing makes them: several of the same kind; intervals are calibrated on them, too."""
    generator = np.random.default_rng([seed, 0x706163])
    mixes: dict[str, Colocation] = {}
    while len(mixes) < count:
        kinds = generator.choice(nfs, size=int(generator.integers(1, 4)))
        tenants = [parse_workload(str(nf)) for nf in generator.choice(kinds, size=int(generator.integers(2, most + 1)))]
        mix = Colocation(machine, tenants[0], tuple(sorted(tenants[1:], key=lambda workload: workload.key)))
        mixes[mix.key] = mix
    return ExperimentPlan("mixes-repeats", tuple(mixes.values()), seed=seed)


def ways(path: Path, nfs: list[str], machine: str) -> None:
    done: list[PartitionProfile] = list(load_profiles(path)) if path.exists() else []
    profiled, host = {key for item in done for key in item.responses}, load_machine(machine)
    for workload in map(parse_workload, nfs):
        if workload.key not in profiled:
            done.append(profile_ways(make_testbed("simulated", host), host, [workload]))
            save_profiles(done, path)


if __name__ == "__main__":
    sys.exit(main())
