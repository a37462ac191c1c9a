"""Twenty hosts behind a real sshd, and what goes wrong with them: who is busy, who measures, what is lost.

    python benchmarks/fleet_hosts.py            20 hosts x 200 functions, 30 + 5 kills: half an hour
    python benchmarks/fleet_hosts.py --quick    4 hosts: four minutes

Stand-in hosts wait for as long as a run is said to take instead of measuring, so that twenty share two cores;
SSH, locks, tokens, stores, workers and coordinators are the real ones. Every third kill takes the process that workers
are forked from as well. One host's clock is a day ahead, another's disk is full after some runs, and workers are
stopped: some for three seconds, one until it is given up.
"""

import argparse
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
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.testing.builders import ToyTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload
from tests.testbed_host.real_sshd import RealSshd

MACHINE = "e5-2620v4"
MODULE = """
import os, time
from slomo.testing.builders import ToyTestbed

class StandIn(ToyTestbed):
    def run(self, colocation, *, seed=0):
        with open(os.environ["STAND_IN"], "a", buffering=1) as log:
            log.write(f"begin {time.monotonic()} {os.getpid()} {colocation.key}-{seed}\\n")
            record = super().run(colocation, seed=seed)
            log.write(f"end {time.monotonic()} {os.getpid()} {colocation.key}-{seed}\\n")
        return record

def stand_in(machine, functions):
    return StandIn(float(os.environ.get("STAND_IN_S", "0")))
"""
#: What is wrong with a host from the start: a clock that is a day ahead, files that may not grow.
SPOILT = """
import os, resource, time
if os.environ.get("STAND_IN_CLOCK"):
    real, real_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: real() + 86400.0, lambda: real_ns() + 86400 * 10**9
if os.environ.get("STAND_IN_FULL"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["STAND_IN_FULL"]),) * 2)
"""
PROGRAM = """#!/bin/sh
export PYTHONPATH={folder}:{root} STAND_IN={log} STAND_IN_S={delay} {more}
exec {python} "$@"
"""


@dataclass(frozen=True)
class Played:
    """What a campaign over stand-in hosts came to."""

    calls: int
    did: str
    wall_s: float
    working_s: float
    busy: float
    at_once: int
    again: int
    differs: bool
    core_s: float


def play(folder: Path, given: argparse.Namespace, daemon: RealSshd) -> Played:
    """Run a plan on stand-in hosts while things go wrong; compare with what one host makes undisturbed."""
    colocations = [
        Colocation(MACHINE, Workload("lpm", {"rules": 1 + one}), (Workload("synthetic", {"data_size_mib": size}),))
        for size in range(1, given.runs + 1)
        for one in range(given.functions)
    ]
    plan = ExperimentPlan("stand-in", tuple(colocations))
    command = _prepared(folder, plan, given)
    environment = os.environ | {
        "PATH": f"{daemon.bin}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, [os.environ.get("PYTHONPATH")]))),
    }
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    calls, did, dead = _plagued(command, environment, folder, given)
    wall_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    spans, made = _spans(folder, dead), ProfileDataset.read_parquet(folder / "out.parquet")
    at_once = sum(b[0] < a[1] for rows in spans.values() for a, b in itertools.pairwise(rows))
    compared = colocations[0].key  # all hosts make this one, besides
    finished = [run for rows in spans.values() for *_, run, whole in rows if whole and not run.startswith(compared)]
    working_s = max(r[-1][1] for r in spans.values()) - min(r[0][0] for r in spans.values())
    # who was stopped does not count as busy for longer than a run lasts
    busy_s = sum(min(end - begin, given.delay + 0.5) for rows in spans.values() for begin, end, *_ in rows)
    return Played(
        calls, did, wall_s, working_s, busy_s / (working_s * given.hosts), at_once, len(finished) - len(set(finished)),
        not made.frame.equals(run_campaign(plan, ToyTestbed()).frame),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )  # fmt: skip


def _prepared(folder: Path, plan: ExperimentPlan, given: argparse.Namespace) -> list[str]:
    """Write plan, hosts and the testbed's package; return the command that measures."""
    (folder / "plan.json").write_text(json.dumps(plan.to_dict()))
    (folder / "stand_ins.py").write_text(MODULE)
    (folder / "sitecustomize.py").write_text(SPOILT)
    described = folder / "stand_ins-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-ins\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[slomo.testbeds]\nstand-in = stand_ins:stand_in\n")
    entries, root = [], Path(__file__).resolve().parent.parent
    for number in range(given.hosts):
        more = {0: "STAND_IN_CLOCK=1", 1: f"STAND_IN_FULL={given.full}"}.get(number, "")
        program = folder / f"python{number}"
        place = {"folder": folder, "root": root, "log": folder / f"h{number}.log", "python": sys.executable}
        program.write_text(PROGRAM.format(**place, delay=given.delay, more=more))
        program.chmod(0o755)
        state = str(folder / "state")
        entries.append({"name": f"h{number}", "ssh": "gen1", "python": str(program), "state": state})
    (folder / "hosts.yaml").write_text(json.dumps({"testbed": "stand-in", "hosts": entries}))
    command = [sys.executable, "-m", "slomo", "fleet", "profile", str(folder / "plan.json"), "--skip-missing"]
    return [*command, "--hosts", str(folder / "hosts.yaml"), "--out", str(folder / "out.parquet"), "--json"]


