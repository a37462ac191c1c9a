"""One network function of a run: its process, the source of its throughput, and its measured windows.

A window is valid only if its NF got its CPU time, because the throughput of a starved NF does not show contention.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals

from slomo.errors import TestbedError
from slomo.host.marker import RunMark
from slomo.host.process import ManagedProcess
from slomo.testbed.host.nf.command import Surroundings, command_words, placeholders, port_number, values_for
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.testbed.host.nf.readout import Readout
from slomo.testbed.host.nf.ready import ReadyWatch, port_answers
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.vocabulary.workload import Workload


@dataclass(frozen=True)
class Window:
    """Throughput, CPU share and latency of one network function in one window of time."""

    #: Packets served [Mpps].
    rate_mpps: float
    #: CPU time over wall time, per assigned core.
    cpu_share: float
    #: Medians of the reported latency percentiles [us].
    latency_us: dict[str, float] = field(default_factory=dict)


class HostTenant:
    """A running NF on this machine; `generator` sends its packets if its throughput is measured at a generator."""

    def __init__(
        self,
        definition: HostDefinition,
        workload: Workload,
        where: Surroundings,
        mark: RunMark,
        generator: TrafficGenerator | None = None,
    ) -> None:
        self.definition, self.workload, self.where = definition, workload, where
        words, environment = command_words(definition, workload, where)
        table = values_for(definition, workload, where)
        self._require_free_ports(table)
        self.process = ManagedProcess(
            definition.nf,
            words,
            where.cores,
            mark,
            environment=environment,
            directory=definition.section.working_directory or where.directory,
        )
        self._readout: Readout | None = None
        try:
            self._readout = Readout(definition, self.process, table, generator, workload.traffic)
            self._watch = ReadyWatch(definition, self.process, self._readout.readings, table)
            self.process.listen()
        except BaseException:
            self.stop()
            raise

    @property
    def readings(self) -> FunctionReadings:
        """Counts of the packets served so far."""
        assert self._readout is not None
        return self._readout.readings

    def wait_ready(self) -> None:
        """Return once the NF serves packets."""
        self._watch.wait()

    def stop(self) -> None:
        """Stop the NF's process and the reading of its throughput."""
        try:
            stop = self.definition.section.stop
            self.process.stop(Signals[stop.signal], stop.limit_s)
        finally:
            if self._readout is not None:
                self._readout.close()

    def _require_free_ports(self, table: Mapping[str, str]) -> None:
        section = self.definition.section
        for text in (section.throughput.port, section.ready.value if section.ready.kind == "tcp_port" else ""):
            port = port_number(str(text), table, self.definition.nf) if text != "" else 0
            if port and port_answers(port):
                raise TestbedError(
                    f"network function '{self.definition.nf}' needs TCP port {port}, but another process listens there",
                    hint="end that program, or write {port} in the `host:` section to be given a free one",
                )


def needs_port(definition: HostDefinition) -> bool:
    """Return whether an NF's definition asks for a free TCP port."""
    texts = [
        *definition.command,
        *definition.environment.values(),
        str(definition.section.throughput.port),
        str(definition.section.ready.value),
    ]
    return "port" in placeholders(texts)


def needs_pcap(definition: HostDefinition) -> bool:
    """Return whether an NF's definition asks for a capture to replay."""
    return "pcap" in placeholders([*definition.command, *definition.environment.values()])


def take_windows(tenants: Sequence[HostTenant], duration_s: float) -> list[Window]:
    """Measure all network functions over one window of time."""
    start_s = time.monotonic()
    before = [tenant.process.cpu_time_s() for tenant in tenants]
    time.sleep(duration_s)
    after = [tenant.process.cpu_time_s() for tenant in tenants]
    end_s = time.monotonic()
    windows: list[Window] = []
    for tenant, was, now in zip(tenants, before, after, strict=True):
        tenant.process.require_alive("being measured")
        share = (now - was) / (end_s - start_s) / len(tenant.where.cores)
        windows.append(
            Window(tenant.readings.rate_mpps(start_s, end_s), share, _latency(tenant.readings, start_s, end_s))
        )
    return windows


def _latency(readings: FunctionReadings, start_s: float, end_s: float) -> dict[str, float]:
    reported = [reading.latency_us for reading in readings.between(start_s, end_s) if reading.latency_us]
    names = reported[0] if reported else ()
    return {name: statistics.median(item[name] for item in reported if name in item) for name in names}


def paused(tenants: Sequence[HostTenant], pause: bool) -> None:
    """Pause or resume network functions."""
    for tenant in tenants:
        if tenant.process.paused is not pause:
            (tenant.process.pause if pause else tenant.process.resume)()
