"""Stands in for `pqos`: monitors in CSV, and keeps classes and associations in a file named by FAKE_STATE.

What stands in the file that FAKE_TOLD names is printed as what it monitors.
What it prints is shaped as pqos 4.5.0 was recorded to print (``pqos-4.5.0.json``; a test compares).
"""

# ruff: noqa: T201
import json
import os
import sys
import time
from pathlib import Path

FRESH = {"masks": {str(n): 0x7FF for n in range(4)}, "mba": {str(n): 100 for n in range(4)}, "cores": {"0": 0, "1": 0}}
UNSUPPORTED = (
    "WARN: CPUID.0x7.0: Monitoring capability not supported!\n"
    "ERROR: No Platform QoS capability discovered\nError initializing PQoS library!\n"
)


def monitor() -> int:
    """Print two cores' polls until told to end; the first one is nonsense, as the real tool's is."""
    polls = 2 if "-t" in sys.argv else 10_000
    interval_s = int(sys.argv[sys.argv.index("-i") + 1]) / 10
    if told := os.environ.get("FAKE_TOLD"):
        print(Path(told).read_text(encoding="ascii"), end="", flush=True)
        time.sleep(0.0 if polls == 2 else 60.0)
        return 0
    print("NOTE:  Mixed use of MSR and kernel interfaces to manage")
    print("Time,Core,LLC[KB],MBL[MB/s],MBR[MB/s]", flush=True)
    for number in range(polls):
        for core in ("0", "1"):
            values = (
                "99999.0,99999.0,99999.0" if number == 0 else "2048.0,250.0," if core == "1" else "1024.0,100.0,50.0"
            )
            print(f'2026-11-20 22:10:{number:02d},"{core}",{values}', flush=True)
        if os.environ.get("FAKE_MODE") == "vanishes" and polls > 2:
            return 1
        time.sleep(interval_s)
    return 0


def show(state: dict[str, dict[str, int]]) -> int:
    """Print classes and associations as `pqos -s` does."""
    print("L3CA/MBA COS definitions for Socket 0:")
    for number, mask in state["masks"].items():
        print(f"    L3CA COS{number} => MASK {mask:#x}")
    for number, percent in state["mba"].items():
        print(f"    MBA COS{number} => {percent}% available")
    print("Core information for socket 0:")
    for core, number in state["cores"].items():
        print(f"    Core {core}, L2ID {core}, L3ID 0 => COS{number}")
    return 0


def define(state: dict[str, dict[str, int]], text: str) -> int:
    """Set masks and throttles, refusing masks that are not contiguous."""
    for part in text.split(";"):
        kind, number, value = part.partition(":")[0].partition("@")[0], *part.partition(":")[2].split("=")
        if kind == "llc":
            mask = int(value, 16)
            if "101" in f"{mask:b}":
                print(f"ERROR: L3 COS{number} bit mask is not contiguous!\nSOCKET 0 L3CA COS{number} - FAILED!")
                print("Allocation configuration error!")
                return 1
            state["masks"][number] = mask
            print(f"SOCKET 0 L3CA COS{number} => MASK {mask:#x}")
        else:
            state["mba"][number] = int(value)
            print(f"SOCKET 0 MBA COS{number} => {value}% requested, {value}% applied")
    print("Allocation configuration altered.")
    return 0


def associate(state: dict[str, dict[str, int]], text: str) -> int:
    """Move cores to classes."""
    for part in text.split(";"):
        number, cores = part.removeprefix("core:").split("=")
        if int(number) == int(os.environ.get("FAKE_REFUSES", "-1")):
            print("Core number or class id is out of bounds!\nAllocation association error!")
            return 1
        state["cores"] |= dict.fromkeys(cores.split(","), int(number))
    print("Allocation configuration altered.")
    return 0


def main() -> int:
    """Run."""
    if os.environ.get("FAKE_MODE") == "unsupported":
        print(UNSUPPORTED)
        return 1
    if os.environ.get("FAKE_MODE") == "old":
        print("Usage: pqos [-h] [--help]")
        return 0
    if "-m" in sys.argv:
        return monitor()
    file = Path(os.environ["FAKE_STATE"])
    state = json.loads(file.read_text(encoding="ascii")) if file.exists() else FRESH
    if "-s" in sys.argv:
        return show(state)
    code = define(state, sys.argv[-1]) if "-e" in sys.argv else associate(state, sys.argv[-1])
    file.write_text(json.dumps(state), encoding="ascii")
    return code


if __name__ == "__main__":
    sys.exit(main())
