"""Record, convert and store traces of workloads, each cut to the same duration of a solo run.

A trace begins with one load for each line that was used last before the recording, since caches start empty; the
recorded code follows. A solo run of the trace gives its progress over cycles, so that the speed beside competitors is
compared over the same part of the trace.
"""

import json
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from slomo.errors import ConfigurationError, TestbedError
from slomo.files.documents import read
from slomo.files.durable import write_durably
from slomo.testbed.champsim.binaries import Binary
from slomo.testbed.champsim.conversion import Disassembler, convert, resident_set, working_set
from slomo.testbed.champsim.execution import RECORD_B, execute
from slomo.testbed.champsim.recording import record, symbol_address
from slomo.testbed.host.build import build_traceable
from slomo.testbed.host.nf.command import Surroundings, command_words
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.tenant import needs_pcap
from slomo.testbed.host.traffic.pcap import cached_pcap
from slomo.vocabulary.workload import Workload, fingerprint_of

MARKER = "worker_step"
#: Version of the traces; increased whenever the trace of a workload changes.
VERSION = 1
_BUFFERS = 256  # packet buffers of functions without a setting for them, scaled down like the caches
_FIRST_TRY = 60_000  # number of records from which the solo speed is estimated
_SHARES = (0.08, 0.16, 0.28, 0.4, 0.55, 0.7, 0.85, 1.0)  # shares of a trace after which its solo cycles are recorded
_MOST_PER_CYCLE = 3.6  # records per cycle: an upper bound; surplus records are dropped


@dataclass(frozen=True)
class TraceWindow:
    """Lengths of a run's settling time and measured window, in cycles of a solo run."""

    #: Time from the end of the warm-up to the start of the window, in which neighbours must fill the shared cache once.
    settle_cycles: int = 90_000
    #: Length of the window.
    cycles: int = 130_000
    #: Number of packet bursts that warm the function's tables before the recording.
    bursts: int = 150

    def __post_init__(self) -> None:
        for name in ("settle_cycles", "cycles", "bursts"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"window: field '{name}' is {getattr(self, name)}, needed 1 or more")


