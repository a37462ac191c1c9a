"""Types of a machine's YAML file, with ranges; `Machine` checks fields against each other."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


class MachineFile(Struct, forbid_unknown_fields=True):
    """The file of a machine; without a name it is named after the file."""

    description: str
    source: Annotated[str, Meta(min_length=3, description="where the numbers come from")]
    sockets: Annotated[int, Meta(ge=1, le=8, description="1 to 8 sockets")]
    cores_per_socket: Annotated[int, Meta(ge=1, le=256, description="1 to 256 cores")]
    frequency_ghz: Annotated[float, Meta(gt=0.0, le=10.0, description="clock in GHz")]
    l2_kib: Annotated[float, Meta(ge=8.0, le=65536.0, description="L2 per core in KiB, 8 to 65536")]
    l2_ways: Annotated[int, Meta(ge=1, le=32, description="1 to 32 ways, the most that are simulated")]
    l2_hit_ns: Annotated[float, Meta(gt=0.0, le=1000.0, description="latency in ns")]
    llc_mib: Annotated[float, Meta(ge=0.25, le=4096.0, description="one last-level cache in MiB")]
    llc_ways: Annotated[int, Meta(ge=2, le=32, description="2 to 32 ways, the most that are simulated")]
    llc_policy: Annotated[
        Literal["inclusive", "victim"], Meta(description="'inclusive' of L2 or 'victim' (filled by L2's evictions)")
    ]
    llc_domains_per_socket: Annotated[int, Meta(ge=1, le=64, description="1 to 64 last-level caches per socket")]
    llc_hit_ns: Annotated[float, Meta(gt=0.0, le=1000.0, description="latency in ns")]
    ddio_ways: Annotated[int, Meta(ge=0, le=59, description="0 to 59 ways, fewer than llc_ways")]
    memory_peak_gb_s: Annotated[float, Meta(gt=0.0, le=10000.0, description="GB/s per socket")]
    memory_efficiency: Annotated[
        float, Meta(gt=0.0, le=1.0, description="share of the peak that mixed traffic reaches, above 0 and at most 1")
    ]
    dram_local_ns: Annotated[float, Meta(gt=0.0, le=10000.0, description="latency in ns")]
    dram_remote_ns: Annotated[float, Meta(gt=0.0, le=10000.0, description="latency in ns")]
    link_gb_s: Annotated[float, Meta(gt=0.0, le=10000.0, description="GB/s per direction")]
    nic_gbps: Annotated[float, Meta(gt=0.0, le=10000.0, description="line rate of a port in Gbit/s")]
    nic_socket: Annotated[int, Meta(ge=0, le=7, description="socket of the NICs")]
    name: str | UnsetType = UNSET
    nic_ports: (
        Annotated[
            int, Meta(ge=1, le=64, description="1 to 64 ports that network functions share; together at most iio_gbps")
        ]
        | UnsetType
    ) = UNSET
    ddio_policy: Annotated[
        Literal["allocate", "migrate"],
        Meta(
            description="'allocate': lines stay in the DDIO ways; 'migrate': cores' reads move them to two other ways"
        ),
    ] = "allocate"
    iio_gbps: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                le=100000.0,
                description="what a socket's I/O controller and PCIe slots move in each direction, in Gbit/s",
            ),
        ]
        | UnsetType
    ) = UNSET
    llc_insertion: Annotated[
        Literal["recent", "adaptive"],
        Meta(description="'recent': a new line is its set's most recently used; 'adaptive': the least where better"),
    ] = "recent"
    l2_prefetcher: Annotated[
        Literal["none", "stream"],
        Meta(description="'none', or 'stream': each L2 brings the lines that follow a stream"),
    ] = "none"
    threads_per_core: Annotated[
        int,
        Meta(ge=1, le=2, description="1, or 2 hyper-threads that share a core, each counted in cores_per_socket"),
    ] = 1
    issue_width: Annotated[
        int,
        Meta(
            ge=1, le=16, description="1 to 16 instructions that a core issues per cycle, which its hyper-threads share"
        ),
    ] = 4
