"""Write and read datasets as parquet (environment in the metadata) and CSV (environment in the first line).

Equal datasets give equal files, byte for byte. Files are written beside the target and then renamed, so that a reader
never sees half a file. Reading an untrusted file is bounded and runs no code.
"""

import csv
import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import slomo.records.schema as schema
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.documents import check_version
from slomo.files.durable import write_durably
from slomo.files.json_text import parse_json
from slomo.files.opening import decoded, open_regular, read_bytes
from slomo.vocabulary.workload import canonical_json

CSV_MARK = "#slomo-dataset: "
MAX_FILE_BYTES = 2 * 2**30
MAX_TEXT_BYTES = 2**28
MAX_CELLS = 200_000_000
_METADATA_KEY = b"slomo-dataset"
_DAMAGED = "the file was damaged or edited after it was written; write it again"
#: Rows per group of a parquet file; a damaged bit costs at most these rows.
_ROW_GROUP = 512
#: Largest size of an uncompressed table in bytes.
MAX_TABLE_BYTES = 2**30
_RULED = "a dataset is written by `slomo profile` or `slomo dataset import`"


def write_csv(path: Path, frame: pd.DataFrame, environment: Mapping[str, Any]) -> None:
    """Write a dataset as CSV: a comment line with version and environment, the header, one line per row."""
    text = io.StringIO()
    _stored(frame).to_csv(text, index=False, lineterminator="\n", na_rep="")
    header, *rows = csv.reader(io.StringIO(text.getvalue()))
    head = _head(environment, [_row_digest(header, row) for row in rows])
    whole = f"{CSV_MARK}{head}\n{text.getvalue()}"
    write_durably(path, whole)


def write_parquet(path: Path, frame: pd.DataFrame, environment: Mapping[str, Any]) -> None:
    """Write a dataset as parquet, the environment in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = _stored(frame)
    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
    columns = {
        name: pa.array(stored[name].to_numpy(), type=types[schema.column_kind(name)], from_pandas=True)
        for name in stored.columns
    }
    table = pa.table(columns)
    digests = [_table_digest(table.slice(at, _ROW_GROUP)) for at in range(0, len(stored), _ROW_GROUP)]
    table = table.replace_schema_metadata({_METADATA_KEY: _head(environment, digests).encode()})
    words = [field.name for field in table.schema if field.type != pa.float64()]
    coded = {  # measured numbers rarely repeat; stored byte by byte (all first bytes, ...) they take less space
        "use_dictionary": words,
        "use_byte_stream_split": [name for name in table.schema.names if name not in words],
        "write_statistics": False,  # no reader selects rows by value
        "compression": "zstd",
        "compression_level": 12,  # 4 % smaller than by default; higher levels save hardly more
    }
    write = {"row_group_size": _ROW_GROUP, "write_page_checksum": True}
    write_durably(path, lambda file: pq.write_table(table, file, **coded, **write))


def read_csv(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a file that :func:`write_csv` wrote."""
    text = read_text(path, damaged=True)
    first, _, rest = text.partition("\n")
    if not first.startswith(CSV_MARK):
        fault = "is empty" if not text.strip() else f"does not begin with '{CSV_MARK.strip()}'"
        raise ConfigurationError(
            f"{path}: this is no slomo dataset, it {fault}",
            hint=f"{_RULED}; a table measured elsewhere needs a mapping",
        )
    environment, digests = _environment(path, first[len(CSV_MARK) :])
    header, cells, lines = _cells(path, rest)
    # files of older versions have no digests
    damaged = [at for at, digest in enumerate(digests[: len(cells)]) if _row_digest(header, cells[at]) != digest]
    if len(damaged) == len(cells):
        raise ConfigurationError(f"{path}, line 2: no row matches its digest", hint=_DAMAGED)
    sound = sorted(set(range(len(cells))) - set(damaged))
    wrong = [lines[at] for at in damaged]
    cells, numbers = [cells[at] for at in sound], [lines[at] for at in sound]
    columns = {name: _column(path, name, [row[index] for row in cells], numbers) for index, name in enumerate(header)}
    if wrong:
        environment["damaged"] = {"lines": wrong}
        warnings.warn(
            f"{path}: line{'s' if len(wrong) > 1 else ''} {', '.join(map(str, wrong[:20]))} "
            f"{'are' if len(wrong) > 1 else 'is'} not what was written; left out",
            stacklevel=2,
        )
    return schema.check_frame(pd.DataFrame(columns), str(path), numbers), environment


