"""Convert ChampSim's statistics to slomo's counters; counters that ChampSim lacks stay missing.

Counters are those of the window: the whole run's minus the shorter settling run's. ChampSim counts memory writes per
channel, so they are divided among cores in proportion to their L2 write-backs. Occupancy is derived from the traces: an
LRU cache holds the lines referenced during the last T, and T is chosen such that all tenants together fill the cache
(Fagin, JACM 1977; Che, JSAC 2002).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.testbed.champsim.execution import Execution, counted, memory_lines
from slomo.testbed.champsim.traces import Trace
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_DEMAND = ("LOAD", "RFO", "TRANSLATION")
_FETCHED = (*_DEMAND, "PREFETCH")
_KIB, _MIB = 1024.0, 1024.0**2
LINE_B = 64


@dataclass(frozen=True)
class TenantWindow:
    """Counts of one core over the measured window."""

    #: Records retired in the window, and length of the window [cycles].
    records: int
    cycles: int
    #: Records of the core's trace retired before the window.
    start: int
    #: Accesses: `l2`, `l2_misses`, `llc`, `llc_misses` and lines written back to the LLC, `written`.
    counts: dict[str, int]


def windows(settling: Execution, whole: Execution) -> list[TenantWindow]:
    """Return each core's counts in the measured window: those of a long run minus those of its shorter beginning."""
    result = []
    for core in range(len(whole.records)):
        first, last = _counts(settling, core), _counts(whole, core)
        result.append(
            TenantWindow(
                whole.records[core] - settling.records[core],
                whole.cycles - settling.cycles,
                whole.start[core] + settling.records[core],
                {name: last[name] - first[name] for name in last},
            )
        )
    return result


def _counts(run: Execution, core: int) -> dict[str, int]:
    l2 = f"cpu{core}_L2C"
    return {
        "l2": sum(counted(run, l2, core, _DEMAND, what) for what in ("hit", "miss")),
        "l2_misses": counted(run, l2, core, _DEMAND, "miss"),
        "llc": sum(counted(run, "LLC", core, _FETCHED, what) for what in ("hit", "miss")),
        "llc_misses": counted(run, "LLC", core, _FETCHED, "miss"),
        "written": sum(counted(run, "LLC", core, ("WRITE",), what) for what in ("hit", "miss")),
    }


def vectors(
    cores: Sequence[TenantWindow], traces: Sequence[Trace], settling: Execution, whole: Execution, machine: Machine
) -> tuple[list[MetricVector], MetricVector]:
    """Return the counters of each core and of the socket."""
    seconds = cores[0].cycles / (machine.frequency_ghz * 1e9)
    read_gb_s, write_gb_s = (
        (memory_lines(whole, queue) - memory_lines(settling, queue)) * LINE_B / seconds / 1e9 for queue in ("RQ", "WQ")
    )
    shares = [_share([core.counts[name] for core in cores]) for name in ("llc_misses", "written")]
    occupied = occupancy_lines(cores, traces, int(machine.llc_mib * _MIB) // LINE_B)
    own = [
        _vector(
            [core], [trace], read_gb_s * shares[0][i], write_gb_s * shares[1][i], occupied[i], seconds, 1, Scope.CORE
        )
        for i, (core, trace) in enumerate(zip(cores, traces, strict=True))
    ]
    together = _vector(
        cores, traces, read_gb_s, write_gb_s, sum(occupied), seconds, machine.cores_per_socket, Scope.SOCKET
    )
    return own, together


def _vector(
    cores: Sequence[TenantWindow],
    traces: Sequence[Trace],
    read_gb_s: float,
    write_gb_s: float,
    occupied: float,
    seconds: float,
    threads: int,
    scope: Scope,
) -> MetricVector:
    """Return the counters of some cores taken together."""
    total = {name: sum(core.counts[name] for core in cores) for name in cores[0].counts}
    instructions = sum(core.records * trace.instructions_per_record for core, trace in zip(cores, traces, strict=True))
    cycles = sum(core.cycles for core in cores)
    per_s = 1e-6 / seconds
    return MetricVector(
        {
            "IPC": instructions / cycles,
            "INST": instructions * per_s,
            "EXEC": instructions / cores[0].cycles / threads,
            "FREQ": len(cores) / threads,
            "AFREQ": 1.0,
            "L3MISS": total["llc_misses"] * per_s,
            "L3MPI": total["llc_misses"] / instructions,
            "L3HIT": 1.0 - total["llc_misses"] / total["llc"] if total["llc"] else None,
            "L3OCC": occupied * LINE_B / _KIB,
            "L2MISS": total["llc"] * per_s,
            "L2MPI": total["llc"] / instructions,
            "L2HIT": 1.0 - total["l2_misses"] / total["l2"] if total["l2"] else None,
            "LMB": (read_gb_s + write_gb_s) * 1e9 / _MIB,
            "RMB": 0.0,
            "READ": read_gb_s,
            "WRITE": write_gb_s,
        },
        scope=scope,
    )


def _share(amounts: Sequence[int]) -> list[float]:
    total = sum(amounts)
    return [amount / total if total else 1.0 / len(amounts) for amount in amounts]


def occupancy_lines(cores: Sequence[TenantWindow], traces: Sequence[Trace], lines: int) -> list[float]:
    """Estimate how many lines of the shared cache each tenant occupies.

    It is a tenant's working set over a time span, chosen so that all working sets together fill the cache of `lines`
    lines.
    """

    def held(cycles: float) -> list[float]:
        return [
            float(np.interp(cycles * core.records / core.cycles, trace.working_set[:, 0], trace.working_set[:, 1]))
            for core, trace in zip(cores, traces, strict=True)
        ]

    longest = max(
        float(trace.working_set[-1, 0]) * core.cycles / max(core.records, 1)
        for core, trace in zip(cores, traces, strict=True)
    )
    low, high = 0.0, longest
    if sum(held(high)) <= lines:
        return held(high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sum(held(middle)) <= lines else (low, middle)
    return held(low)


def throughput_mpps(core: TenantWindow, trace: Trace, machine: Machine) -> float:
    """Return a tenant's throughput [Mpps]: its solo throughput times its relative speed in this run.

    The relative speed is the number of cycles of a part of the trace in the solo run, divided by its cycles in this
    run: the cost of a packet varies along a trace.
    """
    alone = trace.alone_records_per_cycle * trace.packets_per_record * machine.frequency_ghz * 1e3
    return alone * trace.cycles_alone(core.start, core.start + core.records) / core.cycles
