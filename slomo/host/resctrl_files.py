"""The few file operations that resctrl needs, so that an emulated tree can take the kernel's place in tests."""

import os
from pathlib import Path
from typing import Protocol


class ResctrlFiles(Protocol):
    """File operations on names relative to the tree's root; every refusal is an OSError with the kernel's number."""

    def read(self, name: str, limit_b: int) -> bytes:
        """Return what a file holds, at most `limit_b` bytes of it."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one call, as the kernel wants it."""
        ...

    def make(self, name: str) -> None:
        """Make a directory."""
        ...

    def remove(self, name: str) -> None:
        """Remove a directory."""
        ...

    def rename(self, name: str, other: str) -> None:
        """Move a directory."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return what is in a directory."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or directory."""
        ...

    def is_directory(self, name: str) -> bool:
        """Return whether it is a directory."""
        ...


class KernelFiles:
    """The operating system's files below a folder.

    Parameters
    ----------
    root : path
        Folder.

    Examples
    --------
    >>> KernelFiles(Path("/proc/self")).exists("status")
    True
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str, limit_b: int) -> bytes:
        """Return what a file holds, at most `limit_b` bytes of it."""
        with (self.root / name).open("rb") as stream:
            return stream.read(limit_b)

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one call, as the kernel wants it."""
        descriptor = os.open(self.root / name, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def make(self, name: str) -> None:
        """Make a directory."""
        (self.root / name).mkdir()

    def remove(self, name: str) -> None:
        """Remove a directory."""
        (self.root / name).rmdir()

    def rename(self, name: str, other: str) -> None:
        """Move a directory."""
        (self.root / name).rename(self.root / other)

    def names(self, folder: str) -> list[str]:
        """Return what is in a directory."""
        return os.listdir(self.root / folder)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or directory."""
        return (self.root / name).exists()

    def is_directory(self, name: str) -> bool:
        """Return whether it is a directory."""
        return (self.root / name).is_dir()
