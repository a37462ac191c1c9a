"""A file of results beside PCM recordings: one run per row, with the names of its recordings and its throughput.

PCM counts no packets and a traffic generator reads no counters, so a measurement has both files, joined here by name.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import slomo.records.tables as tables
from slomo.errors import ConfigurationError, SlomoError
from slomo.records.importing.competitors import named_competitors
from slomo.records.importing.mapping import TableMapping

Run = dict[str, Any]


def listed_runs(path: Path, mapping: TableMapping) -> list[Run]:
    """Return the runs of a mapping of kind ``pcm``, from its list or its file of results.

    `path`: folder of the recordings, or one of them. `mapping`: with ``runs`` or ``results``. Raises
    ConfigurationError, with file, line and column, for a missing column, or a row without a number.
    """
    if "results" not in mapping.data:
        return list(mapping.data["runs"])
    listed = mapping.data["results"]
    place = (path if path.is_dir() else path.parent) / str(listed["file"])
    reader = csv.DictReader(io.StringIO(tables.read_text(place)), delimiter=listed.get("separator", ","))
    reader.fieldnames = names = [name.strip() for name in reader.fieldnames or ()]
    for part in ("throughput", "alone", "beside", "competitors", "target_core"):
        if part in listed and listed[part] not in names:
            there = f"it has: {', '.join(names)}"
            raise mapping.fault(("results", part), f"{place} has no column '{listed[part]}'", there)
    runs = [_run(listed, row, f"{place}, line {reader.line_num}", mapping) for row in reader]
    if not runs:
        raise ConfigurationError(f"{place}: holds no row", hint="needed: one row per run")
    return runs


def _run(entry: Mapping[str, Any], row: Mapping[str, Any], where: str, mapping: TableMapping) -> Run:
    """Return one row in the form of the mapping's list."""
    cells = {name: str(value or "").strip() for name, value in row.items() if isinstance(name, str)}
    run: Run = {"throughput": {"value": _number(cells, entry["throughput"], where)}}
    if "unit" in entry:
        run["throughput"]["unit"] = entry["unit"]
    for phase in ("alone", "beside"):
        if phase in entry and cells[entry[phase]]:
            run[phase] = cells[entry[phase]]
    if "target_core" in entry:
        run["target_core"] = int(_number(cells, entry["target_core"], where, least=0.0))
    if "competitors" in entry:
        try:
            named = named_competitors(cells[entry["competitors"]], mapping.data.get("traffic", {}))
        except SlomoError as error:
            raise ConfigurationError(
                f"{where}, column '{entry['competitors']}': {error.message}", hint=error.hint
            ) from None
        run["competitors"] = [_listed(workload) for workload in named]
    return run | ({"plan": entry["plan"]} if "plan" in entry else {})


def _listed(workload: Any) -> dict[str, Any]:
    described = workload.to_dict()
    traffic = {name: value for name, value in described["traffic"].items() if value is not None}
    return {"nf": workload.nf, "configuration": described["configuration"], "traffic": traffic}


def _number(cells: Mapping[str, str], column: str, where: str, least: float = 1e-300) -> float:
    try:
        value = float(cells[column])
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise ConfigurationError(
            f"{where}, column '{column}': got '{cells[column]}', needed a number"
            + (" above 0" if least > 0.0 else " of 0 or more")
        )
    return value
