"""The kernel's resctrl file system: groups of CPUs and tasks, with masks and counters, as files.

The format is that of Linux (Documentation/arch/x86/resctrl.rst), the same on Intel and AMD. After every refused write,
``info/last_cmd_status`` states the reason.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from slomo.errors import InvalidValueError, RefusedSettingError, TestbedError
from slomo.host.below import below
from slomo.host.cores import parse_cpu_list

ROOT = Path("/sys/fs/resctrl")
_LARGEST_B = 1 << 16
_MOUNT_HINT = "mount it as root: mount -t resctrl resctrl /sys/fs/resctrl"
#: Directories of a group that are not groups.
_RESERVED = {"info", "mon_data", "mon_groups"}


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


class ResctrlTree:
    """Reads and changes one resctrl tree; a group's name is its path below the root, ``""`` is the root group.

    `root`: mount point of the tree. `files`: file operations; by default the operating system's, in tests an emulation.
    """

    def __init__(self, root: Path = ROOT, files: KernelFiles | None = None) -> None:
        self.root = Path(root)
        self.files = files or KernelFiles(self.root)

    @property
    def mounted(self) -> bool:
        """Whether a resctrl file system is mounted."""
        return self.files.is_directory("info")

    @property
    def can_allocate(self) -> bool:
        """Whether last-level cache ways can be allocated."""
        return self.exists("info/L3/cbm_mask") or self.exists("info/L3CODE/cbm_mask")

    def exists(self, name: str) -> bool:
        """Return whether a file or directory exists."""
        return self.files.exists(name)

    def require(self, what: str, condition: bool) -> None:
        """Raise TestbedError unless the tree is mounted and `condition` holds."""
        if not self.mounted:
            raise TestbedError(f"resctrl is not mounted on '{self.root}'", hint=_MOUNT_HINT)
        if not condition:
            raise TestbedError(
                f"resctrl on '{self.root}' does not offer {what}",
                hint="this processor or kernel lacks it; see `slomo doctor`",
            )

    def read(self, name: str) -> str:
        """Return a file's stripped text. Raises TestbedError if it cannot be read."""
        with self._faults(f"'{name}' cannot be read"):
            content = self.files.read(name, _LARGEST_B)
        return content.decode("ascii", "replace").strip()

    def number(self, name: str) -> int | None:
        """Return a counter; None if the file is missing or the kernel reports ``Unavailable`` or ``Error``."""
        try:
            text = self.read(name)
        except TestbedError:
            return None
        return int(text) if text.isdigit() else None

    def write(self, name: str, text: str) -> None:
        """Write one line to a file; raise TestbedError, with the kernel's reason, if it is refused."""
        with self._faults(f"'{text}' is refused by '{name}'"):
            self.files.write(name, text.encode("ascii") + b"\n")

    def make_group(self, name: str) -> None:
        """Make a group. Raises TestbedError if the kernel refuses it for lack of permission, classes or RMIDs."""
        with self._faults(f"group '{name}' cannot be made"):
            self.files.make(name)

    def remove_group(self, name: str) -> None:
        """Remove a group; its CPUs return to the group above."""
        with self._faults(f"group '{name}' cannot be removed"), contextlib.suppress(FileNotFoundError):
            self.files.remove(name)

    def rename_group(self, name: str, other: str) -> None:
        """Move a monitoring group below another group with masks, in one step that keeps its tasks and counters."""
        with self._faults(f"group '{name}' cannot become '{other}'"):
            self.files.rename(name, other)

    def tasks(self, group: str) -> tuple[int, ...]:
        """Return the tasks of a group."""
        return tuple(int(word) for word in self.read(joined(group, "tasks")).split())

    def control_groups(self) -> tuple[str, ...]:
        """Return the groups that have masks, the root group first."""
        return ("", *self._children(""))

    def has_group(self, name: str) -> bool:
        """Return whether a group with masks has this name; the root group's name is ``""``."""
        return name not in _RESERVED and self.files.is_directory(name) if name else True

    def monitoring_groups(self, control: str) -> tuple[str, ...]:
        """Return the monitoring groups below a group with masks."""
        return self._children(joined(control, "mon_groups"))

    def groups(self) -> tuple[str, ...]:
        """Return the names of all resctrl groups."""
        return tuple(name for control in self.control_groups() for name in (control, *self.monitoring_groups(control)))

    def cpus(self, group: str) -> tuple[int, ...]:
        """Return the CPUs of a group."""
        return parse_cpu_list(self.read(joined(group, "cpus_list")))

    def control_group_of(self, core: int) -> str:
        """Return the group whose masks apply to a CPU. Raises RefusedSettingError for a CPU without one."""
        for name in self.control_groups():
            if core in self.cpus(name):
                return name
        raise RefusedSettingError(
            f"core {core} is in no group of '{self.root}'", hint="name a core that exists and is online"
        )

    def counters(self, group: str, file: str) -> dict[int, int | None]:
        """Return one counter of a group for every last-level cache."""
        folder = joined(group, "mon_data")
        names = [name for name in self._entries(folder) if name.startswith("mon_L3_") and name[7:].isdigit()]
        return {int(name[7:]): self._count(f"{folder}/{name}", file) for name in names}

    def _count(self, domain: str, file: str) -> int | None:
        """Return a counter of one cache; with sub-NUMA clustering, the sum over the cache's nodes."""
        if self.exists(f"{domain}/{file}"):
            return self.number(f"{domain}/{file}")
        parts = [
            self.number(f"{domain}/{name}/{file}") for name in self._entries(domain) if name.startswith("mon_sub_")
        ]
        counted = [part for part in parts if part is not None]
        return sum(counted) if parts and len(counted) == len(parts) else None

    def _children(self, parent: str) -> tuple[str, ...]:
        names = (name for name in self._entries(parent) if name not in _RESERVED)
        return tuple(joined(parent, name) for name in names if self.files.is_directory(joined(parent, name)))

    def _entries(self, folder: str) -> list[str]:
        try:
            return sorted(self.files.names(folder))
        except OSError:
            return []

    @contextlib.contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        """Convert an OSError of a `with` block to a TestbedError that states the kernel's reason."""
        try:
            yield
        except OSError as problem:
            try:
                reason = self.files.read("info/last_cmd_status", 500).decode("ascii", "replace").strip()
            except OSError:
                reason = ""
            status = f" ({reason})" if reason and reason != "ok" else ""
            hint = "run as root" if isinstance(problem, PermissionError) else "see `slomo doctor`"
            kind = RefusedSettingError.kind_of(problem)
            raise kind(f"resctrl on '{self.root}': {what}: {problem.strerror}{status}", hint=hint) from None


def parse_schemata(text: str) -> dict[str, dict[int, str]]:
    """Return a group's settings: resource -> domain -> value as text."""
    schemata: dict[str, dict[int, str]] = {}
    try:
        for line in filter(None, (line.strip() for line in text.splitlines())):
            resource, _, rest = line.partition(":")
            parts = (part.partition("=") for part in rest.split(";"))
            schemata[resource.strip()] = {int(domain): value.strip() for domain, _, value in parts}
    except ValueError:
        raise InvalidValueError(f"'{text[:80]}' are no schemata of resctrl") from None
    return schemata


def joined(group: str, name: str) -> str:
    """Return the path of a group's file below the root; the root group's name is empty."""
    return f"{group}/{name}" if group else name
