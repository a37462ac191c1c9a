"""An advisory lock that says who holds it and dies with its holder.

The kernel releases a `flock` when the process ends, however it ends, so that a killed campaign never blocks the next.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slomo.errors import StoreError


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; leave nothing behind.

    Raises
    ------
    StoreError
        At once if another process or thread holds it, or if the file cannot be created.
    """
    descriptor = _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while still held: nobody can have locked this very file
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"campaign store '{path.with_suffix('')}' cannot be locked: {error.strerror} ('{path}')",
                hint="give the store a directory that exists and that you may write to",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(descriptor, path):
                _write_holder(descriptor)
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            who = f" (process {holder})" if holder else ""
            raise StoreError(
                f"campaign store '{path.with_suffix('')}' is in use by another campaign{who}",
                hint="wait for it to end, or give this campaign a store of its own",
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"campaign store '{path.with_suffix('')}' cannot be locked: {error.strerror}") from error
        os.close(descriptor)  # its holder removed it between our open and our lock: there is a new one


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
