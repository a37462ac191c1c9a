"""`python -m slomo` is the command line."""

import subprocess
import sys


def test_the_package_runs_as_a_module() -> None:
    """`python -m slomo nf list` prints what the command does, with its exit code."""
    listing = subprocess.run([sys.executable, "-m", "slomo", "nf", "list"], capture_output=True, text=True, check=False)
    wrong = subprocess.run([sys.executable, "-m", "slomo", "nosuch"], capture_output=True, text=True, check=False)

    assert (listing.returncode, wrong.returncode) == (0, 2)
    assert "lpm" in listing.stdout
    assert "unknown command 'nosuch'" in wrong.stderr
