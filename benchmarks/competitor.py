"""How hard the synthetic competitor presses: its accesses beside plain loops and beside stress-ng, in one run.

Goal: at least 95 % of what a plain loop reads as a stream and at random, and no less than stress-ng's fastest reads.
stress-ng is asked where it is installed (`apt-get install stress-ng`); it has no random reads to compare with.

    python benchmarks/competitor.py --core 1
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys

from slomo.testbed.host.build import slomo_nf_binary

GOAL, SIZE_MIB = 0.95, 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    competitor = [slomo_nf_binary(), "--calibrate", "--data-size-mib", SIZE_MIB, "--cores", given.core]
    rows_by_pattern: dict[str, list[dict[str, float]]] = {}
    stressed: list[float] = []
    for _ in range(given.repeats):
        for line in output([str(word) for word in competitor]).splitlines():
            row = json.loads(line)
            rows_by_pattern.setdefault(row["pattern"], []).append(row)
        stressed += stress_gb_s(given.core)
    print(f"{'pattern':12s} {'plain loop':>12s} {'competitor':>12s}   GB/s of lines, {SIZE_MIB} MiB, core {given.core}")
    for pattern, rows in rows_by_pattern.items():
        plain, ours, ratio = (
            statistics.median(row[name] for row in rows) for name in ("plain_gb_per_s", "competitor_gb_per_s", "ratio")
        )
        verdict = "ok " if ratio >= GOAL else "OFF"
        print(f"{pattern:12s} {plain:12.2f} {ours:12.2f}   {verdict} {ratio:.3f}, goal {GOAL}")
    if stressed:
        best = max(stressed)
        ours = statistics.median(row["competitor_gb_per_s"] for row in rows_by_pattern["sequential"])
        print(f"stress-ng's fastest reads: {best:.2f} GB/s; the competitor streams {ours / best:.2f} times that")
    else:
        print("stress-ng is not installed, so it was not compared with")
    return 0


def stress_gb_s(core: int) -> list[float]:
    """Return the rates of every way of reading that stress-ng knows [GB/s]; nothing where it is not installed."""
    if shutil.which("stress-ng") is None:
        return []
    words = f"stress-ng --memrate 1 --memrate-bytes {SIZE_MIB}M --taskset {core} --metrics-brief -t 10"
    text = output(words.split())
    return [float(rate) * 2**20 / 1e9 for rate in re.findall(r"([0-9.]+) read\w+ MB per sec", text)]


def output(words: list[str]) -> str:
    finished = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return finished.stdout + ("" if finished.stdout.startswith("{") else finished.stderr)


if __name__ == "__main__":
    sys.exit(main())
