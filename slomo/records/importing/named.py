r"""Import throughputs of functions that ran together and are known only by name, two or more functions per row.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     table = Path(folder, "pairs.csv")
...     _ = table.write_text("a,b,a_mpps,b_mpps\nlpm,,5.0,\nlpm,nat,4.0,2.5\n")
...     dataset = import_pairs(table, "e5-2620v4")
>>> [(nf, mpps) for nf, mpps in zip(dataset.frame["nf"], dataset.throughput.tolist(), strict=True)]
[('lpm', 5.0), ('lpm', 4.0), ('nat', 2.5)]
"""

import math
import re
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import slomo.records.rows as rows
import slomo.records.schema as schema
from slomo.errors import ConfigurationError, SlomoError
from slomo.files.json_text import parse_json
from slomo.files.opening import read_text
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.competitors import named_competitors
from slomo.records.importing.mapping import throughput_mpps
from slomo.records.importing.plausible import MOST_OF_SOLO, fitting_unit, port_fault, share_fault, throughput_fault
from slomo.records.importing.probe_tables import ProbeTables
from slomo.records.importing.table import MeasuredTable, fingerprint_of, measured_row, read_table
from slomo.records.provenance import SCHEMA_VERSION
from slomo.records.tables import finite
from slomo.units import UNITS
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload

#: Unit of a share of solo throughput -> factor that converts it to a share of 1.
_SHARES = {"share": 1.0, "%": 0.01}
#: Other spellings of a unit at the end of a column's name.
_SPELLINGS = {"pct": "%", "percent": "%"}
_RATES = tuple(name for name, (kind, *_) in UNITS.items() if kind in ("packet rate", "time"))
#: A number, with a decimal comma or point.
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf")
#: Texts of a rate that was not measured, and hints about cells.
_MISSING = ("", "-", "n/a", "nan")
_CORRECT, _POINT = "correct the file", "write a decimal point: 4.1"
#: Largest rate that could also be a share, if no unit is given.
_ABOUT_ONE = 1.5


@dataclass(frozen=True)
class _Columns:
    """The table's columns with names, its columns with rates, and the rates' unit."""

    names: tuple[int, ...]
    rates: tuple[int, ...]
    unit: str
    #: Whether an argument or a column's name gave the unit.
    is_stated: bool


def import_pairs(
    path: str | Path,
    machine: str,
    *,
    unit: str | None = None,
    rates: Sequence[str] = (),
    probes: ProbeTables | None = None,
) -> ProfileDataset:
    """Read a table of functions that ran together.

    Warns if no unit is given, and if a function's rate beside others is far above its solo throughput.

    Parameters
    ----------
    path : str or Path
        A table with a header. Columns of texts name functions; the first rate belongs to the first name, the second
        rate to the second name. If there is only one column of rates, a name may be a list (``nat + 2 x lpm``). A row
        with one name is a solo run.
    machine : str
        Machine on which the functions were measured.
    unit : str, optional
        Unit of the rates: a rate, a time per packet, or ``share`` or ``%`` of solo throughput. By default it is taken
        from the end or beginning of a column's name (``_mpps``, ``_share``, ``_pct``), else it is Mpps, with a warning.
    rates : sequence of str
        Columns that hold rates; by default all columns of numbers.
    probes : ProbeTables, optional
        Run times of the same functions beside probes; training estimates from them what was not measured.

    Returns
    -------
    ProfileDataset
        Rows of plan ``solo`` and ``mix``.
    """
    place = Path(path)
    table = read_table(place, *_format(place))
    columns, digest = _columns(table, unit, rates), fingerprint_of(place)
    runs = [(line, row) for line, cells in zip(table.lines, table.cells, strict=True)
            for row in _rows(table, columns, line, cells, (machine, digest))]  # fmt: skip
    listed = [row for _, row in runs]
    if not any(row[schema.COMPETITOR_COUNT] for row in listed):
        raise ConfigurationError(
            f"{place}: none of {len(table.lines)} rows names two functions with a rate",
            hint="a row is a co-location: lpm,nat,4.1,2.9",
        )
    alone = {row[schema.TARGET] for row in listed if not row[schema.COMPETITOR_COUNT]}
    # names and rates say nothing of testbed and settings: they are merged with any profile of the machine
    environment: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    environment["import"] = {"file": place.name, "rows": len(listed), "unit": columns.unit}
    if probes is not None:
        environment[schema.PROBES] = {machine: probes.hints}
    if columns.unit in _SHARES:
        environment["stated_solo_mpps"] = {str(row[schema.TARGET]): 1.0 for row in listed}
        environment["throughput_units"] = {machine: {str(row[schema.NF]): "share" for row in listed}}
    elif not alone and unit is None and max(row[schema.THROUGHPUT] for row in listed) < _ABOUT_ONE:
        raise ConfigurationError(
            f"{place}: no function was run alone, and all rates are below {_ABOUT_ONE:g}: Mpps, or shares of solo?",
            hint="say --unit share or --unit Mpps",
        )
    if not columns.is_stated:
        warnings.warn(
            f"{place}: no column's name ends with a unit, rates are read as Mpps; --unit tells another", stacklevel=2
        )
    for fault in (*_faster(runs), *_contradictory(runs)):
        warnings.warn(f"{place}, {fault}", stacklevel=2)
    return ProfileDataset(pd.DataFrame(listed), environment)