def read_parquet(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a file that :func:`write_parquet` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    damaged: list[list[int]] = []
    try:
        with os.fdopen(open_regular(path, MAX_FILE_BYTES), "rb") as opened:
            described = pq.read_metadata(opened)
            metadata = described.metadata or {}
            if _METADATA_KEY not in metadata:
                raise ConfigurationError(f"{path}: this parquet file is no slomo dataset", hint=_RULED)
            check_parquet(path, described)
            for name in described.schema.names:
                schema.check_column(name, str(path))
            texts = [name for name in described.schema.names if name in schema.TEXT_COLUMNS]
            file = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=texts)
            environment, digests = _environment(path, metadata[_METADATA_KEY].decode(errors="replace"))
            tables, row = [], 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                try:
                    part = file.read_row_group(group)
                except (pa.ArrowException, OSError, ValueError):
                    part = None  # a page does not match its checksum
                expected = digests[group] if group < len(digests) else None
                if part is None or (expected is not None and _table_digest(part) != expected):
                    damaged.append([row + 1, row + rows])
                else:
                    tables.append(_plain_frame(part))
                row += rows
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, KeyError) as error:
        raise unreadable_parquet(path, error, "the file is cut or damaged; write it again") from None
    if not tables and damaged:
        raise ConfigurationError(f"{path}: no row group matches its digest", hint=_DAMAGED)
    if damaged:
        environment["damaged"] = {"rows": damaged}
        warnings.warn(
            f"{path}: rows {', '.join(f'{a} to {b}' for a, b in damaged)} are not what was written; left out",
            stacklevel=2,
        )
    frame = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=file.schema_arrow.names)
    return schema.check_frame(frame, str(path)), environment


def unreadable_parquet(path: Path, error: BaseException, hint: str | None = None) -> ConfigurationError:
    """Return the error for a file that pyarrow cannot read."""
    return ConfigurationError(f"{path}: not readable as parquet: {' '.join(str(error).split())[:160]}", hint=hint)


def check_parquet(path: Path, metadata: Any) -> None:
    """Raise an error if a parquet file declares more cells or bytes than a table of measurements has."""
    check_cells(path, metadata.num_rows, metadata.num_columns)
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if size > MAX_TABLE_BYTES:
        raise ConfigurationError(
            f"{path}: holds {size / 2**20:.0f} MiB once unpacked, at most {MAX_TABLE_BYTES / 2**20:.0f} MiB are read"
        )


