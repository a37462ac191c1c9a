"""Cache ways and memory bandwidth for groups of cores, through resctrl or pqos, with exact undo.

Intel CAT and MBA are used as in ResQ (NSDI'18, section 3): a contiguous way mask per NF. Each change is a receipt in
the machine's journal, from which it is undone (design law 9); the next campaign undoes those of killed campaigns.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from slomo.errors import InvalidValueError, SlomoError, TestbedError
from slomo.host.journal import Journal, Receipt, open_receipts, receipts_directory
from slomo.host.knobs import PRESENT, Knobs, Wish
from slomo.host.ledger import Undone, set_knobs, undo
from slomo.host.marker import RunMark, new_mark
from slomo.host.pqos import PqosKnobs
from slomo.host.resctrl_facts import ResctrlFacts, read_facts
from slomo.host.resctrl_knobs import ResctrlKnobs
from slomo.host.resctrl_tree import ResctrlTree
from slomo.vocabulary.colocation import Isolation


@dataclass(frozen=True)
class Partition:
    """Cores that share one allocation.

    Attributes
    ----------
    cores : tuple of int
        CPUs.
    isolation : Isolation
        Way mask and bandwidth; None in it leaves that unrestricted.
    """

    cores: tuple[int, ...]
    isolation: Isolation

    def __post_init__(self) -> None:
        if not self.cores or len(set(self.cores)) != len(self.cores):
            raise InvalidValueError(f"a partition of cores {list(self.cores)}, needed one or more, each once")


class Allocator(Protocol):
    """Applies and undoes partitions."""

    name: str

    def available(self) -> tuple[bool, str]:
        """Return whether it works on this host, and why not."""
        ...

    def apply(self, partitions: Sequence[Partition]) -> "Applied":
        """Apply all partitions or none; TestbedError if one is refused."""
        ...


class Applied:
    """Partitions in force; a context manager."""

    def __init__(self, receipt: Receipt, knobs: Knobs) -> None:
        self._receipt, self._knobs = receipt, knobs

    def __enter__(self) -> "Applied":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def undo(self) -> Undone:
        """Restore the original values, except those changed by others since; a second call does nothing.

        Raises TestbedError if something cannot be restored, after restoring the rest.
        """
        return undo(self._receipt, self._knobs)


def _applied(knobs: Knobs, wishes: Sequence[Wish]) -> Applied:
    with knobs.lock():
        receipt = Journal(receipts_directory()).begin(knobs.name, knobs.place(), {"campaign": "partitions"})
        set_knobs(receipt, wishes, knobs)
        receipt.journal.mark(receipt, "applied")
    return Applied(receipt, knobs)


class ResctrlAllocator:
    """Allocates through the kernel's resctrl tree: one group per partition.

    `tree`: tree; the kernel's own if not given.

    Examples
    --------
    >>> ResctrlAllocator().name
    'resctrl'
    """

    name = "resctrl"

    def __init__(self, tree: ResctrlTree | None = None) -> None:
        self.tree = tree or ResctrlTree()
        self._knobs = ResctrlKnobs(self.tree)

    def available(self) -> tuple[bool, str]:
        """Return whether the tree can allocate cache ways."""
        try:
            self.tree.require("cache allocation (info/L3)", self.tree.can_allocate)
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        ways, classes = self.tree.read("info/L3/cbm_mask"), self.tree.read("info/L3/num_closids")
        return True, f"ways {ways}, {classes} classes"

    def apply(self, partitions: Sequence[Partition]) -> Applied:
        """Make a group per partition; see `Allocator.apply`."""
        facts = read_facts(self.tree)
        _require_disjoint(partitions)
        settings = [self._settings(partition.isolation, facts) for partition in partitions]
        remove_orphaned_groups(self.tree)
        mark, wishes = new_mark().text, []
        for number, (partition, own) in enumerate(zip(partitions, settings, strict=True)):
            group = f"{mark}-{number}"
            wishes += [Wish(f"group:{group}", PRESENT)]
            wishes += [Wish(f"schemata:{group}:{r}:{d}", text) for r, text in own.items() for d in facts.resources[r]]
            for core in partition.cores:
                wishes += self._knobs.core_wishes(core, group)
        return _applied(self._knobs, sorted(wishes, key=lambda wish: wish.value != PRESENT))

    def _settings(self, isolation: Isolation, facts: ResctrlFacts) -> dict[str, str]:
        settings = facts.cache_lines(isolation.llc_way_mask, None)
        if isolation.memory_bandwidth_percent is not None:
            settings["MB"] = facts.bandwidth_value(isolation.memory_bandwidth_percent, "percent")
        return settings


class PqosAllocator:
    """Allocates through Intel's ``pqos``, with unused classes of service.

    `operating_system`: use resctrl (``-I``) instead of MSRs.

    Examples
    --------
    >>> PqosAllocator().name
    'pqos'
    """

    name = "pqos"

    def __init__(self, command: str = "pqos", *, operating_system: bool = False) -> None:
        self._knobs = PqosKnobs((command, *(("-I",) if operating_system else ())))

    def available(self) -> tuple[bool, str]:
        """Ask pqos for its classes."""
        return self._knobs.available()

    def apply(self, partitions: Sequence[Partition]) -> Applied:
        """Configure a class per partition and move its cores there; see `Allocator.apply`."""
        _require_disjoint(partitions)
        remove_orphaned_groups()
        state = self._knobs.state()
        free = state.free()
        if len(free) < len(partitions):
            raise TestbedError(
                f"{len(partitions)} partitions need as many free classes of service, pqos has {len(free)}",
                hint="make fewer partitions, or reset other allocations: pqos -R",
            )
        unknown = sorted({core for p in partitions for core in p.cores} - set(state.class_of))
        if unknown:
            raise TestbedError(f"pqos knows no core {unknown[0]}", hint=f"cores: {sorted(state.class_of)}")
        wishes = []
        for number, partition in zip(free, partitions, strict=False):
            mask, percent = partition.isolation.llc_way_mask, partition.isolation.memory_bandwidth_percent
            values = {"llc": None if mask is None else f"{mask:#x}", "mba": None if percent is None else str(percent)}
            for knob in state.classes[number]:
                value = values.get(knob.partition("@")[0])
                wishes += [] if value is None else [Wish(f"{knob}:{number}", value)]
            wishes += [Wish(f"core:{core}", str(number)) for core in partition.cores]
        return _applied(self._knobs, wishes)


def remove_orphaned_groups(tree: ResctrlTree | None = None) -> tuple[str, ...]:
    """Undo killed campaigns' changes of cache classes, and remove their monitoring groups; return the names.

    Examples
    --------
    >>> from pathlib import Path
    >>> remove_orphaned_groups(ResctrlTree(Path("/no/such/place")))
    ()
    """
    resctrl = ResctrlKnobs(tree)
    drivers: dict[str, Knobs] = {"resctrl": resctrl, "pqos": PqosKnobs()}
    taken_back = []
    for receipt in reversed(open_receipts()):
        with contextlib.suppress(SlomoError):  # one that is not understood is named by `slomo enforce undo --all`
            head = receipt.head
            knobs = drivers.get(str(head["backend"]))
            ours = knobs is not None and "campaign" in head["document"] and head["place"] == knobs.place()
            if ours and knobs is not None and not receipt.owner_is_alive:
                undo(receipt, knobs)
                taken_back.append(receipt.identifier)
    groups = resctrl.tree.groups() if resctrl.tree.mounted else ()
    marks = {group: RunMark.parse(group.rpartition("/")[2]) for group in groups}
    orphans = [group for group, mark in marks.items() if mark is not None and not mark.owner_is_alive()]
    for group in sorted(orphans, key=len, reverse=True):  # monitoring groups before those that hold them
        resctrl.tree.remove_group(group)
    return (*taken_back, *orphans)


def _require_disjoint(partitions: Sequence[Partition]) -> None:
    cores = [core for partition in partitions for core in partition.cores]
    twice = sorted({core for core in cores if cores.count(core) > 1})
    if twice:
        raise InvalidValueError(f"core {twice[0]} is in two partitions", hint="every core belongs to one")


def choose_allocator() -> Allocator:
    """Return the first allocator that works here: resctrl, then pqos.

    Raises
    ------
    TestbedError
        If there is none, with every reason.
    """
    allocators: tuple[Allocator, ...] = (ResctrlAllocator(), PqosAllocator())
    reasons = []
    for allocator in allocators:
        usable, why = allocator.available()
        if usable:
            return allocator
        reasons.append(f"{allocator.name}: {why}")
    raise TestbedError(
        f"this host cannot partition its last-level cache: {'; '.join(reasons)}",
        hint="see `slomo doctor`, or leave the isolation out",
    )
