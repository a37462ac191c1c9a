"""CPUs, memory node, weights and quotas through control groups, version 1 and 2.

Knobs: ``group:NAME`` and ``file:NAME/FILE`` below a hierarchy, ``member:HIERARCHY:PID``. NFVnice (SIGCOMM'17) renders
one ratio to v1 ``cpu.shares`` (1024 is 1) or v2 ``cpu.weight`` (100 is 1). Moving a process also moves its pages where
``cpuset.memory_migrate`` (v1) is set; v2 always does.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from slomo.enforce.change import PRESENT, VanishedError, Wish
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError
from slomo.host.cores import format_cpu_list, parse_cpu_list
from slomo.host.locks import MachineLock
from slomo.host.places import this_place

PARENT = "slomo"
PERIOD_US = 100_000
#: Range of v1 cpu.shares and v2 cpu.weight.
_SHARES, _WEIGHTS = (2, 262_144), (1, 10_000)
#: Least quota that the kernel takes [us].
_LEAST_QUOTA_US = 1000


class CgroupBackend:
    """Sets control groups.

    Parameters
    ----------
    root : path
        Where they are mounted: one hierarchy (v2), or a folder per controller (v1).
    processes : path
        The process file system.

    Examples
    --------
    >>> CgroupBackend(Path("/no/such/place")).available()[0]
    False
    """

    name = "cgroup"

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), processes: Path = Path("/proc")) -> None:
        self.root, self._processes = Path(root), processes

    @property
    def version(self) -> int:
        """Return 2 for the unified hierarchy, else 1."""
        return 2 if (self.root / "cgroup.controllers").exists() else 1

    def hierarchy(self, controller: str) -> str:
        """Return the folder of a controller below the root: ``""`` under version 2."""
        return "" if self.version == 2 else controller

    def available(self) -> tuple[bool, str]:
        """Return whether CPUs can be given to groups."""
        if self.version == 2:
            there = set(self._text("cgroup.controllers").split()) & {"cpu", "cpuset"}
        else:
            there = {name for name in ("cpu", "cpuset") if (self.root / name / "cgroup.procs").exists()}
        if not there:
            return False, f"no controller cpu or cpuset below '{self.root}'"
        if not os.access(self.root / self.hierarchy(min(there)), os.W_OK):
            return False, f"'{self.root}' cannot be written; run as root"
        return True, f"version {self.version}, controllers {', '.join(sorted(there))}"

    def place(self) -> str:
        """Return the hierarchy on this boot."""
        return this_place(str(self.root))

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock of the hierarchy."""
        return MachineLock(f"control groups on '{self.root}'")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return groups, their files, and their members.

        Raises
        ------
        TestbedError
            For a controller, CPU or memory node that this host does not have.
        """
        wishes: list[Wish] = []
        for tenant in plan.tenants:
            for wish in self._tenant(tenant):
                if wish not in wishes:
                    wishes.append(wish)
        return tuple(wishes)

    def _tenant(self, tenant: TenantSetting) -> list[Wish]:
        files = self._files(tenant)
        wishes: list[Wish] = []
        for controller in dict.fromkeys(name.partition(".")[0] for name in files):
            base = self._base(controller)
            own = {name: text for name, text in files.items() if name.partition(".")[0] == controller}
            if tenant.cgroup is not None:
                folder = f"{base}{tenant.cgroup.strip('/')}"
                self._require_folder(folder)
            elif tenant.process_ids:
                folder = f"{base}{PARENT}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', tenant.tenant)}"
                wishes += self._make(controller, base, folder, set(own))
            else:
                raise TestbedError(
                    f"tenant '{tenant.tenant}' has neither processes nor a control group",
                    hint="name process_ids or cgroup in the plan",
                )
            wishes += [Wish(f"file:{folder}/{name}", text) for name, text in own.items()]
            if tenant.cgroup is None:
                wishes += [Wish(f"member:{controller}:{pid}", folder) for pid in tenant.process_ids]
        return list(dict.fromkeys(wishes))

    def _make(self, controller: str, base: str, folder: str, own: set[str]) -> list[Wish]:
        wishes: list[Wish] = []
        for made in (f"{base}{PARENT}", folder):
            wishes.append(Wish(f"group:{made}", PRESENT))
            if self.version == 1 and controller == "cpuset":  # empty until they are set: nobody may enter
                names = sorted({"cpuset.cpus", "cpuset.mems"} - (own if made == folder else set()))
                empty = [name for name in names if not self.read(f"file:{made}/{name}")]
                wishes += [Wish(f"file:{made}/{name}", self._text(f"{base}{name}")) for name in empty]
        if self.version == 2:
            above = (base.rstrip("/"), f"{base}{PARENT}")
            enabled = [Wish(f"enabled:{controller}:{folder}", PRESENT) for folder in above]
            wishes = [enabled[0], wishes[0], enabled[1], *wishes[1:]]
        return wishes

    def _files(self, tenant: TenantSetting) -> dict[str, str]:
        files: dict[str, str] = {}
        second = self.version == 2
        if tenant.cores:
            self._require_cores(tenant)
            files["cpuset.cpus"] = format_cpu_list(tenant.cores)
        if tenant.memory_node is not None:
            files |= {} if second else {"cpuset.memory_migrate": "1"}
            files["cpuset.mems"] = str(tenant.memory_node)
        if tenant.cpu_weight is not None:
            least, most = _WEIGHTS if second else _SHARES
            number = min(most, max(least, round(tenant.cpu_weight * (100 if second else 1024))))
            files["cpu.weight" if second else "cpu.shares"] = str(number)
        if tenant.cpu_quota is not None:
            quota = max(_LEAST_QUOTA_US, round(tenant.cpu_quota * PERIOD_US))
            own = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
            files |= {"cpu.max": f"{quota} {PERIOD_US}"} if second else own
        return files

    def _require_cores(self, tenant: TenantSetting) -> None:
        base = self._base("cpuset")
        name = "cpuset.cpus.effective" if self.version == 2 else "cpuset.cpus"
        there = parse_cpu_list(self._text(f"{base}{name}"))
        unknown = sorted(set(tenant.cores) - set(there))
        if there and unknown:
            raise TestbedError(
                f"tenant '{tenant.tenant}': CPU {unknown[0]} is not on this host", hint=f"CPUs: {list(there)}"
            )

    def _base(self, controller: str) -> str:
        folder = self.hierarchy(controller)
        if not (self.root / folder / "cgroup.procs").exists():
            raise TestbedError(f"control group hierarchy '{self.root}' has no controller {controller}")
        return f"{folder}/" if folder else ""

    # -- one knob
    def read(self, knob: str) -> str | None:
        """Return what a knob holds."""
        kind, _, rest = knob.partition(":")
        if kind == "group":
            return PRESENT if (self.root / rest).is_dir() else None
        if kind == "file":
            return self._text(rest) if (self.root / rest).exists() else None
        if kind == "enabled":
            controller, _, folder = rest.partition(":")
            control = str(Path(folder) / "cgroup.subtree_control")
            enabled = self._text(control).split() if (self.root / control).exists() else []  # a group not made yet
            return PRESENT if controller in enabled else None
        controller, _, pid = rest.partition(":")
        return self._group_of(controller, pid)

    def _group_of(self, controller: str, pid: str) -> str | None:
        try:
            lines = (self._processes / pid / "cgroup").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        for line in lines:
            _, names, path = line.split(":", 2)
            if (self.version == 2 and names == "") or (self.version == 1 and controller in names.split(",")):
                base = self.hierarchy(controller)
                return f"{base}/{path.strip('/')}".strip("/") if base else path.strip("/")
        return None

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob.

        Raises
        ------
        TestbedError
            With the kernel's reason; VanishedError where its group or process is gone.
        """
        kind, _, rest = knob.partition(":")
        path = self.root / rest
        try:
            if kind == "group":
                path.mkdir() if value else path.rmdir()
            elif kind == "enabled":
                controller, _, folder = rest.partition(":")
                self._put(self.root / folder / "cgroup.subtree_control", f"{'+' if value else '-'}{controller}")
            elif kind == "file":
                if value is not None:
                    self._put(path, value)
            else:
                self._put(self.root / (value or "") / "cgroup.procs", rest.partition(":")[2])
        except FileNotFoundError:
            raise VanishedError(f"control group of '{rest}' is there no more", hint="somebody removed it") from None
        except OSError as problem:
            if problem.errno == errno.ESRCH:
                raise VanishedError(f"'{rest}': that process is there no more", hint="it ended; plan again") from None
            raise TestbedError(
                f"control group '{rest}' does not take {value!r}: {problem.strerror}",
                hint="run as root" if isinstance(problem, PermissionError) else "see `slomo enforce show`",
            ) from None

    def knobs(self) -> Iterator[str]:
        """Return the groups of ours and their files."""
        files = ("cpuset.cpus", "cpuset.mems", "cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max")
        for base in dict.fromkeys(self.hierarchy(name) for name in ("cpuset", "cpu")):
            for folder in sorted((self.root / base).glob(f"{PARENT}/*/")):
                name = str(folder.relative_to(self.root))
                yield f"group:{name}"
                yield from (f"file:{name}/{file}" for file in files if (folder / file).exists())

    def _text(self, name: str) -> str:
        try:
            return (self.root / name).read_text(encoding="ascii").strip()
        except OSError as problem:
            raise TestbedError(f"control group file '{self.root / name}': {problem.strerror}") from None

    def _put(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode("ascii") + b"\n")
        finally:
            os.close(descriptor)

    def _require_folder(self, folder: str) -> None:
        if not (self.root / folder).is_dir():
            raise TestbedError(f"no control group '{folder}' below '{self.root}'", hint="name one that is there")
