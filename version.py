"""The version of slomo, for the build (hatchling): the tag, the commits since, or what the next release will be.

A source distribution carries its version in PKG-INFO, which hatchling reads first. A checkout without git or without
tags, and a copy inside somebody else's repository, have the version of the next release.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent
NEXT = "0.1.0"  # `make release-check` holds CITATION.cff, the chart and the native programs to it


def version() -> str:
    """Return `0.1.0` at tag `v0.1.0`, `0.2.0.dev5+gabc1234` five commits later, `NEXT` without tags."""
    if not (ROOT / ".git").exists():
        return NEXT
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return NEXT
    told = re.fullmatch(r"v(\d[\w.]*)-(\d+)-(g[0-9a-f]+)\s*", described)
    if told is None:
        return NEXT
    return told[1] if told[2] == "0" else f"{NEXT}.dev{told[2]}+{told[3]}"
