"""What a resctrl tree does when it is read and written: Documentation/arch/x86/resctrl.rst, as a state machine.

Every refusal is an OSError with the kernel's number, and its reason stands in ``info/last_cmd_status``.
"""

import errno
import json
from dataclasses import dataclass, field
from typing import Any

UNLIMITED_AMD = 2048
U32_MAX = 4294967295


@dataclass
class Flavour:
    """What the processor and the kernel offer."""

    cpus: int = 4
    ways: int = 11
    classes: int = 16
    monitors: int = 144
    domains: tuple[int, ...] = (0,)
    #: "percent", "mbps" (mount option mba_MBps) or "amd"
    bandwidth: str = "percent"
    cdp: bool = False
    slow_memory: bool = False
    sparse: bool = False
    io_alloc: bool = False
    #: Nodes per cache with sub-NUMA clustering.
    clusters: int = 1
    min_bits: int = 1
    #: Ways that devices fill, of which no group can be exclusive.
    shareable: int = 0
    gran: int = 10
    #: How many times a freed RMID makes the next mkdir EBUSY.
    busy: int = 0
    #: What counters read that are not counting.
    unassigned: bool = False
    tasks: list[int] = field(default_factory=lambda: [101, 102, 103, 104])


@dataclass
class Group:
    """A group with masks, and the groups in it that only count."""

    settings: dict[str, dict[str, int]] = field(default_factory=dict)
    cpus: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    monitors: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    mode: str = "shareable"


class RefusedError(OSError):
    """What the kernel would say, with the line it would leave."""


