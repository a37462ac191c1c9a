"""The one way slomo writes what must survive a kill or a full disk: draft, fsync, rename, fsync of the folder.

After a crash a reader finds the old content or the new, never neither (the recipe of POSIX rename; see also
Pillai et al., OSDI'14, for what happens without each of the steps). Drafts of writers that were killed are swept by the
next one that writes into the folder.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from slomo.errors import StoreError
from slomo.files.lock import LockFile

#: How names of drafts end; they begin with a dot.
DRAFT = ".slomo-draft"


def write_durably(path: str | Path, content: str | bytes | Callable[[BinaryIO], object], mode: int = 0o666) -> Path:
    """Put a file in place whole, or leave what was there.

    Raises StoreError on a full disk, a read-only directory, or whatever else the system refuses; the old file is as it
    was.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made where it is missing.
    content : str, bytes or callable
        Text (written as UTF-8), bytes, or what writes into an open file.
    mode : int
        Who may read and write it, within the umask.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_durably(Path(folder, "placed.json"), "{}").read_text()
    '{}'
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
            os.fchmod(file.fileno(), mode & ~_umask())  # on the disk, too, before it has its name
            os.fsync(file.fileno())
            os.replace(draft, place)  # while it is held: no other writer sweeps it
            draft = ""
        _sync_folder(place.parent)
        _sweep(place.parent)
    except OSError as error:
        raise StoreError(
            f"{place}: cannot be written: {error.strerror or error}",
            hint="free some space or choose a folder you may write to",
        ) from None
    finally:
        if draft:
            with suppress(OSError):
                os.unlink(draft)
    return place


def overwrite(path: str | Path, content: bytes, place: int = 0) -> None:
    """Overwrite a part of a file that is there, and sync it: a full disk has room for that.

    A kill may cut it short: its reader must recognise that. Raises StoreError where the system refuses.
    """
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
    """Make a file that its owner alone may read, or take a file that is there from others.

    Raises OSError where it cannot be made.
    """
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _own_draft(place: Path) -> tuple[int, str]:
    """Return a new draft, open and held: its lock ends with this process, however that ends."""
    import tempfile  # who only reads does without

    while True:
        handle, draft = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=DRAFT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(draft):
            return handle, draft
        os.close(handle)  # another writer took it for one that was left, before it was held


def _sweep(folder: Path) -> None:
    """Remove drafts of writers that are gone."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(DRAFT):
            with suppress(OSError):  # held by a writer at work, or gone
                handle = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(folder / name)
                finally:
                    os.close(handle)


@contextmanager
def turn_taking(folder: str | Path) -> Iterator[None]:
    """Let writers of one folder take turns; the kernel ends a turn with the process that has it, however that ends.

    Raises StoreError where the folder cannot be made or written to.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, turn_taking(folder):
    ...     write_durably(Path(folder, "a"), "1").name
    'a'
    """
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
