"""One campaign per host: two at a time would measure each other."""

import os
import tempfile
from pathlib import Path

from slomo.errors import TestbedError
from slomo.files.lock import LockFile, LockHeldError


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
    """An exclusive lock on the host, which dies with its holder.

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
        self._file = LockFile(default_lock_path() if path is None else path, 0o666)

    @property
    def path(self) -> Path:
        """The lock file."""
        return self._file.path

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file.held

    def acquire(self) -> None:
        """Take the lock; nothing happens if it is held already."""
        try:
            self._file.acquire()
        except LockHeldError as other:
            raise TestbedError(
                f"this host is in use by another campaign{f' (process {other.holder})' if other.holder else ''}: "
                f"lock '{self.path}'",
                hint="wait for it to end; two campaigns at a time would measure each other",
            ) from None
        except OSError as error:
            raise TestbedError(
                f"the host's lock '{self.path}' cannot be opened: {error.strerror}",
                hint="remove that file, or run as the user it belongs to",
            ) from None

    def release(self) -> None:
        """Give the lock up and remove its file; nothing happens if it is not held."""
        self._file.release()
