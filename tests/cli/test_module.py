"""`python -m slomo` is the command line."""

import json
import os
import signal
import subprocess
import sys

import pytest

from slomo.cli import faults


def test_the_package_runs_as_a_module() -> None:
    """`python -m slomo nf list` prints what the command does, with its exit code."""
    listing = subprocess.run([sys.executable, "-m", "slomo", "nf", "list"], capture_output=True, text=True, check=False)
    wrong = subprocess.run([sys.executable, "-m", "slomo", "nosuch"], capture_output=True, text=True, check=False)

    assert (listing.returncode, wrong.returncode) == (0, 2)
    assert "lpm" in listing.stdout
    assert "unknown command 'nosuch'" in wrong.stderr


def test_only_the_console_sets_up_the_process() -> None:
    """A program that calls `main` keeps its environment and garbage collection; the console script sets both."""
    program = (
        "import gc, os; from slomo.{}; before = gc.get_threshold(), dict(os.environ); {}(); "
        "print((gc.get_threshold(), dict(os.environ)) == before, os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for place, function, expected in (
        ("cli.main import main", "main", "True None"),
        ("__main__ import console", "console", "False 1"),
    ):
        command = [sys.executable, "-c", program.format(place, function), "nf", "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.splitlines()[-1] == expected


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_unwinds_the_command(name: str) -> None:
    """Code in `finally` runs to its end, also if a second signal follows; status and `--json` are SIGTERM's."""
    program = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under nohup
from slomo import __main__ as entry
from slomo.cli import faults
def main():
    try:
        signal.raise_signal(signal.{name})
        time.sleep(30)
    except KeyboardInterrupt as error:
        return faults.report(error, as_json=True)
    finally:
        signal.raise_signal(signal.SIGTERM)
        print("unwound")
entry.main = main
{kernel}
sys.exit(entry.console())
"""
    survived = "os.kill = lambda *_: None"  # as a container's first process does
    for kernel, status in (("", -signal.SIGTERM), (survived, 128 + signal.SIGTERM)):
        command = [sys.executable, "-c", program.format(name=name, kernel=kernel)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=25)
        assert (done.returncode, done.stdout) == (status, "unwound\n")
        error = json.loads(done.stderr)["error"]
        assert (error["type"], error["exit_code"]) == ("Interrupted", 128 + signal.SIGTERM)


def test_a_fault_after_a_signal_is_told_as_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler in which SIGTERM arrives fails with an error of its own."""
    monkeypatch.setattr(faults, "ended_by", [signal.SIGTERM])
    assert faults.report(AssertionError("no compiled object yet")) == 128 + signal.SIGTERM
    said = "Interrupted: stopped at your request; then: BUG: AssertionError: no compiled object yet\n"
    assert capsys.readouterr().err == said


def test_a_closed_pipe_is_no_failed_check() -> None:
    """A command whose reader ended has the exit code of such an end, not 1, and says nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "slomo", "nf", "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=25)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
