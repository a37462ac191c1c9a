"""Stands in for `pcm`: writes recorded rows at its interval until SIGINT; FAKE_MODE says how it misbehaves.

What stands in the file that FAKE_TOLD names is written instead, at once.
"""

import os
import sys
import time
from pathlib import Path

GROUPS = "System,System," + "Socket 0," * 8 + "Core0 (Socket 0)," * 8 + "Core1 (Socket 0)," * 8
METRICS = "IPC,L3MISS,L2MISS,L3OCC,LMB,RMB,INST,TIME(ticks),"
UNIT = "1.25,1.00,4.00,   2048,250,50,500.00,500.00,"
DENIED = (
    "Detected a hypervisor/virtualization technology.\n"
    "ERROR: vPMU is not enabled in the hypervisor. Please see details in https://software.intel.com/\n"
    "Access to Intel(r) Performance Counter Monitor has denied (no MSR or PCI CFG space access).\n"
)


def main() -> int:
    """Run."""
    mode = os.environ.get("FAKE_MODE", "good")
    interval_s = float(sys.argv[1])
    file = Path(next(word for word in sys.argv if word.startswith("-csv=")).removeprefix("-csv="))
    count = next((int(word[3:]) for word in sys.argv if word.startswith("-i=")), 10_000)
    if mode == "denied":
        file.touch()
        sys.stderr.write(DENIED)
        return 1
    if told := os.environ.get("FAKE_TOLD"):
        file.write_text(Path(told).read_text(encoding="ascii"), encoding="ascii")
        time.sleep(0.0 if count < 10_000 else 60.0)
        return 0
    with file.open("w", encoding="ascii") as stream:
        stream.write(f"{GROUPS}\nDate,Time,{METRICS * 3}")
        stream.flush()
        for number in range(count):
            if mode == "vanishes" and number == 2 and count > 2:
                sys.stderr.write("Access denied by another process: occupied by other application\n")
                return 1
            time.sleep(interval_s)
            moment = 0.25 * number
            stream.write(f"\n2026-11-20,10:00:{int(moment):02d}.{int(1000 * (moment % 1)):03d},{UNIT * 3}")
            stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
