"""Wait until an NF is ready; if the NF ends first, report that at once with the last lines of its output.

DPDK DTS waits for a prompt, npf for a pattern; slomo supports six kinds of signals.
"""

import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slomo.errors import TestbedError
from slomo.files.json_text import json_object
from slomo.host.process import ManagedProcess
from slomo.testbed.host.nf.command import fill, port_number
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.testbed.host.nf.readout import field_at
from slomo.testbed.host.telemetry import TelemetrySocket

_POLL_S = 0.02


class ReadyWatch:
    """Watches an NF for its ready signal; must be created before the process prints its first line."""

    def __init__(
        self, definition: HostDefinition, process: ManagedProcess, readings: FunctionReadings, table: Mapping[str, str]
    ) -> None:
        self._signal, self._process, self._readings = definition.section.ready, process, readings
        self._seen = False
        value, kind = self._signal.value, self._signal.kind
        if kind in ("json", "regex"):
            matches = _json_matcher(value) if kind == "json" else re.compile(value).search
            for stream in ("stdout", "stderr"):
                process.on_line(stream, lambda _, line: self._notice(matches, line))
            self._check: Callable[[], bool] = lambda: self._seen
        elif kind == "tcp_port":
            port = port_number(str(value), table, definition.nf)
            self._check = lambda: port_answers(port)
        elif kind == "file":
            self._check = Path(fill(str(value), table, definition.nf)).exists
        elif kind == "telemetry":
            self._check = _telemetry_check(table["file_prefix"])
        else:
            self._check = lambda: len(readings) > 0

    def wait(self) -> None:
        """Return once the NF is ready. Raises TestbedError if it ends or the time limit passes."""
        deadline = time.monotonic() + self._signal.limit_s
        while not self._check():
            self._process.require_alive("getting ready")
            if time.monotonic() > deadline:
                why = f"; {self._readings.problem}" if self._readings.problem else ""
                raise TestbedError(
                    f"network function '{self._process.name}' was not ready within {self._signal.limit_s:g} s "
                    f"(ready signal: {self._signal.kind}){why}.{self._process.last_words()}",
                    hint="raise `ready.limit_s`, or correct the ready signal, in its `host:` section",
                )
            time.sleep(_POLL_S)

    def _notice(self, matches: Callable[[str], object], line: str) -> None:
        self._seen = self._seen or bool(matches(line))


def _json_matcher(fields: Mapping[str, object]) -> Callable[[str], bool]:
    def matches(line: str) -> bool:
        data = json_object(line)
        return data is not None and all(field_at(data, name) == value for name, value in fields.items())

    return matches


def port_answers(port: int) -> bool:
    """Return whether a local TCP port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


def _telemetry_check(file_prefix: str) -> Callable[[], bool]:
    def answers() -> bool:
        probe = TelemetrySocket(file_prefix)
        try:
            probe.ask("/info")
        except TestbedError:
            return False
        finally:
            probe.close()
        return True

    return answers
