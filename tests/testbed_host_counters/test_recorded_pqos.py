"""The real pqos: what was recorded is read, the stand-in prints nothing else, and it works on an emulated tree."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slomo.host.pqos import parse_pqos_state
from slomo.host.tool import run_tool
from slomo.testbed.host.counters.pqos import polls_by_core

RECORDED = json.loads(Path(__file__).with_name("pqos-4.5.0.json").read_text(encoding="utf-8"))["answers"]
DRIVE = Path(__file__).resolve().parents[1] / "fake_resctrl" / "see_with_pqos.py"


def shape(line: str) -> str:
    """Return a line with its numbers taken out; an empty cell counts as one that holds something."""
    return re.sub(
        r"0x[0-9a-f]+|\d+(\.\d+)?", "N", line.replace(",,", ",0,").rstrip() + ("0" if line[-1:] == "," else "")
    )


def test_what_pqos_printed_is_read() -> None:
    """Sixteen classes at full width, two cores in the first; the MSR interface's RMID behind them changes nothing."""
    text = "\n".join(RECORDED["-s"])

    state = parse_pqos_state(text)

    assert state.classes == {number: {"llc@0": "0x7ff", "mba@0": "100"} for number in range(16)}
    assert state.class_of == {0: 0, 1: 0}
    assert parse_pqos_state(re.sub(r"(Core .*)$", r"\1, RMID3", text, flags=re.MULTILINE)) == state
    assert polls_by_core(RECORDED["-m"], 0.2)[1][0] == {"L3OCC": 8.0, "LMB": 0.0, "RMB": 0.0}


@pytest.mark.parametrize("asked", RECORDED)
def test_the_stand_in_prints_what_pqos_was_recorded_to_print(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    """Every line of the stand-in's answer has the shape of a line of pqos' own answer to the same words."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state"))
    if asked.endswith("=77"):
        monkeypatch.setenv("FAKE_REFUSES", "1")  # the class the stand-in is told to refuse a core for
    words = {"-m": ["-m", "all:0;all:1", "-t", "1", "-i", "1", "-u", "csv"]}.get(asked, asked.split())

    printed = run_tool(["pqos", *words]).stdout.splitlines()

    assert printed
    assert {shape(line) for line in printed} <= {shape(line) for line in RECORDED[asked]}


@pytest.mark.slow
def test_the_real_pqos_allocates_and_monitors_for_us() -> None:
    """On the emulated tree behind FUSE: set, taken back and sampled through pqos, which prints what was recorded."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    try:
        done = subprocess.run(
            ["unshare", "-m", sys.executable, str(DRIVE), "drive"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        pytest.skip(f"no mount namespace: {problem}")
    if done.returncode == 77 or ("mount" in done.stderr and "fail" in done.stderr):
        pytest.skip(done.stdout.strip() or done.stderr.strip()[-200:])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])

    assert told["during"] == [1, {"llc@0": "0x3", "mba@0": "50"}]
    assert told["undone"]
    assert told["metrics"] == ["L3OCC", "LMB", "RMB"]
    for asked in ("-e llc:1=0x5", "-a core:1=77", "-m"):
        assert {shape(x) for x in RECORDED[asked]} <= {shape(x) for x in told["answers"][asked].splitlines()}
