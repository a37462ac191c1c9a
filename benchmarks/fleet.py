"""Fleets: hosts under kills, mixes in bulk, and ten thousand hosts in virtual time; each figure beside its goal.

    python benchmarks/fleet.py hosts --hosts 20 --runs 1200 --kills 30    real worker processes on stand-in hosts
    python benchmarks/fleet.py bulk --mixes 10000000 --models DIR         parquet to parquet, killed and resumed
    python benchmarks/fleet.py virtual --hosts 10000 --runs 600           the order of runs, failures, makespan
    python benchmarks/fleet.py computing                                  overhead per task, identical models, speed-up

Stand-in hosts wait instead of measuring, so that they share this machine's cores; each writes down when it measured.
"""

import argparse
import hashlib
import heapq
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

STAND_IN = """#!{python}
import os, runpy, sys, time
import slomo.fleet.measuring as measuring
from slomo.testing.builders import ToyTestbed

class StandIn(ToyTestbed):
    def run(self, colocation, *, seed=0):
        begun = time.monotonic()
        record = super().run(colocation, seed=seed)
        with open("{log}", "a") as file:
            file.write(f"{{begun}} {{time.monotonic()}} {{os.getpid()}}\\n")
        return record

measuring._opened_testbed = lambda *_: made
made = StandIn(delay_s={delay})
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def line(what: str, figure: float, unit: str, goal: float | None = None, *, least: bool = False) -> None:
    """Print one figure beside its goal."""
    off = "" if goal is None else ("  OFF" if (figure < goal if least else figure > goal) else "  ok")
    print(f"{what:64}{figure:14.4g} {unit:10}{'' if goal is None else f'goal {goal:g}'}{off}", flush=True)


def hosts(given: argparse.Namespace) -> None:
    """Run a plan on stand-in hosts while workers and coordinators are killed and one host stands still."""
    from slomo.profiling.campaign.run import run_campaign
    from slomo.profiling.plans.plan import ExperimentPlan
    from slomo.records.dataset import ProfileDataset
    from slomo.testing.builders import ToyTestbed
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.workload import Workload

    pressure = [Workload("synthetic", {"data_size_mib": size}) for size in range(1, given.runs + 1)]
    plan = ExperimentPlan("stand-in", tuple(Colocation("toy", Workload("lpm"), (each,)) for each in pressure))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.json").write_text(json.dumps(plan.to_dict()))
        entries = []
        for number in range(given.hosts):
            program = folder / f"python{number}"
            program.write_text(STAND_IN.format(python=sys.executable, log=folder / f"h{number}.log", delay=given.delay))
            program.chmod(0o755)
            entries.append({"name": f"h{number}", "python": str(program), "state": str(folder / "state")})
        (folder / "hosts.yaml").write_text(json.dumps({"testbed": "toy", "hosts": entries}))
        command = [sys.executable, "-m", "slomo", "fleet", "profile", str(folder / "plan.json")]
        command += ["--hosts", str(folder / "hosts.yaml"), "--out", str(folder / "out.parquet"), "--json"]
        faults, started, calls = _plagued(command, folder, given)
        logs = {f"h{n}": folder / f"h{n}.log" for n in range(given.hosts)}
        spans = {
            h: sorted(tuple(map(float, row.split())) for row in p.read_text().splitlines()) for h, p in logs.items()
        }
        overlaps = sum(b[0] < a[1] for rows in spans.values() for a, b in itertools.pairwise(rows))
        busy = sum(end - begin for rows in spans.values() for begin, end, _ in rows)
        working = max(r[-1][1] for r in spans.values()) - min(r[0][0] for r in spans.values())
        made = ProfileDataset.read_parquet(folder / "out.parquet")
        expected = run_campaign(plan, ToyTestbed())
    print(f"{given.hosts} stand-in hosts, {given.runs} runs of {given.delay} s; {faults}; {calls} calls of the command")
    line("runs at the same time on one host", overlaps, "", 0)
    line("dataset differs from one host's (0: the same)", 1 - int(made.frame.equals(expected.frame)), "", 0)
    line("runs made more than once", sum(map(len, spans.values())) - given.runs - given.hosts * calls, "")
    line("hosts busy, while anybody measures", 100 * busy / (working * given.hosts), "%", 90, least=True)
    line("wall time in all", time.monotonic() - started, "s")


def _plagued(command: list[str], folder: Path, given: argparse.Namespace) -> tuple[str, float, int]:
    """Repeat the command until it ends well; meanwhile kill coordinators and workers, and stop one for a while."""
    draw, started = random.Random(0), time.monotonic()  # noqa: S311
    kills, ends, stops, calls = given.kills, given.coordinators, given.stops, 0
    while True:
        calls += 1
        coordinator = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before, until = _lines(folder), draw.randint(10, 60)
        while coordinator.poll() is None:
            time.sleep(draw.uniform(0.2, 1.0))
            pids = [int(text) for p in (folder / "state").glob("*/lock") if (text := p.read_text().strip())]
            alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
            if len(alive) < given.hosts / 2 or _lines(folder) < before + 5:
                continue
            if kills > 0:
                os.kill(draw.choice(alive), signal.SIGKILL)
                kills -= 1
            elif stops > 0:
                victim = draw.choice(alive)
                os.kill(victim, signal.SIGSTOP)
                time.sleep(3.0)
                os.kill(victim, signal.SIGCONT) if Path(f"/proc/{victim}").exists() else None
                stops -= 1
            if ends > 0 and _lines(folder) > before + until:
                coordinator.kill()
                ends -= 1
        if coordinator.wait() == 0:
            did = [given.kills - kills, calls - 1, given.stops - stops]
            return "killed {} workers, {} coordinators; stopped {}".format(*did), started, calls
        told = coordinator.stderr.read().decode().strip().splitlines() if coordinator.stderr else []
        print(f"  call {calls} ended with {coordinator.returncode}: {told[0][:150] if told else 'killed'}", flush=True)
        if coordinator.returncode not in (-signal.SIGKILL, 3) or calls > 10 + 5 * given.coordinators:
            raise SystemExit("\n".join(told))
        time.sleep(1.0)


def _lines(folder: Path) -> int:
    """Return how many runs hosts have made."""
    return sum(len(log.read_text().splitlines()) for log in folder.glob("h*.log"))


def virtual(given: argparse.Namespace) -> None:
    """Play the fleet's order: every free host takes the next run; what fails, or is lost with its host, comes again."""
    from slomo.profiling.campaign.schedule import Schedule
    from slomo.profiling.plans.plan import ExperimentPlan
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.workload import Workload

    draw, total = np.random.default_rng(0), given.hosts * given.runs
    lasts = draw.lognormal(np.log(14.0), 0.1, total)
    fails = draw.random(total) < 0.01
    dying = set(draw.choice(given.hosts, given.hosts // 100, replace=False).tolist())
    dies_at = {host: float(draw.uniform(0.0, 14.0 * given.runs)) for host in dying}
    free = [(0.0, host) for host in range(given.hosts)]
    again: list[tuple[float, int]] = []
    following, work_s, makespan = 0, 0.0, 0.0
    while following < total or again:
        now, host = heapq.heappop(free)
        if again and again[0][0] <= now:
            run = heapq.heappop(again)[1]
        elif following < total:
            run, following = following, following + 1
        else:
            heapq.heappush(free, (again[0][0], host))
            continue
        end = now + float(lasts[run])
        if end > dies_at.get(host, np.inf):
            heapq.heappush(again, (dies_at[host] + 300.0, run))  # Dask's worker-ttl
            continue
        work_s += float(lasts[run])
        if fails[run]:
            fails[run] = False
            heapq.heappush(again, (end, run))
        else:
            makespan = max(makespan, end)
        heapq.heappush(free, (end, host))
    lost_s = sum(14.0 * given.runs - at for at in dies_at.values())
    bound = (work_s + lost_s) / given.hosts
    print(f"{given.hosts} virtual hosts x {given.runs} runs of 14 s: 1 % of runs fail once, 1 % of hosts die for good")
    line("makespan over bound (work and lost host time, evenly divided)", makespan / bound, "", 1.1)
    count = 6_000
    tracemalloc.start()
    sizes = range(1, count + 1)
    target = Workload("lpm")
    colocations = [Colocation("toy", target, (Workload("synthetic", {"data_size_mib": size}),)) for size in sizes]
    plan = ExperimentPlan("all", tuple(colocations))
    pending = Schedule(plan, ()).pending()
    each = tracemalloc.get_traced_memory()[0] / len(pending)
    line("coordinator's memory per run of a plan", each, "B")
    line(f"of one plan with all {total:,} runs, extrapolated", each * total / 2**30, "GiB", 1.0)
    line(
        f"of one plan per host's share ({given.runs} runs), one after the other", each * given.runs / 2**30, "GiB", 1.0
    )


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


def computing(given: argparse.Namespace) -> None:  # noqa: ARG001
    """Compare one and two workers: overhead per task, models, time."""
    from distributed import LocalCluster

    from slomo.fleet.spread import spread
    from slomo.records.catalog import find_dataset
    from slomo.training.training import train

    dataset = find_dataset("slomo-e5-2620v4")
    targets = dataset.profiled_targets[:4]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster:
        list(spread(nothing, range(10), scheduler=cluster.scheduler_address))
        begun = time.monotonic()
        list(spread(nothing, range(2_000), scheduler=cluster.scheduler_address))
        line("overhead per task, Dask, two workers", 1e3 * (time.monotonic() - begun) / 2_000, "ms", 5.0)
    times, digests = {}, set()
    for jobs in (1, 2):
        begun = time.monotonic()
        library = train(dataset, targets=targets, each=lambda fit, rows, jobs=jobs: spread(fit, rows, jobs=jobs))
        times[jobs] = time.monotonic() - begun
        with tempfile.TemporaryDirectory() as folder:
            library.save(folder)
            files = sorted(Path(folder).rglob("*.json"))
            digests.add(hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest())
    line("different libraries of one and two processes (1: the same)", len(digests), "", 1)
    line(f"speed-up of training {len(targets)} network functions on two processes", times[1] / times[2], "x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("hosts")
    one.add_argument("--hosts", type=int, default=4)
    one.add_argument("--runs", type=int, default=200)
    one.add_argument("--delay", type=float, default=0.5, help="How long a run takes [s].")
    one.add_argument("--kills", type=int, default=3, help="Workers killed.")
    one.add_argument("--coordinators", type=int, default=1, help="Coordinators killed.")
    one.add_argument("--stops", type=int, default=1, help="Workers stopped for three seconds.")
    one.set_defaults(part=hosts)
    two = parts.add_parser("virtual")
    two.add_argument("--hosts", type=int, default=10_000)
    two.add_argument("--runs", type=int, default=600)
    two.set_defaults(part=virtual)
    three = parts.add_parser("bulk")
    three.add_argument("--mixes", type=int, default=1_000_000)
    three.add_argument("--functions", type=int, default=200)
    three.add_argument("--models", type=Path, help="folder of a saved library of e5-2620v4")
    three.set_defaults(part=bulk)
    parts.add_parser("computing").set_defaults(part=computing)
    given = parser.parse_args()
    given.part(given)


if __name__ == "__main__":
    main()
