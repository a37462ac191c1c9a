"""Profile datasets as files: parquet with the environment in its metadata, and CSV with it in the first line.

Files are byte for byte the same for the same dataset, and are written beside the target and then renamed, so that a
reader never sees half a file. Reading one from a stranger is bounded and runs no code.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

import slomo.records.schema as schema
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.durable import write_durably
from slomo.vocabulary.workload import canonical_json

CSV_MARK = "#slomo-dataset: "
MAX_FILE_BYTES = 2 * 2**30
MAX_CELLS = 200_000_000
_METADATA_KEY = b"slomo-dataset"
_RULED = "a dataset is written by `slomo profile` or `slomo dataset import`"


def write_csv(path: Path, frame: pd.DataFrame, environment: Mapping[str, Any]) -> None:
    """Write a dataset as CSV: a comment line with version and environment, the header, one line per row.

    Raises
    ------
    StoreError
        Where the file cannot be written.
    """
    text = io.StringIO()
    text.write(CSV_MARK + _head(environment) + "\n")
    _stored(frame).to_csv(text, index=False, lineterminator="\n", na_rep="")
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def write_parquet(path: Path, frame: pd.DataFrame, environment: Mapping[str, Any]) -> None:
    """Write a dataset as parquet, the environment in the file's metadata.

    Raises
    ------
    StoreError
        Where the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = _stored(frame)
    columns = {
        name: pa.array(stored[name].to_numpy(), type=_arrow_type(pa, name), from_pandas=True) for name in stored.columns
    }
    table = pa.table(columns).replace_schema_metadata({_METADATA_KEY: _head(environment).encode()})
    write_atomically(path, lambda file: pq.write_table(table, file, compression="zstd"))


def read_csv(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read what :func:`write_csv` wrote.

    Raises
    ------
    ConfigurationError
        For a file that is not such a dataset; names line and column.
    """
    text = read_text(path)
    first, _, rest = text.partition("\n")
    if not first.startswith(CSV_MARK):
        fault = "is empty" if not text.strip() else f"does not begin with '{CSV_MARK.strip()}'"
        raise ConfigurationError(
            f"{path}: this is no slomo dataset, it {fault}",
            hint=f"{_RULED}; a table measured elsewhere needs a mapping",
        )
    environment = _environment(path, first[len(CSV_MARK) :])
    header, cells, lines = _cells(path, rest)
    columns = {name: _column(path, name, [row[index] for row in cells], lines) for index, name in enumerate(header)}
    return schema.check_frame(pd.DataFrame(columns), str(path), lines), environment


def read_parquet(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read what :func:`write_parquet` wrote.

    Raises
    ------
    ConfigurationError
        For a truncated file, or one that is not such a dataset.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_size(path)
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            if _METADATA_KEY not in metadata:
                raise ConfigurationError(f"{path}: this parquet file is no slomo dataset", hint=_RULED)
            check_cells(path, file.metadata.num_rows, file.metadata.num_columns)
            environment = _environment(path, metadata[_METADATA_KEY].decode(errors="replace"))
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise ConfigurationError(
            f"{path}: not readable as parquet: {_one_line(error)}", hint="the file is cut or damaged; write it again"
        ) from None
    columns = {name: table.column(name).to_pandas().reset_index(drop=True) for name in table.column_names}
    return schema.check_frame(pd.DataFrame(columns), str(path)), environment


def read_text(path: Path) -> str:
    """Return the text of a file of bounded size, without byte order mark, with plain line ends.

    Raises
    ------
    ConfigurationError
        Where the file is missing, unreadable, too large, or no text.
    """
    check_size(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what PowerShell writes when output is redirected
        return _plain_lines(data.decode("utf-16", errors="replace"))
    if b"\0" in data[:4096].rstrip(b"\0"):
        raise ConfigurationError(f"{path}: holds binary data, needed text")
    return _plain_lines(data.decode("utf-8-sig", errors="replace"))


def _plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_size(path: Path, limit: int = MAX_FILE_BYTES) -> None:
    """Raise unless `path` is a file of at most `limit` bytes."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}", hint="check the path") from None
    if path.is_dir():
        raise ConfigurationError(f"{path}: is a directory, needed a file")
    if size > limit:
        raise ConfigurationError(f"{path}: is {size / 2**20:.0f} MiB large, at most {limit / 2**20:.0f} MiB are read")


