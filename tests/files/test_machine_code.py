"""Processes that need the same machine code at the same time: one compiles."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from one import double
from slomo.files.machine_code import in_turn
loop = in_turn(double)
print(loop(21), sum(loop.stats.cache_misses.values()))
"""
MODULE = """
import numba
@numba.njit(cache=True)
def double(x):
    return 2 * x
"""


def test_processes_compile_once(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(MODULE, encoding="utf-8")
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate()[0].split() for process in processes]
    assert sorted(answers) == [["42", "0"], ["42", "0"], ["42", "1"]]
    assert not list(tmp_path.rglob("*.compiling"))
