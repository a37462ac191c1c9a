"""A recording of Intel PCM: metrics of cores, sockets and system in slomo's units, without invalid samples.

SLOMO (SIGCOMM'20) section 5 takes its contentiousness metrics from ``pcm -csv``. PCM prints 0, -1, ``N/A``, ``nan`` or
nonsense for counters that it could not read. slomo treats such values as missing and drops contradictory samples.

Values that PCM rounded to zero are recovered: INST, ACYC and TIME(ticks) are printed in millions with more digits. EXEC
is INST over TIME, FREQ is ACYC over TIME, IPC is INST over ACYC (opcm/pcm, cpucounters.h: getExecUsage,
getRelativeFrequency over active time, getIPC).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slomo.errors import MissingMetricError
from slomo.records.pcm.csv import Dialect, PcmText, read_pcm_text
from slomo.records.pcm.units import Interval, Unit, intervals, plain, times, unit_columns
from slomo.units import plural
from slomo.vocabulary.display import html_table
from slomo.vocabulary.metrics import METRICS, Scope
from slomo.vocabulary.vector import Floats, MetricVector

FIRST, OFF_TIME, NO_CYCLES = "first second of a run", "TIME more than 5 % off", "no cycles (ACYC = 0)"
NEGATIVE_IPC, NOT_FINITE, CUT = "IPC below 0", "value that is not finite", "line with too few cells"
_TIME_TOLERANCE = 0.05
#: Plausible range of the mean latency of LLC misses; values outside mean an unread counter [ns].
_LATENCY_NS = (5.0, 20_000.0)
#: Metrics that cannot be zero in all samples on a machine that executes instructions.
_NEVER_ZERO = ("IPC", "INST", "EXEC", "FREQ", "AFREQ", "L2MISS", "L3OCC", "READ", "WRITE")
#: Metric that may round to 0 in all samples -> a counter of the same kind, which must then have been read.
_MAY_BE_ZERO = {"LMB": "L3OCC", "RMB": "L3OCC", "L3MISS": "L2MISS", "L3MPI": "L2MISS"}
#: Columns of pcm-memory for a metric, the preferred one first; they hold rates in MB/s (1e6 bytes per second).
_MEMORY_COLUMNS = {
    "READ": ("MemRead(MB/s)", "DRAMRead", "Read"),
    "WRITE": ("MemWrite(MB/s)", "DRAMWrite", "Write"),
}


@dataclass(frozen=True)
class PcmRecording:
    """Samples of a PCM recording."""

    #: Path of the file.
    path: str
    #: Tool, separator and layout of the file.
    dialect: Dialect
    #: Actual sampling interval, and its source.
    interval: Interval
    #: Reason -> number of samples dropped. A reason that invalidates a whole line counts once per line; other reasons
    #: count once per core, socket or system.
    dropped: Mapping[str, int]
    #: ``metric (unit)`` -> reason why its values count as not reported.
    unavailable: Mapping[str, str]
    _text: PcmText
    _columns: Mapping[Unit, Mapping[str, list[int]]]
    _values: Mapping[Unit, Mapping[str, Floats]]
    _kept: Mapping[Unit, NDArray[np.bool_]]

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of the recorded cores, as the operating system numbers them."""
        return tuple(sorted(unit.core for unit in self._columns if unit.scope is Scope.CORE))

    @property
    def sockets(self) -> tuple[int, ...]:
        """Numbers of the recorded sockets."""
        return tuple(sorted(unit.socket for unit in self._columns if unit.scope is Scope.SOCKET))

    def socket_of(self, core: int) -> int:
        """Return the socket to which a core belongs."""
        return self._unit(Scope.CORE, core).socket

    def core(self, core: int) -> MetricVector:
        """Return the median over kept samples of a core's metrics."""
        return self._vector(self._unit(Scope.CORE, core))

    def socket(self, socket: int) -> MetricVector:
        """Return the median over kept samples of a socket's metrics; MissingMetricError as for :meth:`core`."""
        return self._vector(self._unit(Scope.SOCKET, socket))

    def system(self) -> MetricVector:
        """Return the median over kept samples of the whole system's metrics; MissingMetricError as for :meth:`core`."""
        return self._vector(self._unit(Scope.SYSTEM, -1))

    def zero_throughout(self, scope: Scope) -> tuple[str, ...]:
        """Return the metrics that count as missing because all samples are 0, although related counters were read."""
        units = [unit for unit in self._units(scope) if self._kept[unit].any()]
        blanked = [name for name in _MAY_BE_ZERO if any(f"{name} ({unit})" in self.unavailable for unit in units)]
        return tuple(name for name in blanked if any(self._vector(unit).get(_MAY_BE_ZERO[name]) for unit in units))

    def frame(self, scope: str) -> pd.DataFrame:
        """Return the kept samples of ``'core'``, ``'socket'`` or ``'system'``, in the units of `slomo.vocabulary`.

        One row per sample and core, socket or system: ``sample``, ``time``, ``interval_s``, ``socket``, ``core``, then
        a column per metric; NaN if not reported.
        """
        parts = [self._tidy(unit, self._values[unit], self._kept[unit]) for unit in self._units(scope)]
        names = [name for name in METRICS if any(name in part for part in parts)]
        return (
            pd.concat(parts, ignore_index=True).reindex(columns=[*_PLACE, *names])
            if parts
            else pd.DataFrame(columns=_PLACE)
        )

    def raw(self, scope: str) -> pd.DataFrame:
        """Return all samples with PCM's names and units, per interval; column ``kept``: whether a sample is used."""
        parts = []
        for unit in self._units(scope):
            columns = {name: self._text.values[:, places].mean(axis=1) for name, places in self._columns[unit].items()}
            everything = np.ones(len(self._text.stamps), dtype=bool)
            parts.append(self._tidy(unit, {"kept": self._kept[unit], **columns}, everything))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*_PLACE, "kept"])

    def _repr_html_(self) -> str:
        places = f"{plural(len(self.cores), 'core')} and {plural(len(self.sockets), 'socket')}"
        samples = f"{plural(len(self._text.stamps), 'sample')} of {places}"
        caption = f"{self.dialect.tool} recording: {samples}, interval {self.interval.source}"
        return html_table(caption, ("dropped", "samples"), self.dropped.items())

    def _units(self, scope: str) -> list[Unit]:
        return sorted(unit for unit in self._values if unit.scope == Scope(scope))

    def _unit(self, scope: Scope, number: int) -> Unit:
        for unit in self._columns:
            if unit.scope is scope and number == (unit.core if scope is Scope.CORE else unit.socket):
                return unit
        recorded_units = f"sockets {list(self.sockets)} and cores {list(self.cores)}"
        described = "the system" if scope is Scope.SYSTEM else f"{scope} {number}"
        raise MissingMetricError(
            f"{self.path}: has no columns for {described}, only for {recorded_units}",
            hint="run pcm without -nc, -ns, -nsys or -yc",
        )

    def _vector(self, unit: Unit) -> MetricVector:
        usable = self._kept[unit]
        if not usable.any():
            reasons = ", ".join(f"{reason} ({count})" for reason, count in self.dropped.items())
            raise MissingMetricError(
                f"{self.path}: no usable sample of {unit}; dropped: {reasons}", hint="record for longer"
            )
        values = {name: _median(column[usable]) for name, column in self._values[unit].items()}
        return MetricVector(values, scope=unit.scope)

    def _tidy(self, unit: Unit, columns: Mapping[str, NDArray[np.generic]], usable: NDArray[np.bool_]) -> pd.DataFrame:
        samples = np.flatnonzero(usable)
        place = {
            "sample": samples,
            "time": pd.to_datetime(pd.Series(times(self._text), dtype="object").iloc[samples]).to_numpy(),
            "interval_s": self.interval.seconds[usable],
            "socket": np.full(samples.size, unit.socket),
            "core": np.full(samples.size, unit.core),
        }
        return pd.DataFrame({**place, **{name: column[usable] for name, column in columns.items()}})