def _plagued(
    command: list[str], environment: dict[str, str], folder: Path, given: argparse.Namespace
) -> tuple[int, str, dict[int, float]]:
    """Repeat the command until it ends well, while processes are killed and stopped; return who died when."""
    draw, dead, calls = random.Random(given.seed), {}, 0  # noqa: S311
    total = given.functions * given.runs
    kills, ends, stops, long = given.kills, given.coordinators, given.stops, given.long_stops
    # as many faults as runs are finished, evenly over the campaign's first nine tenths
    faults = ["kill"] * kills + ["end"] * ends + ["stop"] * stops + ["long"] * long
    draw.shuffle(faults)
    due = [0.9 * total * (place + 1) / len(faults) for place in range(len(faults))]
    waking: list[tuple[float, int]] = []
    while True:
        calls += 1
        coordinator = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while coordinator.poll() is None:
            time.sleep(0.1)
            now = time.monotonic()
            for at, pid in [each for each in waking if each[0] <= now]:
                waking.remove((at, pid))
                _signal(pid, signal.SIGCONT)
            finished = _finished(folder)
            alive = [pid for pid in _holders(folder) if pid not in {stopped for _, stopped in waking}]
            if not faults or finished < due[-len(faults)] or len(alive) < given.hosts / 2:
                continue
            fault, victim = faults.pop(0), draw.choice(alive)
            time.sleep(draw.uniform(0.0, given.delay))  # at any moment of a run
            if fault == "kill":
                kills -= 1
                if kills % 3 == 0:
                    _signal(_parent(victim), signal.SIGKILL)
                _signal(victim, signal.SIGKILL)
                dead[victim] = time.monotonic()
            elif fault == "end":
                coordinator.kill()
            else:
                _signal(victim, signal.SIGSTOP)
                waking.append((now + (3.0 if fault == "stop" else given.long_s), victim))
        out, told = (text.decode() for text in coordinator.communicate())
        if coordinator.returncode == 0:
            break
        print(f"  call {calls} ended with {coordinator.returncode}: {told.strip()[-600:] or 'killed'}", flush=True)
        if coordinator.returncode not in (-signal.SIGKILL, 3) or calls > 5 + 5 * given.coordinators:
            raise SystemExit(told)
    for _, pid in waking:
        _signal(pid, signal.SIGKILL)
    did = f"{given.kills} workers killed, every third with what it is forked from; {given.coordinators} coordinators "
    did += f"killed; {given.stops} workers stopped for 3 s and {given.long_stops} for {given.long_s:g} s"
    return calls, f"{did}; left out: {json.loads(out)['left_out'] or 'nobody'}", dead


def _signal(pid: int, what: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _holders(folder: Path) -> list[int]:
    """Return the workers that hold a host's lock."""
    pids = []
    for path in (folder / "state").glob("*/lock"):
        try:
            pids.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _finished(folder: Path) -> int:
    return sum(log.read_text().count("end ") for log in folder.glob("h*.log"))


def _spans(folder: Path, dead: dict[int, float]) -> dict[str, list[tuple[float, float, str, bool]]]:
    """Return begin, end, run and whether it was finished, of every run of every host; who was killed ended then."""
    spans: dict[str, list[tuple[float, float, str, bool]]] = defaultdict(list)
    for log in folder.glob("h*.log"):
        open_runs: dict[int, tuple[float, str]] = {}
        for row in log.read_text().splitlines():
            what, at, pid, run = row.split()
            if what == "begin":
                open_runs[int(pid)] = (float(at), run)
            else:
                spans[log.stem].append((open_runs.pop(int(pid))[0], float(at), run, True))
        for pid, (at, run) in open_runs.items():
            spans[log.stem].append((at, max(at, dead.get(pid, at)), run, False))
        spans[log.stem].sort()
    return spans


def line(what: str, figure: float, unit: str, goal: float | None = None, *, least: bool = False) -> None:
    """Print one figure beside its goal."""
    off = "" if goal is None else ("  OFF" if (figure < goal if least else figure > goal) else "  ok")
    print(f"{what:64}{figure:14.4g} {unit:10}{'' if goal is None else f'goal {goal:g}'}{off}", flush=True)


def options() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--runs", type=int, default=10, help="of each function")
    parser.add_argument("--delay", type=float, default=14.0, help="How long a run is said to take [s].")
    parser.add_argument("--kills", type=int, default=30, help="Workers killed.")
    parser.add_argument("--coordinators", type=int, default=5, help="Coordinators (and their schedulers) killed.")
    parser.add_argument("--stops", type=int, default=5, help="Workers stopped for three seconds.")
    parser.add_argument("--long-stops", type=int, default=1, help="Workers stopped until they are given up.")
    parser.add_argument("--long-s", type=float, default=90.0, help="Such a stop [s].")
    parser.add_argument("--full", type=int, default=200_000, help="No file of the second host may grow beyond [B].")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="4 hosts, 160 runs of 4 s, 4 + 1 kills")
    return parser


def main() -> None:
    given = options().parse_args()
    if given.quick:
        given.hosts, given.functions, given.runs, given.delay = 4, 20, 8, 4.0
        given.kills, given.coordinators, given.stops, given.long_stops = 4, 1, 1, 0
    with tempfile.TemporaryDirectory(prefix="slomo-fleet-bench-") as name:
        (Path(name) / "sshd").mkdir()
        daemon = RealSshd(Path(name) / "sshd")
        try:
            played = play(Path(name), given, daemon)
        finally:
            daemon.close()
    runs = given.functions * given.runs
    print(f"{given.hosts} stand-in hosts, {given.functions} functions, {runs} runs said to take {given.delay:g} s each")
    print(f"{played.did}; {played.calls} calls of the command")
    line("runs at the same time on one host", played.at_once, "", 0)
    line("dataset differs from one host's (0: the same)", int(played.differs), "", 0)
    line("finished runs that were made again", played.again, "")
    line("hosts busy, from the first run to the last", 100 * played.busy, "%", 90, least=True)
    line("processor time of everything, per run", 1e3 * played.core_s / runs, "ms")
    line("wall time in all", played.wall_s, "s")


if __name__ == "__main__":
    main()