def _faster(runs: Sequence[tuple[int, rows.Row]]) -> Iterator[str]:
    """Yield the runs whose rate beside others is far above the median of the function's solo runs."""
    alone: dict[object, list[float]] = {}
    for _, row in runs:
        if not row[schema.COMPETITOR_COUNT]:
            alone.setdefault(row[schema.TARGET], []).append(row[schema.THROUGHPUT])
    for line, row in runs:
        mpps, solo = row[schema.THROUGHPUT], statistics.median(alone.get(row[schema.TARGET], [math.inf]))
        if row[schema.COMPETITOR_COUNT] and mpps > MOST_OF_SOLO * solo:
            yield (
                f"line {line}: '{row[schema.NF]}' has {mpps:.4g} Mpps beside others and {solo:.4g} Mpps "
                "alone; training leaves such rows out"
            )


def _contradictory(rated: Sequence[tuple[int, rows.Row]]) -> Iterator[str]:
    """Yield the functions whose runs alone, or beside the same others, differ by more than noise and turbo do."""
    runs: dict[tuple[str, str, tuple[str, ...]], dict[int, list[float]]] = {}
    for line, row in rated:
        others = tuple(sorted(map(str, parse_json(row[schema.COMPETITORS], "competitors"))))
        same = runs.setdefault((str(row[schema.NF]), str(row[schema.TARGET]), others), {})
        same.setdefault(line, []).append(row[schema.THROUGHPUT])
    for (nf, _, others), lines in runs.items():
        means = {line: statistics.fmean(rates) for line, rates in lines.items()}  # instances in one run are no repeats
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        if means[high] > MOST_OF_SOLO * means[low]:
            where = "beside the same others" if others else "alone"
            yield f"line {low}: '{nf}' has {means[low]:.4g} Mpps {where}, in line {high} {means[high]:.4g}: which one?"


def _format(path: Path) -> tuple[str, str | None]:
    """Return format and separator of a table, by its header."""
    lines = (line for line in read_text(path).splitlines() if line.strip() and not line.startswith("#"))
    first = next(lines, "")
    separator = next((each for each in (",", "\t", ";") if each in first), None)
    return ("whitespace", None) if separator is None else ("csv", separator)


def _columns(table: MeasuredTable, unit: str | None, rate_columns: Sequence[str]) -> _Columns:
    filled = [place for place in range(len(table.names)) if any(str(cells[place]).strip() for cells in table.cells)]
    numeric = [place for place in filled if _is_numeric(table, place)]
    names = tuple(place for place in filled if place not in numeric)
    if unknown := [name for name in rate_columns if name not in table.names]:
        raise ConfigurationError(
            f"{table.path}: has no column '{unknown[0]}'", hint=f"it has: {', '.join(table.names)}"
        )
    rates = tuple(table.names.index(name) for name in rate_columns) if rate_columns else tuple(numeric)
    if not names:
        raise ConfigurationError(
            f"{table.path}: no column holds names; it has {', '.join(table.names)}",
            hint="name the functions of each row, one column each; a table of counters needs --mapping",
        )
    if not rates or len(rates) > len(names):
        shown = ", ".join(table.names[place] for place in rates) or "none"
        raise ConfigurationError(
            f"{table.path}: {len(names)} columns of names, and {len(rates)} of rates: {shown}",
            hint="needed one rate, or one of each name: --rates COLUMN,COLUMN",
        )
    units = {table.names[place]: _unit_of(table.names[place]) for place in rates}
    different = {each for each in units.values() if each is not None or not rate_columns}
    if unit is None and len(different) > 1:
        shown = ", ".join(f"{name} in {each or 'no unit'}" for name, each in units.items())
        raise ConfigurationError(
            f"{table.path}: rates of different units: {shown}",
            hint="name the columns that hold rates: --rates COLUMN,COLUMN; or the unit of all: --unit UNIT",
        )
    stated = unit or next(filter(None, units.values()), None)
    if stated is not None and stated not in (*_SHARES, *_RATES):
        raise ConfigurationError(f"unit '{stated}' is not a unit of a rate", hint="Mpps, kpps, pps, us, s, share or %")
    return _Columns(names, rates, stated or "Mpps", stated is not None)


