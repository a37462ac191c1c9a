"""Read the YAML file (the mapping) that states the meaning of a table's columns.

It maps each column to a metric, unit and factor, like the type maps of collectd and Telegraf. It is checked before any
number is read; errors name file, line and field.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError, SlomoError
from slomo.files.documents import convert, line_of, parse
from slomo.files.json_text import Position
from slomo.files.opening import read_text
from slomo.records.importing.mapping_file import ColumnEntry, MappingFile
from slomo.records.shipped import mapping_file
from slomo.units import UNITS, unit_factor
from slomo.vocabulary.metrics import Metric, metric
from slomo.vocabulary.workload import Workload

#: Unit of counts per second -> factor that converts it to millions per second.
_RATES = {"/s": 1e-6, "1/s": 1e-6, "k/s": 1e-3, "M/s": 1.0, "G/s": 1e3}


@dataclass(frozen=True)
class TableMapping:
    """Meaning of a table's columns, after all checks."""

    #: Content of the mapping's file.
    file: MappingFile
    #: Name of the file, for error messages.
    name: str
    #: Line of every field in the file.
    lines: Mapping[Position, int]

    @property
    def columns(self) -> Mapping[str, ColumnEntry]:
        """Meaning of each column of the table."""
        return self.file.columns

    @property
    def target_column(self) -> str:
        """Name of the column that is predicted."""
        return next(name for name, column in self.columns.items() if column.target)

    def workload(self, nf: str | None = None, traffic: Mapping[str, Any] | None = None) -> Workload:
        """Return the target that the mapping describes; values given in the row take precedence."""
        return Workload(nf or str(self.file.nf), self.file.configuration, replace(self.file.traffic, **(traffic or {})))

    def fault(self, position: Position, what: str, hint: str | None = None) -> ConfigurationError:
        """Return an error that names a field of the mapping, with file and line."""
        line = line_of(position, self.lines)
        where = self.name if line is None else f"{self.name}:{line}"
        return ConfigurationError(f"{where}: field '{'.'.join(map(str, position))}': {what}", hint=hint)


def load_mapping(source: str | Path | Mapping[str, Any]) -> TableMapping:
    """Read and check a mapping: a YAML file, the name of a mapping that ships with slomo, or its content."""
    lines: Mapping[Position, int] = {}
    if isinstance(source, Mapping):
        data, name = dict(source), "mapping"
    else:
        file = mapping_file(source)
        name = str(file)
        document = parse(read_text(file), name)
        data, lines = document.table(), document.lines
    mapping = TableMapping(convert(data, MappingFile, name, lines=lambda: lines), name, lines)
    _check_columns(mapping)
    return mapping


def metric_factor(target: Metric, unit: str | None) -> float:
    """Return the factor that converts `unit` to the counter's own; InvalidValueError for another dimension."""
    if unit is None or unit == target.unit:
        return 1.0
    if target.unit == "M/s" and unit in _RATES:
        return _RATES[unit]
    if target.unit == "1" and unit == "%":
        return 0.01
    if target.unit not in UNITS:
        needed = ", ".join(_RATES) if target.unit == "M/s" else f"{target.unit}{' or %' if target.unit == '1' else ''}"
        raise InvalidValueError(f"{target.name} is in {target.unit}, got unit '{unit}'", hint=f"needed: {needed}")
    return unit_factor(unit, target.unit)


def throughput_mpps(value: float, unit: str | None, *, inverse: bool = False) -> float:
    """Convert a throughput to [Mpps]; with a unit of time, or `inverse`, the value is the reciprocal of a rate."""
    unit = unit or "Mpps"
    if unit in UNITS and UNITS[unit][0] == "time":
        return 1.0 / (value * unit_factor(unit, "us"))
    return (1.0 / value if inverse else value) * unit_factor(unit, "Mpps")


def target_mpps(value: float, column: ColumnEntry, solo_mpps: float) -> float:
    """Convert a cell of the target's column to a throughput [Mpps].

    A response latency is measured by a client that waits for each answer, so its inverse is the rate. With an unknown
    solo throughput of 1, all throughputs are shares.
    """
    if column.target == "share":
        return value * (0.01 if column.unit == "%" else 1.0) * solo_mpps
    unit = column.unit or ("us" if column.target == "latency" else None)
    return throughput_mpps(value, unit, inverse=column.inverse)


def _check_target(name: str, column: ColumnEntry) -> None:
    """Raise an error if the unit of the target column is impossible, or missing although the name ends with one."""
    unit, kind = column.unit, column.target
    ending = re.split(r"[^a-zA-Z]", name.rstrip(")] "))[-1]
    if kind == "throughput" and unit is None and ending in UNITS and ending != "Mpps":
        raise InvalidValueError(f"has no unit, and its name ends with '{ending}'", hint=f"write 'unit: {ending}'")
    if kind == "share" and unit not in (None, "1", "%"):
        raise InvalidValueError(f"a share of solo has no unit '{unit}'", hint="needed: 1 or %")
    if kind == "latency" and unit is not None and UNITS.get(unit, ("",))[0] != "time":
        raise InvalidValueError(f"a latency is no '{unit}'", hint="needed: ns, us, ms or s")
    if kind == "throughput":
        throughput_mpps(1.0, unit)


def _check_columns(mapping: TableMapping) -> None:
    """Check what types cannot express: metric names, units, duplicates, and that exactly one column is the target."""
    targets = [name for name, column in mapping.columns.items() if column.target]
    if mapping.columns and len(targets) != 1:
        raise mapping.fault(
            ("columns",),
            f"{len(targets)} columns are the target, needed one",
            "write 'target: throughput' at the column",
        )
    labels = {column.label for column in mapping.columns.values()}
    if mapping.columns and mapping.file.nf is None and "nf" not in labels:
        raise mapping.fault((), "no network function is named", "write 'nf: <name>', or give a column 'label: nf'")
    for name, column in mapping.columns.items():
        try:
            if column.metric:
                metric_factor(metric(column.metric), column.unit)
            if column.target:
                _check_target(name, column)
        except SlomoError as error:
            raise mapping.fault(("columns", name), error.message, error.hint) from None
