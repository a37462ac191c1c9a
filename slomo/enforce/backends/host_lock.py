"""One enforcer per host and tree at a time; the kernel lets go of the lock when its holder dies."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from slomo.errors import TestbedError
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
    folder = cache_directory() / "locks"
    path = folder / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise TestbedError(f"lock '{path}' of {what}: {problem.strerror}", hint="set XDG_CACHE_HOME") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, f"{os.getpid():<10d}".encode(), 0)
        yield
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        raise TestbedError(
            f"{what} is in use by another enforcer (process {holder or 'unknown'})", hint="wait for it, or stop it"
        ) from None
    finally:
        os.close(descriptor)


def this_place(tree: str) -> str:
    """Return the name of a tree on this boot of this machine.

    Examples
    --------
    >>> this_place("/sys/fs/resctrl").startswith("/sys/fs/resctrl@")
    True
    """
    return f"{tree}@{os.uname().nodename}/{boot_identity()}"
