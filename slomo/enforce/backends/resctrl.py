"""Set cache ways and memory bandwidth through the kernel's resctrl tree, on a host where slomo owns the tree.

Tenants with equal settings share a class, since classes are few. The knobs are those of `slomo.host.resctrl_knobs`.
"""

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError, TestbedError
from slomo.host.knobs import PRESENT, Wish
from slomo.host.resctrl_facts import ResctrlFacts, read_facts
from slomo.host.resctrl_knobs import ResctrlKnobs
from slomo.host.resctrl_tree import KernelFiles, ResctrlTree, parse_schemata

PREFIX = "slomo-"
_Settings = tuple[tuple[str, str], ...]


class ResctrlBackend(ResctrlKnobs, Backend):
    """Sets cache ways, memory bandwidth and members of resctrl groups.

    `configuration`: folder in which container engines keep their configuration. `prefix`: begins the names of new
    groups; if it is empty, a tenant's group has the tenant's name (pqos recognises groups named COS1, COS2, ...).
    """

    divides_the_cache = True
    #: The root group is set too: its mask keeps processes without a class off other groups' ways.
    sets_the_rest = True

    def __init__(
        self, tree: ResctrlTree | None = None, configuration: Path = Path("/etc"), *, prefix: str = PREFIX
    ) -> None:
        super().__init__(tree)
        self._configuration, self._prefix, self.resctrl_tree = configuration, prefix, self.tree
        self.acts_on_processes = isinstance(self.tree.files, KernelFiles)  # not in an emulated tree

    def available(self) -> tuple[bool, str]:
        """Return whether a resctrl tree is mounted and belongs to no other program."""
        try:
            facts = read_facts(self.tree)
            require_ours(self._configuration)
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        return True, f"{facts.full_mask.bit_count()} ways, {facts.classes} classes, memory bandwidth in {facts.unit}"

    def foreign_masks(self) -> dict[str, int]:
        """Return the cache ways of groups that other programs made."""
        masks = {}
        for name in self.tree.control_groups():
            if name and not (self._prefix and name.startswith(self._prefix)):
                settings = parse_schemata(self.tree.read(f"{name}/schemata"))
                caches = (domains for resource, domains in settings.items() if resource.startswith("L3"))
                masks[name] = reduce(or_, (int(mask, 16) for domains in caches for mask in domains.values()), 0)
        return masks

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the settings to write, in order: groups, their settings and members, then the DDIO ways."""
        return self.revised_wishes(plan, ())

    def revised_wishes(self, plan: EnforcementPlan, own: Sequence[str]) -> tuple[Wish, ...]:
        """Return the values to write, and the groups to remove first if there are too few classes."""
        facts = read_facts(self.tree)
        classes = self._classes(plan, facts)
        there = set(self.tree.control_groups())
        fresh = [name for name in classes if name not in there]
        stale = [name for name in there if f"group:{name}" in own and name not in classes]
        wishes = [Wish(f"group:{name}", PRESENT) for name in classes]
        for name, (settings, _) in classes.items():
            wishes += [
                Wish(f"schemata:{name}:{resource}:{domain}", value)
                for resource, value in settings
                for domain in facts.resources[resource]
            ]
        for name, (_, members) in classes.items():
            for tenant in members:
                for core in () if tenant.process_ids else tenant.cores:
                    wishes += self.core_wishes(core, name, own)
                for task in tenant.process_ids:
                    wishes += self.task_wishes(task, name, own)
        wishes += self._device(plan, facts)
        rest, grows = self._rest(plan, facts)
        modes = self._modes(plan, classes)
        # the root group loses ways before a class gets them exclusively, and gets them back after the class is removed
        wishes = [*wishes, *modes, *rest] if grows else [*rest, *wishes, *modes]
        if not grows and not self._room(facts, fresh, len(stale)):
            return tuple(wishes)
        wished = {wish.knob for wish in wishes}
        return (*(Wish(knob, None, give_back=True) for knob in own if knob not in wished), *wishes)

    def _rest(self, plan: EnforcementPlan, facts: ResctrlFacts) -> tuple[list[Wish], bool]:
        """Return the settings to write for the root group's new mask, and whether the mask gains ways."""
        if plan.rest_way_mask is None:
            return [], False
        resources = [name for name in facts.resources if name.startswith("L3")]
        wishes = [
            Wish(f"schemata::{resource}:{domain}", f"{facts.checked(plan.rest_way_mask):x}")
            for resource in resources
            for domain in facts.resources[resource]
        ]
        now = [int(self.read(wish.knob) or "0", 16) for wish in wishes]
        return wishes, any(plan.rest_way_mask & ~mask for mask in now)

    def _modes(self, plan: EnforcementPlan, classes: dict[str, tuple[_Settings, list[TenantSetting]]]) -> list[Wish]:
        """Return the settings to write that make groups exclusive if no device fills their ways."""
        if plan.rest_way_mask is None or not self.tree.exists("mode"):
            return []
        devices = int(self.tree.read(f"{self._cache()}/shareable_bits") or "0", 16)
        return [
            Wish(f"mode:{name}", "exclusive")
            for name, (_, members) in classes.items()
            if all(member.exclusive for member in members)
            and not any((member.llc_way_mask or 0) & (devices | plan.rest_way_mask) for member in members)
        ]

    def _classes(self, plan: EnforcementPlan, facts: ResctrlFacts) -> dict[str, tuple[_Settings, list[TenantSetting]]]:
        by_settings: dict[_Settings, list[TenantSetting]] = {}
        for tenant in plan.tenants:
            settings = _settings(tenant, facts)
            if settings and not tenant.cores and not tenant.process_ids:
                raise RefusedSettingError(
                    f"tenant '{tenant.tenant}' has neither cores nor processes, and a class of service needs one",
                    hint="name cores or process_ids in the plan",
                )
            if settings:
                by_settings.setdefault(settings, []).append(tenant)
        classes: dict[str, tuple[_Settings, list[TenantSetting]]] = {}
        for settings, members in by_settings.items():
            name = self._prefix + class_name(members[0])  # the name stays while the first tenant stays
            classes[name if name not in classes else f"{name}-{len(classes)}"] = (settings, members)
        return classes

    def _room(self, facts: ResctrlFacts, fresh: list[str], stale: int) -> bool:
        """Return whether old groups must be removed before new groups are made."""
        there = len(self.tree.control_groups())
        if there + len(fresh) - stale > facts.classes:
            raise RefusedSettingError(
                f"{len(fresh)} new classes of service beside {there - stale} there are, but this machine has "
                f"{facts.classes}",
                hint="give tenants equal settings, so that they share a class",
            )
        used = len(self.tree.groups())
        if facts.monitors and used + len(fresh) - stale > facts.monitors:
            raise RefusedSettingError(
                f"{len(fresh)} new groups need as many RMIDs, {facts.monitors - used} of {facts.monitors} are left",
                hint="remove unused monitoring groups",
            )
        return there + len(fresh) > facts.classes or bool(facts.monitors and used + len(fresh) > facts.monitors)

    def _device(self, plan: EnforcementPlan, facts: ResctrlFacts) -> list[Wish]:
        if plan.device_way_mask is None:
            return []
        if not facts.io_alloc:
            raise RefusedSettingError(
                "ways for devices cannot be set: this kernel offers no io_alloc",
                hint="on Intel, set IIO_LLC_WAYS with the testbed's DDIO control instead",
            )
        mask = f"{facts.checked(plan.device_way_mask):x}"
        resource = "L3CODE" if facts.cdp else "L3"
        return [Wish("io_alloc", "enabled"), *(Wish(f"io_alloc_cbm:{d}", mask) for d in facts.resources[resource])]


def require_ours(configuration: Path = Path("/etc")) -> None:
    """Raise TestbedError, with the file, if containerd or CRI-O owns the tree, since these remove unknown groups."""
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
        settings["MB"] = facts.bandwidth_value(tenant.memory_bandwidth.value, tenant.memory_bandwidth.unit)
    if tenant.slow_memory_bandwidth is not None:
        settings["SMBA"] = facts.bandwidth_value(
            tenant.slow_memory_bandwidth.value, tenant.slow_memory_bandwidth.unit, "SMBA"
        )
    return tuple(settings.items())


def class_name(tenant: TenantSetting) -> str:
    """Return the name of the resctrl group for a tenant or a class of pods."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", tenant.tenant)[:60]
