"""Measure this host's memory: latency over size of data (pointer chase), usable cache size, read bandwidth.

A chase through one random cycle of cache lines (lmbench's lat_mem_rd) is the shipped competitor's `chain` pattern; its
`sequential` pattern streams.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import MeasurementError, TestbedError
from slomo.files.json_text import json_object
from slomo.host.cores import socket_of
from slomo.host.tool import run_tool
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.machine.cache_levels import find_levels

_SIZES_MIB = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)
_LARGEST_MIB = 512.0
_READS, _LINE_B = 1000, 64
_BUDGET_S, _ONE_S = 14.0, 0.4
_STREAM_S, _STREAM_MIB, _MOST_STREAMS = 0.8, 128, 8
_LEAST_SHARE = 0.1  # least share of its core's time for a valid measurement


@dataclass(frozen=True)
class MemoryCurve:
    """Measured latency over size of data, cache size and read bandwidth."""

    #: Footprint [MiB] and time per dependent access [ns].
    sizes_mib: tuple[float, ...]
    latencies_ns: tuple[float, ...]
    #: Latency of L2, LLC and memory [ns]; None for a level that the curve does not show.
    l2_ns: float | None
    llc_ns: float | None
    dram_ns: float | None
    #: Footprint up to which accesses hit a cache [MiB]: L2 plus LLC if they are exclusive, L2 alone if no shared cache
    #: is visible; None if the curve does not show it.
    llc_mib: float | None
    #: Read bandwidth of all cores of one socket together [GB/s].
    read_gb_s: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {
            "latency": [{"mib": s, "ns": round(t, 2)} for s, t in zip(self.sizes_mib, self.latencies_ns, strict=True)],
            "l2_ns": self.l2_ns,
            "llc_ns": self.llc_ns,
            "dram_ns": self.dram_ns,
            "effective_cache_mib": self.llc_mib,
            "read_gb_s": self.read_gb_s,
        }


def measure_memory(cores: Sequence[int], l2_mib: float, stated_llc_mib: float | None) -> MemoryCurve:
    """Measure latency over size of data on the first core, and read bandwidth of its socket's cores; at most 20 s.

    `l2_mib`: private cache of one core. `stated_llc_mib`: size of the last-level cache according to the kernel.
    """
    affordable_mib = _affordable_mib()
    largest = min(_LARGEST_MIB, 4.0 * (stated_llc_mib or 0.0))
    footprints_mib = [*_SIZES_MIB, *(size for size in (256.0, 512.0) if size <= largest)]
    sizes = [size for size in footprints_mib if size <= affordable_mib]
    binary = str(slomo_nf_binary())
    deadline = time.monotonic() + _BUDGET_S
    measured = [(s, _latency_ns(binary, cores[0], s)) for s in sizes if time.monotonic() < deadline]
    sizes_mib, latencies_ns = zip(*measured, strict=True)
    levels = find_levels(sizes_mib, latencies_ns, l2_mib, stated_llc_mib)
    home = [core for core in cores if socket_of(core) == socket_of(cores[0])][:_MOST_STREAMS]
    inside_l2 = [t for s, t in measured if 0.2 * l2_mib <= s <= 0.6 * l2_mib]
    return MemoryCurve(
        tuple(sizes_mib),
        tuple(latencies_ns),
        min(inside_l2, default=None),
        llc_ns=levels.llc_ns if levels else None,
        dram_ns=levels.dram_ns if levels else None,
        llc_mib=levels.cache_mib if levels else None,
        read_gb_s=_bandwidth_gb_s(binary, home, min(_STREAM_MIB, affordable_mib / len(home))),
    )


def _affordable_mib() -> float:
    """Return the memory a measurement may use [MiB]: a quarter of free memory, or of the cgroup's limit if less."""
    limits = [math.inf]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) / 1024.0)
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")) / 2**20)
    return max(8.0, min(limits) / 4.0)


def _latency_ns(binary: str, core: int, size_mib: float) -> float:
    lines = _run(binary, "chain", [core], size_mib, _ONE_S, _READS, burst=1)
    # CPU time, not wall time, since other processes may run on the core; the fastest interval was disturbed least
    times = [1e9 * line["cpu_share"] / line["accesses_per_s"] for line in lines if line["accesses_per_s"] > 0.0]
    return float(min(times))


def _bandwidth_gb_s(binary: str, cores: Sequence[int], size_mib: float) -> float:
    lines = _run(binary, "sequential", cores, size_mib, _STREAM_S, 4096, burst=32)
    best: dict[int, float] = {}
    for line in lines:
        rate, instance = float(line["accesses_per_s"]) / float(line["cpu_share"]), int(line["instance"])
        best[instance] = max(best.get(instance, 0.0), rate)
    return float(sum(best.values())) * _LINE_B / 1e9


def _run(
    binary: str, pattern: str, cores: Sequence[int], size_mib: float, duration_s: float, reads: int, *, burst: int
) -> list[dict[str, Any]]:
    words = [binary, "--pattern", pattern, "--data-size-mib", f"{size_mib:g}", "--reads-per-packet", str(reads)]
    words += ["--cores", ",".join(map(str, cores)), "--instances", str(len(cores)), "--duration-s", f"{duration_s:g}"]
    words += ["--interval-s", "0.1", "--packet-buffers", "64", "--burst", str(burst), "--die-with-parent"]
    finished = run_tool(words, 20.0)
    if finished.code != 0:
        raise TestbedError(
            f"the memory cannot be measured (exit code {finished.code}): {finished.last_words()}",
            hint="leave it out: slomo doctor --quick",
        )
    lines = filter(None, map(json_object, finished.stdout.splitlines()))
    intervals = [line for line in lines if line.get("event") == "interval" and _usable(line)]
    if not intervals:
        raise MeasurementError(
            f"the competitor on cores {list(cores)} hardly ran, so the memory could not be measured",
            hint="stop other tasks, or leave it out: slomo doctor --quick",
        )
    return intervals


def _usable(line: dict[str, Any]) -> bool:
    share, rate = line.get("cpu_share"), line.get("accesses_per_s")
    numbers = [value for value in (share, rate) if isinstance(value, int | float) and math.isfinite(value)]
    return len(numbers) == 2 and numbers[0] > _LEAST_SHARE and numbers[1] > 0.0