@dataclass(frozen=True, eq=False)
class Trace:
    """The trace of one workload, with the progress of its solo run."""

    #: The trace up to the end of the window, and up to its start.
    whole: Path
    settling: Path
    #: Averages over the recording.
    packets_per_record: float
    instructions_per_record: float
    #: Records and cycles of the solo run, shape (n, 2).
    alone: NDArray[np.float64]
    #: Number of records, and of different lines that so many records reference, shape (m, 2).
    working_set: NDArray[np.float64]

    def cycles_alone(self, start: float, end: float) -> float:
        """Return the cycles that the records from `start` to `end` take in the solo run."""
        return float(np.diff(np.interp((start, end), self.alone[:, 0], self.alone[:, 1]))[0])

    @property
    def alone_records_per_cycle(self) -> float:
        """Records per cycle that the workload retires alone, over the measured window."""
        begin, end = (path.stat().st_size // RECORD_B for path in (self.settling, self.whole))
        return (end - begin) / self.cycles_alone(begin, end)


class TraceStore:
    """Traces of workloads, 25 to 150 MB each, in a folder. `alone`: ChampSim with one core. `lines`: of the LLC."""

    def __init__(self, folder: Path, alone: Binary, window: TraceWindow, lines: int) -> None:
        self.folder, self.binary, self.window, self.lines = folder, alone, window, lines
        self._opening = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    def trace(self, workload: Workload, definition: HostDefinition) -> Trace:
        """Return a workload's trace; make it first if it is missing. Raises TestbedError if it cannot be recorded."""
        stated = {
            "version": VERSION,
            "workload": workload.to_dict(),
            "nf": definition.fingerprint,
            "binary": self.binary.fingerprint,
            "window": self.window.__dict__,
            "lines": self.lines,
        }
        name = fingerprint_of(stated)
        with self._opening:
            lock = self._making.setdefault(name, threading.Lock())
            build_traceable()
        with lock:
            place = self.folder / name
            if not (place / "trace.json").exists():
                with tempfile.TemporaryDirectory() as folder:
                    self._make(workload, definition, Path(folder), place)
            return read_trace(place)

    def _make(self, workload: Workload, definition: HostDefinition, draft: Path, place: Path) -> None:
        total = self.window.settle_cycles + self.window.cycles
        recorded, stated = self._recorded(workload, definition, draft, int(_MOST_PER_CYCLE * total))
        length = self.lines + _FIRST_TRY
        cycles = self._cycles_alone(recorded[:length], draft)
        while cycles < total and length < len(recorded):
            speed = (length - self.lines) / cycles  # times 1.5 below: predictors are still cold
            length = min(len(recorded), length + int(1.5 * speed * (total - cycles)) + _FIRST_TRY)
            cycles = self._cycles_alone(recorded[:length], draft)
        if cycles < total:
            raise TestbedError(
                f"'{workload.key}': its trace lasts {cycles} cycles alone, needed {total}",
                hint="make the window shorter",
            )
        ends = [self.lines + int(part / cycles * (length - self.lines)) for part in (self.window.settle_cycles, total)]
        points = (self.lines + int(share * (ends[1] - self.lines)) for share in _SHARES)
        alone = [(self.lines, 0), *((end, self._cycles_alone(recorded[:end], draft)) for end in points)]
        for name, end in zip(("settling", "whole"), ends, strict=True):
            write_durably(place / f"{name}.trace", recorded[:end].tobytes())
        lines = working_set(recorded[self.lines : ends[1]])
        described = {**stated, "alone": alone, "working_set": lines, "workload": workload.key}
        write_durably(place / "trace.json", json.dumps(described))  # written last: a folder that has it is complete

    def _recorded(
        self, workload: Workload, definition: HostDefinition, draft: Path, instructions: int
    ) -> tuple[NDArray[Any], dict[str, float]]:
        program = build_traceable()
        with self._opening:
            pcap = str(cached_pcap(workload.traffic, self.folder / "captures")) if needs_pcap(definition) else ""
        words, _ = command_words(definition, workload, Surroundings((0,), str(draft), "trace", pcap=pcap))
        words = [str(program), *words[1:], "--interval-s", "3600"]
        burst = 32
        if "--packet-buffers" not in words:
            words += ["--packet-buffers", str(_BUFFERS)]
        recording = record(
            words, symbol_address(program, MARKER), skipped_calls=self.window.bursts, instructions=instructions
        )
        records, place = convert(recording, Disassembler(program))
        at = place[recording.ip == symbol_address(program, MARKER)]
        if len(at) < 2:
            raise TestbedError(
                f"'{workload.key}': {len(at)} bursts in {instructions} instructions, needed 2 or more",
                hint="make the window longer, or packets lighter",
            )
        stated = {
            "packets_per_record": burst * (len(at) - 1) / float(at[-1] - at[0]),
            "instructions_per_record": len(recording.ip) / len(records),
        }
        return np.concatenate([resident_set(recording, self.lines), records]), stated

    def _cycles_alone(self, records: NDArray[Any], folder: Path) -> int:
        """Return how many cycles the trace takes in a solo run, without its warm-up."""
        file = folder / "whole.trace"
        records.tofile(file)
        return execute(self.binary, [file], self.lines, folder).cycles


class _TraceDescription(Struct, forbid_unknown_fields=True):
    """Content of a trace's description file, `trace.json`."""

    packets_per_record: float
    instructions_per_record: float
    alone: list[tuple[float, float]]
    working_set: list[tuple[float, float]]
    workload: str = ""


def read_trace(place: Path) -> Trace:
    """Return the trace of a folder. Raises ConfigurationError if its description is damaged."""
    stated = read(place / "trace.json", _TraceDescription, hint=f"remove the folder {place}; it is made again")
    return Trace(
        place / "whole.trace",
        place / "settling.trace",
        stated.packets_per_record,
        stated.instructions_per_record,
        np.array(stated.alone, dtype=np.float64),
        np.array(stated.working_set, dtype=np.float64),
    )
