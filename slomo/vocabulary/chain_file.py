"""Types of the YAML file of service chains on shared cores, with ranges and defaults."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Name = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
_Positive = Annotated[float, Meta(gt=0.0)]
_Cycles = Annotated[float, Meta(gt=0.0, le=1e9)]
_Mark = Annotated[float, Meta(gt=0.0, le=1.0, description="share of the capacity")]
DEFAULT_CAPACITY, DEFAULT_HIGH_WATER, DEFAULT_LOW_WATER = 4096, 0.8, 0.6
#: OpenNetVM's and DPDK's default: 2 KiB of packet data per buffer.
DEFAULT_BUFFER_B = 2048
DEFAULT_SHARES = 1024


class QueueEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Size and marks of the ring before each stage."""

    capacity: Annotated[int, Meta(ge=2, le=1_048_576, description="packets, a power of two")] = DEFAULT_CAPACITY
    high_water: _Mark = DEFAULT_HIGH_WATER
    low_water: _Mark = DEFAULT_LOW_WATER


class WritesEntry(Struct, forbid_unknown_fields=True):
    """What a stage writes to storage."""

    bytes_per_packet: Annotated[int, Meta(ge=1, le=65_536, description="bytes logged per packet")]
    mode: Annotated[
        Literal["async", "blocking"],
        Meta(description="'async' goes on with a second buffer, 'blocking' waits for every buffer"),
    ] = "async"
    buffer_kib: Annotated[
        float, Meta(gt=0.0, le=1_048_576.0, description="bytes gathered before they are written [KiB]")
    ] = 64.0


class StageEntry(Struct, forbid_unknown_fields=True):
    """A network function of one or more chains: give `nf` or `cycles`."""

    core: Annotated[int, Meta(ge=0, description="CPU it runs on; several stages may name the same")]
    nf: (
        Annotated[str, Meta(min_length=1, description="a workload such as nat or synthetic(data_size_mib=8)")] | None
    ) = None
    cycles: Annotated[
        _Cycles | Annotated[list[_Cycles], Meta(min_length=1, max_length=64)] | None,
        Meta(description="cycles of pure work per packet, one number or several to draw from; or give nf"),
    ] = None
    cycles_from: Annotated[
        dict[_Positive, _Cycles],
        Meta(max_length=16, description="seconds after the first packet -> cycles from then on; on a host only"),
    ] = {}
    priority: Annotated[_Positive, Meta(description="factor on NFVnice's share")] = 1.0
    shares: Annotated[float, Meta(description="fixed CPU shares, 2 to 262144")] = DEFAULT_SHARES
    storage: WritesEntry | None = None


class StorageDevice(Struct, frozen=True, forbid_unknown_fields=True):
    """The storage device of all stages."""

    mb_per_s: Annotated[_Positive, Meta(description="MB/s")] = 500.0
    latency_us: Annotated[float, Meta(ge=0.0, description="us per write")] = 50.0


class ChainEntry(Struct, forbid_unknown_fields=True):
    """A path of stages, and its traffic."""

    stages: Annotated[
        tuple[str, ...], Meta(min_length=1, max_length=64, description="names of stages in order, none twice")
    ]
    kind: Annotated[
        Literal["udp", "tcp"], Meta(description="'udp' keeps its rate, 'tcp' halves on a loss or an ECN mark")
    ] = "udp"
    mpps: Annotated[_Positive, Meta(description="offered rate, for tcp the most it sends [Mpps]")] | None = None
    gbps: Annotated[_Positive, Meta(description="the same as [Gbit/s], 20 B of preamble and gap included")] | None = (
        None
    )
    packet_size_b: Annotated[int, Meta(ge=64, le=9000, description="64 to 9000 bytes")] = 64
    rtt_us: (
        Annotated[_Positive, Meta(description="round trip outside this server, tcp only [us]; 200 without it")] | None
    ) = None
    from_ms: Annotated[float, Meta(ge=0.0, description="when it begins to send [ms]")] = 0.0
    to_ms: Annotated[_Positive, Meta(description="when it stops [ms]; without it, never")] | None = None


class ChainsFile(Struct, forbid_unknown_fields=True):
    """The file of service chains on the cores of one machine."""

    stages: Annotated[dict[_Name, StageEntry], Meta(min_length=1)]
    chains: Annotated[dict[_Name, ChainEntry], Meta(min_length=1)]
    machine: Annotated[str, Meta(min_length=1, description="a machine's name or file")] = "e5-2620v4"
    queue: QueueEntry = QueueEntry()
    buffer_b: Annotated[int, Meta(ge=64, le=65_536, description="bytes of one packet buffer")] = DEFAULT_BUFFER_B
    memory_socket: (
        Annotated[int, Meta(ge=0, description="socket of the packet buffers' memory; the NIC's where none is given")]
        | None
    ) = None
    storage: StorageDevice = StorageDevice()
