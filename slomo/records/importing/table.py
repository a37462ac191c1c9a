"""Read a table measured elsewhere, through a mapping, into rows of a profile dataset.

Yala / Tomur (ASPLOS'25) publishes such tables, with counters of the competitors, traffic attributes and throughput.
Values that the table lacks, such as solo runs, competitors' names or latencies, stay unknown.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slomo.records.rows as rows
import slomo.records.schema as schema
import slomo.records.tables as tables
from slomo.errors import ConfigurationError, SlomoError
from slomo.files.opening import open_regular
from slomo.records.importing.competitors import MOST_COMPETITORS, named_competitors
from slomo.records.importing.mapping import TableMapping, metric_factor, target_mpps, throughput_mpps
from slomo.records.importing.mapping_file import ColumnEntry
from slomo.records.importing.plausible import metric_fault, port_fault, share_fault, throughput_fault
from slomo.records.measurement import Stability
from slomo.records.schema import Plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import metric, no_pressure
from slomo.vocabulary.workload import Workload

#: Name given to competitors that the table does not name.
UNNAMED = "unnamed-competition"
#: Largest number of cells of an imported table; it is limited because each cell becomes a Python value.
_MOST_CELLS = 20_000_000
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".txt": "whitespace", ".dat": "whitespace"}


@dataclass(frozen=True)
class MeasuredTable:
    """A table as text or numbers, with the line number of each row."""

    path: Path
    names: Sequence[str]
    cells: Sequence[Sequence[Any]]
    lines: Sequence[int]


@dataclass
class TableRows:
    """Imported rows of a dataset, and the rows and columns that were left out."""

    #: Rows in the form of `slomo.records.rows`.
    listed: list[rows.Row] = field(default_factory=list)
    #: Reason -> number of rows dropped.
    dropped: dict[str, int] = field(default_factory=dict)
    #: Vector columns that are zero in all rows; their counters count as not read.
    unreported: list[str] = field(default_factory=list)
    #: Columns of the file that are not in the mapping.
    ignored: list[str] = field(default_factory=list)


class _BadRowError(Exception):
    def __init__(self, reason: str, column: str, got: object) -> None:
        super().__init__(reason)
        self.reason, self.column, self.got = reason, column, got


def read_rows(path: Path, mapping: TableMapping) -> TableRows:
    """Read a table through a mapping."""
    file = mapping.file
    table = read_table(path, file.format, file.separator, file.comment, file.names)
    for name in mapping.columns:
        if name not in table.names:
            raise mapping.fault(("columns", name), f"{path} has no such column", f"it has: {', '.join(table.names)}")
    result = TableRows(ignored=[name for name in table.names if name not in mapping.columns])
    fingerprint = fingerprint_of(path)
    for line, cells in zip(table.lines, table.cells, strict=True):
        try:
            result.listed.append(_row(dict(zip(table.names, cells, strict=True)), mapping, f"{fingerprint}:{line}"))
        except _BadRowError as bad:
            if mapping.file.bad_rows == "refuse":
                hint = "correct the file, name the text under 'missing', or write 'bad_rows: drop' in the mapping"
                raise ConfigurationError(
                    f"{path}, line {line}, column '{bad.column}': got {bad.got!r}, {bad.reason}", hint=hint
                ) from None
            result.dropped[bad.reason] = result.dropped.get(bad.reason, 0) + 1
    if not result.listed:
        raise ConfigurationError(f"{path}: holds no usable measurement", hint=f"dropped: {result.dropped or 'none'}")
    _blank_unread(result)
    return result


def _row(cells: Mapping[str, Any], mapping: TableMapping, identity: str) -> rows.Row:
    values = _Values(mapping, cells)
    for name, column in mapping.columns.items():
        values.read(name, column)
    labels, competitors = values.labels, values.competitors()
    try:
        target = mapping.workload(labels.get("nf"), values.traffic)
    except SlomoError as error:
        # the message names the wrong attribute; the mapping gives its column
        sources = {column.traffic: name for name, column in mapping.columns.items() if column.traffic}
        wrong = next((source for source in sources if source in error.message), None)
        if wrong is None:
            raise _BadRowError(error.message, next(iter(mapping.columns)), values.traffic) from None
        raise _BadRowError(error.message, sources[wrong], values.traffic.get(wrong)) from None
    name, size_b = mapping.target_column, target.traffic.packet_size_b
    machine, mpps = labels.get("machine", mapping.file.machine), values.throughput
    if mapping.columns[name].target != "share" and (
        fault := throughput_fault(mpps, size_b) or port_fault(mpps, machine, size_b)
    ):
        raise _BadRowError(fault, name, cells[name])
    colocation = Colocation(machine, target, competitors)
    if not competitors:
        pressure = no_pressure(reporters=False)
        values.vectors |= {
            f"{prefix}.{name}": zero for prefix in ("competition", "beside") for name, zero in pressure.items()
        }
    return {
        **measured_row(colocation, _plan(mapping, colocation), values.throughput, identity),
        **({schema.SCENARIO: labels["scenario"]} if "scenario" in labels else {}),
        **values.features,
        **values.vectors,
    }


def measured_row(colocation: Colocation, plan: Plan, mpps: float, identity: str) -> rows.Row:
    """Return a dataset row for one measured throughput."""
    return {
        **rows.colocation_columns(colocation, plan),
        schema.TENANT: 0,
        schema.THROUGHPUT: mpps,
        schema.THROUGHPUT_CV: math.nan,
        schema.REPLICATES: 1,
        schema.LOSS: math.nan,
        **dict.fromkeys(schema.LATENCIES, math.nan),
        schema.STABILITY: str(Stability.STABLE),
        schema.SEED: 0,
        schema.RUN_KEY: hashlib.sha256(identity.encode()).hexdigest()[:16],
        schema.TRUTH: math.nan,
    }


def _plan(mapping: TableMapping, colocation: Colocation) -> Plan:
    """Return a row's plan; a row with named competitors is a mix, to which models are never fitted."""
    if not colocation.competitors or any(workload.nf == UNNAMED for workload in colocation.competitors):
        return Plan.IMPORTED if colocation.competitors else Plan.SOLO
    return Plan(mapping.file.plan) if mapping.file.plan else rows.plan_of(colocation)


