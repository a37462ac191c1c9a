"""Read a file of results that goes with PCM recordings: each row has a run's throughput and its recordings' names.

PCM counts no packets and a traffic generator reads no counters, so a measurement consists of files of both. This module
joins them by name.
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
from slomo.records.importing.mapping_file import CompetitorEntry, ResultsEntry, RunEntry, ThroughputEntry
from slomo.vocabulary.workload import Traffic


def listed_runs(path: Path, mapping: TableMapping) -> list[RunEntry]:
    """Return the runs of a ``pcm`` mapping: those that it lists, or those of its file of results."""
    listed = mapping.file.results
    if listed is None:
        return mapping.file.runs
    place = (path if path.is_dir() else path.parent) / listed.file
    reader = csv.DictReader(io.StringIO(tables.read_text(place)), delimiter=listed.separator)
    reader.fieldnames = names = [name.strip() for name in reader.fieldnames or ()]
    for part in ("throughput", "alone", "beside", "competitors", "target_core"):
        if (column := getattr(listed, part)) is not None and column not in names:
            there = f"it has: {', '.join(names)}"
            raise mapping.fault(("results", part), f"{place} has no column '{column}'", there)
    runs = [_run(listed, row, f"{place}, line {reader.line_num}", mapping.file.traffic) for row in reader]
    if not runs:
        raise ConfigurationError(f"{place}: holds no row", hint="needed: one row per run")
    return runs


def _run(entry: ResultsEntry, row: Mapping[str, Any], where: str, traffic: Traffic) -> RunEntry:
    """Convert one row of the file of results to an entry of the mapping's list."""
    cells = {name: str(value or "").strip() for name, value in row.items() if isinstance(name, str)}
    run = RunEntry(ThroughputEntry(_number(cells, entry.throughput, where), entry.unit), plan=entry.plan)
    run.alone = (cells[entry.alone] or None) if entry.alone else None
    run.beside = (cells[entry.beside] or None) if entry.beside else None
    if entry.target_core:
        run.target_core = int(_number(cells, entry.target_core, where, least=0.0))
    if entry.competitors:
        try:
            named = named_competitors(cells[entry.competitors], traffic)
        except SlomoError as error:
            raise ConfigurationError(
                f"{where}, column '{entry.competitors}': {error.message}", hint=error.hint
            ) from None
        run.competitors = [CompetitorEntry(each.nf, dict(each.configuration), each.traffic) for each in named]
    return run


def _number(cells: Mapping[str, str], column: str, where: str, least: float = 1e-300) -> float:
    value = tables.finite(cells[column])
    if not least <= value:
        raise ConfigurationError(
            f"{where}, column '{column}': got '{cells[column]}', needed a number"
            + (" above 0" if least > 0.0 else " of 0 or more")
        )
    return value
