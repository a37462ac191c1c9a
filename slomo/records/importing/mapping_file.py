"""Types of a mapping's YAML file, for a table with one measurement per row or for recordings of Intel PCM."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from slomo.vocabulary.workload import Traffic, Workload

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(min_length=1)]
_Sign = Annotated[str, Meta(min_length=1, max_length=1)]
_Core = Annotated[int, Meta(ge=0, le=65_535)]
_Positive = Annotated[float, Meta(gt=0.0)]
_Many = Annotated[int, Meta(ge=1, le=1024)]
_Settings = dict[str, bool | float | str]
_Vectors = Literal["competition", "beside", "own"]
_RunPlan = Literal["pressure", "mix"]
#: Fields that belong to the other kind of mapping.
_OF_TABLES, _OF_RECORDINGS = ("columns", "names", "format", "vectors"), ("runs", "results", "target_core")


class ThroughputEntry(Struct, forbid_unknown_fields=True):
    """A throughput that the file states, with its unit."""

    value: _Positive
    unit: str = "Mpps"


class ColumnEntry(Struct, forbid_unknown_fields=True):
    """Meaning of a column: exactly one of metric, target, traffic, feature, label, ignore."""

    metric: str | None = None
    target: Literal["throughput", "latency", "share"] | None = None
    feature: _Name | None = None
    traffic: Literal["packet_size_b", "flow_count", "zipf_exponent", "offered_mpps"] | None = None
    label: Literal["nf", "machine", "competitor_count", "competitors", "scenario"] | None = None
    ignore: bool = False
    of: _Vectors | None = None
    unit: Annotated[
        str | None, Meta(description="Unit of the column; of a share: 1 (0 to 1, the default) or % (0 to 100)")
    ] = None
    factor: _Positive = 1.0
    inverse: bool = False
    interval_s: _Positive = 1.0

    def __post_init__(self) -> None:
        kinds = ("metric", "target", "traffic", "feature", "label", "ignore")
        if sum(getattr(self, kind) not in (None, False) for kind in kinds) != 1:
            raise ValueError(f"Expected exactly one of {', '.join(kinds)}")


class CompetitorEntry(Struct, forbid_unknown_fields=True):
    """Competitors that ran beside the target."""

    nf: _Name
    configuration: _Settings = {}
    traffic: Traffic = Traffic()
    count: _Many = 1

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The competitors' workloads, one per instance."""
        return (Workload(self.nf, self.configuration, self.traffic),) * self.count


class ResultsEntry(Struct, forbid_unknown_fields=True):
    """A table with one run per row, whose columns hold the recordings' names, the throughput and the competitors."""

    file: _Text
    throughput: _Text
    separator: _Sign = ","
    unit: str = "Mpps"
    alone: _Text | None = None
    beside: _Text | None = None
    competitors: _Text | None = None
    target_core: _Text | None = None
    plan: _RunPlan | None = None


class RunEntry(Struct, forbid_unknown_fields=True):
    """One run, with its recordings."""

    throughput: ThroughputEntry
    alone: _Text | None = None
    beside: _Text | None = None
    target_core: _Core | None = None
    competitors: Annotated[list[CompetitorEntry], Meta(max_length=1024)] | None = None
    plan: _RunPlan | None = None


class MappingFile(Struct, forbid_unknown_fields=True):
    """Mapping from a table measured elsewhere to a profile dataset."""

    machine: _Name
    kind: Annotated[
        Literal["table", "pcm"],
        Meta(description="table: one measurement per row (the default); pcm: recordings of Intel PCM"),
    ] = "table"
    nf: _Name | None = None
    configuration: _Settings = {}
    traffic: Traffic = Traffic()
    solo: ThroughputEntry | None = None
    competitor_count: _Many = 1
    plan: Annotated[
        Literal["imported", "pressure", "mix"] | None,
        Meta(
            description="what rows with competitors are for: imported and pressure are fitted, mixes calibrate and "
            "judge"
        ),
    ] = None
    format: Literal["csv", "whitespace", "parquet"] | None = None
    separator: _Sign | None = None
    comment: Annotated[str, Meta(min_length=1, max_length=2)] = "#"
    names: Annotated[
        tuple[_Name, ...], Meta(description="names of the columns of a file that has no header line, in order")
    ] = ()
    missing: Annotated[tuple[str, ...], Meta(description="texts that stand for a value that was not measured")] = (
        "", "-", "N/A", "NA", "n/a",
    )  # fmt: skip
    bad_rows: Annotated[
        Literal["refuse", "drop"],
        Meta(description="what to do with a row that holds nan, inf, a negative counter or no number"),
    ] = "refuse"
    vectors: Annotated[
        _Vectors | None,
        Meta(
            description="what the metrics describe: the competitors alone (the default), the competitors beside the "
            "target, or the target"
        ),
    ] = None
    columns: dict[str, ColumnEntry] = {}
    target_core: _Core | None = None
    socket: Annotated[int, Meta(ge=0, le=1023)] | None = None
    interval_s: _Positive | None = None
    nominal_mhz: _Positive | None = None
    sockets: Annotated[int, Meta(ge=1, le=1024, description="sockets of the machine recorded")] | None = None
    runs: Annotated[list[RunEntry], Meta(max_length=100_000)] = []
    results: ResultsEntry | None = None

    def __post_init__(self) -> None:
        recorded = self.kind == "pcm"
        for name in _OF_TABLES if recorded else _OF_RECORDINGS:
            if getattr(self, name) not in (None, (), [], {}):
                raise ValueError(f"Expected no field '{name}' beside kind: {self.kind}")
        needed = "nf" if recorded else "columns"
        if not getattr(self, needed):
            raise ValueError(f"Expected a field '{needed}' beside kind: {self.kind}")
        if recorded and bool(self.runs) == (self.results is not None):
            raise ValueError("Expected one of `runs` and `results` beside kind: pcm")
        if len(set(self.names)) < len(self.names):
            raise ValueError("Expected no name twice in `names`")
