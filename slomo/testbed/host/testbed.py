"""The real testbed: this machine, with network functions as processes on cores of their own.

SLOMO (SIGCOMM'20, section 4.1): the competitors run alone while the socket's vector is measured; then the target joins
them and its throughput is measured. On a machine without counters, reporter probes run on the target's core in the
first phase.
"""

import contextlib
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from slomo.enforce.backends.registry import first_that_works
from slomo.enforce.change import Backend
from slomo.errors import InvalidValueError, TestbedError
from slomo.host.cores import assign_cores, checked_cores
from slomo.host.locks import MachineLock, default_lock_path
from slomo.host.orphans import remove_orphans
from slomo.records.provenance import describe_environment, describe_run
from slomo.records.run import Phase, RunRecord
from slomo.testbed.host.counters.base import CounterReader
from slomo.testbed.host.counters.registry import PROBE, choose_reader
from slomo.testbed.host.experiment import Bench, Experiment
from slomo.testbed.host.isolation import BACKENDS, isolated, undo_killed_campaigns
from slomo.testbed.host.machine.this_machine import NAME, facts, this_machine
from slomo.testbed.host.nf.command import require_program
from slomo.testbed.host.nf.definition import HostDefinition, host_definition, runnable_names
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.source import ProbeSource
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.testbed.host.traffic.pcap import require_frames
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction

_START_S = 0.5  # time to start one NF, from runs of the shipped NFs
_STEADY_S = 0.6
_REPORTERS = 4


class HostTools(TypedDict, total=False):
    """Calibration, lock, traffic generator and isolation backend of a host testbed."""

    #: Calibration of the reporters (probe programs); by default made once per machine and then loaded.
    calibration: Calibration | None
    #: Lock that excludes a second campaign on this host.
    lock_path: Path | None
    #: Traffic generator for NFs whose throughput a generator measures (`throughput: {source: generator}`).
    generator: TrafficGenerator | None
    #: Backend that divides the cache if a co-location asks for it; by default the first one that works on this host.
    backend: Backend | None


