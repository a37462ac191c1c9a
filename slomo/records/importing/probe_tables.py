r"""Import run times of applications beside a bubble (adjustable pressure), and of a reporter beside applications.

In Bubble-Up (MICRO'11, section 3), a bubble is a program that exerts a known level of pressure, and a reporter is a
program that measures the pressure of an application. There are three kinds of table: the reporter at each level, the
reporter beside each application, each application at each level. All contain run times, so smaller is better.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as place:
...     folder = Path(place)
...     _ = (folder / "reporter.csv").write_text(" mean\n0 10\n8 15\n16 20\n")
...     _ = (folder / "beside.csv").write_text(" mean\nlbm 15\n")
...     _ = (folder / "lbm.csv").write_text("level time\n0 40\n8 60\n16 80\n")
...     tables = read_probe_tables(folder, {
...         "machine": "m", "kind": "probes", "reporter": {"file": "reporter.csv"},
...         "beside": {"file": "beside.csv"}, "sensitivity": {"file": "{name}.csv"},
...     })
>>> tables.names, tables.levels.tolist(), tables.beside["lbm"]
(('lbm',), [0.0, 8.0, 16.0], 15.0)
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import slomo.records.tables as tables
from slomo.errors import ConfigurationError
from slomo.files import documents
from slomo.files.durable import write_durably
from slomo.files.opening import read_text
from slomo.files.ranges import Name, PositiveRate
from slomo.files.stored import Stored
from slomo.records.shipped import mapping_file

MOST_ROWS = 10_000
SCHEMA_VERSION = 1


class ProbeTable(msgspec.Struct, forbid_unknown_fields=True):
    """File and columns of a table of run times."""

    file: Annotated[str, Meta(description="a file name inside the folder; {name} stands for the application")]
    column: Annotated[str, Meta(description="name of the column that holds run times; the first by default")] | None = (
        None
    )
    name_characters: Annotated[
        dict[str, str], Meta(description="characters of a name that the file's name writes otherwise")
    ] = {}


class ProbeMapping(msgspec.Struct, forbid_unknown_fields=True):
    """Mapping of a folder of probe measurements."""

    kind: Literal["probes"]
    machine: str
    reporter: ProbeTable
    beside: ProbeTable
    sensitivity: ProbeTable


@dataclass(frozen=True, eq=False)
class ProbeTables(Stored, version=SCHEMA_VERSION):
    """Probe measurements of one machine; each table's run times have one unit."""

    #: Name of the machine.
    machine: Name
    #: Levels of the bubble, ascending, shape (n,); the first one means no pressure.
    levels: NDArray[np.float64]
    #: Run time of the reporter at each level, shape (n,).
    reporter: NDArray[np.float64]
    #: Run time of the reporter beside each application.
    beside: Mapping[Name, PositiveRate]
    #: Levels and run times of each application.
    sensitivity: Mapping[Name, tuple[NDArray[np.float64], NDArray[np.float64]]]

    def __post_init__(self) -> None:
        for name, (levels, times) in (("reporter", (self.levels, self.reporter)), *self.sensitivity.items()):
            if not levels.ndim == times.ndim == 1 or len(levels) != len(times) or len(levels) < 2:
                raise ConfigurationError(
                    f"'{name}' has {times.size} times at {levels.size} levels, needed two or more, one time each"
                )
            if not (np.diff(levels) > 0.0).all() or not (times > 0.0).all():
                raise ConfigurationError(f"'{name}': needed levels that ascend, and run times above 0")
        if apart := sorted(self.beside.keys() ^ self.sensitivity.keys()):
            raise ConfigurationError(f"'{apart[0]}' stands in only one of 'beside' and 'sensitivity', needed in both")

    @property
    def names(self) -> tuple[str, ...]:
        """Applications, in the order of the table."""
        return tuple(self.beside)

    @property
    def hints(self) -> dict[str, dict[str, float]]:
        """How much each application presses on the reporter, and suffers at the levels on average, as logarithms."""
        by_function = {}
        for name, extra_time in self.beside.items():
            levels, times = self.sensitivity[name]
            slower = np.log(np.interp(self.levels, levels, times) / times[0])
            by_function[name] = {
                "presses": math.log(extra_time / float(self.reporter[0])),
                "suffers": float(slower.mean()),
            }
        return by_function


def save_probe_tables(probed: ProbeTables, path: str | Path) -> None:
    """Write probe tables as one JSON file."""
    write_durably(path, json.dumps(probed.to_dict(), indent=1, allow_nan=False) + "\n")


