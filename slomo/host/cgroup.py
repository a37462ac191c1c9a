"""Read and write files of control groups, version 1 and 2, as settings ("knobs").

The knobs are ``group:NAME`` and ``file:NAME/FILE`` below a hierarchy, ``enabled:CONTROLLER:NAME`` (version 2), and
``member:CONTROLLER:PID`` (the group of a process). Moving a process also moves its pages if ``cpuset.memory_migrate``
(v1) is set; v2 always does.
"""

import contextlib
import errno
import functools
import os
from contextlib import AbstractContextManager
from pathlib import Path

from slomo.errors import InvalidValueError, RefusedSettingError, TestbedError
from slomo.host.below import below
from slomo.host.knobs import PRESENT, InUseError, Knobs, VanishedError
from slomo.host.locks import MachineLock
from slomo.host.marker import stat_fields
from slomo.host.places import this_place

#: Files that slomo sets; no other file of a hierarchy is opened for writing.
FILES = frozenset(
    {"cpuset.cpus", "cpuset.mems", "cpuset.memory_migrate", "cpu.shares", "cpu.weight", "cpu.max"}
    | {"cpu.cfs_quota_us", "cpu.cfs_period_us"}
)
#: By version of control groups: file that holds a group's CPU weight, and its range; a weight of 1 is 1024 in version 1
#: and 100 in version 2.
WEIGHTS = {1: ("cpu.shares", 2, 262_144, 1024), 2: ("cpu.weight", 1, 10_000, 100)}
_CONTROLLERS = ("cpu", "cpuset")


