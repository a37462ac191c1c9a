"""ChampSim as a testbed: traces of slomo's native network functions run on an independent, widely used simulator.

ChampSim (Gober et al., arXiv 2210.14324) simulates out-of-order cores, private caches, a shared LLC and DRAM; it is no
part of slomo. Both phases of SLOMO's protocol are simulated; the competitors' phase is run once for all targets. Each
tenant has its own address space, the binary fixes the page mapping, and equal runs take equally many cycles.

Counters are those of the window: the whole run's minus the shorter settling run's. ChampSim counts memory writes per
channel, so they are divided among cores in proportion to their L2 write-backs. Occupancy is derived from the traces: an
LRU cache holds the lines referenced during the last T, and T is chosen such that all tenants together fill the cache
(Fagin, JACM 1977; Che, JSAC 2002).
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.files.durable import write_durably
from slomo.host.places import cache_directory
from slomo.records.provenance import describe_environment, describe_run
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.testbed.champsim.binaries import EXPECTED, Binary, find_binaries
from slomo.testbed.champsim.execution import Execution, counted, execute, memory_lines, read_run
from slomo.testbed.champsim.traces import VERSION, Trace, TraceStore, TraceWindow
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload, fingerprint_of

MACHINE = "champsim-4"
_CYCLES_PER_S = 70_000.0  # core cycles simulated per second of one processor


def champsim_machine() -> Machine:
    """Return the machine described by the expected configuration."""
    return load_machine(str(Path(__file__).with_name(f"{MACHINE}.yaml")))


class ChampSimTestbed:
    """Runs co-locations of up to four network functions on ChampSim.

    `machine`: machine that the binaries simulate. `network_functions`: additional network functions, each with a
    `host:` section that runs slomo's own program. `binaries`: `place` of
    :func:`~slomo.testbed.champsim.binaries.find_binaries`. `variant`: differences from the expected configuration,
    field -> value. `folder`: where traces and results are kept; by default the user's cache.
    """

    name = "champsim"
    exclusive = False

    def __init__(
        self,
        machine: Machine | None = None,
        network_functions: Iterable[NetworkFunction] = (),
        *,
        binaries: str | Path | None = None,
        variant: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.machine = machine or champsim_machine()
        self.variant = dict(variant or {})
        self.binaries = find_binaries(binaries, self.variant)
        self.window = TraceWindow()
        self.folder = folder or cache_directory() / "champsim"
        self._own = {function.name: function for function in network_functions}
        self._fingerprints = {cores: binary.fingerprint for cores, binary in self.binaries.items()}
        lines = int(self.machine.llc_mib * 1024**2) // LINE_B
        self._traces = TraceStore(self.folder, self._binary(1), self.window, lines)

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Simulate the competitors alone, then all tenants."""
        self.check(colocation)
        everybody = self._phase(colocation.tenants) if colocation.target is not None else None
        alone = self._phase(colocation.competitors) if colocation.competitors else None
        stated = describe_run(colocation, seed, self.name, self._settings(), host=False)
        return RunRecord(colocation, seed, alone, everybody, stated)

    def check(self, colocation: Colocation) -> None:
        """Raise the errors of :meth:`run` for `colocation` without running it."""
        if colocation.machine != self.machine.name:
            raise InvalidValueError(
                f"{colocation.label}: this testbed simulates '{self.machine.name}'",
                hint="name that machine in the plan",
            )
        asked = {name: getattr(colocation, name) for name in ("isolation", "sockets", "memory_node", "port_gbps")}
        for name, value in asked.items():
            if value is not None:
                raise InvalidValueError(
                    f"{colocation.label}: {name} is {value!r}, needed None: ChampSim has no such setting",
                    hint="use testbed 'simulated' or 'host'",
                )
        self._binary(len(colocation.tenants), colocation.label)
        for workload in colocation.tenants:
            if workload.traffic.offered_mpps is not None or workload.configuration.get("rate_mpps"):
                raise InvalidValueError(
                    f"'{workload.key}' has a limited offered load, needed saturation: a trace has no clock",
                    hint="leave offered_mpps and rate_mpps out",
                )
            self._definition(workload.nf).configured(workload)

    def environment(self) -> Mapping[str, Any]:
        """Return the configuration, binaries, window and the fingerprint of every NF's definition."""
        return describe_environment(
            self.name,
            self._settings(),
            machines={self.machine.name: self.machine.to_dict()},
            host=False,
        )

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the expected wall time of one run on one core [s]."""
        cycles = self.window.settle_cycles * 2 + self.window.cycles
        phases = len(colocation.tenants) * (colocation.target is not None) + len(colocation.competitors)
        return 1.3 * phases * cycles / _CYCLES_PER_S

    def _settings(self) -> dict[str, Any]:
        configuration = {**EXPECTED, **self.variant}
        return {"champsim": configuration, "window": self.window.__dict__, "traces": VERSION}

    def _binary(self, cores: int, label: str = "traces alone") -> Binary:
        if cores not in self.binaries:
            built = ", ".join(str(number) for number in sorted(self.binaries))
            raise InvalidValueError(
                f"{label}: needs a ChampSim of {cores} cores, found binaries for {built}",
                hint="build one more with another num_cores, or ask for fewer tenants",
            )
        return self.binaries[cores]

    def _definition(self, nf: str) -> HostDefinition:
        return host_definition(self._own.get(nf, nf))

    def _phase(self, tenants: tuple[Workload, ...]) -> Phase:
        """Simulate some network functions together, or read the stored result."""
        made = [self._traces.trace(workload, self._definition(workload.nf)) for workload in tenants]
        seats = sorted(range(len(made)), key=lambda seat: tenants[seat].key)  # sorted: one run for all targets
        traces = [made[seat] for seat in seats]
        settling = self._execution(traces, "settling")
        whole = self._execution(traces, "whole")
        cores = windows(settling, whole)
        own, together = vectors(cores, traces, settling, whole, self.machine)
        samples = {
            seat: TenantSample(throughput_mpps(core, trace, self.machine), vector)
            for seat, core, trace, vector in zip(seats, cores, traces, own, strict=True)
        }
        duration_s = cores[0].cycles / (self.machine.frequency_ghz * 1e9)
        return Phase(tuple(samples[seat] for seat in sorted(samples)), together, None, duration_s)

    def _execution(self, traces: list[Trace], part: str) -> Execution:
        """Return the report of one ChampSim run; runs are stored under a key made from all their inputs."""
        files = [getattr(trace, part) for trace in traces]
        cores = len(files)
        stated = [self._fingerprints[cores], *(f"{file.parent.name}/{part}" for file in files)]
        path = self.folder / "runs" / f"{fingerprint_of(stated)}.json"
        if path.exists():
            return read_run(path, cores)
        with tempfile.TemporaryDirectory() as folder:
            result = execute(self._binary(cores), files, self._traces.lines, Path(folder))
            write_durably(path, json.dumps(result.to_dict()))
        return result


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
