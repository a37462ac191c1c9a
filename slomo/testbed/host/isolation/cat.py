"""Cache ways and memory bandwidth for groups of cores, through resctrl or pqos, with an exact way back.

Intel CAT and MBA as ResQ (NSDI'18, section 3) uses them: a contiguous way mask per NF. What was found is remembered
before anything is changed, and found again after `undo` (design law 9).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from slomo.errors import InvalidValueError, TestbedError
from slomo.host.marker import RunMark, new_mark
from slomo.host.pqos_state import PqosState, parse_pqos_state, run_pqos
from slomo.host.resctrl_tree import ResctrlTree, Snapshot
from slomo.host.tool import is_installed, package_hint
from slomo.testbed.host.isolation.resctrl_orphans import forget, give_back, remember, remove_orphaned_groups
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
    """Applies partitions, and takes them back."""

    name: str

    def available(self) -> tuple[bool, str]:
        """Return whether this host lets it, and why not."""
        ...

    def apply(self, partitions: Sequence[Partition]) -> "Applied":
        """Apply all partitions or none.

        Raises
        ------
        TestbedError
            If one is refused.
        """
        ...


class Applied:
    """Partitions in force; use it as a context, or call `undo`.

    Parameters
    ----------
    undo : ExitStack
        What takes each change back, in reverse order.
    """

    def __init__(self, undo: contextlib.ExitStack) -> None:
        self._undo = undo

    def __enter__(self) -> "Applied":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def undo(self) -> None:
        """Restore what was found; doing it again does nothing.

        Raises
        ------
        TestbedError
            If something cannot be restored; the rest is.
        """
        self._undo.close()


class ResctrlAllocator:
    """Allocates through the kernel's resctrl tree: one group per partition.

    Parameters
    ----------
    tree : ResctrlTree, optional
        Tree; the kernel's own if not given.

    Examples
    --------
    >>> ResctrlAllocator().name
    'resctrl'
    """

    name = "resctrl"

    def __init__(self, tree: ResctrlTree | None = None) -> None:
        self.tree = tree or ResctrlTree()

    def available(self) -> tuple[bool, str]:
        """Return whether the tree can allocate cache ways."""
        try:
            self.tree.require("cache allocation (info/L3)", self.tree.can_allocate)
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        ways, classes = self.tree.read("info/L3/cbm_mask"), self.tree.read("info/L3/num_closids")
        return True, f"ways {ways}, {classes} classes"

    def apply(self, partitions: Sequence[Partition]) -> Applied:
        """Make a group per partition; see `Allocator.apply`.

        Raises
        ------
        InvalidValueError
            For a mask the processor does not have, or cores in two partitions.
        """
        self.tree.require("cache allocation (info/L3)", self.tree.can_allocate)
        _require_disjoint(partitions)
        for partition in partitions:
            self._check(partition.isolation)
        remove_orphaned_groups(self.tree)
        before, mark = self.tree.snapshot(), new_mark()
        remember(mark, before)
        with contextlib.ExitStack() as stack:
            stack.callback(self._restore, before, mark)
            for number, partition in enumerate(partitions):
                self._make(f"{mark.text}-{number}", partition, stack)
            return Applied(stack.pop_all())
        raise AssertionError("unreachable")

    def _make(self, group: str, partition: Partition, stack: contextlib.ExitStack) -> None:
        self.tree.make_group(group)
        stack.callback(self.tree.remove_group, group)
        mask, percent = partition.isolation.llc_way_mask, partition.isolation.memory_bandwidth_percent
        if mask is not None:
            self._write_schemata(group, "L3", f"{mask:x}")
        if percent is not None:
            self._write_schemata(group, "MB", str(percent))
        self.tree.write(f"{group}/cpus_list", ",".join(map(str, partition.cores)))

    def _write_schemata(self, group: str, resource: str, value: str) -> None:
        settings = ";".join(f"{domain}={value}" for domain in self.tree.domains(resource))
        self.tree.require(f"control of {resource}", bool(settings))
        self.tree.write(f"{group}/schemata", f"{resource}:{settings}")

    def _check(self, isolation: Isolation) -> None:
        full = int(self.tree.read("info/L3/cbm_mask"), 16)
        fewest = self.tree.number("info/L3/min_cbm_bits") or 1
        mask = isolation.llc_way_mask
        if mask is not None and (mask & ~full or mask.bit_count() < fewest):
            raise InvalidValueError(
                f"way mask {mask:#x} does not fit this cache, needed {fewest} or more ways of {full:#x}",
                hint="name ways that the cache has",
            )

    def _restore(self, before: Snapshot, mark: RunMark) -> None:
        """Give every group its CPUs and masks back, and check that nothing differs."""
        give_back(self.tree, before)
        forget(mark)
        if self.tree.snapshot() != before:
            raise TestbedError(
                f"resctrl on '{self.tree.root}' is not as it was found",
                hint="somebody else changed it meanwhile; compare its groups by hand",
            )


class PqosAllocator:
    """Allocates through Intel's ``pqos``: classes of service that no core uses.

    Parameters
    ----------
    command : str
        Program.
    operating_system : bool
        Use resctrl (``-I``) instead of MSRs.

    Examples
    --------
    >>> PqosAllocator().name
    'pqos'
    """

    name = "pqos"

    def __init__(self, command: str = "pqos", *, operating_system: bool = False) -> None:
        self.command, self._interface = command, ("-I",) if operating_system else ()

    def available(self) -> tuple[bool, str]:
        """Ask pqos for its classes."""
        if not is_installed(self.command):
            return False, f"'{self.command}' is not installed ({package_hint('pqos')})"
        try:
            state = self._state()
        except TestbedError as problem:
            return False, problem.message
        return True, f"{len(state.classes)} classes"

    def apply(self, partitions: Sequence[Partition]) -> Applied:
        """Set up a class per partition and move its cores there; see `Allocator.apply`."""
        _require_disjoint(partitions)
        state = self._state()
        free = [number for number in state.classes if number and number not in state.class_of.values()]
        if len(free) < len(partitions):
            raise TestbedError(
                f"{len(partitions)} partitions need as many free classes of service, pqos has {len(free)}",
                hint="make fewer partitions, or reset other allocations: pqos -R",
            )
        unknown = sorted({core for p in partitions for core in p.cores} - set(state.class_of))
        if unknown:
            raise TestbedError(f"pqos knows no core {unknown[0]}", hint=f"cores: {sorted(state.class_of)}")
        with contextlib.ExitStack() as stack:
            for number, partition in zip(free, partitions, strict=False):
                self._make(number, partition, state, stack)
            return Applied(stack.pop_all())
        raise AssertionError("unreachable")

    def _make(self, number: int, partition: Partition, state: PqosState, stack: contextlib.ExitStack) -> None:
        mask, percent = partition.isolation.llc_way_mask, partition.isolation.memory_bandwidth_percent
        settings = ([f"llc:{number}={mask:#x}"] if mask is not None else []) + (
            [f"mba:{number}={percent}"] if percent is not None else []
        )
        if settings:
            stack.callback(self._run, "-e", ";".join(state.words(number)))
            self._run("-e", ";".join(settings))
        back = ";".join(f"core:{state.class_of[core]}={core}" for core in partition.cores)
        stack.callback(self._run, "-a", back)
        self._run("-a", f"core:{number}={','.join(map(str, partition.cores))}")

    def _state(self) -> PqosState:
        return parse_pqos_state(self._run("-s"))

    def _run(self, *options: str) -> str:
        return run_pqos([self.command, *self._interface, *options])


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
