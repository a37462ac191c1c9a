"""Every I/O call of every writer fails, is cut short or is its last; power is lost: old or new is read, no draft stays.

`make faults` tries every call with every fault, and kills 1,000 writers (``SLOMO_KILLS``).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import note

ALL = os.environ.get("SLOMO_KILLS", "")
SOURCE = Path(__file__).with_name("seam.c")


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """Return what runs the seam in a process of its own and returns what each writer did."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the seam between writers and the system is built by a C compiler, for Linux")
    folder = tmp_path_factory.mktemp("seam")
    library = folder / "seam.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    memory = Path("/dev/shm")  # its syncs cost nothing, and what they do is played here
    place = memory / f"slomo-faults-{os.getpid()}" if os.access(memory, os.W_OK) else folder / "cases"

    def run(faults: int, kills: int) -> list[dict[str, Any]]:
        words = [sys.executable, "-m", "tests.faults.seam", place, faults, kills, 26]
        environment = {**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            ended = subprocess.run(
                [str(word) for word in words], env=environment, capture_output=True, text=True, check=False,
                cwd=SOURCE.parents[2],
            )  # fmt: skip
        finally:
            shutil.rmtree(place, ignore_errors=True)
        assert ended.returncode == 0, ended.stderr[-4000:]
        return [json.loads(line) for line in ended.stdout.splitlines()]

    return run


def test_whatever_fails_old_or_new_is_read(tried: Callable[..., list[dict[str, Any]]]) -> None:
    """What was acknowledged is there and can be read, the error names the file, the next run leaves no draft."""
    *results, careless = tried(0, int(ALL)) if ALL else tried(1, 8)
    for result in results:
        for fault, count in result["done"].items():
            bad = sum(line.startswith(fault) for line in result["bad"])
            note(f"fault: {fault}", result["writer"], count, bad, calls=result["calls"])
    assert len(results) == 11 + (find_spec("fsspec") is not None)
    assert all(result["calls"] > 5 for result in results)
    assert not [f"{result['writer']}: {line}" for result in results for line in result["bad"]]
    found = " ".join(careless["bad"])  # one that overwrites its file and syncs nothing
    assert all(part in found for part in ("disk is full", "killed after", "power lost")), found