class _Values:
    """Values of one row of the table, read column by column."""

    def __init__(self, mapping: TableMapping, cells: Mapping[str, Any]) -> None:
        self.mapping, self.cells = mapping, cells
        self.throughput = math.nan
        self.traffic: dict[str, Any] = {}
        self.labels: dict[str, str] = {}
        self.features: dict[str, float] = {}
        self.vectors: dict[str, float] = {}

    def read(self, name: str, column: ColumnEntry) -> None:
        """Read the row's value of one column."""
        if column.ignore:
            return
        if column.label:
            self.labels[column.label] = str(self.cells[name]).strip()
            return
        value = self._number(name) * column.factor / column.interval_s
        if column.metric:
            self._metric(name, column, column.metric, value)
        elif column.target:
            if not value > 0.0:
                raise _BadRowError("needed a throughput above 0", name, self.cells[name])
            solo = self.mapping.file.solo
            alone = 1.0 if solo is None else throughput_mpps(solo.value, solo.unit)
            self.throughput = target_mpps(value, column, alone)
            if column.target == "share" and (fault := share_fault(self.throughput / alone)):
                raise _BadRowError(fault, name, self.cells[name])
        elif column.feature:
            self.features[f"{schema.TRAFFIC_PREFIX}{column.feature}"] = value
        elif column.traffic and not math.isnan(value):
            whole = column.traffic in ("packet_size_b", "flow_count")
            self.traffic[column.traffic] = round(value) if whole else value

    def competitors(self) -> tuple[Workload, ...]:
        """Return the target's competitors; placeholders if only their number is known."""
        cell = self.labels.get("competitors")
        if cell is None:
            return (Workload(UNNAMED),) * self.competitor_count()
        try:
            return named_competitors(cell, self.mapping.file.traffic)
        except SlomoError as error:
            column = next(name for name, item in self.mapping.columns.items() if item.label == "competitors")
            raise _BadRowError(error.message, column, cell) from None

    def competitor_count(self) -> int:
        """Return the row's number of competitors; by default 1, which stands for all unnamed competitors."""
        text = self.labels.get("competitor_count")
        if text is None:
            return self.mapping.file.competitor_count
        count = tables.finite(text)
        if not (0.0 <= count <= MOST_COMPETITORS and count == int(count)):
            raise _BadRowError(f"needed a number of competitors from 0 to {MOST_COMPETITORS}", "competitor_count", text)
        return int(count)

    def _metric(self, name: str, column: ColumnEntry, metric_name: str, value: float) -> None:
        if value < 0.0:
            raise _BadRowError("no counter can be negative", name, self.cells[name])
        target = metric(metric_name)
        prefix = column.of or self.mapping.file.vectors or "competition"
        place = schema.metric_column(prefix, target.name)
        # several columns of one metric are added; if one of them is missing, so is the sum
        self.vectors[place] = self.vectors.get(place, 0.0) + value * metric_factor(target, column.unit)
        if fault := metric_fault(target.name, target.unit, self.vectors[place]):
            raise _BadRowError(fault, name, self.cells[name])

    def _number(self, name: str) -> float:
        cell = self.cells[name]
        if cell is None or (isinstance(cell, str) and cell.strip() in self.mapping.file.missing):
            return math.nan
        try:
            value = float(cell)
        except (TypeError, ValueError):
            raise _BadRowError("needed a number", name, cell) from None
        if not math.isfinite(value):
            raise _BadRowError("needed a finite number", name, cell)
        return value


