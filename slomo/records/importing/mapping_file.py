"""Types of a mapping's YAML file: for a table with one measurement per row, or for recordings of Intel PCM."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(min_length=1)]
_Sign = Annotated[str, Meta(min_length=1, max_length=1)]
_Core = Annotated[int, Meta(ge=0, le=65_535)]
_Positive = Annotated[float, Meta(gt=0.0)]
_Many = Annotated[int, Meta(ge=1, le=1024)]
_Settings = dict[str, bool | float | str]
_Vectors = Literal["competition", "beside", "own"]
_RunPlan = Literal["pressure", "mix"]
#: Fields of the other kind.
_OF_TABLES, _OF_RECORDINGS = ("columns", "names", "format", "vectors"), ("runs", "results", "target_core")


class TrafficEntry(Struct, forbid_unknown_fields=True):
    """Traffic of a network function."""

    packet_size_b: Annotated[int, Meta(ge=64, le=9000)] | UnsetType = UNSET
    flow_count: Annotated[int, Meta(ge=1, le=100_000_000)] | UnsetType = UNSET
    flow_distribution: Literal["uniform", "zipf"] | UnsetType = UNSET
    zipf_exponent: Annotated[float, Meta(gt=0.0, le=3.0)] | UnsetType = UNSET
    offered_mpps: _Positive | UnsetType = UNSET


class ThroughputEntry(Struct, forbid_unknown_fields=True):
    """A throughput with its unit."""

    value: _Positive
    unit: str = "Mpps"


class ColumnEntry(Struct, forbid_unknown_fields=True):
    """Meaning of a column: exactly one of metric, target, traffic, feature, label, ignore."""

    metric: str | UnsetType = UNSET
    target: Literal["throughput", "latency", "share"] | UnsetType = UNSET
    feature: _Name | UnsetType = UNSET
    traffic: Literal["packet_size_b", "flow_count", "zipf_exponent", "offered_mpps"] | UnsetType = UNSET
    label: Literal["nf", "machine", "competitor_count", "competitors"] | UnsetType = UNSET
    ignore: Literal[True] | UnsetType = UNSET
    of: _Vectors | UnsetType = UNSET
    unit: str | UnsetType = UNSET
    factor: _Positive | UnsetType = UNSET
    inverse: bool = False
    interval_s: _Positive | UnsetType = UNSET

    def __post_init__(self) -> None:
        kinds = ("metric", "target", "traffic", "feature", "label", "ignore")
        if sum(getattr(self, kind) is not UNSET for kind in kinds) != 1:
            raise ValueError(f"Expected exactly one of {', '.join(kinds)}")


class CompetitorEntry(Struct, forbid_unknown_fields=True):
    """Who runs beside the target."""

    nf: _Name
    configuration: _Settings | UnsetType = UNSET
    traffic: TrafficEntry | UnsetType = UNSET
    count: _Many = 1


class ResultsEntry(Struct, forbid_unknown_fields=True):
    """A table with one run per row: its columns name the recordings, the throughput and the competitors."""

    file: _Text
    throughput: _Text
    separator: _Sign | UnsetType = UNSET
    unit: str | UnsetType = UNSET
    alone: _Text | UnsetType = UNSET
    beside: _Text | UnsetType = UNSET
    competitors: _Text | UnsetType = UNSET
    target_core: _Text | UnsetType = UNSET
    plan: _RunPlan | UnsetType = UNSET


class RunEntry(Struct, forbid_unknown_fields=True):
    """One run, with its recordings."""

    throughput: ThroughputEntry
    alone: _Text | UnsetType = UNSET
    beside: _Text | UnsetType = UNSET
    target_core: _Core | UnsetType = UNSET
    competitors: Annotated[list[CompetitorEntry], Meta(max_length=1024)] | UnsetType = UNSET
    plan: _RunPlan | UnsetType = UNSET


class MappingFile(Struct, forbid_unknown_fields=True):
    """Mapping from a table measured elsewhere to a profile dataset."""

    machine: _Name
    kind: Annotated[
        Literal["table", "pcm"],
        Meta(description="table: one measurement per row (the default); pcm: recordings of Intel PCM"),
    ] = "table"
    nf: _Name | UnsetType = UNSET
    configuration: _Settings | UnsetType = UNSET
    traffic: TrafficEntry | UnsetType = UNSET
    solo: ThroughputEntry | UnsetType = UNSET
    competitor_count: _Many = 1
    plan: (
        Annotated[
            Literal["imported", "pressure", "mix"],
            Meta(
                description="what rows with competitors are for: imported and pressure are fitted, mixes calibrate "
                "and judge"
            ),
        ]
        | UnsetType
    ) = UNSET
    format: Literal["csv", "whitespace", "parquet"] | UnsetType = UNSET
    separator: _Sign | UnsetType = UNSET
    comment: Annotated[str, Meta(min_length=1, max_length=2)] = "#"
    names: (
        Annotated[
            list[_Name],
            Meta(min_length=1, description="names of the columns of a file that has no header line, in order"),
        ]
        | UnsetType
    ) = UNSET
    missing: (
        Annotated[list[str], Meta(description="texts that stand for a value that was not measured")] | UnsetType
    ) = UNSET
    bad_rows: Annotated[
        Literal["refuse", "drop"],
        Meta(description="what to do with a row that holds nan, inf, a negative counter or no number"),
    ] = "refuse"
    vectors: (
        Annotated[
            _Vectors,
            Meta(
                description="what the metrics describe: the competitors alone (the default), the competitors beside "
                "the target, or the target"
            ),
        ]
        | UnsetType
    ) = UNSET
    columns: Annotated[dict[str, ColumnEntry], Meta(min_length=1)] | UnsetType = UNSET
    target_core: _Core | UnsetType = UNSET
    socket: Annotated[int, Meta(ge=0, le=1023)] | UnsetType = UNSET
    interval_s: _Positive | UnsetType = UNSET
    nominal_mhz: _Positive | UnsetType = UNSET
    sockets: Annotated[int, Meta(ge=1, le=1024, description="sockets of the machine recorded")] | UnsetType = UNSET
    runs: Annotated[list[RunEntry], Meta(min_length=1, max_length=100_000)] | UnsetType = UNSET
    results: ResultsEntry | UnsetType = UNSET

    def __post_init__(self) -> None:
        recorded = self.kind == "pcm"
        needed = ("nf",) if recorded else ("columns",)
        for name in _OF_TABLES if recorded else _OF_RECORDINGS:
            if getattr(self, name) is not UNSET:
                raise ValueError(f"Expected no field '{name}' beside kind: {self.kind}")
        for name in needed:
            if getattr(self, name) is UNSET:
                raise ValueError(f"Expected a field '{name}' beside kind: {self.kind}")
        if recorded and (self.runs is UNSET) == (self.results is UNSET):
            raise ValueError("Expected one of `runs` and `results` beside kind: pcm")
        if self.names is not UNSET and len(set(self.names)) < len(self.names):
            raise ValueError("Expected no name twice in `names`")
