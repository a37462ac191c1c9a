"""Where this machine's files of slomo are: what can be made again, and the journal of what was changed."""

import os
from pathlib import Path

from slomo.host.marker import boot_identity

#: The journal's folder where root acts; users have one each.
MACHINE_FOLDER = Path("/var/lib/slomo")


def cache_directory() -> Path:
    """Return where things are kept that can be made again.

    Examples
    --------
    >>> cache_directory().name
    'slomo'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slomo"


def this_place(tree: str) -> str:
    """Return the name of a tree on this boot of this machine.

    Examples
    --------
    >>> this_place("/sys/fs/resctrl").startswith("/sys/fs/resctrl@")
    True
    """
    return f"{tree}@{os.uname().nodename}/{boot_identity()}"