def _blank_unread(result: TableRows) -> None:
    """Mark vector columns as not reported if they are zero in every row that has competitors."""
    contended = [row for row in result.listed if row[schema.COMPETITOR_COUNT] > 0]
    names = {name for row in contended for name in row if name in schema.METRIC_COLUMNS}
    for name in sorted(names):
        if all(row.get(name, 0.0) == 0.0 for row in contended):
            result.unreported.append(name)
            for row in result.listed:
                row[name] = math.nan


def read_table(
    path: Path, kind: str | None, separator: str | None = None, comment: str = "#", names: Sequence[str] = ()
) -> MeasuredTable:
    """Read a table's cells without conversion; by default the file's name determines format and separator."""
    kind = kind or _SUFFIXES.get(path.suffix.lower(), "csv")
    if kind == "parquet":
        return _read_parquet(path)
    text = tables.read_text(path)
    separator = separator or ("\t" if path.suffix.lower() == ".tsv" else ",")
    numbered = _split(path, text, None if kind == "whitespace" else separator, comment)
    if not names:
        if not numbered:
            raise ConfigurationError(f"{path}: is empty, needed a header and at least one row")
        names = [cell.strip() for cell in numbered.pop(0)[1]]
    if not numbered:
        raise ConfigurationError(
            f"{path}: holds no row", hint="is the header missing? Then list the columns under 'names'"
        )
    tables.check_cells(path, len(numbered), len(names))
    _check_names(path, names)
    for line, row in numbered:
        if len(row) != len(names):
            raise ConfigurationError(
                f"{path}, line {line}: {len(row)} values, needed {len(names)}", hint=f"columns: {', '.join(names)}"
            )
    return MeasuredTable(path, names, [row for _, row in numbered], [line for line, _ in numbered])


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raise an error if a column name is repeated or invalid."""
    places: dict[str, list[str]] = {}
    for place, name in enumerate(names, start=1):
        places.setdefault(name, []).append(str(place))
    twice = [f"'{name}' (columns {', '.join(where)})" for name, where in places.items() if len(where) > 1]
    if twice:
        raise ConfigurationError(
            f"{path}: a column name occurs twice: {'; '.join(twice)}", hint="rename one, or list 'names' in the mapping"
        )
    odd = [place for place, name in enumerate(names, start=1) if not name or not name.isprintable() or len(name) > 200]
    if odd:
        raise ConfigurationError(
            f"{path}: column {odd[0]} of {len(names)} has no readable name: {names[odd[0] - 1][:40]!r}",
            hint="is the separator right, and the first line a header? Else list 'names' in the mapping",
        )


def _split(path: Path, text: str, separator: str | None, comment: str) -> list[tuple[int, list[str]]]:
    numbered: Iterable[tuple[int, list[str]]]
    if separator is None:
        numbered = ((number, line.split()) for number, line in enumerate(text.split("\n"), start=1))
    else:
        numbered = tables.csv_rows(path, text, delimiter=separator, skipinitialspace=True)
    return [each for each in numbered if any(cell.strip() for cell in each[1]) and not each[1][0].startswith(comment)]


def _read_parquet(path: Path) -> MeasuredTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            os.fdopen(open_regular(path, tables.MAX_FILE_BYTES), "rb") as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as plain,
        ):
            tables.check_parquet(path, plain.metadata)
            tables.check_cells(path, plain.metadata.num_rows, plain.metadata.num_columns, _MOST_CELLS)
            texts = [each.name for each in plain.schema_arrow if pa.types.is_string(each.type)]
            table = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=texts).read()
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise tables.unreadable_parquet(path, error) from None
    if not table.num_rows:
        raise ConfigurationError(f"{path}: holds no row")
    columns = [[cell for chunk in column.chunks for cell in _cells(chunk)] for column in table.columns]
    return MeasuredTable(
        path, table.column_names, [list(row) for row in zip(*columns, strict=True)], range(1, table.num_rows + 1)
    )


def _cells(chunk: Any) -> Iterable[Any]:
    """Return the cells of a column; equal texts become the same object to save memory."""
    if not hasattr(chunk, "dictionary"):
        return list(chunk.to_pylist())
    values = chunk.dictionary.to_pylist()
    return (None if index is None else values[index] for index in chunk.indices.to_pylist())


def fingerprint_of(path: Path) -> str:
    """Return a digest of a file's content."""
    with os.fdopen(open_regular(path, tables.MAX_FILE_BYTES), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
