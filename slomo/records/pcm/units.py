"""Find the core, socket or system of each column group of a PCM file, and the length of each sampling interval.

Group names are those of opcm/pcm src/pcm.cpp, print_csv_header, in all its releases. TIME(ticks) is the invariant
time-stamp counter of core 0 in millions; divided by the nominal frequency in MHz, it gives the actual interval in
seconds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from slomo.records.pcm.csv import Key, PcmText
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import Floats

_SOCKET = re.compile(r"^(?:socket|skt)\s*(\d+)$", re.IGNORECASE)
_CORE = re.compile(r"^core\s*(\d+)\s*\(\s*socket\s*(\d+)\s*\)$", re.IGNORECASE)
_LINK = re.compile(r"^skt\s*(\d+)\s*(datain|trafficout)\s*\(percent\)$", re.IGNORECASE)
_SOCKET_CELL = re.compile(r"^skt\s*(\d+)$", re.IGNORECASE)
_MISS_LATENCY = "LLCRDMISSLAT(ns)"
#: Least and largest nominal frequency of the processors that PCM supports [MHz].
_PLAUSIBLE_MHZ = (700.0, 6000.0)
DEFAULT_INTERVAL_S = 1.0


@dataclass(frozen=True, order=True)
class Unit:
    """The core, socket or system that a group of columns describes; -1 for a number that does not apply."""

    scope: Scope
    socket: int = -1
    core: int = -1

    def __str__(self) -> str:
        if self.scope is Scope.CORE:
            return f"core {self.core} (socket {self.socket})"
        return f"socket {self.socket}" if self.scope is Scope.SOCKET else "system"


@dataclass(frozen=True)
class Interval:
    """Actual length of the sampling interval of every sample."""

    #: Length of each interval [s], shape (n_samples,).
    seconds: Floats
    #: TIME(ticks) [millions]; NaN without such a column, shape (n_samples,).
    ticks: Floats
    #: Source of the length: ``given``, ``nominal frequency``, ``timestamps`` or ``assumed``.
    source: str
    #: Frequency of the time-stamp counter, if known or inferred [MHz].
    nominal_mhz: float | None


def plain(name: str) -> str:
    """Return a column name without blanks, for use as a key."""
    return re.sub(r"\s+", "", name)


def unit_columns(keys: Sequence[Key]) -> dict[Unit, dict[str, list[int]]]:
    """Return for each core, socket and system its columns: metric name -> positions (one per link for a socket)."""
    units: dict[Unit, dict[str, list[int]]] = {}
    for place, (group, metric) in enumerate(keys):
        unit_and_name = _unit_of(group, metric)
        if unit_and_name is None:
            continue
        unit, name = unit_and_name
        places = units.setdefault(unit, {}).setdefault(name, [])
        if not places or name.endswith("Percent"):
            places.append(place)
    return units


def _unit_of(group: str, metric: str) -> tuple[Unit, str] | None:
    if group.lower() == "system":
        return Unit(Scope.SYSTEM), plain(metric)
    if match := _CORE.match(group):
        return Unit(Scope.CORE, int(match[2]), int(match[1])), plain(metric)
    if match := _SOCKET.match(group):
        return Unit(Scope.SOCKET, int(match[1])), plain(metric)
    if match := _LINK.match(group):
        return Unit(Scope.SOCKET, int(match[1])), f"{match[2].lower()}Percent"
    match = _SOCKET_CELL.match(metric)
    if match and plain(group) == _MISS_LATENCY:
        return Unit(Scope.SOCKET, int(match[1])), _MISS_LATENCY
    return None


def intervals(
    text: PcmText,
    units: Mapping[Unit, Mapping[str, Sequence[int]]],
    interval_s: float | None = None,
    nominal_mhz: float | None = None,
) -> Interval:
    """Determine the length of each sample.

    The sources are, in order of preference: TIME(ticks) divided by the nominal frequency (given, or inferred from CFREQ
    / AFREQ or the timestamps); a given interval; the timestamps alone; PCM's default of one second.
    """
    ticks, steps = _ticks(text, units), _steps(text)
    counted = bool(np.isfinite(ticks).any())
    if nominal_mhz is None and interval_s is None:
        nominal_mhz = _nominal_mhz(text, units, ticks, steps)
    if nominal_mhz is not None and counted:
        return Interval(ticks / nominal_mhz, ticks, "nominal frequency", nominal_mhz)
    relative = ticks / np.nanmedian(ticks) if counted else np.ones(len(ticks))
    if interval_s is not None:
        return Interval(interval_s * relative, ticks, "given", nominal_mhz)
    positive = steps[steps > 0.0]
    if positive.size and not counted:
        return Interval(relative * float(np.median(positive)), ticks, "timestamps", None)
    return Interval(DEFAULT_INTERVAL_S * relative, ticks, "assumed", None)


def times(text: PcmText) -> list[datetime | None]:
    """Return the local time of each sample; None if its text cannot be parsed."""
    return [_time(stamp) for stamp in text.stamps]


def _time(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp.replace("/", "-").strip())
    except ValueError:
        return None


def _ticks(text: PcmText, units: Mapping[Unit, Mapping[str, Sequence[int]]]) -> Floats:
    places = [columns["TIME(ticks)"][0] for columns in units.values() if "TIME(ticks)" in columns]
    ticks = np.full(len(text.stamps), math.nan)
    for place in places:
        ticks = np.where(np.isfinite(ticks) & (ticks > 0.0), ticks, text.values[:, place])
    return np.where(ticks > 0.0, ticks, math.nan)


def _steps(text: PcmText) -> Floats:
    """Return the time since the previous sample [s]; NaN for a run's first sample and for unparsable times."""
    steps = np.full(len(text.stamps), math.nan)
    moments = times(text)
    for sample in range(1, len(moments)):
        before, now = moments[sample - 1], moments[sample]
        if before is not None and now is not None and sample not in text.starts:
            steps[sample] = (now - before).total_seconds()
    return steps


