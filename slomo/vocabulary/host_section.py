"""Types of the `host:` section of a network function: how it is started, read and stopped."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

_Text = Annotated[str, Meta(min_length=1)]
_Pattern = Annotated[str, Meta(max_length=500)]
_Limit = Annotated[float, Meta(gt=0.0, le=3600.0)]
#: Required fields of each source.
_NEEDED = {
    "json-lines": ("packets",),
    "click": ("packets", "port"),
    "telemetry": ("packets",),
    "regex": ("pattern",),
    "generator": (),
}


_SIGNALS = ("json", "regex", "tcp_port", "file", "telemetry", "first_reading")


def _groups(name: str, pattern: str) -> Mapping[str, int]:
    """Return a pattern's named groups. Raises ValueError for a text that is no regular expression."""
    try:
        return re.compile(pattern).groupindex
    except re.error as problem:
        raise ValueError(f"Expected a regular expression in `{name}`: {problem}") from None


class TrafficSection(Struct, forbid_unknown_fields=True):
    """Where the capture for ``{pcap}`` comes from, and whether a traffic generator sends to the NF."""

    pcap: (
        Annotated[str, Meta(description="a capture of your own; generated from the workload's traffic if not given")]
        | None
    ) = None
    generator: Annotated[
        bool,
        Meta(description="true where the host file's traffic generator sends to it, wherever throughput is read"),
    ] = False


class ReadySection(Struct, forbid_unknown_fields=True):
    """How slomo recognises that the NF is ready: at most one kind of sign, by default its first reading."""

    json: (
        Annotated[dict[str, Any], Meta(min_length=1, description="a JSON line on its output that holds these fields")]
        | UnsetType
    ) = UNSET
    regex: Annotated[_Pattern, Meta(description="a line of its output that matches")] | UnsetType = UNSET
    tcp_port: (
        Annotated[int | str, Meta(description="a local port that accepts connections; {port} for a free one")]
        | UnsetType
    ) = UNSET
    file: Annotated[str, Meta(description="a file that appears")] | UnsetType = UNSET
    telemetry: (
        Annotated[Literal[True], Meta(description="DPDK's telemetry socket of {file_prefix} answers")] | UnsetType
    ) = UNSET
    first_reading: Annotated[Literal[True], Meta(description="its throughput can be read")] | UnsetType = UNSET
    limit_s: Annotated[_Limit, Meta(description="seconds to wait at most")] = 30.0

    def __post_init__(self) -> None:
        if sum(getattr(self, name) is not UNSET for name in _SIGNALS) > 1:
            raise ValueError(f"Expected one of {', '.join(_SIGNALS)}; and limit_s")
        if self.regex is not UNSET:
            _groups("regex", self.regex)

    @property
    def kind(self) -> str:
        """Return the kind of sign."""
        return next((name for name in _SIGNALS if getattr(self, name) is not UNSET), "first_reading")

    @property
    def value(self) -> Any:
        """Return the fields, pattern, port or path of the sign, which may hold placeholders; True if it has none."""
        return True if self.kind == "first_reading" else getattr(self, self.kind)


