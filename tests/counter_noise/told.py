"""A truth as pcm, perf and pqos print it; the stand-ins of `tests/testbed_host_counters/programs` say it, too.

Rounding: two decimals, whole KiB and MB (opcm/pcm src/pcm.cpp), RDT's units of 64 KiB. Multiplexing: an event runs 30
to 90 % of the time and is scaled. Missing: one line, a cell in ten, an event not counted. Late: the first sample shows
the phase before, another one takes twice as long.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RDT_KIB = 64.0
_NOMINAL_MHZ, _INTERVAL_S = 2100.0, 0.25
_PCM = ("IPC", "L3MISS", "L2MISS", "L3HIT", "L3OCC", "LMB", "RMB", "INST", "ACYC", "TIME(ticks)")
_MIB = ("LMB", "RMB")

Values = Mapping[str, float]


@dataclass(frozen=True)
class Truth:
    """What goes on in one phase.

    Attributes
    ----------
    cores : mapping of int to mapping
        CPU -> metric -> value, in the vocabulary's units.
    before : mapping of int to mapping
        The same of the phase before, which a late sample still shows.
    noisy : bool
        Whether tools make of it what real ones do; without, they tell it as it is.
    """

    cores: Mapping[int, Values]
    before: Mapping[int, Values]
    noisy: bool = True


def socket(cores: Mapping[int, Values]) -> dict[str, float]:
    """Return what a socket's cores add up to."""
    names = ("L3MISS", "L2MISS", "L3OCC", "LMB", "RMB", "INST", "FREQ")
    summed = {name: sum(values.get(name, 0.0) for values in cores.values()) for name in names}
    hits = sum(values.get("L2MISS", 0.0) * values.get("L3HIT", 0.0) for values in cores.values())
    shares = {"L3HIT": hits / summed["L2MISS"] if summed["L2MISS"] else 1.0}
    return {**summed, **shares, "IPC": summed["INST"] / max(summed["FREQ"] * _NOMINAL_MHZ, 1e-9)}


def pcm_csv(truth: Truth, random: np.random.Generator, samples: int = 7) -> str:
    """Return what ``pcm -csv`` writes."""
    numbers = sorted(truth.cores)
    groups = ["System,System", *("Socket 0",) * len(_PCM)]
    groups += [f"Core{number} (Socket 0)" for number in numbers for _ in _PCM]
    lines = [",".join(groups) + ",", ",".join(["Date", "Time", *(_PCM * (len(numbers) + 1))]) + ","]
    late, missing = (int(place) for place in random.choice(np.arange(1, samples), 2, replace=False))
    moment_s = 0.0
    for sample in range(samples):
        length_s = _INTERVAL_S * (2.0 if truth.noisy and sample == late else 1.0)
        moment_s += length_s
        if truth.noisy and sample == missing:
            continue
        shown = truth.before if truth.noisy and sample == 0 else truth.cores
        cells = _pcm_cells(socket(shown), length_s, truth.noisy, random)
        for number in numbers:
            cells += _pcm_cells(shown.get(number, {}), length_s, truth.noisy, random)
        lines.append(f"2026-11-20,10:00:{moment_s:06.3f}," + ",".join(cells) + ",")
    return "\n".join(lines) + "\n"


def _pcm_cells(values: Values, length_s: float, noisy: bool, random: np.random.Generator) -> list[str]:
    ticks = _NOMINAL_MHZ * length_s
    counted = {**values, "ACYC": values.get("FREQ", 0.0) * _NOMINAL_MHZ, "TIME(ticks)": _NOMINAL_MHZ}
    cells = []
    for name in _PCM:
        per_interval = name not in ("IPC", "L3HIT", "L3OCC")
        value = counted.get(name, 0.0) * (length_s if per_interval else 1.0)
        if not noisy:
            cells.append(repr(float(value)))
        elif name == "TIME(ticks)":
            cells.append(f"{ticks:.2f}")
        else:
            cells.append(_pcm_cell(name, value * float(np.exp(random.normal(0.0, 0.02))), random))
    return cells


