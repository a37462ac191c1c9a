"""A lock file that names its holder and is released when that process dies.

The kernel releases a `flock` when its process ends; the file is removed when the lock is released.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slomo.errors import StoreError


class LockHeldError(Exception):
    """Another process or thread holds the lock.

    Attributes
    ----------
    holder : str
        Process identifier of the holder; empty where it is not known.
    """

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"lock '{path}' is held{f' by process {holder}' if holder else ''}")
        self.holder = holder


class LockFile:
    r"""A lock that other processes see as a file at a path.

    `path`: the lock file; it is there only while it is held. `mode`: permissions of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = LockFile(Path(folder, "a.lock"))
    ...     lock.acquire()
    ...     lock.held, lock.path.read_text() == f"{os.getpid()}\n"
    (True, True)
    """

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        self.path, self._mode = path, mode
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, *, wait: bool = False) -> None:
        """Take the lock, unless this object holds it already.

        `wait`: wait for the present holder, without time limit. Raises LockHeldError at once, without `wait`, if
        another process or object holds it; OSError if the file cannot be opened.
        """
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self._mode)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(descriptor, self.path):  # else its holder removed it meanwhile: take the next one
                    self._descriptor = descriptor
                    with suppress(OSError):  # a full disk: it is held, and does not say by whom
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
                self.path.unlink()  # while still held: who takes a file that is gone tries again
            with suppress(OSError):  # what was done under the lock is done
                os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def held_alone(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file during a `with` block.

    Raises StoreError at once if another process or thread holds it, or if it cannot be made.

    `what`: what it guards, for errors.
    """
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