def _nominal_mhz(
    text: PcmText, units: Mapping[Unit, Mapping[str, Sequence[int]]], ticks: Floats, steps: Floats
) -> float | None:
    stated = _stated_mhz(text, units)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = ticks / steps
    rates = rates[np.isfinite(rates) & (rates > _PLAUSIBLE_MHZ[0]) & (rates < _PLAUSIBLE_MHZ[1])]
    if stated is not None:
        rates = rates[np.abs(rates / stated - 1.0) < 0.03]
        return float(np.median(rates)) if rates.size else stated
    if not rates.size:
        return None
    # missing lines make steps longer and rates lower: take the most frequent rate, and the highest of equally frequent
    # ones
    near = [int(np.sum(np.abs(rates / rate - 1.0) < 0.05)) for rate in rates]
    best = max(range(len(rates)), key=lambda place: (near[place], rates[place]))
    return float(np.median(rates[np.abs(rates / rates[best] - 1.0) < 0.05]))


def _stated_mhz(text: PcmText, units: Mapping[Unit, Mapping[str, Sequence[int]]]) -> float | None:
    """Infer the nominal frequency as CFREQ [GHz] / AFREQ (releases since 2024-03), rounded to 100 MHz."""
    nominal_mhz: list[float] = []
    for columns in units.values():
        if "CFREQ" in columns and "AFREQ" in columns:
            core_ghz, relative = (text.values[:, columns[name][0]] for name in ("CFREQ", "AFREQ"))
            usable = (relative > 0.3) & (core_ghz > 0.3)
            nominal_mhz += list(core_ghz[usable] / relative[usable] * 1000.0)
    if not nominal_mhz:
        return None
    stated = round(float(np.median(nominal_mhz)) / 100.0) * 100.0
    return stated if _PLAUSIBLE_MHZ[0] <= stated <= _PLAUSIBLE_MHZ[1] else None
