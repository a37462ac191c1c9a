"""Run the benchmarks one after the other, go on after a failure, and end with a table of what is off.

A script prints `OFF` in each line whose figure is not in its range, and ends with 0 or 1; anything else is a failure,
as is the time limit. Whoever needs models gets those that `placement/prepare.py` makes here first.

    python benchmarks/run_all.py                  all of them: hours
    python benchmarks/run_all.py --quick          less of each: with `--quick` where a script has it
    python benchmarks/run_all.py phenomena resq   those whose path has one of these words
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
OFF = re.compile(r"\bOFF\b")
PREPARE = "placement/prepare.py"
#: Folder made by prepare.py -> what to make it with; and less of that.
PREPARED = {
    "sockets": "--machine e5-2620v4",
    "sockets2": "--machine e5-2620v4 --seed 1",
    "silver": "--machine silver-4110",
    "resq": "",
    "numasfp": "--machine e5-2620v4" + "".join(
        f" --nf {nf}@256B" for nf in ("ip-router", "flowstats", "stateless-firewall", "maglev", "l2fwd")
    ),
}  # fmt: skip
LESS_PREPARED = " --runs 16 --mixes 40 --repeats 40"
#: Script -> words; `{name}` is the folder made so, `{work}` that of all results. Others run without words.
WORDS = {
    "controllers.py": "--seed 397 --profile {work}/partitions.json",
    "convergence.py": "{work}/convergence.jsonl",
    "hospitality.py": "--models {sockets}/models",
    "host.py": "--json {work}/host.json",
    "stand_in.py": "{work}/host.json {work}/machine.yaml",
    "placement/ablate.py": "{work}/ablate --machine e5-2620v4",
    "placement/churn.py": "{sockets}",
    "placement/durability.py": "{sockets}",
    "placement/fresh.py": "{sockets} {silver} --seed 4711",
    "placement/hours.py": "{sockets} --refit {sockets2} --seed 23",
    "placement/hybrid.py": "{sockets} --seed 397",
    "placement/knob.py": "{work}/knob --machine e5-2620v4",
    "placement/living.py": "{sockets} --seed 397",
    "placement/moves.py": "{sockets} --seed 11",
    "placement/numasfp.py": "{numasfp}",
    "placement/operations.py": "--seed 397",
    "placement/resq.py": "{resq}",
    "placement/scale.py": "--models {resq}/models",
    "resq/dobrescu.py": "{work}/dobrescu.json",
    "resq/fig8.py": "{resq}",
    "resq/fig9.py": "{resq}",
    "robustness.py": "{work}/robustness.jsonl",
    "twins.py": "--seed 397",
}
#: Script -> what slomo is called with before it.
BEFORE = {
    "hospitality.py": "whatif snort stats lpm mazunat --models {sockets}/models --learn",
    "placement/numasfp.py": "profile ip-router@256B flowstats@256B stateless-firewall@256B maglev@256B l2fwd@256B"
    " --machine e5-2620v4 --plan partitions --out {numasfp}/partitions.json",
    "stand_in.py": "doctor --out {work}/machine.yaml",
}
#: Script -> words of a quick run, where it has no `--quick`.
FEWER = {
    "accelerators.py": "--runs 16 --mixes 6",
    "accuracy.py": "--shipped --mixes 30",
    "adaptive.py": "--machine e5-2620v4 --budget 20 --mixes 20 --seeds 1",
    "baselines.py": "--machine e5-2620v4 --runs 60 --mixes 30",
    "campaign.py": "--runs 60",
    "cells.py": "--machine new-10 --mixes 2",
    "competitor.py": "--repeats 1",
    "configuration.py": "--runs 8 --points 4",
    "convergence.py": "{work}/convergence.jsonl 8",
    "control.py": "2 30",
    "controllers.py": "--seed 397 --servers 1 --rounds 30",
    "interval_coverage.py": "--machine e5-2620v4 --mixes 30",
    "equilibrium.py": "e5-2620v4 --mixes 30 --calibration 60",
    "grid_range.py": "--machine e5-2620v4",
    "hospitality.py": "10 --models {sockets}/models",
    "latency.py": "--runs 12 --mixes 6 --repeats 1",
    "nfvnice.py": "--only schedulers",
    "numasfp_allocation.py": "e5-2620v4",
    "one_prediction.py": "--questions 60",
    "phenomena.py": "resq-table1",
    "placement/ablate.py": "{work}/ablate --machine e5-2620v4 --runs 16 --mixes 20 --requests 60",
    "placement/churn.py": "{sockets} --requests 200 --requests 1000 --calls 1000",
    "placement/durability.py": "{sockets} --kills 20 --races 4",
    "placement/fresh.py": "{sockets} {silver} --seed 4711 --requests 20",
    "placement/hours.py": "{sockets} --seed 23 --tenants 20",
    "placement/hybrid.py": "{sockets} --seed 397 --draws 1 --requests 20",
    "placement/knob.py": "{work}/knob --machine e5-2620v4 --runs 16 --mixes 20 --requests 60",
    "placement/moves.py": "{sockets} --seed 11 --tenants 20 --hours 1",
    "placement/numasfp.py": "{numasfp} --intervals 2",
    "placement/operations.py": "--seed 397 --operations 10000",
    "placement/oracle.py": "--requests 10",
    "placement/resq.py": "{resq} --family combination --terms 20",
    "placement/scale.py": "--size 1000",
    "placement/solvers.py": "--size 50 --limit 5",
    "robustness.py": "{work}/robustness.jsonl --runs 16 --mixes 20",
    "shared_port.py": "--runs 16 --mixes 5 --ports 80",
    "resq/latency.py": "--packet 1518 --terms 10",
    "service.py": "speed",
    "service_robust.py": "memory",
    "shared_cores.py": "--mixes 2",
    "shared_cores_host.py": "--rounds 2 --mixes 1",
    "transfer.py": "--pair e5-2620v4:silver-4110 --mixes 4",
    "traffic.py": "--nf lpm --runs 8 --points 4",
    "twins.py": "--seed 397 --machine e5-2620v4 --nf stats --mixes 2",
    "whatif.py": "10 e5-2620v4",
}


@dataclass
class Outcome:
    """What came of a script.

    Attributes
    ----------
    script : str
        Its path below this folder.
    minutes : float
        It took.
    off : list of str
        Lines that say so, and how it failed.
    """

    script: str
    minutes: float
    off: list[str]


def scripts(folder: Path) -> list[str]:
    """Return the paths of what can be run in a folder, but for this file and what only prepares."""
    texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    mine = (PREPARE, Path(__file__).name, "papers.py")  # which keeps what others measure
    return sorted(name for name, text in texts.items() if '__name__ == "__main__"' in text and name not in mine)


def words_of(folder: Path, script: str, quick: bool) -> str:
    """Return what a script is called with, places not filled in."""
    if not quick:
        return WORDS.get(script, "")
    has_quick = '"--quick"' in (folder / script).read_text(encoding="utf-8")
    return f"{WORDS.get(script, '')} --quick".strip() if has_quick else FEWER.get(script, WORDS.get(script, ""))


def run(folder: Path, script: str, words: Iterable[str], limit_s: float) -> Outcome:
    """Run a script, show what it prints, and note what is off."""
    begun, off, last = time.monotonic(), [], ""
    print(f"\n== {script} {' '.join(words)}", flush=True)
    paths = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, str(folder / script), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", cwd=HERE.parent, env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
    )  # fmt: skip
    timer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
        if OFF.search(line):
            off.append(" ".join(line.split()))
    code = process.wait()
    minutes = (time.monotonic() - begun) / 60.0
    if not timer.is_alive():
        off.append(f"took longer than {limit_s / 60.0:g} minutes")
    elif code not in (0, 1) or (code == 1 and not off):
        off.append(f"ended with {code}: {last}")
    timer.cancel()
    return Outcome(script, minutes, off)


def run_all(folder: Path, chosen: Iterable[str], quick: bool, work: Path, limit_s: float) -> list[Outcome]:
    """Run scripts one after the other, with what they need made before."""
    done, made = [], {"work": str(work)}
    for script in chosen:
        words = words_of(folder, script, quick)
        for name in re.findall(r"{(\w+)}", words):
            if name not in made:
                made[name] = str(work / name)
                less = LESS_PREPARED if quick else ""
                done.append(run(folder, PREPARE, (made[name] + " " + PREPARED[name] + less).split(), limit_s))
        if script in BEFORE:
            command = [sys.executable, "-m", "slomo", *BEFORE[script].format_map(made).split()]
            subprocess.run(command, cwd=HERE.parent, stdout=subprocess.DEVNULL, check=False)
        done.append(run(folder, script, words.format_map(made).split(), limit_s))
    return done


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes as a table, a line for each figure that is off."""
    rows = [f"{'benchmark':28}{'minutes':>8}  what is off"]
    for item in outcomes:
        first, *others = item.off or ["-"]
        rows.append(f"{item.script:28}{item.minutes:8.1f}  {first[:160]}")
        rows += [f"{'':36}  {other[:160]}" for other in others]
    return "\n".join(rows)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="run scripts whose path has one of these; all by default")
    parser.add_argument("--quick", action="store_true", help="less of each")
    parser.add_argument("--work", type=Path, help="folder for what is made, kept; a temporary one by default")
    parser.add_argument("--minutes", type=float, default=180.0, help="at most, for each script")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the scripts are")
    given = parser.parse_args(words)
    chosen = [name for name in scripts(given.folder) if not given.parts or any(part in name for part in given.parts)]
    with tempfile.TemporaryDirectory(prefix="slomo-bench-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        outcomes = run_all(given.folder, chosen, given.quick, work, 60.0 * given.minutes)
    print("\n" + table(outcomes))
    return 1 if any(item.off for item in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
