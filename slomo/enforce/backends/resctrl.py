"""Cache ways and memory bandwidth through the kernel's resctrl tree, on a host whose tree is ours.

Tenants with equal settings share a class, as classes are few. Knobs: ``group:G``, ``schemata:G:L3:0``, ``core:3`` and
``task:42`` (the group it is in), ``watch:A/mon_groups/M:3`` (a core that a monitoring group counts), ``monitor:M`` (the
class a monitoring group is under: renaming it changes class live), ``io_alloc``, ``io_alloc_cbm:0``.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from slomo.enforce.backends.resctrl_facts import ResctrlFacts, read_facts, unlimited
from slomo.enforce.change import PRESENT, VanishedError, Wish
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError
from slomo.host.locks import MachineLock
from slomo.host.places import this_place
from slomo.host.resctrl_tree import ResctrlTree, parse_schemata

PREFIX = "slomo-"
#: A freed RMID lingers until its lines have left the cache; making a group is tried again for so long [s].
_BUSY_S = 0.2
_Settings = tuple[tuple[str, str], ...]


class ResctrlBackend:
    """Sets masks, memory bandwidth and members of classes.

    Parameters
    ----------
    tree : ResctrlTree, optional
        Tree; the kernel's own if not given.
    configuration : path
        Where container engines keep their configuration.
    prefix : str
        Of the groups made; groups with it that no tenant needs are removed. Empty: a tenant's group has the tenant's
        name, and none is removed (pqos sees groups named COS1, COS2, ...).

    Examples
    --------
    >>> ResctrlBackend().name
    'resctrl'
    """

    name = "resctrl"

    def __init__(
        self, tree: ResctrlTree | None = None, configuration: Path = Path("/etc"), *, prefix: str = PREFIX
    ) -> None:
        self.tree = tree or ResctrlTree()
        self._configuration, self._prefix = configuration, prefix

    def available(self) -> tuple[bool, str]:
        """Return whether a tree is mounted that nobody else owns."""
        try:
            facts = read_facts(self.tree)
            require_ours(self._configuration)
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        return True, f"{facts.full_mask.bit_count()} ways, {facts.classes} classes, memory bandwidth in {facts.unit}"

    def place(self) -> str:
        """Return the tree on this boot: its settings end with it."""
        return this_place(str(self.tree.root))

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock of the tree."""
        return MachineLock(f"resctrl on '{self.tree.root}'")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return groups, then their settings, then who is in them, then devices' ways.

        Raises
        ------
        TestbedError
            For what this tree does not offer, or more classes than it has.
        """
        facts = read_facts(self.tree)
        classes = self._classes(plan, facts)
        there = set(self.tree.control_groups())
        fresh = [name for name in classes if name not in there]
        stale = self._stale(classes, facts)
        short = self._count(facts, fresh, sum(wish.value is None for wish in stale))
        wishes = [*(stale if short else ()), *(Wish(f"group:{name}", PRESENT) for name in fresh)]
        for name, (settings, _) in classes.items():
            wishes += [
                Wish(f"schemata:{name}:{resource}:{domain}", value)
                for resource, value in settings
                for domain in facts.resources[resource]
            ]
        for name, (_, members) in classes.items():
            for tenant in members:
                wishes += self._members(name, tenant)
        moved = {wish.knob for wish in wishes}
        left = [] if short else [wish for wish in stale if wish.knob not in moved]
        return (*wishes, *left, *self._device(plan, facts))

    def _classes(self, plan: EnforcementPlan, facts: ResctrlFacts) -> dict[str, tuple[_Settings, list[TenantSetting]]]:
        by_settings: dict[_Settings, list[TenantSetting]] = {}
        for tenant in plan.tenants:
            settings = _settings(tenant, facts)
            if settings:
                by_settings.setdefault(settings, []).append(tenant)
        classes: dict[str, tuple[_Settings, list[TenantSetting]]] = {}
        for settings, members in by_settings.items():
            name = self._prefix + _class_name(members)
            classes[name if name not in classes else f"{name}-{len(classes)}"] = (settings, members)
        return classes

    def _count(self, facts: ResctrlFacts, fresh: list[str], stale: int) -> bool:
        """Return whether stale groups must go first to make room; raise where there is none."""
        there = len(self.tree.control_groups())
        if there + len(fresh) - stale > facts.classes:
            raise TestbedError(
                f"{len(fresh)} new classes of service beside {there - stale} there are, but this machine has "
                f"{facts.classes}",
                hint="give tenants equal settings, so that they share a class",
            )
        used = len(self.tree.groups())
        if facts.monitors and used + len(fresh) - stale > facts.monitors:
            raise TestbedError(
                f"{len(fresh)} new groups need as many RMIDs, {facts.monitors - used} of {facts.monitors} are left",
                hint="remove monitoring groups that nobody reads",
            )
        return there + len(fresh) > facts.classes

    def _members(self, group: str, tenant: TenantSetting) -> list[Wish]:
        wishes: list[Wish] = []
        for core in () if tenant.process_ids else tenant.cores:
            watchers = [name for name in self._watchers(core) if control_of(name) != group]
            wishes += [Wish(f"watch:{watcher}:{core}", None) for watcher in watchers]
            wishes.append(Wish(f"core:{core}", group))
        for task in tenant.process_ids:
            there = self._group_of_task(task) or ""
            if control_of(there) != there and self._alone(there, task):
                wishes.append(Wish(f"monitor:{there.rpartition('/')[2]}", group))
            elif control_of(there) != group:
                wishes.append(Wish(f"task:{task}", group))
        return wishes

    def _stale(self, kept: Iterable[str], facts: ResctrlFacts) -> list[Wish]:
        """Return what removes the groups that earlier plans made and this one does not need."""
        wishes: list[Wish] = []
        defaults = parse_schemata(self.tree.read("schemata"))
        for name in self.tree.control_groups():
            if self._prefix and name.startswith(self._prefix) and name not in kept:
                wishes += [Wish(f"core:{core}", "") for core in self.tree.cpus(name)]
                watched = {watcher: self.tree.tasks(watcher) for watcher in self.tree.monitoring_groups(name)}
                wishes += [Wish(f"monitor:{watcher.rpartition('/')[2]}", "") for watcher in watched]
                counted = {task for tasks in watched.values() for task in tasks}
                wishes += [Wish(f"task:{task}", "") for task in self.tree.tasks(name) if task not in counted]
                # Emptied before it is removed, so that undoing makes it and then fills it again.
                wishes += [
                    Wish(f"schemata:{name}:{resource}:{domain}", self._unrestricted(facts, resource, text))
                    for resource, domains in defaults.items()
                    for domain, text in domains.items()
                ]
                wishes.append(Wish(f"group:{name}", None))
        return wishes

    def _unrestricted(self, facts: ResctrlFacts, resource: str, text: str) -> str:
        return f"{facts.full_mask:x}" if resource.startswith("L3") else unlimited(facts.unit, text)

    def _device(self, plan: EnforcementPlan, facts: ResctrlFacts) -> list[Wish]:
        if plan.device_way_mask is None:
            return []
        if not facts.io_alloc:
            raise TestbedError(
                "ways for devices cannot be set: this kernel offers no io_alloc",
                hint="on Intel, set IIO_LLC_WAYS with the testbed's DDIO control instead",
            )
        mask = f"{facts.checked(plan.device_way_mask):x}"
        resource = "L3CODE" if facts.cdp else "L3"
        return [Wish("io_alloc", "enabled"), *(Wish(f"io_alloc_cbm:{d}", mask) for d in facts.resources[resource])]

    # -- one knob
    def read(self, knob: str) -> str | None:
        """Return what a knob holds.

        Raises
        ------
        TestbedError
            For what cannot be read.
        """
        kind, _, rest = knob.partition(":")
        readers: dict[str, Callable[[str], str | None]] = {
            "group": lambda name: PRESENT if self.tree.has_group(name) else None,
            "schemata": self._read_schemata,
            "core": lambda core: self.tree.control_group_of(int(core)),
            "task": self._read_task,
            "watch": self._read_watch,
            "monitor": self._class_of_monitor,
            "io_alloc": lambda _: self.tree.read(f"{self._cache()}/io_alloc"),
            "io_alloc_cbm": lambda domain: _domains(self.tree.read(f"{self._cache()}/io_alloc_cbm")).get(domain),
        }
        return readers[kind](rest)

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob.

        Raises
        ------
        TestbedError
            With the kernel's reason; VanishedError where its group or task is gone.
        """
        kind, _, rest = knob.partition(":")
        writers: dict[str, Callable[[str, str | None], None]] = {
            "group": self._write_group,
            "schemata": self._write_schemata,
            "core": self._write_core,
            "task": self._write_task,
            "watch": self._write_watch,
            "monitor": self._write_monitor,
            "io_alloc": lambda _, text: self.tree.write(f"{self._cache()}/io_alloc", "1" if text == "enabled" else "0"),
            "io_alloc_cbm": lambda domain, text: self.tree.write(f"{self._cache()}/io_alloc_cbm", f"{domain}={text}"),
        }
        writers[kind](rest, value)

    def knobs(self) -> Iterator[str]:
        """Return every group's settings and every core."""
        for group in self.tree.control_groups():
            if group:
                yield f"group:{group}"
            for resource, domains in parse_schemata(self.tree.read(_file(group, "schemata"))).items():
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
        settings = parse_schemata(self.tree.read(_file(group, "schemata")))
        return settings.get(resource, {}).get(int(domain))

    def _write_schemata(self, rest: str, value: str | None) -> None:
        group, resource, domain = rest.rsplit(":", 2)
        self._require_group(group)
        if value is not None:
            self.tree.write(_file(group, "schemata"), f"{resource}:{domain}={value}")

    def _write_core(self, core: str, group: str | None) -> None:
        target = group or ""
        self._require_group(target)
        cores = sorted({*self.tree.cpus(target), int(core)})
        self.tree.write(_file(target, "cpus_list"), ",".join(map(str, cores)))

    def _read_watch(self, rest: str) -> str | None:
        watcher, _, core = rest.rpartition(":")
        if not self.tree.exists(watcher):
            return None
        return PRESENT if int(core) in self.tree.cpus(watcher) else None

    def _write_watch(self, rest: str, value: str | None) -> None:
        watcher, _, core = rest.rpartition(":")
        if not self.tree.exists(watcher):
            raise VanishedError(f"monitoring group '{watcher}' is there no more", hint="somebody removed it")
        cores = {*self.tree.cpus(watcher), int(core)} if value else {*self.tree.cpus(watcher)} - {int(core)}
        self.tree.write(_file(watcher, "cpus_list"), ",".join(map(str, sorted(cores))))

    def _read_task(self, task: str) -> str | None:
        return self._group_of_task(int(task))

    def _group_of_task(self, task: int) -> str | None:
        """Return the group a task is in, the monitoring group where it is in one; None where it is in none."""
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
            self.tree.write(_file(control, "tasks"), task)
            if control != target:
                self.tree.write(_file(target, "tasks"), task)
        except TestbedError as problem:
            if "no task" in problem.message.lower() or "no such process" in problem.message.lower():
                raise VanishedError(f"task {task} is there no more", hint="it ended; plan again") from None
            raise

    def _class_of_monitor(self, monitor: str) -> str | None:
        for control in self.tree.control_groups():
            if _file(control, f"mon_groups/{monitor}") in self.tree.monitoring_groups(control):
                return control
        return None

    def _write_monitor(self, monitor: str, control: str | None) -> None:
        now = self._class_of_monitor(monitor)
        if now is None:
            raise VanishedError(f"monitoring group '{monitor}' is there no more", hint="somebody removed it")
        self._require_group(control or "")
        self.tree.rename_group(_file(now, f"mon_groups/{monitor}"), _file(control or "", f"mon_groups/{monitor}"))

    def _require_group(self, group: str) -> None:
        if group and not self.tree.exists(group):
            raise VanishedError(
                f"resctrl group '{group}' is there no more", hint="somebody removed it: does a container engine own it?"
            )

    def _watchers(self, core: int) -> list[str]:
        control = self.tree.control_group_of(core)
        return [name for name in self.tree.monitoring_groups(control) if core in self.tree.cpus(name)]

    def _alone(self, watcher: str, task: int) -> bool:
        return self.tree.tasks(watcher) == (task,) and not self.tree.cpus(watcher)

    def _cache(self) -> str:
        return "info/L3CODE" if self.tree.exists("info/L3CODE") else "info/L3"


