"""The kernel's resctrl file system: groups of CPUs with masks and counters, as files.

Documentation/arch/x86/resctrl.rst of Linux; the same tree on Intel and AMD. Every write that the kernel refuses leaves
its reason in ``info/last_cmd_status``.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.cores import parse_cpu_list

ROOT = Path("/sys/fs/resctrl")
_LARGEST_B = 1 << 16
_MOUNT_HINT = "mount it as root: mount -t resctrl resctrl /sys/fs/resctrl"
#: Directories of a group that are no groups themselves.
_RESERVED = {"info", "mon_data", "mon_groups"}

Snapshot = Mapping[str, Mapping[str, str]]


class ResctrlTree:
    """Reads and changes one resctrl tree; groups are named by their path below the root, ``""`` is the root group.

    Parameters
    ----------
    root : path
        Where it is mounted.

    Examples
    --------
    >>> ResctrlTree(Path("/no/such/place")).mounted
    False
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = Path(root)

    @property
    def mounted(self) -> bool:
        """Whether a resctrl file system is there."""
        return (self.root / "info").is_dir()

    @property
    def can_allocate(self) -> bool:
        """Whether last-level cache ways can be allocated."""
        return (self.root / "info" / "L3" / "cbm_mask").exists()

    def require(self, what: str, condition: bool) -> None:
        """Raise unless mounted and `condition` holds.

        Raises
        ------
        TestbedError
            Naming what is missing.
        """
        if not self.mounted:
            raise TestbedError(f"resctrl is not mounted on '{self.root}'", hint=_MOUNT_HINT)
        if not condition:
            raise TestbedError(
                f"resctrl on '{self.root}' does not offer {what}",
                hint="this processor or kernel lacks it; see `slomo doctor`",
            )

    def read(self, name: str) -> str:
        """Return a file's text without blanks at its ends.

        Raises
        ------
        TestbedError
            If it cannot be read.
        """
        try:
            with (self.root / name).open("rb") as stream:
                return stream.read(_LARGEST_B).decode("ascii", "replace").strip()
        except OSError as problem:
            raise self._fault(f"'{name}' cannot be read", problem) from None

    def number(self, name: str) -> int | None:
        """Return a counter; None where the kernel says ``Unavailable`` or ``Error``, or has no such file."""
        try:
            text = self.read(name)
        except TestbedError:
            return None
        return int(text) if text.isdigit() else None

    def write(self, name: str, text: str) -> None:
        """Write one line to a file.

        Raises
        ------
        TestbedError
            If the kernel refuses it, with the kernel's reason.
        """
        try:
            descriptor = os.open(self.root / name, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, text.encode("ascii") + b"\n")
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise self._fault(f"'{text}' is refused by '{name}'", problem) from None

    def make_group(self, name: str) -> None:
        """Make a group.

        Raises
        ------
        TestbedError
            If the kernel refuses it: no rights, or no class or RMID left.
        """
        try:
            (self.root / name).mkdir()
        except OSError as problem:
            raise self._fault(f"group '{name}' cannot be made", problem) from None

    def remove_group(self, name: str) -> None:
        """Remove a group; its CPUs go back to the group above.

        Raises
        ------
        TestbedError
            If the kernel refuses it.
        """
        try:
            (self.root / name).rmdir()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise self._fault(f"group '{name}' cannot be removed", problem) from None

    def control_groups(self) -> tuple[str, ...]:
        """Return the groups that have masks, the root group first."""
        return ("", *self._children(""))

    def monitoring_groups(self, control: str) -> tuple[str, ...]:
        """Return the groups that only count, below one that has masks."""
        return self._children(_join(control, "mon_groups"))

    def groups(self) -> tuple[str, ...]:
        """Return all groups."""
        return tuple(name for control in self.control_groups() for name in (control, *self.monitoring_groups(control)))

    def cpus(self, group: str) -> tuple[int, ...]:
        """Return the CPUs of a group."""
        return parse_cpu_list(self.read(_join(group, "cpus_list")))

    def control_group_of(self, core: int) -> str:
        """Return the group whose masks hold for a CPU.

        Raises
        ------
        TestbedError
            For a CPU that is in none.
        """
        for name in self.control_groups():
            if core in self.cpus(name):
                return name
        raise TestbedError(f"core {core} is in no group of '{self.root}'", hint="name a core that exists and is online")

    def domains(self, resource: str = "L3") -> tuple[int, ...]:
        """Return the domains (caches, or memory controllers for ``"MB"``) a resource is split into."""
        return tuple(parse_schemata(self.read("schemata")).get(resource, {}))

    def counters(self, group: str, file: str) -> dict[int, int | None]:
        """Return a counter of a group in every last-level cache."""
        folders = sorted((self.root / group / "mon_data").glob("mon_L3_*"))
        return {
            int(folder.name[7:]): self.number(str(folder.relative_to(self.root) / file))
            for folder in folders
            if folder.name[7:].isdigit()
        }

    def snapshot(self) -> Snapshot:
        """Return CPUs and masks of every group."""
        return {
            name: {
                file: self.read(_join(name, file))
                for file in ("cpus_list", "schemata")
                if (self.root / name / file).exists()
            }
            for name in self.groups()
        }

    def _children(self, parent: str) -> tuple[str, ...]:
        try:
            entries = sorted((self.root / parent).iterdir())
        except OSError:
            return ()
        return tuple(_join(parent, e.name) for e in entries if e.is_dir() and e.name not in _RESERVED)

    def _fault(self, what: str, problem: OSError) -> TestbedError:
        try:
            said = (self.root / "info" / "last_cmd_status").read_text(encoding="ascii", errors="replace").strip()[:500]
        except OSError:
            said = ""
        told = f" ({said})" if said and said != "ok" else ""
        hint = "run as root" if isinstance(problem, PermissionError) else "see `slomo doctor`"
        return TestbedError(f"resctrl on '{self.root}': {what}: {problem.strerror}{told}", hint=hint)


def parse_schemata(text: str) -> dict[str, dict[int, str]]:
    r"""Return a group's settings: resource -> domain -> value as written.

    Examples
    --------
    >>> parse_schemata("    L3:0=7ff;1=7ff\n    MB:0=100;1=100")
    {'L3': {0: '7ff', 1: '7ff'}, 'MB': {0: '100', 1: '100'}}
    """
    found: dict[str, dict[int, str]] = {}
    try:
        for line in filter(None, (line.strip() for line in text.splitlines())):
            resource, _, rest = line.partition(":")
            parts = (part.partition("=") for part in rest.split(";"))
            found[resource.strip()] = {int(domain): value.strip() for domain, _, value in parts}
    except ValueError:
        raise InvalidValueError(f"'{text[:80]}' are no schemata of resctrl") from None
    return found


def _join(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name
