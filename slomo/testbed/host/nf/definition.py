"""Read the `host:` section of a network function: how the program is started, read and stopped.

As in NPF and DPDK DTS, a command template replaces code for each NF. `host_section` checks the section, so that a wrong
field is reported with file and line before any process starts.
"""

import hashlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, structs

from slomo.errors import TestbedError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.json_text import Position
from slomo.files.opening import read_text
from slomo.vocabulary.host_section import HostSection, Steadiness, ThroughputSource
from slomo.vocabulary.network_function import NetworkFunction, load_network_function, network_function_names
from slomo.vocabulary.workload import Setting, Workload, canonical_json


@dataclass(frozen=True)
class ReadySignal:
    """How slomo recognises that an NF serves packets."""

    #: ``"json"``, ``"regex"``, ``"tcp_port"``, ``"file"``, ``"telemetry"`` or ``"first_reading"``.
    kind: str = "first_reading"
    #: Fields, pattern, port or path that the kind needs; a text may hold placeholders.
    value: Any = True
    #: Longest time to wait for the signal [s].
    limit_s: float = 30.0


@dataclass(frozen=True)
class HostDefinition:
    """How to run one network function on this machine.

    Examples
    --------
    >>> text = {"command": ["nf", "{core}"], "throughput": {"source": "json-lines", "packets": "packets"}}
    >>> parse_host(text, nf="x").ready.kind
    'first_reading'
    """

    nf: str
    #: Words of the command, with placeholders.
    command: tuple[str, ...]
    throughput: ThroughputSource
    #: Settings that a workload may change, with defaults; environment variables to add, whose values may hold
    #: placeholders.
    settings: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Directory in which the process starts; the user's own capture.
    working_directory: str | None = None
    pcap: str | None = None
    #: Whether the traffic generator sends to the NF, even if its throughput is read elsewhere.
    generator: bool = False
    #: Number of cores of one instance, and whether it keeps them busy by polling.
    cores: int = 1
    polling: bool = True
    ready: ReadySignal = field(default_factory=ReadySignal)
    #: Signal that asks the process to end, and the longest time that it may take to end [s].
    stop_signal: signal.Signals = signal.SIGINT
    stop_limit_s: float = 3.0
    #: When the throughput counts as steady.
    steadiness: Steadiness = field(default_factory=Steadiness)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the definition."""
        stated = {**self.__dict__, "stop_signal": self.stop_signal.name}
        if not self.generator:  # omitted if false, so that older fingerprints stay valid
            del stated["generator"]
        return hashlib.sha256(canonical_json(_plain(stated)).encode()).hexdigest()[:16]

    def configured(self, workload: Workload) -> dict[str, Setting]:
        """Return the values of all settings for `workload`. Raises UnknownNameError for an unknown setting."""
        for name in workload.configuration:
            if name not in self.settings:
                raise UnknownNameError(f"setting of '{self.nf}'", name, self.settings)
        return {**self.settings, **workload.configuration}


def parse_host(
    data: Mapping[str, Any],
    *,
    nf: str,
    settings: Mapping[str, Setting] | None = None,
    file: str | None = None,
    lines: Mapping[Position, int] | None = None,
) -> HostDefinition:
    """Check a `host:` section and convert it to a definition.

    Raises ConfigurationError naming file, line and field.

    `settings`: settings of the network function with their defaults. `file`, `lines`: position of the section, for
    error messages.
    """
    where = file or f"network function '{nf}'"
    whole = convert({"host": dict(data)}, dict[Literal["host"], HostSection], where, lines=lambda: lines or {})
    section = whole["host"]
    return HostDefinition(
        nf=nf,
        command=tuple(str(word) for word in data["command"]),
        throughput=section.throughput,
        settings=MappingProxyType(dict(settings or {})),
        environment={name: str(value) for name, value in data.get("environment", {}).items()},
        working_directory=section.working_directory,
        pcap=section.traffic.pcap,
        generator=section.traffic.generator or section.throughput.source == "generator",
        cores=section.cores,
        polling=section.polling,
        ready=_ready(data.get("ready", {})),
        stop_signal=signal.Signals[section.stop.signal],
        stop_limit_s=section.stop.limit_s,
        steadiness=section.steady,
    )


def host_definition(name_or_nf: str | NetworkFunction) -> HostDefinition:
    """Return the definition with which a network function runs on a real machine.

    `name_or_nf`: a shipped name, a YAML file, or a loaded network function. Raises UnknownNameError and
    ConfigurationError as `load_network_function` does; ConfigurationError, with file, line and field, for a wrong
    `host:` section; TestbedError if there is no `host:` section.

    Examples
    --------
    >>> host_definition("synthetic").throughput.source
    'json-lines'
    """
    file, lines = None, None
    if isinstance(name_or_nf, NetworkFunction):
        nf = name_or_nf
    else:
        nf = load_network_function(name_or_nf)
        if name_or_nf not in network_function_names():
            file = str(name_or_nf)
            lines = parse(read_text(file), file).lines
    if nf.host is None:
        raise TestbedError(
            f"network function '{nf.name}' cannot run on a real machine: it has no `host:` section",
            hint=f"add one (docs/guides/your-own-nf.md), or take one that has it: {', '.join(runnable_names())}",
        )
    return parse_host(nf.host, nf=nf.name, settings=nf.settings, file=file, lines=lines)


def runnable_names() -> tuple[str, ...]:
    """Return the shipped network functions that can run on a real machine, sorted.

    Examples
    --------
    >>> "synthetic" in runnable_names()
    True
    """
    return tuple(name for name in network_function_names() if load_network_function(name).host is not None)


def _ready(data: Mapping[str, Any]) -> ReadySignal:
    limit_s = float(data.get("limit_s", 30.0))
    kind = next((name for name in data if name != "limit_s"), "first_reading")
    return ReadySignal(kind, data.get(kind, True), limit_s)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if is_dataclass(value):
        value = value.__dict__
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
