"""What a run of the fault tests did: lines of JSON in the file of ``SLOMO_COUNTS``, for the table in the docs."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: No mutated file or body may take more of the processor [s], nor more memory than the process had before [KiB].
CPU_S, MEMORY_KIB = 10.0, 2**20


#: What one case took at the most since the last note: of the processor [s], and of memory [MiB].
MOST = {"took_s": 0.0, "took_mib": 0}


def note(part: str, name: str, done: int, bad: int = 0, **facts: object) -> None:
    """Write down how many cases of a part were tried, and how many went wrong."""
    if path := os.environ.get("SLOMO_COUNTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "name": name, "done": done, "bad": bad, **MOST, **facts}) + "\n")
    MOST.update(took_s=0.0, took_mib=0)


def _held_kib() -> int:
    """Return what the process holds [KiB], and forget what it held at the most before: other tests ran in it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM
    except OSError:
        return _status_kib("VmHWM")  # then only what goes beyond the peak of all tests is seen
    return _status_kib("VmRSS")


def _status_kib(name: str) -> int:
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


@contextmanager
def bounded(what: object) -> Iterator[None]:
    """Fail where what is done inside takes more than a bounded share of the machine."""
    before, held = time.process_time(), _held_kib()
    yield
    used = time.process_time() - before
    assert used < CPU_S, f"{what} took {used:.1f} s of the processor"
    more = _status_kib("VmHWM") - held
    MOST.update(took_s=max(MOST["took_s"], used), took_mib=max(MOST["took_mib"], more // 1024))
    assert more < MEMORY_KIB, f"{what} took {more // 1024} MiB"
