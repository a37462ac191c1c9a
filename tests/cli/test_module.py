"""`python -m slomo` is the command line."""

import os
import subprocess
import sys


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
    for place, function, wanted in (
        ("cli.main import main", "main", "True None"),
        ("__main__ import console", "console", "False 1"),
    ):
        command = [sys.executable, "-c", program.format(place, function), "nf", "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.splitlines()[-1] == wanted