def _unit_of(name: str) -> str | None:
    """Return the unit at the end of a column's name, else the unit at its beginning; None without a unit."""
    known = {each.lower(): each for each in (*_RATES, *_SHARES)} | _SPELLINGS
    words = re.split(r"[\s_\[\](/.-]+", name.strip().rstrip(")] ").lower())
    return known.get(words[-1]) or known.get(words[0])


def _rows(
    table: MeasuredTable, columns: _Columns, line: int, cells: Sequence[Any], where: tuple[str, str]
) -> list[rows.Row]:
    members: list[list[Workload]] = []
    for place in columns.names:
        try:
            members.append(list(named_competitors(str(cells[place]), Traffic())))
        except SlomoError as error:
            raise _fault(table, line, place, cells[place], error.message) from None
        if _NUMBER.fullmatch(str(cells[place]).strip()):
            raise _fault(table, line, place, cells[place], "needed the name of a function")
    if not members[0]:
        raise _fault(table, line, columns.names[0], cells[columns.names[0]], "needed the name of a function")
    listed = []
    for number, place in enumerate(columns.rates):
        text = str(cells[place]).strip()
        if not members[number] or (number and text.lower() in _MISSING):
            continue
        if len(members[number]) > 1:
            raise _fault(table, line, columns.names[number], cells[columns.names[number]], "one rate is of one name")
        target = members[number][0]
        others = tuple(each for other, part in enumerate(members) if other != number for each in part)
        colocation = Colocation(where[0], target, others)
        mpps = _mpps(table, columns.unit, (line, place), text, (where[0], target))
        identity = f"{where[1]}:{line}:{number}"
        listed.append(measured_row(colocation, schema.Plan.MIX if others else schema.Plan.SOLO, mpps, identity))
    return listed


def _mpps(table: MeasuredTable, unit: str, at: tuple[int, int], text: str, of: tuple[str, Workload]) -> float:
    """Return the rate of `of` (machine, workload) in a cell [Mpps], or its share of solo throughput."""
    value = finite(text)
    if not value > 0.0:
        raise _fault(table, *at, text, "needed a rate above 0", _POINT if "," in text else _CORRECT)
    if unit in _SHARES:
        mpps = value * _SHARES[unit]
        fault, other = share_fault(mpps), "%" if unit == "share" else None
    else:
        mpps = throughput_mpps(value, unit)
        fault, other = throughput_fault(mpps), fitting_unit(mpps) if unit == "Mpps" else None
    if fault:
        raise _fault(table, *at, text, fault, _CORRECT if other is None else f"say --unit {other}, or correct the file")
    if unit not in _SHARES and (fault := port_fault(mpps, of[0], of[1].traffic.packet_size_b)):
        raise _fault(table, *at, text, fault, "correct the file, or give another machine than the shipped one a name")
    return mpps


def _fault(
    table: MeasuredTable, line: int, place: int, got: object, what: str, hint: str = _CORRECT
) -> ConfigurationError:
    return ConfigurationError(
        f"{table.path}, line {line}, column '{table.names[place]}': got {got!r}, {what}", hint=hint
    )


def _is_numeric(table: MeasuredTable, place: int) -> bool:
    """Return whether most filled cells of a column are numbers; any other cell is then an error."""
    texts = [str(cells[place]).strip() for cells in table.cells]
    texts_given = [text for text in texts if text.lower() not in _MISSING]
    numbers = sum(_NUMBER.fullmatch(text) is not None for text in texts_given)
    return bool(texts_given) and 2 * numbers > len(texts_given)
