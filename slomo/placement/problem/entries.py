"""Types of requests and servers in documents: the same for files, HTTP and JSON Schemas."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from slomo.files.ranges import PositiveRate
from slomo.placement.problem.checks import MOST_COPIES

Text = Annotated[str, Meta(min_length=1, max_length=300)]
Labels = Annotated[dict[str, str], Meta(max_length=64)]
Positive = Annotated[float, Meta(gt=0.0)]
Amounts = Annotated[dict[str, Annotated[float, Meta(ge=0.0)]], Meta(max_length=16)]
Copies = Annotated[int, Meta(ge=1, le=MOST_COPIES, description="that many alike; names and ids are numbered")]
_Workload = Text | dict[str, Any]
_MOST = 64
_GBPS = "offered rate per interval, for chains on NUMA nodes"


class PromiseEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An SLO in a document."""

    min_mpps: (
        Annotated[float, Meta(gt=0.0, description="least throughput of all replicas together, in Mpps")] | None
    ) = None
    min_share: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                description="least throughput of all replicas together, as a share of what one instance serves alone: "
                "0.9 for 90 %, 2.7 for 90 % of three instances",
            ),
        ]
        | None
    ) = None
    p95_us: Positive | None = None
    p99_us: Positive | None = None
    kind: Literal["reserved", "on-demand"] = "reserved"


class SpreadEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Spread of instances over the values of a label: at most one on each, or within `max_skew` of the emptiest."""

    label: Text
    max_skew: Annotated[int, Meta(ge=1)] | None = None
    weight: Annotated[float, Meta(gt=0.0, description="a preference of this weight, not a must")] | None = None


class NeighboursEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Requests, selected by labels, on servers with the same value of a server label."""

    labels: Annotated[Labels, Meta(min_length=1)]
    within: Annotated[str, Meta(min_length=1, description="whose value counts as near; the same server by default")] = (
        "host"
    )
    weight: Annotated[float, Meta(gt=0.0, description="a preference of this weight, not a must")] | None = None


class PreferenceEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Servers that a request prefers."""

    selector: Labels
    weight: Positive = 1.0


class PlacementEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request to run something: `nf` or `chain`, an SLO, and constraints."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    nf: Annotated[_Workload, Meta(description="a network function, for instance stats@1500B,1000f")] | None = None
    chain: Annotated[list[_Workload], Meta(max_length=_MOST, description="in the order packets pass them")] = []
    slo: PromiseEntry = field(default_factory=PromiseEntry)
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="higher ones are placed first")] = 0
    affinity: Annotated[list[Text | NeighboursEntry], Meta(max_length=_MOST, description="must be near")] = []
    anti_affinity: Annotated[list[Text | NeighboursEntry], Meta(max_length=_MOST, description="must not be near")] = []
    replicas: Annotated[int, Meta(ge=1, le=1024, description="instances, at most")] = 1
    min_replicas: Annotated[int, Meta(ge=1, le=1024, description="instances, at least")] = 1
    selector: Annotated[Labels, Meta(description="labels a server must carry")] = {}
    tolerations: Annotated[list[Text], Meta(max_length=_MOST, description="taints it puts up with")] = []
    spread: (
        Annotated[
            Text | SpreadEntry | Annotated[list[Text | SpreadEntry], Meta(max_length=16)],
            Meta(description="label over whose values instances are spread"),
        ]
        | None
    ) = None
    max_per_host: Annotated[int, Meta(ge=1, description="instances on one server, at most")] | None = None
    resources: Annotated[Amounts, Meta(description="per instance, of the server's")] = {}
    labels: Annotated[Labels, Meta(description="by which others name it")] = {}
    prefer: Annotated[list[PreferenceEntry], Meta(max_length=_MOST)] = []
    max_disrupted: Annotated[int, Meta(ge=0, description="instances one operation may move or end")] | None = None
    survives: Annotated[str, Meta(min_length=1, description="label of which one value may fail")] | None = None
    gang: Annotated[str, Meta(min_length=1, description="placed all or none")] | None = None

    def __post_init__(self) -> None:
        if (self.nf is None) == (not self.chain):
            raise ValueError("Expected `nf` or `chain`, one of them")  # msgspec adds where


class RequestEntry(PlacementEntry, forbid_unknown_fields=True, omit_defaults=True):
    """One or several equal requests of a file."""

    count: Copies | None = None
    gbps: Annotated[list[Positive], Meta(min_length=1, max_length=100_000, description=_GBPS)] | None = None


class ReservedEntry(Struct, forbid_unknown_fields=True):
    """Cores reserved for requests with some labels."""

    cores: Annotated[int, Meta(ge=1)]
    labels: Annotated[Labels, Meta(min_length=1)]


class HostEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A server in a document."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    machine: Annotated[str, Meta(min_length=1, description="of `slomo machine list`, or a YAML file")]
    cores_reserved: Annotated[int, Meta(ge=0, le=4096, description="of each socket, kept from network functions")] = 0
    llc_ways_usable: Annotated[int, Meta(ge=1, le=64)] | None = None
    nic_sockets: Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(min_length=1, max_length=64)] | None = None
    cost: Annotated[float, Meta(gt=0.0, description="plans use what costs least in all")] = 1.0
    labels: Annotated[Labels, Meta(description="for instance rack: r3")] = {}
    taints: Annotated[
        list[Text], Meta(max_length=_MOST, description="key, key=value, key:effect or key=value:effect")
    ] = []
    resources: Annotated[Amounts, Meta(description="memory_gib, hugepages_gib, nic_gbps, ...")] = {}
    threads_per_core: Literal[1, 2] = 1
    port_gbps: (
        Annotated[
            PositiveRate,
            Meta(
                description="line rate in Gbit/s of the one NIC port that all on the server share; needs one NIC socket"
            ),
        ]
        | None
    ) = None
    sockets: Annotated[int, Meta(ge=1, le=64, description="in use")] | None = None
    reserved: ReservedEntry | None = None


class ServerEntry(HostEntry, forbid_unknown_fields=True, omit_defaults=True):
    """One or several equal servers of a file."""

    count: Copies | None = None


class RequestsFile(Struct, forbid_unknown_fields=True):
    """A file of requests to place."""

    requests: Annotated[list[RequestEntry], Meta(max_length=200_000)]
    schema_version: Literal[1] = 1


class ClusterFile(Struct, forbid_unknown_fields=True):
    """A file that describes the servers of a cluster."""

    servers: Annotated[list[ServerEntry], Meta(min_length=1, max_length=200_000)]
    schema_version: Literal[1] = 1
