"""Read the ``-csv`` files of every Intel PCM release since 2016 as samples of named numbers.

The layouts are those of PCM's own writers (opcm/pcm src/pcm.cpp print_csv_header and print_csv, src/pcm-memory.cpp).
Files have two header rows, the group above the metric; until 2020 the group is named once per block, since then in
every cell. The separator is ``;`` until 2019 and ``,`` since. Flattened files have one header row ``Group - metric``.
Columns are found by name, never by position.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.records.tables import check_cells, csv_rows, read_text

MAX_BYTES = 512 * 2**20
MAX_COLUMNS = 200_000
_PREAMBLE_LINES = 200
_EMPTY_HINT = "PCM leaves such a file where it could not read counters; see what it wrote to stderr"
_INSIDE_BLANKS = re.compile(r"\s+")
_MISSING = {"", "n/a", "na", "-"}
_STAMPS = ("date", "time")

Key = tuple[str, str]


@dataclass(frozen=True)
class Dialect:
    """Tool, separator and header layout of a PCM file."""

    #: Tool that wrote the file, ``pcm`` or ``pcm-memory``.
    tool: str
    #: Separator between cells.
    separator: str
    #: Header: ``sparse`` (group named once per block), ``repeated`` (group in every cell) or ``flattened`` (one row).
    header: str


@dataclass(frozen=True)
class PcmText:
    """Samples of named numbers from one PCM file."""

    #: Tool, separator and layout of the file.
    dialect: Dialect
    #: Column names, without repetition.
    keys: tuple[Key, ...]
    #: Values, NaN for an empty cell or ``N/A``, shape (n_samples, n_keys); `broken` marks other non-finite text.
    values: NDArray[np.float64]
    #: Whether a cell's text is no finite number (``-nan``, ``inf``, garbage), shape (n_samples, n_keys).
    broken: NDArray[np.bool_]
    #: Date and time of each sample as text.
    stamps: tuple[str, ...]
    #: Indices of samples that are the first of a run of PCM.
    starts: frozenset[int]
    #: Number of lines with too few cells.
    cut_lines: int


@dataclass
class _Header:
    rows: list[list[str]]
    names: list[Key]
    kind: str


def read_pcm_text(path: Path) -> PcmText:
    """Read the samples of a ``pcm -csv`` or ``pcm-memory -csv`` file."""
    text = read_text(path, MAX_BYTES, damaged=True)
    if not text.strip("\0 \n"):
        raise ConfigurationError(f"{path}: is empty, needed the output of `pcm -csv`", hint=_EMPTY_HINT)
    start = "".join(text.splitlines(keepends=True)[:4])
    separator = max((";", ",", "\t"), key=start.count)
    lines = _split(path, text, separator)
    header, rest = _find_header(path, lines)
    rows, starts, cut = _whole_rows(header, rest)
    if not rows:
        raise ConfigurationError(f"{path}: has a header but no sample", hint=_EMPTY_HINT)
    tool = "pcm" if not any(metric.startswith("Mem Read") for _, metric in header.names) else "pcm-memory"
    check_cells(path, len(rows), len(header.names))
    keys, values, broken = _numbers(header.names, rows, decimal_comma=separator == ";")
    stamp_places = [place for place, (_, metric) in enumerate(header.names) if metric.lower() in _STAMPS][:2]
    stamps = tuple(" ".join(row[place] for place in stamp_places) for row in rows)
    return PcmText(Dialect(tool, separator, header.kind), keys, values, broken, stamps, starts, cut)


def _split(path: Path, text: str, separator: str) -> Iterator[list[str]]:
    csv.field_size_limit(10_000_000)
    # PCM quotes no cells; a stray quote in a damaged file must not join the following lines
    quoted = any(line.startswith('"') for line in text[:100_000].split("\n")[:4])
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    for _, row in csv_rows(path, text.replace("\0", ""), delimiter=separator, quoting=quoting):
        if any(cell.strip() for cell in row):
            yield [cell.strip() for cell in row]


def _find_header(path: Path, lines: Iterator[list[str]]) -> tuple[_Header, Iterator[list[str]]]:
    previous: list[str] | None = None
    for row in islice(lines, _PREAMBLE_LINES):
        if len(row) > MAX_COLUMNS:
            raise ConfigurationError(f"{path}: has {len(row)} columns, at most {MAX_COLUMNS} are read")
        folded = [cell.lower() for cell in row]
        if previous is not None and "date" in folded and "time" in folded:
            kind = "repeated" if sum(map(bool, previous)) > len(previous) / 2 or len(previous) < 4 else "sparse"
            return _Header([previous, row], _paired(previous, row), kind), lines
        if sum(" - " in cell for cell in row) >= max(1, len([c for c in row if c]) - 2) and any(
            "time" in cell for cell in folded
        ):
            return _Header([row], [_flattened(cell) for cell in row], "flattened"), lines
        previous = row
    raise ConfigurationError(
        f"{path}: this is no output of `pcm -csv`: no header with Date and Time in its first {_PREAMBLE_LINES} lines",
        hint="any other table is read with a mapping of kind 'table'",
    )


def _paired(groups: Sequence[str], metrics: Sequence[str]) -> list[Key]:
    names: list[Key] = []
    group = ""
    for place, metric in enumerate(metrics):
        group = (groups[place] if place < len(groups) else "") or group
        names.append((group, metric))
    return names


def _flattened(cell: str) -> Key:
    group, _, metric = cell.rpartition(" - ")
    return group.strip(), metric.strip()


def _whole_rows(header: _Header, lines: Iterator[list[str]]) -> tuple[list[list[str]], frozenset[int], int]:
    """Return the complete rows, the starts of runs, and the number of incomplete rows (PCM may still write)."""
    named = [place for place, (_, metric) in enumerate(header.names) if metric]
    needed = named[-1] + 1
    lengths: dict[int, int] = {}
    rows: list[list[str]] = []
    starts = {0}
    for row in lines:
        if row in header.rows:
            starts.add(len(rows))
            continue
        rows.append(row)
        lengths[len(row)] = lengths.get(len(row), 0) + 1
    usual = max(lengths, key=lambda length: (lengths[length], length), default=needed)
    complete = [row for row in rows if len(row) >= max(usual, needed)]
    kept_before = np.cumsum([0] + [len(row) >= max(usual, needed) for row in rows])
    return complete, frozenset(int(kept_before[start]) for start in starts), len(rows) - len(complete)


def _numbers(
    names: Sequence[Key], rows: Sequence[Sequence[str]], *, decimal_comma: bool
) -> tuple[tuple[Key, ...], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the names of columns with numbers, each once, their values, and which cells hold no finite number."""
    places: dict[Key, int] = {}
    for place, key in enumerate(names):
        if key[1] and key[1].lower() not in _STAMPS:
            places.setdefault(key, place)
    values = np.full((len(rows), len(places)), math.nan)
    broken = np.zeros(values.shape, dtype=bool)
    for sample, row in enumerate(rows):
        for column, place in enumerate(places.values()):
            values[sample, column], broken[sample, column] = number(row[place], decimal_comma=decimal_comma)
    return tuple(places), values, broken


def number(cell: str, *, decimal_comma: bool = False) -> tuple[float, bool]:
    """Parse one cell; return its value (NaN if empty) and whether its text is not a finite number.

    >>> number(" 10 080"), number("2%")
    ((10080.0, False), (2.0, False))
    >>> number("N/A"), number("-nan")
    ((nan, False), (nan, True))
    """
    plain = _INSIDE_BLANKS.sub("", cell)
    try:
        value = float(plain)
    except ValueError:
        plain = plain.rstrip("%")
        if plain.lower() in _MISSING:
            return math.nan, False
        try:
            value = float(plain.replace(",", ".", 1) if decimal_comma else plain)
        except ValueError:
            return math.nan, True
    return (value, False) if math.isfinite(value) else (math.nan, True)
