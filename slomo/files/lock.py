"""A lock file that names its holder and is released when that process dies.

The kernel releases a `flock` when the holder's process ends. The holder removes the file when it releases the lock.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slomo.errors import StoreError


class LockHeldError(Exception):
    """Another process or thread holds the lock; `holder` is its process identifier, empty if unknown."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"lock '{path}' is held{f' by process {holder}' if holder else ''}")
        self.holder = holder


class LockFile:
    """A lock that other processes see as a file at a path, while it is held."""

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        self.path, self._mode = path, mode
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, *, wait: bool = False) -> None:
        """Acquire the lock, unless this object holds it; LockHeldError if another one does and `wait` is not set."""
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self._mode)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(descriptor, self.path):  # else the holder removed the file meanwhile: try again
                    self._descriptor = descriptor
                    with suppress(OSError):  # on a full disk, the lock is held but does not name its holder
                        os.ftruncate(descriptor, 0)
                        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
            except BlockingIOError:
                raise LockHeldError(self.path, _holder(self.path)) from None
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def release(self) -> None:
        """Release the lock and remove its file, if it is held."""
        if self._descriptor is not None:
            with suppress(OSError):
                self.path.unlink()  # while still held: a process that locks a removed file tries again
            with suppress(OSError):  # an error here must not hide the result of the locked work
                os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def held_alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file of `what` during a `with` block; StoreError at once if another one holds it."""
    lock = LockFile(path)
    try:
        lock.acquire()
    except LockHeldError as other:
        raise StoreError(
            f"{what} is in use by another process ({other.holder or 'unknown'})",
            hint="wait for it to end, or name another file",
        ) from None
    except OSError as error:
        raise StoreError(
            f"{what} cannot be locked: {error.strerror} ('{path}')",
            hint="name a file in a folder that exists and that you may write to",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")[:32].strip()
    return ""
