"""What a run of the fault tests did: lines of JSON in the file of ``SLOMO_COUNTS``, for the table in the docs."""

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: No mutated file or body may take more of the processor [s], nor the process more memory [KiB].
CPU_S, MEMORY_KIB = 10.0, 2**20


def note(part: str, name: str, done: int, bad: int = 0, **facts: object) -> None:
    """Write down how many cases of a part were tried, and how many went wrong."""
    if path := os.environ.get("SLOMO_COUNTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "name": name, "done": done, "bad": bad, **facts}) + "\n")


@contextmanager
def bounded(what: object) -> Iterator[None]:
    """Fail where what is done inside takes more than a bounded share of the machine."""
    before = time.process_time()
    yield
    used = time.process_time() - before
    assert used < CPU_S, f"{what} took {used:.1f} s of the processor"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak < MEMORY_KIB, f"{what} took {peak // 1024} MiB"
