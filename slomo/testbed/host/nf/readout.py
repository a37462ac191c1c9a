"""Read an NF's throughput from JSON lines, a pattern in its output, Click's ControlSocket or DPDK's telemetry.

Every source fills one `Readings`; unreadable lines are counted and skipped.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, TestbedError
from slomo.host.control_socket import ControlSocket
from slomo.host.process import ManagedProcess
from slomo.testbed.host.nf.command import port_number
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.testbed.host.telemetry import TelemetrySocket
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.vocabulary.host_section import ThroughputSource
from slomo.vocabulary.workload import Traffic

_FILE_POLL_S = 0.05


class Readout:
    """Reads one process's throughput until `close`. Raises ConfigurationError for an unsupported source."""

    def __init__(
        self,
        definition: HostDefinition,
        process: ManagedProcess,
        table: Mapping[str, str],
        generator: TrafficGenerator | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self._generator: TrafficGenerator | None = None
        self.readings = FunctionReadings(definition.nf)
        self._source = definition.section.throughput
        self._process = process
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        source = self._source
        if definition.section.is_fed:
            if generator is None:
                raise ConfigurationError(
                    f"network function '{definition.nf}': its packets come from a generator, and none is attached",
                    hint="name one in the host file (`generator: {name: pktgen}`), or HostTestbed(generator=...)",
                )
            self._generator = sending = generator
            sending.start(traffic or Traffic())
            if source.source == "generator":
                self._poll(lambda: float(sending.statistics().received_packets))
                return
        if source.source in ("json-lines", "regex"):
            taker = _json_taker if source.source == "json-lines" else _regex_taker
            take = taker(source, self.readings)
            if source.stream == "stats_file":
                file = Path(table["stats_file"])
                self._run(lambda: self._follow(file, take))
            else:
                self._process.on_line(source.stream, take)
        else:
            self._poll(_asker(source, table, definition.nf))

    def close(self) -> None:
        """Stop reading the throughput."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self._generator is not None:
            self._generator.stop()

    def _run(self, loop: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=loop, daemon=True, name="slomo-readout")
        self._thread.start()

    def _follow(self, file: Path, take: Callable[[float, str], None]) -> None:
        position, rest = 0, ""
        while not self._ended.wait(_FILE_POLL_S):
            try:
                with file.open("rb") as stream:
                    stream.seek(position)
                    chunk = stream.read(1 << 20)
                    position = stream.tell()
            except OSError:
                continue
            *lines, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
            for line in lines:
                take(time.monotonic(), line)

    def _poll(self, ask: Callable[[], float]) -> None:
        def loop() -> None:
            while not self._ended.wait(self._source.interval_s):
                try:
                    value = ask()
                except (TestbedError, OSError) as problem:
                    self.readings.problem = getattr(problem, "message", str(problem))
                    continue
                self.readings.problem = None
                _add(self.readings, self._source, time.monotonic(), value)

        self._run(loop)


def _add(
    readings: FunctionReadings,
    source: ThroughputSource,
    arrived_s: float,
    value: float,
    stated_s: float | None = None,
    latency_us: Mapping[str, float] | None = None,
) -> None:
    if not math.isfinite(value) or value < 0.0:
        readings.garbage += 1
        return
    readings.add(source.meaning, arrived_s, value * source.scale, stated_s, latency_us)


def _json_taker(source: ThroughputSource, readings: FunctionReadings) -> Callable[[float, str], None]:
    def take(arrived_s: float, line: str) -> None:
        if not line.startswith("{"):
            readings.garbage += bool(line.strip())
            return
        try:
            data = json.loads(line)
            if any(field_at(data, name) != value for name, value in source.match.items()):
                return
            stated_s = None if source.time is None else float(field_at(data, source.time))
            latency = {name: field_at(data, path) for name, path in source.latency.items()}
            _add(
                readings,
                source,
                arrived_s,
                float(field_at(data, source.packets)),
                stated_s,
                {k: float(v) * source.latency_factor for k, v in latency.items() if v is not None},
            )
        except (ValueError, TypeError, OverflowError, RecursionError):
            readings.garbage += 1

    return take


def _regex_taker(source: ThroughputSource, readings: FunctionReadings) -> Callable[[float, str], None]:
    pattern = re.compile(source.pattern)

    def take(arrived_s: float, line: str) -> None:
        match = pattern.search(line)
        if match is None:
            return
        try:
            stated = float(match["time"]) if "time" in pattern.groupindex else None
            _add(readings, source, arrived_s, float(match["packets"].replace(",", "")), stated)
        except (ValueError, TypeError, AttributeError):
            readings.garbage += 1

    return take


def _asker(source: ThroughputSource, table: Mapping[str, str], nf: str) -> Callable[[], float]:
    if source.source == "click":
        port = port_number(str(source.port), table, nf)
        click = ControlSocket(port)
        return lambda: float(click.read(source.packets))
    telemetry = TelemetrySocket(table["file_prefix"])
    return lambda: float(telemetry.ask(source.query)[source.packets])


def field_at(data: Any, path: str) -> Any:
    """Return the field that a dotted path names; None if there is no such field.

    >>> field_at({"a": {"b": 2}}, "a.b"), field_at({}, "x.y")
    (2, None)
    """
    for name in path.split("."):
        if isinstance(data, list) and name.isdigit() and int(name) < len(data):
            data = data[int(name)]
        elif isinstance(data, Mapping):
            data = data.get(name)
        else:
            return None
    return data
