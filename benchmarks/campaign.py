"""Time a full profile of one network function: the default design's 588 runs and its solo run, about 600 in all.

    python benchmarks/campaign.py [--nf lpm] [--machine e5-2620v4] [--jobs 2] [--runs N]

Prints wall and processor time, the cores that were really busy, and the cost of the store. Target: 60 s on two cores.
"""

import argparse
import tempfile
import time
from pathlib import Path

from slomo.profiling.campaign.description import describe_campaign
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import CampaignStore, stored_records
from slomo.profiling.plans.basic import pressure_plan
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.replay import ReplayTestbed
from slomo.testbed.simulated import SimulatedTestbed

TARGET_S = 60.0


def main() -> None:
    arguments = _arguments()
    testbed = SimulatedTestbed(arguments.machine)
    plan = pressure_plan(arguments.nf, arguments.machine, arguments.design, runs=arguments.runs)
    testbed.run(plan.colocations[0])  # compile before the clock starts
    print(describe_campaign(plan, testbed, jobs=arguments.jobs))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "profile.sqlite"
        wall, busy = _timed(plan, testbed, store, arguments.jobs)
        print(f"{len(plan)} runs, {arguments.jobs} workers: {wall:.1f} s wall, {busy:.1f} s processor", end="")
        print(f" ({busy / wall:.2f} cores busy, {1e3 * busy / len(plan):.0f} ms per run)")
        scaled, idle = (600 * seconds / len(plan) for seconds in (wall, busy / arguments.jobs))
        print(f"600 runs would take {scaled:.1f} s, target {TARGET_S:.0f} s: {'ok' if scaled < TARGET_S else 'OFF'}")
        if busy < 0.8 * arguments.jobs * wall:
            print(f"  others used the cores too; alone on {arguments.jobs} it would be {idle:.1f} s or more")
        _print_store_cost(plan, store, Path(folder))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nf", default="lpm")
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--design", default="grid")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=None, help="points of the design, all by default")
    return parser.parse_args()


def _timed(plan: ExperimentPlan, testbed: SimulatedTestbed, store: Path, jobs: int) -> tuple[float, float]:
    wall, busy = time.perf_counter(), time.process_time()
    run_campaign(plan, testbed, store, jobs)
    return time.perf_counter() - wall, time.process_time() - busy


def _print_store_cost(plan: ExperimentPlan, store: Path, folder: Path) -> None:
    """Write the same records again, without simulating anything, and resume a finished campaign."""
    records = stored_records(store)
    replay = ReplayTestbed(records)
    with CampaignStore(folder / "again.sqlite") as again:
        again.bind(plan, replay.environment())
        started = time.perf_counter()
        for run in plan.runs():
            again.add(run, replay.run(run.colocation, seed=run.seed), 0.0)
        each = (time.perf_counter() - started) / len(plan)
    started = time.perf_counter()
    run_campaign(plan, SimulatedTestbed(plan.machine), store)
    resumed = time.perf_counter() - started
    print(f"a durable write takes {1e3 * each:.2f} ms; resuming the finished campaign {resumed:.2f} s")


if __name__ == "__main__":
    main()
