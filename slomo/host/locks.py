"""Lock a machine, or a tree on it, for exclusive use; the kernel releases the lock when the holder dies."""

import hashlib
import os
import tempfile
from pathlib import Path

from slomo.errors import TestbedError
from slomo.files.lock import LockFile, LockHeldError
from slomo.host.places import cache_directory


def default_lock_path() -> Path:
    """Return the path of the lock shared by all campaigns on this host."""
    folder = Path("/var/lock")
    return (folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())) / "slomo-host.lock"


class MachineLock:
    """An exclusive lock that the kernel releases when its holder dies; `what` names what it guards, for errors.

    By default its file is in the user's cache, named after `what`; `mode` are the file's permissions.
    """

    def __init__(self, what: str, path: Path | None = None, mode: int = 0o600) -> None:
        name = f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.lock"
        self._what, self._file = what, LockFile(path or cache_directory() / "locks" / name, mode)

    def __enter__(self) -> "MachineLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def path(self) -> Path:
        """Path of the lock file."""
        return self._file.path

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file.held

    def acquire(self) -> None:
        """Acquire the lock, unless this object holds it; TestbedError at once if another process or object does."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file.acquire()
        except LockHeldError as other:
            raise TestbedError(
                f"{self._what} is in use by another{f' (process {other.holder})' if other.holder else ''}: "
                f"lock '{self.path}'",
                hint="wait for it to end, or stop it",
            ) from None
        except OSError as problem:
            raise TestbedError(
                f"the lock '{self.path}' of {self._what} cannot be opened: {problem.strerror}",
                hint="remove that file, run as the user it belongs to, or set XDG_CACHE_HOME",
            ) from None

    def release(self) -> None:
        """Release the lock and remove its file, if this object holds it."""
        self._file.release()
