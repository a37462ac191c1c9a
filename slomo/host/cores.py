"""Find out which CPUs this process may use and on which socket they are, and assign them to tenants.

SLOMO (SIGCOMM'20, section 4.1) runs the target and its competitors on cores of one socket, one instance per core.
"""

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.units import plural

_CPU = Path("/sys/devices/system/cpu")


def available_cores() -> tuple[int, ...]:
    """Return the CPUs on which this process may run, in ascending order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def socket_of(core: int) -> int:
    """Return the socket (physical package) of a CPU; 0 if the kernel does not report it."""
    text = line_in(_CPU / f"cpu{core}" / "topology" / "physical_package_id")
    return int(text) if text.isdigit() else 0


def llc_of(core: int) -> int:
    """Return the first CPU that has the same last-level cache as a CPU; 0 if the kernel does not report it."""
    return min(parse_cpu_list(line_in(_CPU / f"cpu{core}" / "cache" / "index3" / "shared_cpu_list")), default=0)


def node_of(core: int) -> int | None:
    """Return the NUMA node of a CPU; None if the kernel does not report it."""
    nodes = sorted(path.name for path in (_CPU / f"cpu{core}").glob("node[0-9]*"))
    return int(nodes[0][4:]) if nodes else None


def cores_by_node(nodes: Path = Path("/sys/devices/system/node")) -> dict[int, tuple[int, ...]]:
    """Return the memory nodes and their CPUs on which this process may run; none if the kernel lists no nodes."""
    available = available_cores()
    listed = {
        node: parse_cpu_list(line_in(nodes / f"node{node}" / "cpulist"))
        for node in parse_cpu_list(line_in(nodes / "has_memory"))
    }
    return {node: tuple(core for core in cores if core in available) for node, cores in listed.items()}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs in a list in the kernel's format, such as ``0-3,8``; InvalidValueError for another format."""
    cores: list[int] = []
    try:
        for part in filter(None, text.strip().split(",")):
            low, dash, high = part.partition("-")
            first, last = int(low), int(high if dash else low)
            if not 0 <= first <= last < 1 << 16:
                raise ValueError(part)
            cores.extend(range(first, last + 1))
    except ValueError:
        raise InvalidValueError(f"'{text}' is no list of CPUs", hint="write for instance 0-3,8") from None
    return tuple(cores)


def checked_cores(cores: Sequence[int] | None) -> tuple[int, ...]:
    """Return the CPUs to use: the given ones, checked; by default all available ones on the first CPU's socket."""
    available = available_cores()
    if cores is None:
        home = socket_of(available[0])
        return tuple(core for core in available if socket_of(core) == home)
    for core in cores:
        if core not in available:
            raise TestbedError(
                f"core {core} cannot be used: this process may run on cores {format_cpu_list(available)}",
                hint="name cores of that list, or widen the cpuset of this process",
            )
        if list(cores).count(core) > 1:
            raise TestbedError(
                f"cores overlap: core {core} is named {list(cores).count(core)} times in {list(cores)}",
                hint="every core serves one instance",
            )
    return tuple(cores)


def assign_cores(cores: Sequence[int], counts: Sequence[int], what: str) -> list[tuple[int, ...]]:
    """Give every tenant its own CPUs, as many as `counts` says; InvalidValueError, for `what`, if there are too few."""
    if sum(counts) > len(cores):
        raise InvalidValueError(
            f"{what} needs {plural(sum(counts), 'core')} for {plural(len(counts), 'tenant')}, "
            f"this host offers {len(cores)} ({format_cpu_list(cores)})",
            hint="use fewer competitors, or give the testbed more cores of this socket",
        )
    left = iter(cores)
    return [tuple(itertools.islice(left, count)) for count in counts]


def line_in(path: Path) -> str:
    """Return a file's stripped text; empty if it cannot be read, as where the kernel does not report a property."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def format_cpu_list(cores: Iterable[int]) -> str:
    """Write a list of CPUs in the kernel's format, such as ``0-3,8``.

    >>> format_cpu_list([3, 0, 1, 2, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][1] == core - 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
