"""Stands in for `perf stat -j`: prints counts of two CPUs when it is told to end, or when its workload has.

What stands in the file that FAKE_TOLD names is printed instead.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

COUNTS = {
    "cycles": "2000000000.000000",
    "instructions": "3000000000.000000",
    "ref-cycles": "1600000000.000000",
    "cache-references": "20000000.000000",
    "cache-misses": "5000000.000000",
}


def line(where: dict[str, str], event: str, value: str, unit: str = "") -> str:
    """Return one JSON line in perf's layout."""
    rest = {"unit": unit, "event": event, "event-runtime": 1_000_000_000, "pcnt-running": 100.0, "metric-value": 0.0}
    return json.dumps({**where, "counter-value": value, **rest}) + "\n"


def main() -> int:
    """Run."""
    mode = os.environ.get("FAKE_MODE", "good")
    events = sys.argv[sys.argv.index("-e") + 1].split(",")
    ended = []
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    if mode == "vanishes" and "--" not in sys.argv:
        sys.stderr.write("No permission to enable cycles event.\n")
        return 255
    if told := os.environ.get("FAKE_TOLD"):
        sys.stderr.write(Path(told).read_text(encoding="ascii"))
        sys.stderr.flush()
    else:
        report(mode, events)
    while not ended and "--" not in sys.argv:
        time.sleep(0.01)
    return 0


def report(mode: str, events: list[str]) -> None:
    """Print one interval."""
    for event in events:
        if "--per-socket" in sys.argv:
            sys.stderr.write(line({"socket": "S0", "aggregate-number": "1"}, event, "1024.00", "MiB"))
            continue
        for cpu in ("0", "1"):
            value = COUNTS[event]
            if mode == "no-pmu":
                value = "<not supported>"
            if mode == "multiplexed" and cpu == "1" and event == "cache-misses":
                value = "<not counted>"
            sys.stderr.write(line({"cpu": cpu}, event, value))
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
