"""ChampSim as a testbed: traces of slomo's native network functions run on an independent, widely used simulator.

ChampSim (Gober et al., arXiv 2210.14324) simulates out-of-order cores, private caches, a shared LLC and DRAM; it is no
part of slomo. Both phases of SLOMO's protocol are simulated; the competitors' phase is run once for all targets. Each
tenant has its own address space, the binary fixes the page mapping, and equal runs take equally many cycles.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.durable import write_durably
from slomo.host.places import cache_directory
from slomo.records.provenance import describe_environment, describe_run
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.testbed.champsim.binaries import EXPECTED, Binary, find_binaries
from slomo.testbed.champsim.execution import Execution, execute, read_run
from slomo.testbed.champsim.traces import VERSION, Trace, TraceStore, TraceWindow
from slomo.testbed.champsim.vectors import LINE_B, throughput_mpps, vectors, windows
from slomo.testbed.host.nf.definition import HostDefinition, host_definition
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload, canonical_json

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
        path = self.folder / "runs" / f"{hashlib.sha256(canonical_json(stated).encode()).hexdigest()[:16]}.json"
        if path.exists():
            return read_run(path, cores)
        with tempfile.TemporaryDirectory() as folder:
            result = execute(self._binary(cores), files, self._traces.lines, Path(folder))
            write_durably(path, json.dumps(result.to_dict()))
        return result
