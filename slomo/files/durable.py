"""Write files so that they survive a kill or a full disk: temporary file, fsync, rename, fsync of the folder.

After a crash, a file has either its old or its new content. (Pillai et al., OSDI'14, show the effect of omitting one of
the steps.) Temporary files of killed writers are removed by the next writer in the folder.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from slomo.errors import StoreError
from slomo.files.lock import LockFile

#: Suffix of temporary files, whose names begin with a dot.
DRAFT = ".slomo-draft"


def write_durably(path: str | Path, content: str | bytes | Callable[[BinaryIO], object], mode: int = 0o666) -> Path:
    """Write a file completely, or raise StoreError and leave the old file unchanged; make a missing folder.

    `content`: text (written as UTF-8), bytes, or a function that writes to an open file.
    """
    place, draft = Path(path), ""
    if "\0" in str(place):
        raise StoreError(f"{str(place)[:200]!r}: is no name of a file", hint="choose another name")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = _own_draft(place)
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            mask = os.umask(0o022)
            os.umask(mask)
            os.fchmod(file.fileno(), mode & ~mask)  # synced to disk, too, before it gets its name
            os.fsync(file.fileno())
            os.replace(draft, place)  # while the lock is held, so that no other writer removes it
            draft = ""
        sync_folder(place.parent)
        _sweep(place.parent)
    except OSError as error:
        raise StoreError(
            f"{place}: cannot be written: {error.strerror or error}",
            hint="name a file in it" if place.is_dir() else "free some space or choose a folder you may write to",
        ) from None
    finally:
        if draft:
            with suppress(OSError):
                os.unlink(draft)
    return place


def overwrite(path: str | Path, content: bytes, place: int = 0) -> None:
    """Overwrite a part of a file in place, even on a full disk; a kill may leave it incomplete, as readers must see."""
    try:
        with Path(path).open("r+b") as file:
            file.seek(place)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be overwritten: {error.strerror}", hint="free some space, or remove it"
        ) from None


def make_private(path: str | Path) -> None:
    """Create a file that only its owner can read, or restrict an existing one."""
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _own_draft(place: Path) -> tuple[int, str]:
    """Return a new temporary file with a lock that ends with this process."""
    import tempfile  # imported here, since only writers need it

    while True:
        handle, draft = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=DRAFT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(draft):
            return handle, draft
        os.close(handle)  # another writer removed it as a leftover before it was locked


def _sweep(folder: Path) -> None:
    """Remove temporary files of writers that have ended."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(DRAFT):
            with suppress(OSError):  # locked by a running writer, or already removed
                handle = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(folder / name)
                finally:
                    os.close(handle)


@contextmanager
def turn_taking(folder: str | Path) -> Iterator[None]:
    """Let only one writer at a time write in a folder; the lock is released when the writer's process ends."""
    turn = LockFile(Path(folder, ".turn"))
    try:
        turn.path.parent.mkdir(parents=True, exist_ok=True)
        turn.acquire(wait=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written: {error.strerror or error}", hint="choose a folder you may write to"
        ) from None
    try:
        yield
    finally:
        turn.release()


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