class HostTestbed:
    """Runs network functions together on this machine and measures them.

    Parameters
    ----------
    machine : str or Machine, optional
        Machine name under which the measurements are stored; `this-host` if not given.
    network_functions : iterable of NetworkFunction
        Network functions in addition to the shipped ones.
    cores : sequence of int, optional
        CPUs to use: the target's first, then the competitors'. By default all CPUs of one socket that this process may
        use.
    counters : str or CounterReader, optional
        ``"probe"``, a reader's alias or instance; by default the first reader that works on this host.
    settings : HostSettings, optional
        How long and how often to measure.
    **tools
        Fields of `HostTools`: `calibration`, `lock_path`, `generator` and `backend`.

    Raises
    ------
    TestbedError
        For cores that do not exist or are named twice, or counters that cannot be read.

    Examples
    --------
    >>> testbed = HostTestbed(counters="probe")
    >>> testbed.name, testbed.exclusive
    ('host', True)
    """

    name = "host"
    exclusive = True

    def __init__(
        self,
        machine: str | Machine | None = None,
        network_functions: Iterable[NetworkFunction] = (),
        *,
        cores: Sequence[int] | None = None,
        counters: str | CounterReader | None = None,
        settings: HostSettings | None = None,
        **tools: Unpack[HostTools],
    ) -> None:
        self._described = machine if isinstance(machine, Machine) else this_machine(machine or NAME)
        self.machine = self._described.name
        self.cores = checked_cores(cores)
        self.settings = settings or HostSettings()
        self.reader = choose_reader(counters)
        self._own = {nf.name: nf for nf in network_functions}
        self._definitions: dict[str, HostDefinition] = {}
        self._running = threading.Lock()
        self._lock = MachineLock("this host", tools.get("lock_path") or default_lock_path(), 0o666)
        self._release = weakref.finalize(self, self._lock.release)
        synthetic = self._own.get("synthetic", "synthetic")
        self.probe = ProbeSource(self.cores, self.settings, synthetic, tools.get("calibration"))
        self._bench = Bench(self.cores, self.settings, self.reader, self.probe, tools.get("generator"))
        self._end = weakref.finalize(self, self.probe.close)
        self._backend = tools.get("backend")

    def __enter__(self) -> "HostTestbed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the programs kept for the whole campaign, and release the lock on this host."""
        self.probe.close()
        self._lock.release()

    @property
    def source(self) -> str:
        """Source of the vectors: the counter reader's name, or ``"probe"``."""
        return PROBE if self.reader is None else self.reader.name

    def definition(self, nf: str) -> HostDefinition:
        """Return the definition with which an NF runs on this host.

        Raises UnknownNameError if there is no such NF, ConfigurationError if its definition is invalid, and
        TestbedError if it has no `host:` section.
        """
        if nf not in self._definitions:
            self._definitions[nf] = host_definition(self._own.get(nf, nf))
        return self._definitions[nf]

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run both phases (see `Testbed.run`). Raises UnstableMeasurementError if repeated windows do not agree."""
        cores = self._assigned(colocation)
        with self._running:
            self._open()
            definitions = tuple(self.definition(workload.nf) for workload in colocation.tenants)
            with contextlib.ExitStack() as stack:
                if colocation.isolation is not None and self._backend is not None:
                    stack.enter_context(isolated(cores, colocation.isolation, self._backend))
                alone, beside, details = self._steadily(colocation, definitions, cores)
        stated = describe_run(colocation, seed, self.name, self._stated_settings())
        return RunRecord(colocation, seed, alone, beside, {**stated, "host": details})

    def _steadily(
        self, colocation: Colocation, definitions: tuple[HostDefinition, ...], cores: Sequence[tuple[int, ...]]
    ) -> tuple[Phase | None, Phase | None, dict[str, Any]]:
        """Run an experiment; with reporters, repeat it if the machine's speed changed meanwhile."""
        if self.reader is not None:
            return Experiment(colocation, definitions, cores, self._bench).phases()
        probe = self.probe()
        repeated: list[None] = []

        def measure() -> tuple[Phase | None, Phase | None, dict[str, Any]]:
            if repeated:
                probe.forget()
            repeated.append(None)
            return Experiment(colocation, definitions, cores, self._bench).phases()

        (alone, beside, details), drift = probe.watch.around(measure, colocation.label)
        return alone, beside, {**details, "drift": drift}

    def environment(self) -> Mapping[str, Any]:
        """Return the properties that make two runs comparable; calibrate the probes if they measure the vectors."""
        names = sorted({*self._definitions, *self._own, *runnable_names()})
        runnable = [name for name in names if name not in self._own or self._own[name].host is not None]
        nfs = {name: self.definition(name).fingerprint for name in runnable}
        return describe_environment(
            self.name,
            {**self._stated_settings(), **self._calibrated()},
            machines={self.machine: self._described.to_dict()},
            network_functions=nfs,
        )

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the expected wall time of one run in [s]."""
        settings = self.settings
        pairs = 2.0 * settings.pairs * (settings.window_s + settings.settle_s)
        made, keys = self.probe.made, [workload.key for workload in colocation.competitors]
        probed = self.reader is not None or (made is not None and made.of(keys) is not None)
        one_s = _START_S + 2.0 * settings.probe_pairs * (settings.probe_window_s + settings.settle_s)
        probing = 0.0 if probed or not keys else _REPORTERS * one_s
        return (_START_S + _STEADY_S) * len(colocation.tenants) + pairs + probing

    def _calibrated(self) -> dict[str, Any]:
        """Return the calibration of the reporters, the same for all vectors of a campaign."""
        if self.reader is not None:
            return {}
        calibration = self.probe.calibration
        if calibration is None:
            with self._running:
                self._open()
                calibration = self.probe().calibration
        return {"calibration": calibration.fingerprint, "reporters": calibration.stated()}

    def _open(self) -> None:
        if not self._lock.held:
            self._lock.acquire()
            remove_orphans()
            undo_killed_campaigns()

    def _assigned(self, colocation: Colocation) -> list[tuple[int, ...]]:
        """Check the network functions before anything runs, and return each one's cores."""
        if not colocation.tenants:
            raise InvalidValueError("a run on a real machine needs a target or competitors, got neither")
        if colocation.machine != self.machine:
            raise InvalidValueError(
                f"{colocation.label}: this testbed measures '{self.machine}'",
                hint=f"plan for machine '{self.machine}', or make the testbed with machine='{colocation.machine}'",
            )
        if colocation.sockets is not None or colocation.memory_node is not None:
            raise InvalidValueError(
                f"{colocation.label}: sockets and memory nodes are given, but this testbed chooses them",
                hint="give the testbed the cores to use, or ask testbed 'simulated'",
            )
        if colocation.port_gbps is not None:
            raise InvalidValueError(
                f"{colocation.label}: a port of {colocation.port_gbps:g} Gbit/s is given, but this testbed has its own",
                hint="describe them in the traffic section, or ask testbed 'simulated'",
            )
        if colocation.isolation is not None:
            try:
                self._backend = self._backend or first_that_works(BACKENDS)
            except TestbedError as problem:
                raise TestbedError(
                    f"{colocation.label}: this host does not isolate tenants: {problem.message}", hint=problem.hint
                ) from None
        definitions = [self.definition(workload.nf) for workload in colocation.tenants]
        for definition, workload in zip(definitions, colocation.tenants, strict=True):
            definition.configured(workload)
            require_program(definition)
            if definition.section.traffic.pcap is not None:
                require_frames(Path(definition.section.traffic.pcap))
        counts = [definition.section.cores for definition in definitions]
        if colocation.target is None:
            counts = [1, *counts]  # the target's core stays free for the probes
        assigned = assign_cores(self.cores, counts, colocation.label)
        if self.reader is None and len(self.cores) < 2:
            raise TestbedError(
                f"probing needs two cores, this host offers {len(self.cores)}",
                hint="give the testbed a second core of the same socket",
            )
        return assigned[1:] if colocation.target is None else assigned

    def _stated_settings(self) -> dict[str, Any]:
        stated = {**self.settings.to_dict(), "counters": self.source, "cores": list(self.cores), "host": dict(facts())}
        return stated if self._bench.generator is None else {**stated, "generator": self._bench.generator.name}
