"""Processes that need the same machine code at the same time: one compiles."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from one import double
from slomo.files.machine_code import in_turn
loop = in_turn(double, sys.argv[2])
print(loop(21), sum(loop.stats.cache_misses.values()))
"""
MODULE = """
import numba
@numba.njit(cache=True)
def double(x):
    return 2 * x
"""


def started(folder: Path, digest: str = "a") -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), digest], stdout=subprocess.PIPE, text=True)


def test_processes_compile_once(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(MODULE, encoding="utf-8")
    processes = [started(tmp_path) for _ in range(3)]
    answers = [process.communicate()[0].split() for process in processes]
    assert sorted(answers) == [["42", "0"], ["42", "0"], ["42", "1"]]
    assert not list(tmp_path.rglob("*.compiling"))


def test_machine_code_is_valid_for_the_same_source_whatever_its_date(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(MODULE, encoding="utf-8")
    compiled = [started(tmp_path, digest).communicate()[0].split() for digest in "aab"]
    os.utime(tmp_path / "one.py", (1.0, 1.0))
    compiled.append(started(tmp_path, "b").communicate()[0].split())
    assert compiled == [["42", "1"], ["42", "0"], ["42", "1"], ["42", "0"]]
