"""Read the PCM recordings that a mapping lists into rows of a dataset.

SLOMO (SIGCOMM'20) runs PCM twice per experiment. While the competitors run alone, the socket's metrics are V. While the
target runs beside them, the metrics of the target's core are its contentiousness; the socket's metrics minus those of
the target's core are the competitors' vector beside the target.

PCM counts no packets and a traffic generator reads no counters, so a measurement consists of files of both, which are
joined by name.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import slomo.records.rows as rows
import slomo.records.tables as tables
from slomo.errors import ConfigurationError, MissingMetricError, SlomoError
from slomo.records.importing.competitors import named_competitors
from slomo.records.importing.mapping import TableMapping, throughput_mpps
from slomo.records.importing.mapping_file import CompetitorEntry, ResultsEntry, RunEntry, ThroughputEntry
from slomo.records.importing.table import UNNAMED, TableRows, measured_row
from slomo.records.measurement import others_of
from slomo.records.pcm.recording import PcmRecording, read_pcm
from slomo.records.schema import Plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope, no_pressure
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload


def read_rows(path: Path, mapping: TableMapping) -> TableRows:
    """Read the runs that a mapping of kind ``pcm`` lists."""
    result = TableRows()
    recordings: dict[Path, PcmRecording] = {}
    listed = listed_runs(path, mapping)
    for index, run in enumerate(listed):
        phases = {}
        for phase in ("alone", "beside"):
            place = _place(path, run, phase, len(listed))
            if place is not None and place not in recordings:
                recordings[place] = read_pcm(
                    place, interval_s=mapping.file.interval_s, nominal_mhz=mapping.file.nominal_mhz
                )
            phases[phase] = None if place is None else recordings[place]
        result.listed.append(_row(mapping, index, run, phases))
    for recording in recordings.values():
        for reason, count in recording.dropped.items():
            result.dropped[reason] = result.dropped.get(reason, 0) + count
        result.unreported += [
            f"{Path(recording.path).name}: {what}, {why}" for what, why in recording.unavailable.items()
        ]
    return result


def _place(path: Path, run: RunEntry, phase: str, runs: int) -> Path | None:
    if (file := getattr(run, phase)) is not None:
        return Path(path if path.is_dir() else path.parent, file)
    only = path.is_file() and runs == 1 and run.alone is None and phase == "beside"
    return path if only else None


def _row(mapping: TableMapping, index: int, run: RunEntry, phases: Mapping[str, PcmRecording | None]) -> rows.Row:
    position = ("runs", index)
    alone, beside = phases["alone"], phases["beside"]
    core = mapping.file.target_core if run.target_core is None else run.target_core
    if alone is None and beside is None:
        raise mapping.fault(position, "names no recording", "write 'alone: FILE' and 'beside: FILE'")
    if beside is not None and core is None:
        raise mapping.fault(position, "the core of the target is not known", "write 'target_core: N'")
    try:
        socket = _socket(mapping, alone, beside, core)
        own = None if beside is None or core is None else beside.core(core)
        competition = None if alone is None else _whole(mapping, alone, socket)
        rest = None if beside is None or own is None else _others(mapping, beside, socket, own)
    except SlomoError as error:
        raise ConfigurationError(f"{mapping.fault(position, error.message).message}", hint=error.hint) from None
    competitors: tuple[Workload, ...] = () if alone is None else (Workload(UNNAMED),)
    if run.competitors is not None:
        competitors = tuple(workload for entry in run.competitors for workload in entry.workloads)
    colocation = Colocation(mapping.file.machine, mapping.workload(), competitors)
    if not competitors:
        nothing = MetricVector(no_pressure(reporters=False))
        competition, rest = nothing, nothing
    plan = Plan(run.plan or Plan.IMPORTED) if competitors else Plan.SOLO
    mpps = throughput_mpps(run.throughput.value, run.throughput.unit)
    identity = f"{colocation.key}:{index}:{run.alone}:{run.beside}"
    return {
        **measured_row(colocation, plan, mpps, identity),
        **rows.vector_columns("competition", competition),
        **rows.vector_columns("beside", rest),
        **rows.vector_columns("own", own),
    }


def _socket(mapping: TableMapping, alone: PcmRecording | None, beside: PcmRecording | None, core: int | None) -> int:
    if mapping.file.socket is not None:
        return mapping.file.socket
    for recording in (beside, alone):
        if recording is not None and core in recording.cores:
            return recording.socket_of(int(core)) if core is not None else 0
    return 0


def _whole(mapping: TableMapping, recording: PcmRecording, socket: int) -> MetricVector:
    """Return a socket's metrics; on a one-socket machine whose sockets were not recorded, the system's metrics."""
    if socket in recording.sockets or not _one_socket(mapping, recording):
        if not recording.sockets and mapping.file.sockets is None:
            raise MissingMetricError(
                f"{recording.path}: has columns of the system but of no socket, and nothing says how many there are",
                hint="write 'sockets: 1' in the mapping where the machine has one",
            )
        return recording.socket(socket)
    return MetricVector(dict(recording.system()), scope=Scope.SOCKET)


def _one_socket(mapping: TableMapping, recording: PcmRecording) -> bool:
    stated = mapping.file.sockets
    if stated is None:
        return bool(recording.cores) and len({recording.socket_of(core) for core in recording.cores}) == 1
    return bool(stated == 1)


def _others(mapping: TableMapping, beside: PcmRecording, socket: int, own: MetricVector) -> MetricVector:
    """Return the socket's metrics beside the target; the target's own part is subtracted from metrics that add up."""
    is_covered = socket in beside.sockets or (not beside.sockets and _one_socket(mapping, beside))
    return others_of(_whole(mapping, beside, socket) if is_covered else MetricVector({}), own)


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
