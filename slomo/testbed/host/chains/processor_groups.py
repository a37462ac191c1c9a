"""Make a control group for each stage of a chain, to give the stages CPU weights.

Version 1 has ``cpu.shares`` (2 to 262144), version 2 ``cpu.weight`` (1 to 10000); only ratios within a parent matter.
The native program makes the groups, and its watchdog removes them even after a kill; this module names and finds the
groups and writes their weights.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.host.cgroup import WEIGHTS, groups_of
from slomo.host.marker import RunMark


@dataclass(frozen=True)
class ProcessorTree:
    """A cgroup hierarchy (version 1 or 2) in which groups with CPU weights can be made."""

    #: Path of this process's control group.
    root: Path
    #: Version of control groups, 1 or 2.
    version: int

    @property
    def file(self) -> str:
        """Name of the file that holds a group's CPU weight."""
        return WEIGHTS[self.version][0]

    @property
    def most(self) -> int:
        """Largest CPU weight that the kernel accepts."""
        return WEIGHTS[self.version][2]

    def weight_of(self, shares: int) -> int:
        """Convert ``cpu.shares`` to a weight of this cgroup version (default: 100 in version 2, 1024 in version 1).

        >>> ProcessorTree(Path("/sys/fs/cgroup"), 2).weight_of(2048)
        200
        """
        _, least, most, default = WEIGHTS[self.version]
        return shares if self.version == 1 else min(max(round(shares * default / WEIGHTS[1][3]), least), most)

    def paths(self, mark: RunMark, stages: Iterable[str]) -> tuple[Path, dict[str, Path]]:
        """Return the path of the run's own group, and the paths of its stages' groups."""
        parent = self.root / mark.text
        return parent, {name: parent / name for name in stages}

    def checked(self, name: str, weight: int) -> int:
        """Return the weight; raise InvalidValueError if it is outside the kernel's range."""
        _, least, most, _ = WEIGHTS[self.version]
        if not least <= weight <= most:
            raise InvalidValueError(
                f"stage '{name}': {self.file} of {weight}, the kernel takes {least} to {most}",
                hint="only ratios count: divide all weights by the same number",
            )
        return weight


def processor_tree(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> ProcessorTree:
    """Find the cgroup hierarchy with the CPU controller; prefer version 1 if both versions have the controller.

    TestbedError, with the right to grant, if there is none or this user may not make groups in it.
    """
    tree = _find(root, membership)
    if tree is None:
        raise TestbedError(
            f"there is no control group with a processor controller under '{root}'",
            hint="mount one: mount -t cgroup2 none /sys/fs/cgroup",
        )
    if not os.access(tree.root, os.W_OK):
        raise TestbedError(
            f"control group '{tree.root}' may not be written",
            hint="run as root, or have it delegated: systemd-run --user -p Delegate=yes, or chown the directory",
        )
    return tree


def _find(root: Path, membership: Path) -> ProcessorTree | None:
    own = groups_of(membership)
    for folder in ("cpu", "cpu,cpuacct"):
        for path in (root / folder / own.get("cpu", "/").lstrip("/"), root / folder):
            if (path / "cpu.shares").exists():
                return ProcessorTree(path, 1)
    for path in (root / own.get("", "/").lstrip("/"), root):
        with contextlib.suppress(OSError):
            if "cpu" in (path / "cgroup.controllers").read_text(encoding="ascii").split():
                return ProcessorTree(path, 2)
    return None


class GroupWeights:
    """Writes the CPU weights of stages (name -> path of the group) through files that stay open."""

    def __init__(self, tree: ProcessorTree, groups: dict[str, Path]) -> None:
        self.tree = tree
        self._files: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self.changes = 0
        for name, path in groups.items():
            self._files[name] = os.open(path / tree.file, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, name: str, weight: int) -> bool:
        """Set a stage's weight; return False if it has this weight already, or if its group has been removed."""
        if self._written.get(name) == weight:
            return False
        try:
            os.pwrite(self._files[name], b"%d" % self.tree.checked(name, weight), 0)
        except OSError as problem:
            if problem.errno == errno.ENODEV:  # the run ended and removed its groups before this report was processed
                return False
            raise
        self._written[name] = weight
        self.changes += 1
        return True

    def close(self) -> None:
        """Close the weight files."""
        while self._files:
            os.close(self._files.popitem()[1])


def remove_orphan_groups(tree: ProcessorTree) -> tuple[str, ...]:
    """Remove groups of runs whose process and watchdog were killed; return their paths."""
    removed = []
    for path in tree.root.glob("slomo-*"):
        mark = RunMark.parse(path.name)
        if mark is None or mark.owner_is_alive():
            continue
        with contextlib.suppress(OSError):
            for inner in path.iterdir():
                if inner.is_dir():
                    inner.rmdir()
            path.rmdir()
            removed.append(str(path))
    return tuple(removed)
