"""One campaign per host: two at a time would measure each other.

The kernel releases a `flock` when its process ends, however it ends, so a killed campaign never blocks the next one.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from slomo.errors import TestbedError


def default_lock_path() -> Path:
    """Return the lock every user of this host shares.

    Examples
    --------
    >>> default_lock_path().name
    'slomo-host.lock'
    """
    folder = Path("/var/lock")
    return (folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())) / "slomo-host.lock"


class HostLock:
    """An exclusive lock on the host.

    Parameters
    ----------
    path : Path, optional
        The lock file.

    Raises
    ------
    TestbedError
        On :meth:`acquire`, at once, if another campaign holds it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_lock_path() if path is None else path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock; nothing happens if it is held already."""
        while self._descriptor is None:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                os.close(descriptor)
                raise TestbedError(
                    f"this host is in use by another campaign{f' (process {holder})' if holder else ''}: "
                    f"lock '{self.path}'",
                    hint="wait for it to end; two campaigns at a time would measure each other",
                ) from None
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
                self._descriptor = descriptor
            else:
                os.close(descriptor)  # its holder removed it between our open and our lock

    def release(self) -> None:
        """Give the lock up and remove its file; nothing happens if it is not held."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()  # while still held: nobody can have locked this very file
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise TestbedError(
                f"the host's lock '{self.path}' cannot be opened: {error.strerror}",
                hint="remove that file, or run as the user it belongs to",
            ) from None

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.fstat(descriptor).st_ino == self.path.stat().st_ino
        except FileNotFoundError:
            return False