def read_text(path: Path, limit: int = MAX_TEXT_BYTES, *, damaged: bool = False) -> str:
    """Return the text of a file of bounded size, without byte order mark and with Unix line ends.

    With `damaged`, bytes that are no text are replaced instead of refused: the reader leaves out the lines they are on.
    """
    data = read_bytes(path, limit)
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")  # UTF-16, which PowerShell writes when output is redirected
    if not wide and b"\0" in data[:4096].rstrip(b"\0"):
        raise ConfigurationError(f"{path}: holds binary data, needed text")
    encoding = "utf-16" if wide else "utf-8-sig"
    text = data.decode(encoding, errors="replace") if damaged else decoded(data, path, encoding=encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_cells(path: Path, rows: int, columns: int, most: int = MAX_CELLS) -> None:
    """Raise an error if a table declares more cells than a table of measurements has."""
    if rows * columns > most:
        raise ConfigurationError(f"{path}: holds {rows} x {columns} cells, at most {most} are read")


def _stored(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without vector columns that are empty."""
    empty = [name for name in schema.METRIC_COLUMNS if name in frame.columns and frame[name].isna().all()]
    return frame.drop(columns=empty)


def _head(environment: Mapping[str, Any], digests: Sequence[str]) -> str:
    """Return a file's header: version, environment, its digest, and digests of rows or row groups."""
    known = {name: value for name, value in environment.items() if name != "damaged"}
    head: dict[str, Any] = {"schema_version": schema.SCHEMA_VERSION, "environment": known}
    return canonical_json({**head, "digest": _short(canonical_json(known)), "rows": "".join(digests)})


def _environment(path: Path, text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the environment, and the digests of rows or row groups; files of older versions have no digests."""
    try:
        head = parse_json(text, str(path))
    except ConfigurationError:
        raise ConfigurationError(f"{path}: the head of the dataset is damaged: {text[:60]!r}", hint=_RULED) from None
    environment = check_head(path, head)
    if head.get("digest", _short(canonical_json(environment))) != _short(canonical_json(environment)):
        raise ConfigurationError(f"{path}: the head of the dataset does not match its digest", hint=_DAMAGED)
    listed = str(head.get("rows", ""))
    return environment, [listed[at : at + 8] for at in range(0, len(listed), 8)]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _row_digest(header: Sequence[str], row: Sequence[str]) -> str:
    return _short("\0".join((*header, *row)))


def _table_digest(table: Any) -> str:
    """Return the digest of some rows of an arrow table, independent of the columns' encoding."""
    digest = hashlib.sha256("\0".join(table.column_names).encode())
    for column in _plain_frame(table).items():
        name, values = column
        text = schema.column_kind(str(name)) == "text"
        digest.update("\0".join(map(str, values)).encode() if text else np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:8]


def _plain_frame(table: Any) -> pd.DataFrame:
    import pyarrow as pa

    def plain(column: Any) -> Any:
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    return pd.DataFrame(
        {name: plain(table.column(name)).to_pandas().reset_index(drop=True) for name in table.column_names}
    )


def check_head(source: object, head: Any) -> dict[str, Any]:
    """Return the environment from a dataset's header after checking its schema version."""
    version = head.get("schema_version") if isinstance(head, dict) else None
    check_version(source, version, schema.SCHEMA_VERSION, "it was written by another release of slomo; use that one")
    environment = head.get("environment", {})
    if not isinstance(environment, dict):
        raise ConfigurationError(f"{source}: the environment must be a mapping, got {type(environment).__name__}")
    return environment


def _cells(path: Path, text: str) -> tuple[list[str], list[list[str]], list[int]]:
    numbered = [(line, row) for line, row in csv_rows(path, text, above=1, strict=True) if row]
    if len(numbered) < 2:
        raise ConfigurationError(f"{path}: holds no measurements", hint=_RULED)
    (_, header), *rows = numbered
    for line, row in rows:
        if len(row) != len(header):
            raise ConfigurationError(
                f"{path}, line {line}: {len(row)} cells, needed {len(header)}", hint="is the file cut?"
            )
    if len(set(header)) != len(header):
        raise ConfigurationError(f"{path}, line 2: a column name occurs twice")
    return header, [row for _, row in rows], [line for line, _ in rows]


def csv_rows(path: Path, text: str, *, above: int = 0, **dialect: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield line and cells of every row of a CSV text that begins after `above` lines of its file."""
    reader = csv.reader(io.StringIO(text), **dialect)
    try:
        for row in reader:
            yield reader.line_num + above, row
    except csv.Error as error:
        line = reader.line_num + above
        raise ConfigurationError(f"{path}, line {line}: not readable as CSV: {error}") from None


def finite(text: str) -> float:
    """Return the number that a text states; NaN if it states no finite one."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


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