def check_cells(path: Path, rows: int, columns: int) -> None:
    """Raise where a table announces more cells than anyone measured."""
    if rows * columns > MAX_CELLS:
        raise ConfigurationError(f"{path}: holds {rows} x {columns} cells, at most {MAX_CELLS} are read")


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside `path`, then rename it over `path`; nothing is lost where that fails.

    Raises
    ------
    StoreError
        On a full disk, a read-only directory, or whatever else the system refuses.
    """
    write_durably(path, write)


def _stored(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out vector columns in which nothing was reported."""
    empty = [name for name in schema.METRIC_COLUMNS if name in frame.columns and frame[name].isna().all()]
    return frame.drop(columns=empty)


def _head(environment: Mapping[str, Any]) -> str:
    return canonical_json({"schema_version": schema.SCHEMA_VERSION, "environment": dict(environment)})


def _environment(path: Path, text: str) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except ValueError:
        raise ConfigurationError(f"{path}: the head of the dataset is damaged: {text[:60]!r}", hint=_RULED) from None
    return check_head(path, head)


def check_head(source: object, head: Any) -> dict[str, Any]:
    """Return the environment of a dataset's head after checking its schema version."""
    version = head.get("schema_version") if isinstance(head, dict) else None
    if version != schema.SCHEMA_VERSION:
        raise ConfigurationError(
            f"{source}: schema version {version}, needed {schema.SCHEMA_VERSION}",
            hint="it was written by another release of slomo; use that one",
        )
    environment = head.get("environment", {})
    if not isinstance(environment, dict):
        raise ConfigurationError(f"{source}: the environment must be a mapping, got {type(environment).__name__}")
    return environment


def _cells(path: Path, text: str) -> tuple[list[str], list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if not row:
                continue
            if header is None:
                header = row
                continue
            if len(row) != len(header):
                raise ConfigurationError(
                    f"{path}, line {reader.line_num + 1}: {len(row)} cells, needed {len(header)}",
                    hint="is the file cut?",
                )
            rows.append(row)
            lines.append(reader.line_num + 1)
    except csv.Error as error:
        raise ConfigurationError(f"{path}, line {reader.line_num + 1}: not readable as CSV: {error}") from None
    if not rows or header is None:
        raise ConfigurationError(f"{path}: holds no measurements", hint=_RULED)
    if len(set(header)) != len(header):
        raise ConfigurationError(f"{path}, line 2: a column name occurs twice")
    return header, rows, lines


def _column(path: Path, name: str, cells: list[str], lines: list[int]) -> Any:
    try:
        kind = schema.column_kind(name)
    except UnknownNameError as error:
        raise ConfigurationError(f"{path}, line 2: {error.message}", hint=error.hint) from None
    if kind == "text":
        return cells
    values: list[Any] = []
    for line, cell in zip(lines, cells, strict=True):
        values.append(_number(f"{path}, line {line}, column '{name}'", cell, whole=kind == "integer"))
    return np.array(values, dtype=np.int64 if kind == "integer" else np.float64)


def _number(place: str, cell: str, *, whole: bool) -> float | int:
    if cell == "" and not whole:
        return math.nan
    try:
        value: float | int = int(cell) if whole else float(cell)
        if whole and abs(value) >= 2**63:
            raise ValueError
    except ValueError:
        raise ConfigurationError(f"{place}: got '{cell[:40]}', needed a {'whole ' if whole else ''}number") from None
    if not math.isfinite(value):
        raise ConfigurationError(
            f"{place}: got '{cell}', needed a finite number", hint="leave the cell empty where nothing was reported"
        )
    return value


def _arrow_type(pa: Any, name: str) -> Any:
    return {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}[schema.column_kind(name)]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