_PLACE = ["sample", "time", "interval_s", "socket", "core"]


def read_pcm(path: str | Path, *, interval_s: float | None = None, nominal_mhz: float | None = None) -> PcmRecording:
    """Read the output of ``pcm -csv`` or ``pcm-memory -csv`` of any release since 2016.

    Parameters
    ----------
    path : str or Path
        The file; PCM may still write to it.
    interval_s : float, optional
        Sampling interval with which PCM was started [s]; needed if it does not follow from the file.
    nominal_mhz : float, optional
        Nominal frequency of the processor [MHz], which converts TIME(ticks) to the actual interval.

    Raises
    ------
    ConfigurationError
        If the file is empty or has another format.
    """
    text = read_pcm_text(Path(path))
    columns = unit_columns(text.keys)
    interval = intervals(text, columns, interval_s, nominal_mhz)
    unavailable: dict[str, str] = {}
    values = {unit: _convert(text, names, interval) for unit, names in columns.items()}
    for unit, names in columns.items():
        unrounded(values[unit], text, names, interval, _threads(unit, columns))
    broken = {unit: _broken(text, names) for unit, names in columns.items()}
    dropped: dict[str, int] = {CUT: text.cut_lines} if text.cut_lines else {}
    lines = _kept_lines(text, interval, dropped)
    samples = {unit: _kept_samples(text, names, lines, broken[unit], dropped) for unit, names in columns.items()}
    _blank_unread(values, samples, unavailable)
    return PcmRecording(
        str(path),
        text.dialect,
        interval,
        MappingProxyType(dropped),
        MappingProxyType(unavailable),
        text,
        columns,
        values,
        samples,
    )


