"""Folders of slomo's files on this machine: cached files, and the journal of changes."""

import os
from pathlib import Path

from slomo.host.marker import boot_identity

#: The journal's folder for root; every other user has a folder of their own.
MACHINE_FOLDER = Path("/var/lib/slomo")


def cache_directory() -> Path:
    """Return the folder of slomo's cached files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slomo"


def this_place(tree: str) -> str:
    """Return a text that identifies a kind of settings on this machine since this boot."""
    return f"{tree}@{os.uname().nodename}/{boot_identity()}"
