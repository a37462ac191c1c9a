"""`make bench` runs every script, whatever the one before it did, and ends with what is off."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[2] / "benchmarks" / "run_all.py"
MAIN = 'import sys\nif __name__ == "__main__":\n    '
SCRIPTS = {
    "a_misses.py": MAIN
    + "print('first', sys.argv[1:], ' OFF'); print('second   OFF'); sys.exit(1)  # has '\"--quick\"'",
    "b_breaks.py": MAIN + "raise RuntimeError('no luck')",
    "inner/c_holds.py": MAIN + "print('nothing is off'); sys.exit(0)",
    "d_shared.py": "raise RuntimeError('no script: others import it')",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of small scripts."""
    (tmp_path / "inner").mkdir()
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def told(*words: object) -> tuple[int, list[str]]:
    """Run the runner; return its exit code and the lines of its table, spaces folded."""
    command = [sys.executable, str(RUNNER), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    table = done.stdout.rpartition("benchmark  ")[2].splitlines()[1:]
    return done.returncode, [" ".join(line.split()) for line in table]


def test_goes_on_after_a_failure_and_ends_with_what_is_off(folder: Path) -> None:
    """Lines that say OFF, failures, and scripts with nothing off have their rows; the end is a failure."""
    code, rows = told("--folder", folder)

    assert code == 1
    assert rows == [
        "a_misses.py 0.0 first [] OFF",
        "second OFF",
        "b_breaks.py 0.0 ended with 1: RuntimeError: no luck",
        "inner/c_holds.py 0.0 -",
    ]


def test_chosen_scripts_run_quickly_and_within_their_time(folder: Path) -> None:
    """A script that knows `--quick` is told so, one that hangs is ended, and nothing off is a success."""
    (folder / "e_hangs.py").write_text(MAIN + "import time; time.sleep(60)", encoding="utf-8")

    assert told("--folder", folder, "--quick", "misses")[1][0] == "a_misses.py 0.0 first ['--quick'] OFF"
    assert told("--folder", folder, "--minutes", "0.01", "hangs") == (
        1,
        ["e_hangs.py 0.0 took longer than 0.01 minutes"],
    )
    assert told("--folder", folder, "holds") == (0, ["inner/c_holds.py 0.0 -"])


def test_words_are_for_scripts_there_are() -> None:
    """No script that has gone is still named."""
    text = RUNNER.read_text(encoding="utf-8")
    named = {line.split('"')[1] for line in text.splitlines() if line.startswith('    "') and '.py": ' in line}

    assert len(named) > 30
    assert {name for name in named if not (RUNNER.parent / name).is_file()} == set()
