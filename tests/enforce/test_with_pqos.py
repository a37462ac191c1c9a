"""The real pqos, as an independent client, sees what was set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "fake_resctrl" / "see_with_pqos.py"


@pytest.mark.slow
def test_pqos_reads_what_was_set_and_what_was_undone() -> None:
    """On the emulation behind FUSE, in a mount namespace of its own; skipped where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    try:
        done = subprocess.run(
            ["unshare", "-m", sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        pytest.skip(f"no mount namespace: {problem}")
    if done.returncode == 77 or ("mount" in done.stderr and "fail" in done.stderr):
        pytest.skip(done.stdout.strip() or done.stderr.strip()[-200:])

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "COS" in done.stdout