class CgroupKnobs(Knobs):
    """Reads and writes control groups, their files, and which processes they contain.

    `root`: one hierarchy (v2), or a folder per controller (v1). `processes`: mount point of the process file system.
    """

    name = "cgroup"

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), processes: Path = Path("/proc")) -> None:
        self.root, self._processes = Path(root), processes
        self._roots: dict[str, Path] = {}

    @functools.cached_property
    def version(self) -> int:
        """Version of the control groups: 2 for the unified hierarchy, else 1."""
        return 2 if (self.root / "cgroup.controllers").exists() else 1

    def hierarchy(self, controller: str) -> str:
        """Return the name of a controller's folder below the root; ``""`` in version 2."""
        return "" if self.version == 2 else controller

    def place(self) -> str:
        """Return a text that identifies the tree of control groups, this machine and this boot."""
        return this_place(str(self.root))

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock of the control groups while a `with` block runs."""
        return MachineLock(f"control groups on '{self.root}'")

    def path(self, name: str) -> Path:
        """Return the path of a group or file below the root of a hierarchy; links below the root are refused."""
        first, _, rest = name.strip("/").partition("/")
        hierarchy = "" if self.version == 2 else first
        try:
            if name.startswith("/") or (self.version == 1 and first not in _CONTROLLERS):
                raise PermissionError(errno.EPERM, f"is in none of the hierarchies {', '.join(_CONTROLLERS)}")
            return below(self._resolved(hierarchy), rest if hierarchy else name)
        except OSError as problem:
            raise InvalidValueError(
                f"control group '{name[:100]}' {problem.strerror}",
                hint="name one below the root, without '..' or links",
            ) from None

    def _resolved(self, hierarchy: str) -> Path:
        """Return the folder of a hierarchy, with links resolved."""
        if hierarchy not in self._roots:
            self._roots[hierarchy] = (self.root / hierarchy).resolve()
        return self._roots[hierarchy]

    def read(self, knob: str) -> str | None:
        """Return the present value of a setting."""
        kind, _, rest = knob.partition(":")
        if kind == "group":
            return PRESENT if self.path(rest).is_dir() else None
        if kind == "file":
            return self.text(rest) if self.path(rest).exists() else None
        controller, _, last = rest.partition(":")
        if kind == "enabled":
            control = f"{last}/cgroup.subtree_control".lstrip("/")
            enabled = self.text(control).split() if self.path(control).exists() else []  # the group may not exist yet
            return PRESENT if controller in enabled else None
        return self.group_of(controller, last)

    def group_of(self, controller: str, pid: str) -> str | None:
        """Return a process's group; None if the process has ended."""
        base = self.hierarchy(controller)
        path = groups_of(self._processes / pid / "cgroup").get(base)
        return None if path is None else f"{base}/{path.strip('/')}".strip("/")

    def write(self, knob: str, value: str | None) -> None:
        """Write the value of one setting of a control group."""
        kind, _, rest = knob.partition(":")
        controller, _, last = rest.partition(":")
        try:
            if kind == "group":
                self._group(rest, make=value is not None)
            elif kind == "enabled":
                control = self.path(f"{last}/cgroup.subtree_control".lstrip("/"))
                self._put(control, f"{'+' if value else '-'}{controller}")
            elif kind == "file":
                if rest.rpartition("/")[2] not in FILES:
                    raise TestbedError(f"slomo does not set control group file '{rest}'", hint=", ".join(FILES))
                if value is not None:
                    self._put(self.path(rest), value)
            else:
                self._move(controller, last, value or "")
        except FileNotFoundError:
            raise VanishedError(
                f"control group of '{rest}' no longer exists", hint="another program removed it"
            ) from None
        except OSError as problem:
            if problem.errno == errno.ESRCH:
                raise VanishedError(f"'{rest}': that process no longer exists", hint="it ended; plan again") from None
            folder = self.path(rest if kind == "group" else rest.rpartition("/")[0])
            if not value and problem.errno in (errno.EBUSY, errno.ENOTEMPTY) and any(folder.glob("*/")):
                raise InUseError(f"control group '{rest}' holds other groups", hint="it was left unchanged") from None
            raise RefusedSettingError.kind_of(problem)(
                f"the kernel refuses {value!r} for control group '{rest}': {problem.strerror}",
                hint="run as root" if isinstance(problem, PermissionError) else "see `slomo enforce show`",
            ) from None

    def _group(self, name: str, *, make: bool) -> None:
        path = self.path(name)
        if make:
            path.mkdir()
            return
        try:
            path.rmdir()
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            # processes that tenants have started in the group meanwhile move to the group above slomo's
            for pid in (path / "cgroup.procs").read_text(encoding="ascii").split():
                with contextlib.suppress(ProcessLookupError):
                    self._put(path.parent.parent / "cgroup.procs", pid)
            path.rmdir()

    def _move(self, controller: str, pid: str, group: str) -> None:
        """Move a process to a group, with those of its descendants that are in the group that it leaves."""
        left = self.group_of(controller, pid)
        target = self.path(group) / "cgroup.procs" if group else self.root / "cgroup.procs"
        self._put(target, pid)
        members = [] if left is None else (self.path(left) / "cgroup.procs").read_text(encoding="ascii").split()
        parents: dict[str, str] = {}
        for member in members:
            if _descends(member, pid, parents):
                with contextlib.suppress(ProcessLookupError):
                    self._put(target, member)

    def text(self, name: str) -> str:
        """Return a file's content. Raises TestbedError if it cannot be read."""
        try:
            return self.path(name).read_text(encoding="ascii").strip()
        except OSError as problem:
            raise TestbedError(f"control group file '{self.root / name}': {problem.strerror}") from None

    def _put(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.write(descriptor, text.encode("ascii") + b"\n")
        finally:
            os.close(descriptor)


def groups_of(file: Path) -> dict[str, str]:
    """Return a process's groups by controller (``""`` for version 2), from its file ``cgroup``; empty if it ended."""
    try:
        lines = [line.split(":", 2) for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return {}
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}


def _descends(pid: str, ancestor: str, parents: dict[str, str]) -> bool:
    """Return whether a process descends from another one; `parents` caches the parents read so far."""
    while pid not in ("0", "1"):
        if pid not in parents:
            fields = stat_fields(int(pid))
            parents[pid] = "0" if fields is None else fields[1]
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False
