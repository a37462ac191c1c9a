"""Fleets: mixes in bulk, engines, and ten thousand hosts in virtual time; each figure beside its goal.

    python benchmarks/fleet.py                                            all of the following, a million mixes
    python benchmarks/fleet.py bulk --mixes 10000000 --models DIR         parquet to parquet, killed and resumed
    python benchmarks/fleet.py virtual --hosts 10000 --runs 600           the order of runs, failures, makespan
    python benchmarks/fleet.py computing                                  cost of a task, same bits, speed-up

Hosts that die, are stopped or have a full disk: fleet_hosts.py.
"""

import argparse
import hashlib
import heapq
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from slomo.profiling.plans.plan import PlannedRun


def line(what: str, figure: float, unit: str, goal: float | None = None, *, least: bool = False) -> None:
    """Print one figure beside its goal."""
    off = "" if goal is None else ("  OFF" if (figure < goal if least else figure > goal) else "  ok")
    print(f"{what:64}{figure:14.4g} {unit:10}{'' if goal is None else f'goal {goal:g}'}{off}", flush=True)


def virtual(given: argparse.Namespace) -> None:
    """Play the fleet's order: every free host takes the next run; what fails, or is lost with its host, comes again.

    The plan and the schedule that hands its runs out are the real ones.
    """
    from slomo.fleet.asking import SILENT_S
    from slomo.profiling.campaign.schedule import Schedule
    from slomo.profiling.plans.plan import ExperimentPlan
    from slomo.testing.builders import ToyTestbed
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.workload import Workload

    draw, total = np.random.default_rng(0), given.hosts * given.runs
    count = total // given.repetitions
    targets = [Workload("lpm", {"copy": copy}) for copy in range(200)]
    beside = [(Workload("synthetic", {"data_size_mib": size}),) for size in range(-(-count // len(targets)))]
    pairs = ((target, competitors) for competitors in beside for target in targets)
    colocations = tuple(Colocation("toy", *pair) for pair in islice(pairs, count))
    plan = ExperimentPlan("virtual", colocations, replicates=given.repetitions)
    schedule, record = Schedule(plan, (), interleaved=True), ToyTestbed().run(colocations[0])
    pending = schedule.pending()
    lasts = (last_s for _ in repeat(None) for last_s in draw.lognormal(np.log(14.0), 0.1, 10_000).tolist())
    fails = (failed for _ in repeat(None) for failed in (draw.random(10_000) < 0.01).tolist())
    dying = draw.choice(given.hosts, given.hosts // 100, replace=False).tolist()
    dies_at = {host: float(draw.uniform(0.0, 14.0 * given.runs)) for host in dying}
    free = [(0.0, host) for host in range(given.hosts)]
    again: list[tuple[float, int, PlannedRun]] = []  # when, in which order, what
    finished, work_s, makespan = 0, 0.0, 0.0
    while finished < total:
        now, host = heapq.heappop(free)
        if now > dies_at.get(host, np.inf):
            continue
        is_first = not (again and again[0][0] <= now)
        run = next(pending, None) if is_first else heapq.heappop(again)[2]
        if run is None:
            heapq.heappush(free, (again[0][0], host))
            continue
        end = now + next(lasts)
        if end > dies_at.get(host, np.inf):
            heapq.heappush(again, (dies_at[host] + SILENT_S, finished, run))
            continue
        work_s += end - now
        if is_first and next(fails):
            heapq.heappush(again, (end, finished, run))
        else:
            makespan, finished = max(makespan, end), finished + 1
            schedule.finish(run, record)
        heapq.heappush(free, (end, host))
    lost_s = sum(14.0 * given.runs - at for at in dies_at.values())
    what = f"{given.hosts} virtual hosts x {given.runs} runs of 14 s, one plan of {count} co-locations"
    print(f"{what}, {given.repetitions} repetitions each: 1 % of runs fail once, 1 % of hosts die for good")
    makespan *= given.hosts / (work_s + lost_s)
    line("makespan over bound (work and lost host time, evenly divided)", makespan, "", 1.1)
    most_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line("most memory of the process, with plan, schedule and Dask", most_gib, "GiB", 1.0)


def bulk(given: argparse.Namespace) -> None:
    """Predict many mixes; kill the command on its way, and compare with the bytes of an undisturbed one."""
    import prediction_speed
    import pyarrow as pa
    import pyarrow.parquet as pq
    from prediction_speed import MACHINE, trained, widened

    from slomo.models.library import ModelLibrary

    with tempfile.TemporaryDirectory() as name:
        folder, group = Path(name), 500_000
        prediction_speed.WORKLOADS = given.functions
        saved = given.models or trained(folder / "trained", MACHINE)
        library = widened(ModelLibrary.load(saved), MACHINE)
        library.save(folder / "models")
        keys, draw = pa.array(library.workloads(MACHINE)), np.random.default_rng(0)
        kinds = pa.schema({"target": pa.string(), "competitors": pa.list_(pa.string())})
        with pq.ParquetWriter(folder / "mixes.parquet", kinds) as writer:
            for begin in range(0, given.mixes, group):
                count = min(group, given.mixes - begin)
                picked = draw.integers(0, len(keys), (count, 4))
                beside = pa.ListArray.from_arrays(
                    pa.array(np.arange(0, 3 * count + 1, 3), pa.int32()), keys.take(pa.array(picked[:, 1:].ravel()))
                )
                writer.write_table(pa.table([keys.take(pa.array(picked[:, 0])), beside], schema=kinds))
        command = [sys.executable, "-m", "slomo", "predict", "--from", str(folder / "mixes.parquet"), "--jobs", "2"]
        command += ["--models", str(folder / "models"), "--to"]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        peak = _peak_gib(subprocess.Popen([*command, str(folder / "whole.parquet")]))
        wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{given.mixes:,} mixes of 4 network functions out of {given.functions}, with intervals")
        line("wall time, two processes", wall, "s", 60.0 * given.mixes / 1e7)
        line("processor time", core, "s")
        line("memory of all processes together (proportional)", peak, "GiB", 1.5)
        killed = subprocess.Popen([*command, str(folder / "killed.parquet")])
        time.sleep(wall / 2)
        killed.kill()
        killed.wait()
        subprocess.run([*command, str(folder / "killed.parquet")], check=True)
        digests = {hashlib.sha256((folder / f"{n}.parquet").read_bytes()).digest() for n in ("whole", "killed")}
        line("different files after a kill half way (1: the same)", len(digests), "", 1)


def _peak_gib(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a process; return the most memory that it and its children had together."""
    peak = 0
    while process.poll() is None:
        family, waiting = {process.pid}, [process.pid]
        while waiting:
            pid = waiting.pop()
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                new = {int(child) for child in task.read_text().split()} - family
                family |= new
                waiting += new
        used = 0
        for pid in family:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                used += int(text.split("\nPss:")[1].split()[0])
            except (OSError, IndexError):
                continue
        peak = max(peak, used)
        time.sleep(0.5)
    return peak / 2**20


def nothing(item: int) -> int:
    """Do nothing."""
    return item


def little(item: int) -> int:
    """Take 50 ms, so that items are not put together."""
    time.sleep(0.05)
    return item


def _core_s() -> float:
    """Return the processor time of this process and those that it started [s]."""
    import psutil

    here = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (here, *here.children(recursive=True)))


def computing(given: argparse.Namespace) -> None:
    """Compare one and two workers with this process: overhead per task, dataset, models, time."""
    from functools import partial

    from distributed import LocalCluster

    from slomo.fleet.spread import spread
    from slomo.records.catalog import find_dataset
    from slomo.training.training import train
    from slomo.workflow.profile import profile

    dataset = find_dataset("slomo-e5-2620v4")
    targets = dataset.profiled_targets[: given.functions]
    print(f"{given.runs} simulated runs, then {len(targets)} network functions trained, here and by workers")
    times: dict[int, list[float]] = {}
    datasets, libraries = set(), set()
    profile("lpm", plan="solo", seed=1)  # compiles the simulator

    def compute(workers: int, scheduler: str | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            made = profile("lpm", plan="pressure", runs=given.runs, jobs=None if scheduler else 1, scheduler=scheduler)
            measured = time.monotonic()
            library = train(dataset, targets=targets, each=partial(spread, scheduler=scheduler))
            times[workers] = [measured - begun, time.monotonic() - measured]
            made.to_parquet(Path(folder, "made.parquet"))
            datasets.add(hashlib.sha256(Path(folder, "made.parquet").read_bytes()).digest())
            library.save(Path(folder, "models"))
            files = sorted(Path(folder, "models").rglob("*.json"))
            libraries.add(hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest())

    compute(0, None)
    little_s: dict[int, float] = {}
    for workers in (1, 2):
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        with LocalCluster(**options, silence_logs=50) as cluster:
            address = cluster.scheduler_address
            list(spread(nothing, range(10), scheduler=address))
            for function, count, lasts_s in ((nothing, 2_000, 0.0), (little, 200, 0.05)):
                begun, core_s = time.monotonic(), _core_s()
                list(spread(function, range(count), scheduler=address))
                wall_s, core_s = time.monotonic() - begun, _core_s() - core_s
                what = f"item of {1e3 * lasts_s:g} ms, workers: {workers}"
                line(f"overhead per {what}", 1e3 * (wall_s - count * lasts_s / workers) / count, "ms", 5.0)
                line(f"processor time of all processes per {what}", 1e3 * core_s / count, "ms")
                little_s[workers] = wall_s
            compute(workers, address)
    line("different datasets of this process, one and two workers (1: the same)", len(datasets), "", 1)
    line("different libraries (1: the same)", len(libraries), "", 1)
    line("speed-up of items of 50 ms that wait, two workers over one", little_s[1] / little_s[2], "x")
    for place, what in enumerate(("the runs", "training")):
        line(f"speed-up of {what}, two workers over one", times[1][place] / times[2][place], "x")
        line(f"speed-up of {what}, two workers over this process", times[0][place] / times[2][place], "x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers()
    two = parts.add_parser("virtual")
    two.add_argument("--hosts", type=int, default=10_000)
    two.add_argument("--runs", type=int, default=600)
    two.add_argument("--repetitions", type=int, default=20, help="of each co-location of the plan")
    two.set_defaults(part=virtual)
    three = parts.add_parser("bulk")
    three.add_argument("--mixes", type=int, default=1_000_000)
    three.add_argument("--functions", type=int, default=200)
    three.add_argument("--models", type=Path, help="folder of a saved library of e5-2620v4")
    three.set_defaults(part=bulk)
    four = parts.add_parser("computing")
    four.add_argument("--runs", type=int, default=60)
    four.add_argument("--functions", type=int, default=4)
    four.set_defaults(part=computing)
    given = parser.parse_args()
    if hasattr(given, "part"):
        given.part(given)
        return
    for word in ("computing", "virtual", "bulk"):
        subprocess.run([sys.executable, __file__, word], check=True)


if __name__ == "__main__":
    main()
