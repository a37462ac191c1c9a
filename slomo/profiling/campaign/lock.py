"""One campaign per store: a lock file beside it names the holder and is released when that dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slomo.errors import StoreError
from slomo.files.lock import LockFile, LockHeldError


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, and remove it afterwards.

    Raises StoreError at once if another process or thread holds it, or if the file cannot be created.
    """
    lock = LockFile(path)
    try:
        lock.acquire()
    except LockHeldError as other:
        raise StoreError(
            f"campaign store '{path.with_suffix('')}' is in use by another campaign"
            f"{f' (process {other.holder})' if other.holder else ''}",
            hint="wait for it to end, or give this campaign a store of its own",
        ) from None
    except OSError as error:
        raise StoreError(
            f"campaign store '{path.with_suffix('')}' cannot be locked: {error.strerror} ('{path}')",
            hint="give the store a directory that exists and that you may write to",
        ) from error
    try:
        yield
    finally:
        lock.release()