def require_ours(configuration: Path = Path("/etc")) -> None:
    """Raise where containerd or CRI-O owns the tree: it removes groups that it does not know.

    Raises
    ------
    TestbedError
        Naming the configuration file.
    """
    places = [configuration / "containerd" / "config.toml", configuration / "crio" / "crio.conf"]
    places += sorted((configuration / "crio" / "crio.conf.d").glob("*.conf"))
    for path in places:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        owner = re.search(r"^\s*rdt_config_file\s*=\s*[\"']([^\"']+)[\"']", text, re.MULTILINE)
        if owner:
            raise TestbedError(
                f"resctrl belongs to a container engine: '{path}' sets rdt_config_file = '{owner[1]}'",
                hint="use the backend rdt-class, which writes classes and pod annotations instead of groups",
            )


def _settings(tenant: TenantSetting, facts: ResctrlFacts) -> _Settings:
    settings = facts.cache_lines(tenant.llc_way_mask, tenant.code_way_mask)
    if tenant.memory_bandwidth is not None:
        settings["MB"] = facts.bandwidth_value(tenant.memory_bandwidth)
    if tenant.slow_memory_bandwidth is not None:
        settings["SMBA"] = facts.bandwidth_value(tenant.slow_memory_bandwidth, "SMBA")
    return tuple(settings.items())


def _class_name(members: list[TenantSetting]) -> str:
    """Return a group's name that stays the same while the first of its tenants does."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", members[0].tenant)[:60]


def control_of(group: str) -> str:
    """Return the group with masks that a group is, or is below.

    Examples
    --------
    >>> control_of("a/mon_groups/m"), control_of("mon_groups/m"), control_of("a")
    ('a', '', 'a')
    """
    control, monitoring, _ = f"/{group}".partition("/mon_groups/")
    return control.lstrip("/") if monitoring else group


def _file(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _domains(text: str) -> dict[str, str]:
    return {part.partition("=")[0].strip(): part.partition("=")[2].strip() for part in text.split(";")}