def _pcm_cell(name: str, value: float, random: np.random.Generator) -> str:
    if random.random() < 0.1:
        return str(random.choice(["N/A", "-1"]))
    if name == "L3OCC":
        return f"{RDT_KIB * round(value / RDT_KIB):8.0f}"
    return f"{value:.0f}" if name in _MIB else f"{min(value, 1.0) if name == 'L3HIT' else value:.2f}"


def perf_lines(truth: Truth, random: np.random.Generator, intervals: int = 5) -> str:
    """Return what ``perf stat -j -a -A -I 200`` writes."""
    late = int(random.integers(intervals))
    lines = []
    for interval in range(intervals):
        length_s = 0.2 * (2.0 if truth.noisy and interval == late else 1.0)
        for number, values in sorted(truth.cores.items()):
            events = _perf_events(values)
            lines += [
                _perf_line(number, event, rate * length_s * 1e6, length_s, truth.noisy, random)
                for event, rate in events.items()
            ]
    return "".join(lines)


def _perf_events(values: Values) -> dict[str, float]:
    cycles = values.get("FREQ", 0.0) * _NOMINAL_MHZ
    return {
        "cycles": cycles,
        "instructions": values.get("INST", 0.0),
        "ref-cycles": cycles,
        "cache-references": values.get("L2MISS", 0.0),
        "cache-misses": values.get("L3MISS", 0.0),
    }


def _perf_line(cpu: int, event: str, count: float, length_s: float, noisy: bool, random: np.random.Generator) -> str:
    share, value = 1.0, f"{count:.6f}"
    if noisy:
        share = float(random.uniform(0.3, 0.9))
        seen = count * float(np.exp(random.normal(0.0, 0.03 * np.sqrt(1.0 / share - 1.0))))
        value = f"{round(seen)}.000000"
        if random.random() < 0.1:
            value, share = "<not counted>", 0.0
    item: dict[str, Any] = {"cpu": str(cpu), "counter-value": value, "unit": "", "event": event}
    item |= {"event-runtime": round(1e9 * length_s * share), "pcnt-running": round(100.0 * share, 2)}
    return json.dumps(item) + "\n"


def pqos_lines(truth: Truth, random: np.random.Generator, polls: int = 7) -> str:
    """Return what ``pqos -m -u csv -i 5`` prints; its rates are counts over the interval asked for."""
    lines = [
        "NOTE:  Mixed use of MSR and kernel interfaces",
        "Time,Core,IPC,LLC Misses,LLC[KB],MBL[MB/s],MBR[MB/s]",
    ]
    late = int(random.integers(2, polls))
    for poll in range(polls):
        stretched = 2.0 if truth.noisy and poll == late else 1.0
        for number, values in sorted(truth.cores.items()):
            if truth.noisy and random.random() < 0.125 and poll:
                continue
            shown = truth.before.get(number, {}) if poll == 0 else values
            cells = _pqos_cells(shown, stretched, truth.noisy, random)
            lines.append(f'2026-11-20 22:10:{poll:02d},"{number}",{",".join(cells)}')
    return "\n".join(lines) + "\n"


def _pqos_cells(values: Values, stretched: float, noisy: bool, random: np.random.Generator) -> Sequence[str]:
    held, local, remote = (values.get(name, 0.0) for name in ("L3OCC", "LMB", "RMB"))
    misses = values.get("L3MISS", 0.0) * 0.5e6
    if not noisy:
        return [repr(float(x)) for x in (values.get("IPC", 0.0), misses, held, local, remote)]
    jitter = np.exp(random.normal(0.0, 0.02, 5))
    cells = [
        f"{values.get('IPC', 0.0) * jitter[0]:.2f}",
        f"{misses * stretched * jitter[1]:.0f}",
        f"{RDT_KIB * round(held * jitter[2] / RDT_KIB):.1f}",
        f"{RDT_KIB / 1024.0 * round(local * stretched * jitter[3] * 1024.0 / RDT_KIB):.1f}",
        f"{RDT_KIB / 1024.0 * round(remote * stretched * jitter[4] * 1024.0 / RDT_KIB):.1f}",
    ]
    return ["" if random.random() < 0.1 else cell for cell in cells]
