"""Read and write the kernel's resctrl as settings ("knobs"): groups, their masks, cores and tasks.

The knobs are ``group:G``; ``schemata:G:L3:0``; ``core:3`` and ``task:42`` (their group); ``watch:A/mon_groups/M:3`` (a
core that a monitoring group counts); ``monitor:M`` (the class above a monitoring group, changed by renaming the
monitoring group, which keeps its counters); ``io_alloc``; ``io_alloc_cbm:0``; ``mode:G`` (shareable or exclusive). The
root group's name is empty.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from slomo.errors import TestbedError
from slomo.host.knobs import PRESENT, Knobs, VanishedError, Wish
from slomo.host.locks import MachineLock
from slomo.host.places import this_place
from slomo.host.resctrl_tree import ResctrlTree, joined, parse_schemata

#: Time for which making a group is retried [s], since a freed RMID is unavailable until its lines have left the cache.
_BUSY_S = 0.2
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ResctrlKnobs(Knobs):
    """Reads and writes the settings of one resctrl tree, by default the kernel's."""

    name = "resctrl"

    def __init__(self, tree: ResctrlTree | None = None) -> None:
        self.tree = tree or ResctrlTree()

    def place(self) -> str:
        """Return a text that identifies the resctrl tree, this machine and this boot (a reboot resets all settings)."""
        return this_place(str(self.tree.root))

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock of resctrl while a `with` block runs."""
        return MachineLock(f"resctrl on '{self.tree.root}'")

    def core_wishes(self, core: int, group: str, own: Sequence[str] = ()) -> list[Wish]:
        """Return the settings to write, with values, that move a core into a group.

        Cores that the same receipt has removed from monitoring groups (`own`) stay removed.
        """
        control = self.tree.control_group_of(core)
        watchers = [name for name in self.tree.monitoring_groups(control) if core in self.tree.cpus(name)]
        left = [f"watch:{watcher}:{core}" for watcher in watchers if control_of(watcher) != group]
        left += [knob for knob in own if knob.startswith("watch:") and knob.endswith(f":{core}")]
        return [*(Wish(knob, None) for knob in dict.fromkeys(left)), Wish(f"core:{core}", group)]

    def task_wishes(self, task: int, group: str, own: Sequence[str] = ()) -> list[Wish]:
        """Return the settings to write, with values, that move a task into a group."""
        there = self._group_of_task(task) or ""
        control, monitor = control_of(there), f"monitor:{there.rpartition('/')[2]}"
        watched = control != there
        if watched and f"task:{task}" not in own:
            alone = self.tree.tasks(there) == (task,) and not self.tree.cpus(there)
            if monitor in own or alone:
                return [Wish(monitor, group)]
        return [Wish(f"task:{task}", there if control == group else group)]

    def read(self, knob: str) -> str | None:
        """Return the present value of one setting in resctrl."""
        kind, _, rest = knob.partition(":")
        readers: dict[str, Callable[[str], str | None]] = {
            "group": lambda name: PRESENT if self.tree.has_group(name) else None,
            "schemata": self._read_schemata,
            "core": lambda core: self.tree.control_group_of(int(core)),
            "task": lambda task: self._group_of_task(int(task)),
            "watch": self._read_watch,
            "monitor": self._class_of_monitor,
            "mode": lambda name: self.tree.read(joined(name, "mode")) if self.tree.has_group(name) else None,
            "io_alloc": lambda _: self.tree.read(f"{self._cache()}/io_alloc"),
            "io_alloc_cbm": lambda domain: _domains(self.tree.read(f"{self._cache()}/io_alloc_cbm")).get(domain),
        }
        return readers[kind](rest)

    def write(self, knob: str, value: str | None) -> None:
        """Give one setting in resctrl a new value."""
        kind, _, rest = knob.partition(":")
        if kind == "group" and not _NAME.fullmatch(rest):
            raise TestbedError(f"'{rest}' is not a valid group name", hint="letters, digits, '_', '.' and '-'")
        writers: dict[str, Callable[[str, str | None], None]] = {
            "group": self._write_group,
            "schemata": self._write_schemata,
            "core": self._write_core,
            "task": self._write_task,
            "watch": self._write_watch,
            "monitor": self._write_monitor,
            "mode": self._write_mode,
            "io_alloc": lambda _, text: self.tree.write(f"{self._cache()}/io_alloc", "1" if text == "enabled" else "0"),
            "io_alloc_cbm": lambda domain, text: self.tree.write(f"{self._cache()}/io_alloc_cbm", f"{domain}={text}"),
        }
        writers[kind](rest, value)

    def knobs(self) -> Iterator[str]:
        """Return the names of all settings: those of every group, and the group of every core."""
        for group in self.tree.control_groups():
            if group:
                yield f"group:{group}"
            for resource, domains in parse_schemata(self.tree.read(joined(group, "schemata"))).items():
                yield from (f"schemata:{group}:{resource}:{domain}" for domain in domains)
        for group in self.tree.control_groups():
            yield from (f"core:{core}" for core in self.tree.cpus(group))

    def _write_group(self, name: str, value: str | None) -> None:
        if value is None:
            self.tree.remove_group(name)
            return
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self.tree.make_group(name)
            except TestbedError as problem:
                if "busy" not in problem.message.lower() or time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_S / 10)
            else:
                return

    def _read_schemata(self, rest: str) -> str | None:
        group, resource, domain = rest.rsplit(":", 2)
        if not self.tree.has_group(group):
            return None
        settings = parse_schemata(self.tree.read(joined(group, "schemata")))
        return settings.get(resource, {}).get(int(domain))

    def _write_schemata(self, rest: str, value: str | None) -> None:
        group, resource, domain = rest.rsplit(":", 2)
        self._require_group(group)
        if value is not None:
            self.tree.write(joined(group, "schemata"), f"{resource}:{domain}={value}")

    def _write_mode(self, name: str, value: str | None) -> None:
        self._require_group(name)
        self.tree.write(joined(name, "mode"), value or "shareable")

    def _write_core(self, core: str, group: str | None) -> None:
        target = group or ""
        self._require_group(target)
        cores = sorted({*self.tree.cpus(target), int(core)})
        self.tree.write(joined(target, "cpus_list"), ",".join(map(str, cores)))

    def _read_watch(self, rest: str) -> str | None:
        watcher, _, core = rest.rpartition(":")
        if not self.tree.exists(watcher):
            return None
        return PRESENT if int(core) in self.tree.cpus(watcher) else None

    def _write_watch(self, rest: str, value: str | None) -> None:
        watcher, _, core = rest.rpartition(":")
        if not self.tree.exists(watcher):
            raise VanishedError(f"monitoring group '{watcher}' no longer exists", hint="another program removed it")
        if value and int(core) not in self.tree.cpus(control_of(watcher)):
            raise VanishedError(f"core {core} is not in the class of '{watcher}'", hint="move it back")
        cores = {*self.tree.cpus(watcher), int(core)} if value else {*self.tree.cpus(watcher)} - {int(core)}
        self.tree.write(joined(watcher, "cpus_list"), ",".join(map(str, sorted(cores))))

    def _group_of_task(self, task: int) -> str | None:
        """Return a task's group (its monitoring group if it has one); None if it is in no group."""
        for control in reversed(self.tree.control_groups()):
            if task in self.tree.tasks(control):
                watchers = (name for name in self.tree.monitoring_groups(control) if task in self.tree.tasks(name))
                return next(watchers, control)
        return None

    def _write_task(self, task: str, group: str | None) -> None:
        target = group or ""
        control = control_of(target)
        self._require_group(control)
        try:
            self.tree.write(joined(control, "tasks"), task)
            if control != target:
                self.tree.write(joined(target, "tasks"), task)
        except TestbedError as problem:
            if "no task" in problem.message.lower() or "no such process" in problem.message.lower():
                raise VanishedError(f"task {task} no longer exists", hint="it ended; plan again") from None
            raise

    def _class_of_monitor(self, monitor: str) -> str | None:
        for control in self.tree.control_groups():
            if joined(control, f"mon_groups/{monitor}") in self.tree.monitoring_groups(control):
                return control
        return None

    def _write_monitor(self, monitor: str, control: str | None) -> None:
        now = self._class_of_monitor(monitor)
        if now is None:
            raise VanishedError(f"monitoring group '{monitor}' no longer exists", hint="another program removed it")
        self._require_group(control or "")
        self.tree.rename_group(joined(now, f"mon_groups/{monitor}"), joined(control or "", f"mon_groups/{monitor}"))

    def _require_group(self, group: str) -> None:
        if group and not self.tree.exists(group):
            raise VanishedError(
                f"resctrl group '{group}' no longer exists",
                hint="another program removed it: does a container engine own it?",
            )

    def _cache(self) -> str:
        return "info/L3CODE" if self.tree.exists("info/L3CODE") else "info/L3"


def control_of(group: str) -> str:
    """Return the group whose masks apply to a group: the group itself, or the one above a monitoring group.

    >>> control_of("a/mon_groups/m"), control_of("mon_groups/m"), control_of("a")
    ('a', '', 'a')
    """
    control, monitoring, _ = f"/{group}".partition("/mon_groups/")
    return control.lstrip("/") if monitoring else group


def _domains(text: str) -> dict[str, str]:
    return {part.partition("=")[0].strip(): part.partition("=")[2].strip() for part in text.split(";")}
