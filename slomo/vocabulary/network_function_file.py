"""Types of a network function's YAML file, with ranges."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from slomo.vocabulary.host_section import HostSection

#: Settings and numbers multiplied: ``$data_size_mib * 2``.
_Formula = Annotated[
    str,
    Meta(
        pattern=r"^(\$[a-z_]+|[0-9.]+)( \* (\$[a-z_]+|[0-9.]+))*$",
        description="a number, or a product of numbers and settings such as '8 * $rules'",
    ),
]
_Amount = Annotated[float, Meta(ge=0.0, le=1e6)] | _Formula
_Cycles = Annotated[float, Meta(ge=0.0, le=1e9)] | _Formula
_PerByte = Annotated[float, Meta(ge=0.0, le=1e5)] | _Formula
_Parallel = Annotated[float, Meta(ge=1.0, le=64.0)]
_SettingName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")]


class PacketSection(Struct, forbid_unknown_fields=True):
    """Parts of a packet that the function touches."""

    touch: Annotated[
        Literal["header", "payload"],
        Meta(description="'header' reads the first line of a packet, 'payload' all of it"),
    ] = "header"
    written_lines: Annotated[int, Meta(ge=0, le=200, description="lines of the packet that are changed")] = 1
    mlp: Annotated[_Parallel, Meta(description="packet lines in flight at once")] = 6.0


class AcceleratorSection(Struct, forbid_unknown_fields=True):
    """Requests that each packet makes to an accelerator."""

    name: Annotated[str, Meta(description="NFs that name the same accelerator share it")]
    service_ns: Annotated[_Cycles, Meta(description="time the accelerator needs per request")]
    pattern: Annotated[
        Literal["run-to-completion", "pipeline"],
        Meta(description="whether the core waits for each packet (run-to-completion) or goes on with the next"),
    ] = "run-to-completion"
    requests: Annotated[_Amount, Meta(description="requests per packet")] = 1.0


class StructureSection(Struct, forbid_unknown_fields=True):
    """A data structure that packets read and write."""

    name: Annotated[_SettingName, Meta(description="lower case, digits and _")]
    size_mib: (
        Annotated[
            Annotated[float, Meta(ge=0.0, le=100_000.0)] | _Formula,
            Meta(description="size in MiB, or settings such as '$data_size_mib'"),
        ]
        | UnsetType
    ) = UNSET
    bytes_per_flow: Annotated[_Amount, Meta(description="bytes kept per flow of the traffic")] | UnsetType = UNSET
    reads: Annotated[_Amount, Meta(description="reads per packet, fractions allowed")] = 0.0
    writes: Annotated[_Amount, Meta(description="writes per packet, fractions allowed")] = 0.0
    pattern: Annotated[
        str,
        Meta(
            pattern=r"^(random|chain|sequential|zipf|\$[a-z_]+)$",
            description="random, chain (each access needs the one before), sequential, zipf, or a setting such as "
            "'$pattern'",
        ),
    ] = "random"
    zipf_exponent: Annotated[
        Annotated[float, Meta(ge=0.01, le=3.0)] | _Formula,
        Meta(description="exponent of the Zipf law, above 0 and at most 3"),
    ] = 1.0
    mlp: (
        Annotated[
            _Parallel
            | Annotated[dict[Literal["random", "chain", "sequential", "zipf"], _Parallel], Meta(min_length=1)],
            Meta(description="accesses in flight at once, 1 to 64; or one number per pattern"),
        ]
        | UnsetType
    ) = UNSET
    cycles_per_access: Annotated[_Amount, Meta(description="compute cycles that go with each access")] = 0.0
    instructions_per_access: Annotated[_Amount, Meta(description="instructions that go with each access")] = 0.0


class SimulatedSection(Struct, forbid_unknown_fields=True):
    """Cost of one packet in the simulator."""

    compute_cycles: Annotated[_Cycles, Meta(description="cycles per packet besides waiting for L2, LLC and memory")]
    instructions: Annotated[
        Annotated[float, Meta(ge=1.0, le=1e9)] | _Formula, Meta(description="instructions per packet")
    ]
    cycles_per_byte: Annotated[_PerByte, Meta(description="cycles per byte of packet beyond the first 64")] = 0.0
    instructions_per_byte: Annotated[
        _PerByte, Meta(description="instructions per byte of packet beyond the first 64")
    ] = 0.0
    packet: PacketSection = field(default_factory=PacketSection)
    packet_buffers: Annotated[
        Annotated[float, Meta(ge=32.0, le=1_048_576.0)] | _Formula, Meta(description="buffers in the NF's pool")
    ] = 2048.0
    burst: Annotated[
        Annotated[float, Meta(ge=1.0, le=1024.0)] | _Formula, Meta(description="packets handled at a time")
    ] = 32.0
    packet_size_b: (
        Annotated[
            Annotated[float, Meta(ge=64.0, le=9000.0)] | _Formula,
            Meta(description="frame size instead of the traffic's"),
        ]
        | UnsetType
    ) = UNSET
    offered_mpps: Annotated[
        Annotated[float, Meta(ge=0.0, le=1000.0)] | _Formula,
        Meta(description="offered load instead of the traffic's; 0 saturates"),
    ] = 0.0
    accelerator: AcceleratorSection | UnsetType = UNSET
    structures: Annotated[list[StructureSection], Meta(max_length=16)] = []


class NetworkFunctionFile(Struct, forbid_unknown_fields=True, rename={"klass": "class"}):
    """The file of a network function."""

    description: Annotated[str, Meta(min_length=1, description="one sentence: what it is")]
    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$", description="lower case, digits and -")] | UnsetType = UNSET
    source: Annotated[str, Meta(description="where the numbers come from")] = ""
    klass: (
        Annotated[
            Literal["sensitive", "neutral", "insensitive", "competitor"],
            Meta(description="sensitive, neutral, insensitive or competitor"),
        ]
        | UnsetType
    ) = UNSET
    tags: list[str] = []
    settings: (
        Annotated[
            Literal["synthetic-knobs"] | dict[_SettingName, float | str],
            Meta(
                description="settings a workload may change, with defaults; 'synthetic-knobs' takes them from the "
                "synthetic competitor"
            ),
        ]
        | UnsetType
    ) = UNSET
    simulated: Annotated[SimulatedSection, Meta(description="what one packet costs")] | UnsetType = UNSET
    host: Annotated[HostSection, Meta(description="how it is started on a real machine")] | UnsetType = UNSET
