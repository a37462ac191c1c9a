"""Read cache occupancy and memory bandwidth of each core by Intel's ``pqos``.

CSV layout of intel-cmt-cat pqos/monitor_csv.c, 4.5.0 and later; columns are matched by name. The first poll follows the
start immediately and is dropped; rates refer to pqos' nominal interval. If pqos uses resctrl, it leaves a directory per
class behind; on such hosts, prefer the reader 'resctrl', which removes its directories.
"""

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.cores import available_cores, socket_of
from slomo.host.resctrl_tree import ROOT
from slomo.host.tool import Finished, RunningTool, run_tool
from slomo.records.pcm.csv import number
from slomo.testbed.host.counters.base import CounterSample, ProgramReader, added
from slomo.vocabulary.metrics import METRICS, Rule, Scope
from slomo.vocabulary.vector import MetricVector

_TRIAL_LIMIT_S, _START_LIMIT_S = 15.0, 10.0
_POLLS = 3
_LONGEST_LINE = 100_000  # below the csv module's limit of a cell's length
_SUMMED = [name for name, metric in METRICS.items() if metric.rule is Rule.SUM]
_FAULTS = ("not supported", "Error initializing PQoS", "Monitoring start error", "Usage:", "lock", "denied")
_HINTS = (
    ("lock", "another program holds pqos' lock; end it, or remove a stale /var/lock/libpqos"),
    ("/msr", "run as root after `modprobe msr`, or mount resctrl and let pqos use it"),
    ("not supported", "this processor or virtual machine has no RDT; use 'perf', or 'probe', which needs no counters"),
)

Poll = dict[str, float]


class PqosReader(ProgramReader):
    """Runs ``pqos -m -u csv`` until stopped, polling at multiples of 0.1 s.

    `operating_system`: whether to use resctrl instead of MSRs; by default if resctrl is mounted. `has_pmu`: whether IPC
    and misses can be counted, too.
    """

    name = "pqos"

    def __init__(
        self,
        command: str = "pqos",
        interval_s: float = 0.5,
        *,
        operating_system: bool | None = None,
        has_pmu: bool | None = None,
    ) -> None:
        super().__init__(command)
        self.interval_s = round(interval_s, 1)
        by_resctrl = (ROOT / "info").is_dir() if operating_system is None else operating_system
        self._interface = ("-I",) if by_resctrl else ()
        pmu = Path("/sys/bus/event_source/devices/cpu").exists() if has_pmu is None else has_pmu
        self._without = () if pmu else ("--disable-mon-ipc", "--disable-mon-llc_miss")
        self._running: RunningTool | None = None

    def start(self, cores: Sequence[int]) -> None:
        """Start monitoring every core in a group of its own, so that counts can be added up per socket."""
        self._require()
        self._cores = tuple(cores)
        self._running = RunningTool(self._words(sorted({*available_cores(), *cores})))
        if not self._running.wait(lambda: self._polls(1), _START_LIMIT_S):
            raise self._vanished()

    def stop(self) -> CounterSample:
        """Stop monitoring and return the median over pqos's readings; wait for the first ones if there are none."""
        if self._running is None:
            raise self._not_started()
        tool = self._running
        try:
            enough = tool.wait(lambda: self._polls(_POLLS), _START_LIMIT_S + _POLLS * self.interval_s)
            if not enough or not tool.alive:
                raise self._vanished()
            lines = tool.lines()
        finally:
            tool.stop()
            self._running = None
        return self._sample(polls_by_core(lines, self.interval_s))

    def _sample(self, polls: Mapping[int, Sequence[Poll]]) -> CounterSample:
        medians = {core: _median(items[1:]) for core, items in polls.items()}
        cores = {core: MetricVector(medians[core], scope=Scope.CORE) for core in self._cores if core in medians}
        sockets = {
            socket: MetricVector(
                added([v for c, v in medians.items() if socket_of(c) == socket], _SUMMED), scope=Scope.SOCKET
            )
            for socket in sorted({socket_of(core) for core in medians})
        }
        lengths = [len(items) - 1 for items in polls.values()]
        return CounterSample(cores, sockets, None, self.interval_s * max(lengths, default=0))

    def _words(self, cores: Iterable[int]) -> list[str]:
        groups = ";".join(f"all:{core}" for core in cores)
        tenths = max(1, round(self.interval_s * 10))
        return [self.command, *self._interface, "-m", groups, "-i", str(tenths), "-u", "csv", *self._without]

    def _polls(self, count: int) -> bool:
        assert self._running is not None
        return any(len(items) > count for items in polls_by_core(self._running.lines(), self.interval_s).values())

    def _vanished(self) -> TestbedError:
        assert self._running is not None
        finished, self._running = self._running.stop(), None
        why = _reason(finished)
        return TestbedError(f"counters vanished: 'pqos' ended while it was needed: {why}", hint=self._hint(why))

    def _tried(self) -> tuple[bool, str]:
        finished = run_tool([*self._words(available_cores()[:1]), "-t", "1"], _TRIAL_LIMIT_S)
        # for an unknown option pqos prints its usage and returns 0, so only samples prove that it works
        if finished.code != 0 or not polls_by_core(finished.stdout.splitlines(), self.interval_s):
            return False, _reason(finished)
        return True, "it monitors cache occupancy and memory bandwidth"

    def _hint(self, why: str) -> str:
        return next((hint for saying, hint in _HINTS if saying in why), "see `slomo doctor`, or use 'probe'")


def polls_by_core(lines: Iterable[str], interval_s: float) -> dict[int, list[Poll]]:
    """Return pqos's readings by core, in order and in the units of `slomo.vocabulary`; an empty cell is missing."""
    polls: dict[int, list[Poll]] = {}
    header: list[str] = []
    whole = (line.replace("\r", " ") for line in lines if "," in line and len(line) < _LONGEST_LINE)
    for row in csv.reader(whole):  # without lines with CR and overlong cells, at which csv would stop
        if row[0] == "Time":
            header = [name.strip() for name in row]
        elif header and len(row) == len(header):
            cells = dict(zip(header, row, strict=True))
            if cells.get("Core", "").isdigit():
                polls.setdefault(int(cells["Core"]), []).append(_poll(cells, interval_s))
    return polls


def _poll(cells: Mapping[str, str], interval_s: float) -> Poll:
    per_second = 1e-6 / interval_s
    columns = {
        "IPC": ("IPC", 1.0),
        "L3MISS": ("LLC Misses", per_second),
        "L2MISS": ("LLC References", per_second),
        "L3OCC": ("LLC[KB]", 1.0),
        "LMB": ("MBL[MB/s]", 1.0),
        "RMB": ("MBR[MB/s]", 1.0),
    }
    read = {name: number(cells.get(column, ""))[0] * factor for name, (column, factor) in columns.items()}
    return {name: value for name, value in read.items() if math.isfinite(value) and value >= 0.0}


def _median(polls: Sequence[Poll]) -> Poll:
    names = {name for poll in polls for name in poll}
    return {name: statistics.median(poll[name] for poll in polls if name in poll) for name in sorted(names)}


def _reason(finished: Finished) -> str:
    telling = [line for line in finished.output if any(fault in line for fault in _FAULTS)]
    return f"exit code {finished.code}: {' | '.join(telling[:3]) or finished.last_words()}"
