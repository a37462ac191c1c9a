"""Describe the local machine as a `Machine`: properties that the kernel reports, typical values for the others.

This suffices for plans and composition, which need cores and caches. The field `source` marks values that only a
measurement can give.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from slomo.host.cores import available_cores, line_in, llc_of, socket_of
from slomo.units import parse_quantity
from slomo.vocabulary.machine import Machine

NAME = "this-host"
_CPU = Path("/sys/devices/system/cpu")
#: Memory bandwidth larger than any machine's: an unknown bandwidth must not cap a composition.
_UNKNOWN_BANDWIDTH_GB_S = 10_000.0
_TYPICAL = {
    "frequency_ghz": 2.0,
    "l2_hit_ns": 5.0,
    "llc_hit_ns": 20.0,
    "dram_local_ns": 90.0,
    "dram_remote_ns": 140.0,
    "link_gb_s": _UNKNOWN_BANDWIDTH_GB_S,
}


def cpu_model() -> str:
    """Return the processor's name; empty if the kernel does not report it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def cache_mib(level: int, core: int | None = None) -> tuple[float, int] | None:
    """Return the size [MiB] and number of ways of a CPU's data cache; None if the kernel does not report them."""
    chosen = available_cores()[0] if core is None else core
    for folder in sorted((_CPU / f"cpu{chosen}" / "cache").glob("index*")):
        if line_in(folder / "level") == str(level) and line_in(folder / "type") in ("Data", "Unified"):
            size, ways = line_in(folder / "size"), line_in(folder / "ways_of_associativity")
            if size:
                mib = parse_quantity(size.replace("K", " KiB").replace("M", " MiB"), "MiB")
                return mib, int(ways) if ways.isdigit() else 16
    return None


def facts() -> Mapping[str, object]:
    """Return properties that identify this machine, without its host name or address."""
    caches = {f"l{level}_mib": cache[0] for level in (2, 3) if (cache := cache_mib(level))}
    return {
        "cpu": cpu_model(),
        "cores": len(available_cores()),
        "sockets": len({socket_of(core) for core in available_cores()}),
        **caches,
    }


def fingerprint() -> str:
    """Return sixteen hexadecimal digits that identify this machine."""
    return hashlib.sha256(repr(sorted(facts().items())).encode()).hexdigest()[:16]


def this_machine(name: str = NAME) -> Machine:
    """Return the description of this machine, under the name by which its measurements are stored."""
    cores = available_cores()
    sockets = len({socket_of(core) for core in cores})
    l2_mib, l2_ways = cache_mib(2) or (1.0, 16)
    llc_mib, llc_ways = cache_mib(3) or (l2_mib, l2_ways)
    domains = len({llc_of(core) for core in cores if socket_of(core) == socket_of(cores[0])})
    per_socket = len(cores) // sockets
    return Machine(
        name=name,
        description=cpu_model() or "this host",
        source="sysfs of this host for cores and caches; clock, latencies and bandwidth typical, not measured",
        sockets=sockets,
        cores_per_socket=per_socket,
        l2_kib=l2_mib * 1024.0,
        l2_ways=l2_ways,
        llc_mib=llc_mib,
        llc_ways=llc_ways,
        llc_policy="victim",
        llc_domains_per_socket=domains if per_socket % domains == 0 else 1,
        ddio_ways=0,
        memory_peak_gb_s=_UNKNOWN_BANDWIDTH_GB_S,
        memory_efficiency=0.85,
        nic_gbps=10.0,
        nic_socket=0,
        nic_ports=None,
        iio_gbps=None,
        ddio_policy="allocate",
        llc_insertion="recent",
        l2_prefetcher="none",
        threads_per_core=1,
        issue_width=4,
        **_TYPICAL,
    )
