"""Types of the `host:` section of a network function: how it is started, read and stopped."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

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


class TrafficSection(Struct, forbid_unknown_fields=True):
    """Source of ``{pcap}``, and whether a generator sends."""

    pcap: (
        Annotated[str, Meta(description="a capture of your own; generated from the workload's traffic if not given")]
        | UnsetType
    ) = UNSET
    generator: Annotated[
        bool,
        Meta(description="true where the host file's traffic generator sends to it, wherever throughput is read"),
    ] = False


class ReadySection(Struct, forbid_unknown_fields=True):
    """The sign of readiness: one of these, and a time limit."""

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
    limit_s: Annotated[_Limit, Meta(description="seconds to wait at most")] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if all(getattr(self, name) is UNSET for name in self.__struct_fields__):
            raise ValueError("Expected one of json, regex, tcp_port, file, telemetry, first_reading; and limit_s")


class LatencyFields(Struct, forbid_unknown_fields=True):
    """Dotted fields of percentiles."""

    p50: str | UnsetType = UNSET
    p95: str | UnsetType = UNSET
    p99: str | UnsetType = UNSET


class ThroughputSection(Struct, forbid_unknown_fields=True):
    """Where its throughput is read."""

    source: Annotated[
        Literal["json-lines", "regex", "click", "telemetry", "generator"],
        Meta(description="json-lines, regex, click, telemetry or generator"),
    ]
    stream: (
        Annotated[Literal["stdout", "stderr", "stats_file"], Meta(description="stdout, stderr or stats_file")]
        | UnsetType
    ) = UNSET
    match: Annotated[dict[str, Any], Meta(description="json-lines: only lines that hold these fields")] | UnsetType = (
        UNSET
    )
    packets: (
        Annotated[_Text, Meta(description="json-lines: dotted field; click: handler; telemetry: field of the answer")]
        | UnsetType
    ) = UNSET
    pattern: (
        Annotated[_Pattern, Meta(description="regex with a group named packets, and optionally one named time")]
        | UnsetType
    ) = UNSET
    meaning: (
        Annotated[
            Literal["counter", "interval", "rate"],
            Meta(description="counter: packets since the start; interval: since the last line; rate: per second"),
        ]
        | UnsetType
    ) = UNSET
    unit: (
        Annotated[Literal["packets", "pps", "kpps", "Mpps"], Meta(description="packets, pps, kpps or Mpps")] | UnsetType
    ) = UNSET
    time: Annotated[str, Meta(description="json-lines: dotted field with the time of the line [s]")] | UnsetType = UNSET
    query: Annotated[str, Meta(description="telemetry: what is asked, for instance /ethdev/stats,0")] | UnsetType = (
        UNSET
    )
    port: (
        Annotated[int | str, Meta(description="click: port of its ControlSocket; {port} for a free one")] | UnsetType
    ) = UNSET
    interval_s: (
        Annotated[float, Meta(ge=0.01, le=60.0, description="click, telemetry: seconds between two questions")]
        | UnsetType
    ) = UNSET
    latency_unit: Annotated[Literal["ns", "us", "ms"], Meta(description="ns, us or ms")] | UnsetType = UNSET
    latency: Annotated[LatencyFields, Meta(description="json-lines: dotted fields of percentiles")] | UnsetType = UNSET

    def __post_init__(self) -> None:
        for name in _NEEDED[self.source]:
            if getattr(self, name) is UNSET:
                raise ValueError(f"Expected a field '{name}' beside source: {self.source}")


class StopSection(Struct, forbid_unknown_fields=True):
    """How to stop it."""

    signal: (
        Annotated[
            Literal["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL"],
            Meta(description="what is sent to it"),
        ]
        | UnsetType
    ) = UNSET
    limit_s: Annotated[float, Meta(gt=0.0, le=600.0, description="seconds until it is killed")] | UnsetType = UNSET


class SteadySection(Struct, forbid_unknown_fields=True):
    """Criteria of a steady throughput."""

    limit_s: Annotated[_Limit, Meta(description="seconds to wait at most")] | UnsetType = UNSET
    tolerance: (
        Annotated[float, Meta(gt=0.0, le=1.0, description="share two successive medians may differ by")] | UnsetType
    ) = UNSET
    stretch_s: (
        Annotated[
            float, Meta(gt=0.0, le=600.0, description="seconds each median is taken over; a slow climb needs long ones")
        ]
        | UnsetType
    ) = UNSET


class HostSection(Struct, forbid_unknown_fields=True):
    """The host section of a network function."""

    command: Annotated[
        list[str | float],
        Meta(
            min_length=1,
            max_length=400,
            description="a list of words, never a shell line; {core}, {pcap}, {file_prefix}, {stats_file} and settings "
            "are filled in",
        ),
    ]
    throughput: Annotated[ThroughputSection, Meta(description="where its throughput is read")]
    environment: (
        Annotated[
            dict[Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], str | float],
            Meta(description="variables added to the environment"),
        ]
        | UnsetType
    ) = UNSET
    working_directory: (
        Annotated[str, Meta(description="where the command is started; a directory of its own if not given")]
        | UnsetType
    ) = UNSET
    cores: Annotated[int, Meta(ge=1, le=1024, description="cores one instance occupies")] = 1
    polling: Annotated[
        bool,
        Meta(description="true where it keeps its cores busy; windows in which it did not get them are then rejected"),
    ] = True
    traffic: (
        Annotated[TrafficSection, Meta(description="where {pcap} comes from, and whether a generator sends")]
        | UnsetType
    ) = UNSET
    ready: (
        Annotated[
            ReadySection,
            Meta(description="one of json, regex, tcp_port, file, telemetry, first_reading; and limit_s"),
        ]
        | UnsetType
    ) = UNSET
    stop: Annotated[StopSection, Meta(description="how it is asked to end")] | UnsetType = UNSET
    steady: Annotated[SteadySection, Meta(description="when its throughput counts as steady")] | UnsetType = UNSET