class ThroughputSource(Struct, forbid_unknown_fields=True):
    """Where slomo reads the NF's throughput."""

    source: Annotated[
        Literal["json-lines", "regex", "click", "telemetry", "generator"],
        Meta(description="json-lines, regex, click, telemetry or generator"),
    ]
    stream: Annotated[Literal["stdout", "stderr", "stats_file"], Meta(description="stdout, stderr or stats_file")] = (
        "stdout"
    )
    match: Annotated[dict[str, Any], Meta(description="json-lines: only lines that hold these fields")] = {}
    packets: Annotated[
        str, Meta(description="json-lines: dotted field; click: handler; telemetry: field of the answer")
    ] = ""
    pattern: Annotated[
        _Pattern, Meta(description="regex with a group named packets, and optionally one named time")
    ] = ""
    meaning: Annotated[
        Literal["counter", "interval", "rate"],
        Meta(description="counter: packets since the start; interval: since the last line; rate: per second"),
    ] = "counter"
    unit: Annotated[Literal["packets", "pps", "kpps", "Mpps"], Meta(description="packets, pps, kpps or Mpps")] = (
        "packets"
    )
    time: Annotated[str, Meta(description="json-lines: dotted field with the time of the line [s]")] | None = None
    query: Annotated[str, Meta(description="telemetry: what is asked, for instance /ethdev/stats,0")] = (
        "/ethdev/stats,0"
    )
    port: Annotated[int | str, Meta(description="click: port of its ControlSocket; {port} for a free one")] = ""
    interval_s: Annotated[
        float, Meta(ge=0.01, le=60.0, description="click, telemetry: seconds between two questions")
    ] = 0.1
    latency_unit: Annotated[Literal["ns", "us", "ms"], Meta(description="ns, us or ms")] = "us"
    latency: Annotated[
        dict[Literal["p50", "p95", "p99"], str], Meta(description="json-lines: dotted fields of percentiles")
    ] = {}

    def __post_init__(self) -> None:
        for name in _NEEDED[self.source]:
            if getattr(self, name) == "":
                raise ValueError(f"Expected a field '{name}' beside source: {self.source}")
        if self.pattern and "packets" not in _groups("pattern", self.pattern):
            raise ValueError("Expected a group named 'packets' in `pattern`: (?P<packets>[0-9]+)")
        self.port = str(self.port)

    @property
    def latency_factor(self) -> float:
        """Number of microseconds per unit in which the NF reports latency."""
        return {"ns": 1e-3, "us": 1.0, "ms": 1e3}[self.latency_unit]

    @property
    def scale(self) -> float:
        """Number of packets per unit in which the NF reports throughput."""
        return {"packets": 1.0, "pps": 1.0, "kpps": 1e3, "Mpps": 1e6}[self.unit]


class StopSection(Struct, forbid_unknown_fields=True):
    """How slomo stops the NF."""

    signal: Annotated[
        Literal["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL"],
        Meta(description="what is sent to it"),
    ] = "SIGINT"
    limit_s: Annotated[float, Meta(gt=0.0, le=600.0, description="seconds until it is killed")] = 3.0


class Steadiness(Struct, forbid_unknown_fields=True):
    """When throughput counts as steady."""

    limit_s: Annotated[_Limit, Meta(description="seconds to wait at most")] = 30.0
    tolerance: Annotated[float, Meta(gt=0.0, le=1.0, description="share two successive medians may differ by")] = 0.05
    stretch_s: Annotated[
        float, Meta(gt=0.0, le=600.0, description="seconds each median is taken over; a slow climb needs long ones")
    ] = 0.2


class HostSection(Struct, forbid_unknown_fields=True):
    """How slomo starts, reads and stops a network function on a real machine."""

    command: Annotated[
        list[str | int | float],
        Meta(
            min_length=1,
            max_length=400,
            description="a list of words, never a shell line; {core}, {pcap}, {file_prefix}, {stats_file} and settings "
            "are filled in",
        ),
    ]
    throughput: Annotated[ThroughputSource, Meta(description="where its throughput is read")]
    environment: Annotated[
        dict[Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], str | int | float],
        Meta(description="variables added to the environment"),
    ] = {}
    working_directory: (
        Annotated[str, Meta(description="where the command is started; a directory of its own if not given")] | None
    ) = None
    cores: Annotated[int, Meta(ge=1, le=1024, description="cores one instance occupies")] = 1
    polling: Annotated[
        bool,
        Meta(description="true where it keeps its cores busy; windows in which it did not get them are then rejected"),
    ] = True
    traffic: Annotated[TrafficSection, Meta(description="where {pcap} comes from, and whether a generator sends")] = (
        field(default_factory=TrafficSection)
    )
    ready: Annotated[
        ReadySection, Meta(description="one of json, regex, tcp_port, file, telemetry, first_reading; and limit_s")
    ] = field(default_factory=ReadySection)
    stop: Annotated[StopSection, Meta(description="how it is asked to end")] = field(default_factory=StopSection)
    steady: Annotated[Steadiness, Meta(description="when its throughput counts as steady")] = field(
        default_factory=Steadiness
    )

    @property
    def is_fed(self) -> bool:
        """Return whether the traffic generator sends to the NF."""
        return self.traffic.generator or self.throughput.source == "generator"