def load_probe_tables(path: str | Path) -> ProbeTables:
    """Read a file that :func:`save_probe_tables` wrote."""
    hint = "make one: slomo dataset import FOLDER --mapping MAP.yaml --out probes.json, with a mapping of kind probes"
    return documents.read(path, ProbeTables, hint=hint)


def is_probe_mapping(mapping: str | Path) -> bool:
    """Return whether a mapping's file is of kind ``probes``.

    >>> is_probe_mapping("spec-pairs"), is_probe_mapping("yala-regex")
    (True, False)
    """
    file = mapping_file(mapping)
    return documents.parse(read_text(file), str(file)).table().get("kind") == "probes"


def read_probe_tables(folder: str | Path, mapping: str | Path | Mapping[str, Any]) -> ProbeTables:
    """Read a folder of probe measurements; the mapping, a YAML file or its content, names the file of each table."""
    place = Path(folder)
    if isinstance(mapping, Mapping):
        read = documents.convert(dict(mapping), ProbeMapping, "mapping")
    else:
        file = mapping_file(mapping)
        read = documents.parse(read_text(file), str(file)).to(ProbeMapping)
    levels, reporter = _curve(place / read.reporter.file, read.reporter.column)
    beside = _column(place / read.beside.file, read.beside.column)
    each = read.sensitivity
    curves = {name: _curve(place / _file(each, name), each.column) for name in beside}
    return ProbeTables(read.machine, levels, reporter, beside, curves)


def _file(entry: ProbeTable, name: str) -> str:
    """Return the path of an application's file; a name that leads out of the folder is refused."""
    for character, written in entry.name_characters.items():
        name = name.replace(character, written)
    if "/" in name or "\\" in name or name.startswith("."):
        raise ConfigurationError(f"'{name}' is no application's name", hint="a name holds no path")
    return entry.file.replace("{name}", name)


def _curve(path: Path, column: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a table's pressure levels and run times, sorted by level."""
    run_times: dict[float, float] = {}
    for text, value in _column(path, column).items():
        level = _number(path, text)
        if level < 0.0:
            raise ConfigurationError(f"{path}: level {text}, needed 0 or more")
        run_times[level] = value
    levels = np.array(sorted(run_times))
    if len(levels) < 2 or levels[0] != 0.0:
        shown = ", ".join(f"{level:g}" for level in levels[:5])
        raise ConfigurationError(
            f"{path}: has levels {shown}, needed 0 (no competitor) and at least one more",
            hint="measure the run time alone, too",
        )
    return levels, np.array([run_times[level] for level in levels.tolist()])


def _column(path: Path, name: str | None) -> dict[str, float]:
    """Return the run time of each row, by the text in the row's first column.

    Files written by pandas leave out the first column's name, or have no header. The first line counts as header if it
    is shorter than the next one, or does not end in a number.
    """
    lines = [(number, line.split()) for number, line in enumerate(tables.read_text(path).split("\n"), start=1)]
    lines = [(number, cells) for number, cells in lines if cells]
    width = len(lines[-1][1]) if lines else 0
    headed = bool(lines) and (len(lines[0][1]) < width or not _is_number(lines[0][1][-1]))
    names, body = (lines[0][1][1 - width :], lines[1:]) if headed else ([], lines)
    if not body or width < 2 or len(body) > MOST_ROWS:
        raise ConfigurationError(f"{path}: {len(body)} rows of {width} columns, needed 1 to {MOST_ROWS} of 2 or more")
    if name is not None and name not in names:
        raise ConfigurationError(f"{path}: has no column '{name}'", hint=f"it has: {', '.join(names) or 'no header'}")
    place = 1 + (0 if name is None else names.index(name))
    run_times: dict[str, float] = {}
    for number, cells in body:
        if len(cells) != width or cells[0] in run_times:
            what = f"{len(cells)} values, needed {width}" if len(cells) != width else f"'{cells[0]}' occurs twice"
            raise ConfigurationError(f"{path}, line {number}: {what}")
        run_times[cells[0]] = _number(path, cells[place], number)
        if not run_times[cells[0]] > 0.0:
            raise ConfigurationError(f"{path}, line {number}: run time {cells[place]}, needed above 0")
    return run_times


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(path: Path, text: str, line: int | None = None) -> float:
    value = tables.finite(text)
    if math.isnan(value):
        where = f"{path}" if line is None else f"{path}, line {line}"
        raise ConfigurationError(f"{where}: got '{text}', needed a number")
    return value
