"""Resolve names to paths that stay below a folder: no parent references, no links."""

import errno
import os
import stat
from pathlib import Path


def below(root: Path, name: str) -> Path:
    """Return the path of a name below a folder; PermissionError for ``..``, an absolute path, or one over a link.

    Raises OSError with ENAMETOOLONG if the kernel takes no names of that length.

    >>> below(Path("/proc/self"), "../1/status")
    Traceback (most recent call last):
    PermissionError: [Errno 1] leads out of '/proc/self': '../1/status'
    """
    path = Path(root)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise PermissionError(errno.EPERM, f"leads out of '{root}'", name)
    for part in parts:
        path = path / part
        try:
            linked = stat.S_ISLNK(os.lstat(path).st_mode)
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:
                raise OSError(errno.ENAMETOOLONG, "is longer than the kernel takes", name) from None
            continue  # missing or no folder: opening it later raises an error
        if linked:
            raise PermissionError(errno.EPERM, f"leads out of '{root}' over a link", name)
    return path
