"""One enforcer per host and tree at a time; the kernel lets go of the lock when its holder dies."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from slomo.errors import TestbedError
from slomo.files.lock import LockFile, LockHeldError
from slomo.testbed.host.build import cache_directory
from slomo.testbed.host.processes.marker import boot_identity


@contextmanager
def host_lock(what: str) -> Iterator[None]:
    """Hold the lock of `what`.

    Raises
    ------
    TestbedError
        At once if another process holds it.

    Examples
    --------
    >>> with host_lock("example"):
    ...     pass
    """
    lock = LockFile(cache_directory() / "locks" / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.lock", 0o600)
    try:
        lock.path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except LockHeldError as other:
        raise TestbedError(
            f"{what} is in use by another enforcer (process {other.holder or 'unknown'})",
            hint="wait for it, or stop it",
        ) from None
    except OSError as problem:
        raise TestbedError(f"lock '{lock.path}' of {what}: {problem.strerror}", hint="set XDG_CACHE_HOME") from None
    try:
        yield
    finally:
        lock.release()


def this_place(tree: str) -> str:
    """Return the name of a tree on this boot of this machine.

    Examples
    --------
    >>> this_place("/sys/fs/resctrl").startswith("/sys/fs/resctrl@")
    True
    """
    return f"{tree}@{os.uname().nodename}/{boot_identity()}"