def _convert(text: PcmText, columns: Mapping[str, list[int]], interval: Interval) -> dict[str, Floats]:
    """Return a core's, socket's or system's columns under slomo's names and units; negative values are missing."""
    if text.dialect.tool == "pcm-memory":
        return {
            name: _no_negatives(text.values[:, columns[source_column][0]] / 1000.0)
            for name, names_there in _MEMORY_COLUMNS.items()
            if (source_column := next((column for column in names_there if column in columns), None)) is not None
        }
    values: dict[str, Floats] = {}
    for name, metric in METRICS.items():
        source_column = next((plain(column) for column in metric.pcm_columns if plain(column) in columns), None)
        if source_column is not None and name != "UPI":
            values[name] = _no_negatives(
                text.values[:, columns[source_column][0]] / (interval.seconds if metric.per_interval else 1.0)
            )
    for name, misses in (("L3MPI", "L3MISS"), ("L2MPI", "L2MISS")):
        if misses in values and "INST" in values:
            finer(values, name, values[misses], values["INST"], enough=1.0)
    links = columns.get("trafficoutPercent") or columns.get("datainPercent")
    if links:
        values["UPI"] = _no_negatives(text.values[:, links].mean(axis=1) / 100.0)
    return values


def _threads(unit: Unit, units: Mapping[Unit, object]) -> int:
    """Return the number of hardware threads over which PCM averages a core, socket or system; 0 if unknown."""
    if unit.scope is Scope.CORE:
        return 1
    return sum(
        each.scope is Scope.CORE and (unit.scope is Scope.SYSTEM or each.socket == unit.socket) for each in units
    )


def _no_negatives(values: Floats) -> Floats:
    return np.where(values >= 0.0, values, math.nan)


def _broken(text: PcmText, columns: Mapping[str, list[int]]) -> NDArray[np.bool_]:
    """Return the samples with a non-finite value of a metric that other samples report."""
    read_columns = {plain(column) for metric in METRICS.values() for column in metric.pcm_columns}
    read_columns |= {"ACYC", "TIME(ticks)", *(column for names in _MEMORY_COLUMNS.values() for column in names)}
    broken_samples = np.zeros(len(text.stamps), dtype=bool)
    for name, places in columns.items():
        if name in read_columns and not text.broken[:, places[0]].all():
            broken_samples |= text.broken[:, places[0]]
    return broken_samples


def _kept_lines(text: PcmText, interval: Interval, dropped: dict[str, int]) -> NDArray[np.bool_]:
    usable = np.ones(len(text.stamps), dtype=bool)
    if len(text.starts) < len(usable):
        starts = [start for start in text.starts if start < len(usable)]  # the last line may be a header
        usable[starts] = False
        dropped[FIRST] = len(starts)
    usual = float(np.nanmedian(interval.ticks[usable])) if np.isfinite(interval.ticks[usable]).any() else math.nan
    if math.isfinite(usual):
        off = usable & ~(np.abs(interval.ticks / usual - 1.0) <= _TIME_TOLERANCE)
        _count(dropped, OFF_TIME, off)
        usable &= ~off
    return usable


def _kept_samples(
    text: PcmText,
    columns: Mapping[str, list[int]],
    lines: NDArray[np.bool_],
    broken: NDArray[np.bool_],
    dropped: dict[str, int],
) -> NDArray[np.bool_]:
    usable = lines.copy()
    checks = [(NOT_FINITE, broken)]
    if "ACYC" in columns:
        checks.append((NO_CYCLES, text.values[:, columns["ACYC"][0]] == 0.0))
    if "IPC" in columns:
        checks.append((NEGATIVE_IPC, text.values[:, columns["IPC"][0]] < 0.0))
    for reason, bad in reversed(checks):
        _count(dropped, reason, usable & bad)
        usable &= ~bad
    return usable