class ResctrlModel:
    """One tree; `to_text` and `from_text` carry it through files."""

    def __init__(self, flavour: Flavour | None = None) -> None:
        self.flavour = flavour or Flavour()
        self.last, self.io_enabled, self.io_mask = "ok", False, self.full
        self.busy_left = self.flavour.busy
        self.dead: list[int] = []
        root = Group(self._fresh(), list(range(self.flavour.cpus)))
        self.groups: dict[str, Group] = {"": root}

    @property
    def full(self) -> int:
        return (1 << self.flavour.ways) - 1

    @property
    def resources(self) -> tuple[str, ...]:
        caches = ("L3DATA", "L3CODE") if self.flavour.cdp else ("L3",)
        return ("MB", *(("SMBA",) if self.flavour.slow_memory else ()), *caches)

    def _fresh(self) -> dict[str, dict[str, int]]:
        bandwidth = {"percent": 100, "mbps": U32_MAX, "amd": UNLIMITED_AMD}[self.flavour.bandwidth]
        return {
            name: {str(d): self.full if name.startswith("L3") else bandwidth for d in self.flavour.domains}
            for name in self.resources
        }

    # -- carried through files
    def to_text(self) -> str:
        rest = [self.last, self.io_enabled, self.io_mask, self.busy_left, self.dead]
        return json.dumps({"flavour": self.flavour, "groups": self.groups, "rest": rest}, default=vars)

    @classmethod
    def from_text(cls, text: str) -> "ResctrlModel":
        data = json.loads(text)
        data["flavour"]["domains"] = tuple(data["flavour"]["domains"])
        model = cls(Flavour(**data["flavour"]))
        model.groups = {name: Group(**fields) for name, fields in data["groups"].items()}
        model.last, model.io_enabled, model.io_mask, model.busy_left, model.dead = data["rest"]
        return model

    def wipe(self) -> None:
        """Do what a container engine's restart does: remove the groups it does not know."""
        for name in [name for name in self.groups if name]:
            self.rmdir(name)

    # -- looking
    def find(self, path: str) -> tuple[Group | dict[str, list[int]], str, list[str]] | None:
        words = [word for word in path.split("/") if word]
        control = words.pop(0) if words and words[0] in self.groups else ""
        group = self.groups[control]
        if len(words) >= 2 and words[0] == "mon_groups":
            if words[1] not in group.monitors:
                return None
            return group.monitors[words[1]], control, words[2:]
        return group, control, words

    def names(self, path: str) -> list[str] | None:
        """Return what is in a directory; None where it is none."""
        words = [word for word in path.split("/") if word]
        if words[:1] == ["info"]:
            return self._info_names(words[1:])
        place = self.find(path)
        if place is None:
            return None
        group, control, rest = place
        if not rest:
            files = ["cpus", "cpus_list", "tasks", "mon_data"]
            if isinstance(group, Group):
                files += ["schemata", "size", "mode", "mon_groups"]
                files += ["info", *(name for name in self.groups if name)] if control == "" else []
            return files
        if rest == ["mon_groups"] and isinstance(group, Group):
            return list(group.monitors)
        return self._monitor_names(rest)

    def _monitor_names(self, rest: list[str]) -> list[str] | None:
        caches = [f"mon_L3_{d:02d}" for d in self.flavour.domains]
        counters = ["llc_occupancy", "mbm_local_bytes", "mbm_total_bytes"]
        if rest == ["mon_data"]:
            return caches
        if len(rest) == 2 and rest[0] == "mon_data" and rest[1] in caches:
            clusters = [f"mon_sub_L3_{n:02d}" for n in range(self.flavour.clusters)]
            return counters if self.flavour.clusters == 1 else [*counters, *clusters]
        if len(rest) == 3 and rest[0] == "mon_data" and rest[2].startswith("mon_sub_L3_"):
            return counters
        return None

    def _info(self) -> dict[str, dict[str, str]]:
        flavour = self.flavour
        classes = flavour.classes // (2 if flavour.cdp else 1)
        cache = {
            "cbm_mask": f"{self.full:x}",
            "min_cbm_bits": str(flavour.min_bits),
            "num_closids": str(classes),
            "shareable_bits": f"{flavour.shareable:x}",
            "bit_usage": ";".join(f"{d}={'S' * flavour.ways}" for d in flavour.domains),
            "sparse_masks": str(int(flavour.sparse)),
        }
        if flavour.io_alloc:
            cache["io_alloc"] = "enabled" if self.io_enabled else "disabled"
            cache["io_alloc_cbm"] = ";".join(f"{d}={self.io_mask:x}" for d in flavour.domains)
        lowest = {"percent": "10", "mbps": "10", "amd": "1"}[flavour.bandwidth]
        memory = {
            "bandwidth_gran": "1" if flavour.bandwidth == "amd" else str(flavour.gran),
            "delay_linear": "1",
            "min_bandwidth": lowest,
            "num_closids": str(flavour.classes),
        }
        caches = {name: cache for name in self.resources if name.startswith("L3")}
        memories = {name: memory for name in self.resources if not name.startswith("L3")}
        counting = {
            "max_threshold_occupancy": "65536",
            "mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes",
            "num_rmids": str(flavour.monitors),
        }
        return {**caches, **memories, "L3_MON": counting}

    def _info_names(self, words: list[str]) -> list[str] | None:
        info = self._info()
        if not words:
            return [*info, "last_cmd_status"]
        return list(info[words[0]]) if len(words) == 1 and words[0] in info else None

    def content(self, path: str) -> str:
        """Return what a file holds.

        Raises OSError where there is no such file.
        """
        words = [word for word in path.split("/") if word]
        if words == ["info", "last_cmd_status"]:
            return f"{self.last}\n"
        if words[:1] == ["info"]:
            try:
                return f"{self._info()[words[1]][words[2]]}\n"
            except (KeyError, IndexError):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory") from None
        place = self.find(path)
        folder, _, name = path.rpartition("/")
        if place is None or name not in (self.names(folder) or []):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return f"{self._text(place[0], place[1], name)}\n"

    def _text(self, group: Any, control: str, name: str) -> str:
        cpus = group.cpus if isinstance(group, Group) else group["cpus"]
        if name == "cpus":
            return f"{sum(1 << cpu for cpu in cpus):x}"
        if name == "cpus_list":
            return listed(cpus)
        if name == "tasks":
            return "\n".join(map(str, self._tasks(group, control)))
        if name == "schemata":
            return "\n".join(self._line(resource, domains) for resource, domains in group.settings.items())
        if name == "size":
            return "    L3:0=1048576"
        if name == "mode":
            return str(group.mode)
        return "Unassigned" if self.flavour.unassigned and name.startswith("mbm") else str(4096 * (1 + len(cpus)))

    def _tasks(self, group: Any, control: str) -> list[int]:
        if not isinstance(group, Group):
            return sorted(group["tasks"])
        if control:
            return sorted(group.tasks)
        elsewhere = {task for name, other in self.groups.items() if name for task in other.tasks}
        return sorted(set(self.flavour.tasks) - elsewhere - set(self.dead))

    def _line(self, resource: str, domains: dict[str, int]) -> str:
        form = (lambda v: f"{v:x}") if resource.startswith("L3") else (lambda v: f"{v:>3d}")
        return f"{resource:>8}:" + ";".join(f"{d}={form(v)}" for d, v in domains.items())

    # -- changing
    def write(self, path: str, text: str) -> None:
        """Write a file as the kernel takes it."""
        self.last = "ok"
        if path.startswith("info/"):
            self._write_info(path, text.strip())
            return
        place = self.find(path)
        if place is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        group, control, rest = place
        if rest == ["schemata"] and isinstance(group, Group):
            for line in text.splitlines():
                self._set(group, line.strip())
        elif rest == ["cpus_list"]:
            self._move_cpus(group, control, unlisted(text))
        elif rest == ["cpus"]:
            mask = int(text.strip().replace(",", "") or "0", 16)
            self._move_cpus(group, control, [n for n in range(mask.bit_length()) if mask >> n & 1])
        elif rest == ["tasks"]:
            for word in text.split():
                self._move_task(group, control, int(word))
        elif rest == ["mode"] and isinstance(group, Group):
            self._set_mode(group, text.strip())
        else:
            self._refuse(errno.EACCES, "not writable")

    def _set_mode(self, group: Group, mode: str) -> None:
        if mode not in ("shareable", "exclusive"):
            self._refuse(errno.EINVAL, f"Unknown or unsupported mode '{mode}'")
        if mode == "exclusive" and any(
            self._overlaps(group, resource, domain, mask, exclusive_only=False)
            for resource, domains in group.settings.items()
            if resource.startswith("L3")
            for domain, mask in domains.items()
        ):
            self._refuse(errno.EINVAL, "Schemata overlaps")
        group.mode = mode

    def _overlaps(self, group: Group, resource: str, domain: str, mask: int, *, exclusive_only: bool) -> bool:
        """Say whether ways are another group's: of any, or of an exclusive one; devices' ways count for the former."""
        others = (other for other in self.groups.values() if other is not group)
        its = (other.settings[resource][domain] for other in others if not exclusive_only or other.mode == "exclusive")
        return any(mask & each for each in its) or bool(not exclusive_only and mask & self.flavour.shareable)

    def _write_info(self, path: str, text: str) -> None:
        name = path.rpartition("/")[2]
        if not self.flavour.io_alloc or name not in ("io_alloc", "io_alloc_cbm"):
            self._refuse(errno.EACCES, "not writable")
        if name == "io_alloc":
            if text == "1" and len(self.groups) >= self.flavour.classes:
                self._refuse(errno.ENOSPC, "io_alloc CLOSID is used by a group")
            self.io_enabled = text == "1"
        else:
            if not self.io_enabled:
                self._refuse(errno.ENODEV, "io_alloc is not enabled")
            for part in text.split(";"):
                self.io_mask = self._mask(part.partition("=")[2])

    def _set(self, group: Group, line: str) -> None:
        resource, _, rest = line.partition(":")
        if resource not in group.settings:
            self._refuse(errno.EINVAL, f"Unknown or unsupported resource name '{resource}'")
        for part in rest.split(";"):
            domain, _, value = part.partition("=")
            if domain.strip() not in group.settings[resource]:
                self._refuse(errno.EINVAL, f"Invalid domain {domain}")
            number = self._mask(value) if resource.startswith("L3") else self._bandwidth(value)
            if resource.startswith("L3"):
                alone = group.mode == "exclusive"
                if self._overlaps(group, resource, domain.strip(), number, exclusive_only=not alone):
                    self._refuse(
                        errno.EINVAL, "Overlaps with exclusive group" if not alone else "Overlaps with other group"
                    )
            group.settings[resource][domain.strip()] = number

    def _mask(self, text: str) -> int:
        mask = int(text, 16)
        if mask == 0 or mask > self.full or mask.bit_count() < self.flavour.min_bits:
            self._refuse(errno.EINVAL, "Mask out of range")
        low = mask // (mask & -mask)
        if low & (low + 1) and not self.flavour.sparse:
            self._refuse(errno.EINVAL, f"The mask {mask:x} has non-consecutive 1-bits")
        return mask

    def _bandwidth(self, text: str) -> int:
        value, kind = int(text), self.flavour.bandwidth
        if kind == "percent":
            if not 10 <= value <= 100:
                self._refuse(errno.EINVAL, f"MB value {value} out of range [10,100]")
            return -(-value // self.flavour.gran) * self.flavour.gran
        if kind == "amd":
            if not 1 <= value <= UNLIMITED_AMD:
                self._refuse(errno.EINVAL, f"MB value {value} exceeds maximum bandwidth {UNLIMITED_AMD}")
            return value
        return value

    def _move_cpus(self, group: Any, control: str, cpus: list[int]) -> None:
        if any(cpu >= self.flavour.cpus for cpu in cpus):
            self._refuse(errno.EINVAL, "Can only assign online CPUs")
        if not isinstance(group, Group):
            if not set(cpus) <= set(self.groups[control].cpus):
                self._refuse(errno.EINVAL, "Can only add CPUs to mongroup that belong to parent")
            for other in self.groups[control].monitors.values():
                other["cpus"] = [cpu for cpu in other["cpus"] if cpu not in cpus]
            group["cpus"] = sorted(cpus)
            return
        left = set(group.cpus) - set(cpus)
        if control == "" and left:
            self._refuse(errno.EINVAL, "Can't drop CPUs from default group")
        for other in self.groups.values():
            gone = set(cpus) if other is not group else left
            other.cpus = [cpu for cpu in other.cpus if cpu not in gone]
            for monitor in other.monitors.values():
                monitor["cpus"] = [cpu for cpu in monitor["cpus"] if cpu not in gone]
        group.cpus = sorted(cpus)
        self.groups[""].cpus = sorted({*self.groups[""].cpus, *left})

    def _move_task(self, group: Any, control: str, task: int) -> None:
        if task not in self.flavour.tasks or task in self.dead:
            self._refuse(errno.ESRCH, f"No task {task}")
        if not isinstance(group, Group):
            if task not in self._tasks(self.groups[control], control):
                self._refuse(errno.EINVAL, "Can't move task to different control group")
            for other in self.groups[control].monitors.values():
                other["tasks"] = [member for member in other["tasks"] if member != task]
            group["tasks"].append(task)
            return
        for other in self.groups.values():
            other.tasks = [member for member in other.tasks if member != task]
            for monitor in other.monitors.values():
                monitor["tasks"] = [member for member in monitor["tasks"] if member != task]
        if control:
            group.tasks.append(task)

    def mkdir(self, path: str) -> None:
        """Make a group."""
        self.last = "ok"
        folder, _, name = path.strip("/").rpartition("/")
        if self.busy_left:
            self.busy_left -= 1
            self._refuse(errno.EBUSY, "Out of RMIDs")
        used = len(self.groups) + sum(len(group.monitors) for group in self.groups.values())
        if used >= self.flavour.monitors:
            self._refuse(errno.ENOSPC, "Out of RMIDs")
        if not folder:
            self._make_control(name)
        else:
            place = self.find(folder)
            if place is None or place[2] != ["mon_groups"] or not isinstance(place[0], Group):
                self._refuse(errno.EPERM, "groups are made below the root or in mon_groups")
            assert isinstance(place[0], Group)
            if name in place[0].monitors:
                raise FileExistsError(errno.EEXIST, "File exists")
            place[0].monitors[name] = {"cpus": [], "tasks": []}

    def _make_control(self, name: str) -> None:
        if name in self.groups or name in ("info", "mon_groups", "mon_data"):
            raise FileExistsError(errno.EEXIST, "File exists")
        most = self.flavour.classes // (2 if self.flavour.cdp else 1) - int(self.io_enabled)
        if len(self.groups) >= most:
            self._refuse(errno.ENOSPC, "Out of CLOSIDs")
        fresh = self._fresh()
        for resource, domains in fresh.items():
            for domain in domains if resource.startswith("L3") else ():
                for other in self.groups.values():
                    if other.mode == "exclusive":
                        domains[domain] &= ~other.settings[resource][domain]
                if not domains[domain]:
                    self._refuse(errno.ENOSPC, f"No space on {resource}:{domain}")
        self.groups[name] = Group(fresh)

    def rmdir(self, path: str) -> None:
        """Remove a group; its CPUs and tasks go to the group above."""
        place = self.find(path)
        name = path.strip("/")
        if name in self.groups and name:
            group = self.groups.pop(name)
            self.groups[""].cpus = sorted({*self.groups[""].cpus, *group.cpus})
        elif place is not None and "mon_groups" in path and not place[2]:
            del self.groups[place[1]].monitors[name.rpartition("/")[2]]
        else:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def rename(self, path: str, other: str) -> None:
        """Move a monitoring group to another control group: tasks and counters go with it."""
        place = self.find(path)
        if place is None or "mon_groups" not in path or isinstance(place[0], Group):
            self._refuse(errno.EPERM, "Source must be a MON group")
        assert place is not None
        monitor, old = place[0], self.groups[place[1]]
        target = self.find(other.rpartition("/")[0])
        if target is None or not isinstance(target[0], Group) or target[2] != ["mon_groups"]:
            self._refuse(errno.EPERM, "Destination must be a mon_groups subdirectory")
        assert target is not None
        assert isinstance(target[0], Group)
        assert isinstance(monitor, dict)
        if monitor["cpus"]:
            self._refuse(errno.EPERM, "Cannot move a MON group that monitors CPUs")
        del old.monitors[path.rpartition("/")[2]]
        old.tasks = [task for task in old.tasks if task not in monitor["tasks"]]
        if target[1]:
            target[0].tasks += monitor["tasks"]
        target[0].monitors[other.rpartition("/")[2]] = monitor

    def _refuse(self, number: int, why: str) -> None:
        self.last = why
        raise RefusedError(number, {errno.EINVAL: "Invalid argument"}.get(number, errno.errorcode[number]))


def listed(cpus: list[int]) -> str:
    """Return CPUs as the kernel lists them: runs as ranges."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def unlisted(text: str) -> list[int]:
    """Return the CPUs of a list."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        cpus += range(int(low), int(high or low) + 1)
    return cpus
