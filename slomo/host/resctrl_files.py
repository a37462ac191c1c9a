"""The file operations that resctrl needs, so that tests can replace the kernel's tree by an emulated one."""

import os
from collections.abc import Callable
from pathlib import Path

from slomo.host.below import below


class KernelFiles:
    """The operating system's files below a folder.

    An emulation has the same methods; all names are relative to the tree's root, and every refusal is an OSError with
    the kernel's errno.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str, limit_b: int) -> bytes:
        """Return a file's content, at most `limit_b` bytes."""
        with below(self.root, name).open("rb") as stream:
            return stream.read(limit_b)

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one call, as the kernel requires."""
        descriptor = os.open(below(self.root, name), os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def make(self, name: str) -> None:
        """Make a directory."""
        below(self.root, name).mkdir()

    def remove(self, name: str) -> None:
        """Remove a directory."""
        below(self.root, name).rmdir()

    def rename(self, name: str, other: str) -> None:
        """Move a directory."""
        below(self.root, name).rename(below(self.root, other))

    def names(self, folder: str) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(below(self.root, folder))

    def exists(self, name: str) -> bool:
        """Return whether a file or directory exists."""
        return _there(os.path.exists, self.root, name)

    def is_directory(self, name: str) -> bool:
        """Return whether a name is a directory."""
        return _there(os.path.isdir, self.root, name)


def _there(test: Callable[[Path], bool], root: Path, name: str) -> bool:
    """Return a test of a path below `root`; names that lead out of it or are too long are not there."""
    try:
        return test(below(root, name))
    except OSError:
        return False