def _count(dropped: dict[str, int], reason: str, bad: NDArray[np.bool_]) -> None:
    if bad.any():
        dropped[reason] = dropped.get(reason, 0) + int(bad.sum())


def _blank_unread(
    values: dict[Unit, dict[str, Floats]], usable: Mapping[Unit, NDArray[np.bool_]], unavailable: dict[str, str]
) -> None:
    """Mark metrics as missing if their counter was not read: impossible zeros in all samples, or implausible values."""
    for scope in Scope:
        units = {unit: columns for unit, columns in values.items() if unit.scope is scope}
        for name in _NEVER_ZERO:
            _blank(units, usable, (name,), "zero throughout, which it cannot be", unavailable)
        _blank(units, usable, ("LMB", "RMB"), "both zero throughout, which they cannot be", unavailable)
        _blank_contradicted(units, usable, unavailable)
    for unit, columns in values.items():
        if "LLCMISSLAT" in columns:
            latency = columns["LLCMISSLAT"]
            absurd = (latency < _LATENCY_NS[0]) | (latency > _LATENCY_NS[1])
            if absurd[usable[unit]].any():
                unavailable[f"LLCMISSLAT ({unit})"] = f"outside {_LATENCY_NS[0]:g} to {_LATENCY_NS[1]:g} ns"
            columns["LLCMISSLAT"] = np.where(absurd, math.nan, latency)


def _blank(
    units: Mapping[Unit, dict[str, Floats]],
    usable: Mapping[Unit, NDArray[np.bool_]],
    names: tuple[str, ...],
    reason: str,
    unavailable: dict[str, str],
) -> None:
    kept_columns = [columns[name][usable[unit]] for unit, columns in units.items() for name in names if name in columns]
    reported = np.concatenate(kept_columns) if kept_columns else np.array([])
    reported = reported[np.isfinite(reported)]
    if not reported.size or np.any(reported != 0.0):
        return
    for unit, columns in units.items():
        for name in names:
            if name in columns:
                columns[name] = np.full_like(columns[name], math.nan)
                unavailable[f"{name} ({unit})"] = reason


def _blank_contradicted(
    units: Mapping[Unit, dict[str, Floats]], usable: Mapping[Unit, NDArray[np.bool_]], unavailable: dict[str, str]
) -> None:
    """Mark L3MISS as missing if it is zero everywhere although L2 misses with a hit ratio below 0.99 were counted."""
    seen = [np.nanmin(c["L3HIT"][usable[u]], initial=1.0) for u, c in units.items() if "L3HIT" in c and usable[u].any()]
    if seen and min(seen) < 0.99:
        for name in ("L3MISS", "L3MPI"):
            _blank(units, usable, (name,), "zero throughout although last-level cache accesses missed", unavailable)


def _median(values: Floats) -> float:
    present = values[np.isfinite(values)]
    return float(np.median(present)) if present.size else math.nan


def unrounded(
    values: dict[str, Floats], text: PcmText, columns: Mapping[str, Sequence[int]], interval: Interval, threads: int
) -> None:
    """Replace zeros of EXEC, FREQ and IPC by values computed from more precise columns of the same core or socket.

    `threads`: number of hardware threads over which PCM averages; 0 if unknown, then only IPC can be computed.
    """
    counts = {name: text.values[:, columns[name][0]] for name in ("INST", "ACYC") if name in columns}
    time = interval.ticks * threads if threads else np.full(len(text.stamps), np.nan)
    if "INST" in counts:
        finer(values, "EXEC", counts["INST"], time)
    if "ACYC" in counts:
        finer(values, "FREQ", counts["ACYC"], time)
        if "INST" in counts:
            finer(values, "IPC", counts["INST"], counts["ACYC"])


def finer(values: dict[str, Floats], name: str, above: Floats, below: Floats, enough: float = np.inf) -> None:
    """Replace a metric by the quotient of two counts where it is 0, or the count above the line is `enough`."""
    if name not in values:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = above / below
    coarse = (values[name] == 0.0) & (quotient > 0.0) | (above >= enough)
    values[name] = np.where(coarse & np.isfinite(quotient), quotient, values[name])
