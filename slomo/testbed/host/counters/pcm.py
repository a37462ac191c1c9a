"""Read counters by Intel PCM's tools: the main one, as SLOMO did, ``pcm-memory`` and ``pcm-pcie``.

SLOMO (SIGCOMM'20, section 5) runs ``pcm.x -r -csv``. PCM reports failure only by an exit code, a sentence on stderr and
an empty file (pcm 202302 to 202604, src/pcm.cpp); here all three become one error.

The latter two use uncore counters that ``pcm`` uses too, so only one of the three can run at a time. They give no
core-level vectors and are never chosen automatically. ``pcm-iio`` counts bytes per PCIe stack but no hits and misses in
the last-level cache, so no metric of the vocabulary follows from it (opcm/pcm src/pcm-iio.cpp).
"""

import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from slomo.errors import ConfigurationError, MissingMetricError, TestbedError
from slomo.host.marker import new_mark
from slomo.host.orphans import make_run_directory, remove_path
from slomo.host.tool import Finished, RunningTool, is_installed, run_tool
from slomo.records.pcm.recording import PcmRecording, read_pcm
from slomo.testbed.host.counters.base import CounterSample, ProgramReader
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_TRIAL_LIMIT_S, _START_LIMIT_S = 15.0, 15.0
_LARGEST_READ_B = 512 * 2**20
#: PCM's message -> its meaning and the remedy; the first match is used.
_SAYINGS = (
    (
        "occupied by other application",
        "another program has programmed the counters",
        "end that program, or run `pcm -r` once",
    ),
    (
        "vPMU is not enabled",
        "this virtual machine has no performance counters",
        "enable the vPMU in the hypervisor, or use 'probe', which needs no counters",
    ),
    (
        "Unsupported processor model",
        "this PCM does not know the processor",
        "install a newer PCM, or use 'perf' or 'resctrl'",
    ),
    ("is required for this tool", "this tool does not know the processor", "use 'pcm', 'perf' or 'resctrl'"),
    ("denied (no MSR", "PCM may not read the processor's registers", "run as root after `modprobe msr`"),
    ("can't open MSR handle", "PCM may not read the processor's registers", "run as root after `modprobe msr`"),
)


class PcmTool(ProgramReader):
    """Base of readers of PCM's tools, each of which appends a CSV line every `interval_s` until slomo sends SIGINT."""

    name = "pcm"
    options: tuple[str, ...] = ("-f",)
    header_lines, fewest_samples = 2, 3
    trial_lines = 1  # least number of lines that a successful trial writes

    def __init__(self, command: str | None = None, interval_s: float = 0.25) -> None:
        super().__init__(command or self.name)
        self.interval_s = interval_s
        self._running: tuple[RunningTool, Path] | None = None

    def start(self, cores: Sequence[int]) -> None:
        """Start the tool and wait for its CSV file's header; raise TestbedError, with the reason, if it ends before."""
        self._require()
        folder = make_run_directory(f"{new_mark().text}-counters", "the counters' file")
        file = folder / "samples.csv"
        try:
            tool = RunningTool(self._words(file))
        except TestbedError:
            remove_path(folder)
            raise
        self._running, self._cores = (tool, folder), tuple(cores)
        if not tool.wait(lambda: lines_in(file) >= self.header_lines, _START_LIMIT_S):
            finished = self._ended()
            raise failure(self.name, finished)

    def stop(self) -> CounterSample:
        """Stop the tool and return the median over its samples; wait for the first samples if there are none yet."""
        if self._running is None:
            raise self._not_started()
        tool, folder = self._running
        file = folder / "samples.csv"
        enough = self.header_lines + self.fewest_samples + 1
        try:
            if not tool.wait(lambda: lines_in(file) >= enough, _START_LIMIT_S + enough * self.interval_s):
                raise failure(self.name, tool.stop())
            if not tool.alive:  # if it ended by itself, its samples are not of this window
                raise failure(self.name, tool.stop())
            tool.stop()
            return self._sample(file)
        finally:
            self._ended()

    def _sample(self, file: Path) -> CounterSample:
        return sample_of(_recorded(self.name, file, self.interval_s), self._cores)

    def _words(self, file: Path) -> list[str]:
        return [self.command, f"{self.interval_s:g}", f"-csv={file}", *self.options]

    def _ended(self) -> Finished:
        assert self._running is not None
        tool, folder = self._running
        self._running = None
        try:
            return tool.stop()
        finally:
            remove_path(folder)

    def _tried(self) -> tuple[bool, str]:
        folder = make_run_directory(f"{new_mark().text}-counters", "the counters' file")
        try:
            finished = run_tool([*self._words(folder / "trial.csv"), "-i=1"], _TRIAL_LIMIT_S)
            file = folder / "trial.csv"
            if finished.code != 0 or lines_in(file) < self.trial_lines:
                return False, reason(finished)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return True, f"'{self.command}' reads the counters"

    def _hint(self, why: str) -> str:
        return hint_for(why)


class PcmReader(PcmTool):
    """Reads ``pcm -csv``: all metrics of the vocabulary that this processor supports, per core and per socket.

    The program is ``pcm``, or ``pcm.x`` if only that is installed.
    """

    def __init__(self, command: str | None = None, interval_s: float = 0.25) -> None:
        if command is None and not is_installed("pcm") and is_installed("pcm.x"):
            command = "pcm.x"
        super().__init__(command, interval_s)


def sample_of(recording: PcmRecording, cores: Sequence[int]) -> CounterSample:
    """Convert PCM's CSV file to a sample; metrics that the file lacks are missing."""
    zeros = {scope.value: list(recording.zero_throughout(scope)) for scope in (Scope.CORE, Scope.SOCKET)}
    return CounterSample(
        cores={core: _vector(recording.core, core, Scope.CORE) for core in cores if core in recording.cores},
        sockets={socket: _vector(recording.socket, socket, Scope.SOCKET) for socket in recording.sockets},
        system=_system(recording.system),
        duration_s=float(np.nansum(recording.interval.seconds[1:])),
        zero_throughout={scope: names for scope, names in zeros.items() if names},
    )


def _vector(read: Callable[[int], MetricVector], number: int, scope: Scope) -> MetricVector:
    try:
        return read(number)
    except MissingMetricError:
        return MetricVector({}, scope=scope)


def _system(read: Callable[[], MetricVector]) -> MetricVector | None:
    try:
        return read()
    except MissingMetricError:
        return None


def _recorded(name: str, file: Path, interval_s: float) -> PcmRecording:
    try:
        recording = read_pcm(file)
        # without a clock the reader would assume PCM's default interval of one second
        return read_pcm(file, interval_s=interval_s) if recording.interval.source == "assumed" else recording
    except ConfigurationError as problem:
        raise TestbedError(f"what '{name}' wrote cannot be read: {problem.message}", hint=problem.hint) from None


def lines_in(file: Path) -> int:
    """Return the number of complete lines in a growing file; 0 if the file does not exist yet."""
    try:
        with file.open("rb") as stream:
            return stream.read(_LARGEST_READ_B).count(b"\n")
    except OSError:
        return 0


def reason(finished: Finished) -> str:
    """Return in one line why a PCM tool failed, with the remedy.

    >>> reason(Finished(("pcm",), 1, "", "ERROR: vPMU is not enabled in the hypervisor."))
    'this virtual machine has no performance counters (exit code 1)'
    """
    for saying, meaning, _ in _SAYINGS:
        if saying in finished.stderr + finished.stdout:
            return f"{meaning} (exit code {finished.code})"
    return f"it wrote no samples (exit code {finished.code}): {finished.last_words()}"


def hint_for(why: str) -> str:
    """Return the remedy for a PCM tool's failure."""
    meant = (hint for _, meaning, hint in _SAYINGS if why.startswith(meaning))
    return next(meant, "see `slomo doctor`, or use 'probe', which needs no counters")


def failure(name: str, finished: Finished) -> TestbedError:
    """Return the error for a PCM tool that ended before slomo stopped it."""
    why = reason(finished)
    return TestbedError(f"counters vanished: '{name}' ended while it was needed: {why}", hint=hint_for(why))


_LARGEST_B = 64 * 2**20
_LONGEST_LINE = 4_000
#: Columns of pcm-pcie for requests by the processor, which are ignored, instead of by a device.
_BY_PROCESSOR = {"PRd", "WiL", "UCRdF", "WCiL", "WCiLF"}


class PcmMemoryReader(PcmTool):
    """Reads ``pcm-memory -csv``: READ and WRITE of each socket."""

    name = "pcm-memory"


class PcmPcieReader(PcmTool):
    """Reads ``pcm-pcie -csv -e``: PCIEHIT and PCIEMISS of each socket.

    The tool multiplexes its events over the interval, which is therefore one second.
    """

    name = "pcm-pcie"
    options = ("-e",)
    header_lines, fewest_samples = 0, 0  # it writes its file in blocks, complete only at the end
    trial_lines = 2  # it writes a header and exits with 0 even if it may not count

    def __init__(self, command: str | None = None, interval_s: float = 1.0) -> None:
        super().__init__(command, interval_s)

    def _sample(self, file: Path) -> CounterSample:
        try:
            text = file.read_bytes()[:_LARGEST_B].decode("utf-8", "replace")
        except OSError as problem:
            raise TestbedError(f"what 'pcm-pcie' wrote cannot be read: {problem.strerror}") from None
        blocks = pcie_lookups(text.splitlines())
        if not any(blocks.values()):
            raise TestbedError(
                "'pcm-pcie' reported no hits and misses of the last-level cache",
                hint="this processor may not split them; use 'pcm' and leave PCIEHIT and PCIEMISS out",
            )
        sockets = {socket: self._vector(rows) for socket, rows in blocks.items()}
        return CounterSample(sockets=sockets, duration_s=self.interval_s * max(map(len, blocks.values())))

    def _vector(self, rows: list[tuple[float, float]]) -> MetricVector:
        if not rows:
            return MetricVector({}, scope=Scope.SOCKET)
        hits, misses = (statistics.median(row[side] for row in rows) for side in (0, 1))
        per_second = self.interval_s * 1e6
        return MetricVector({"PCIEHIT": hits / per_second, "PCIEMISS": misses / per_second}, scope=Scope.SOCKET)


def pcie_lookups(lines: Iterable[str]) -> dict[int, list[tuple[float, float]]]:
    """Return hits and misses of device accesses per sample, by socket.

    `lines`: blocks of ``Skt,EVENT,...`` and three lines per socket that end in ``(Total)``, ``(Miss)`` and ``(Hit)``
    (opcm/pcm src/pcm-pcie.h, printSocketScopeEvents).
    """
    names: list[str] = []
    samples: dict[int, dict[str, list[float]]] = {}
    for row in (line.split(",") for line in lines if len(line) < _LONGEST_LINE):
        if row[0].strip() == "Skt":
            names = [name.strip() for name in row]
            continue
        kind = next((kind for kind in ("Miss", "Hit") if row[-1].rstrip().endswith(f"({kind})")), None)
        if kind is None or len(row) != len(names) or not row[0].strip().isdecimal():
            continue
        cells = {name: cell.partition("(")[0].strip() for name, cell in zip(names[1:], row[1:], strict=True)}
        of_devices = [cell for name, cell in cells.items() if name not in _BY_PROCESSOR and not name.endswith("(B)")]
        counts = [float(cell) for cell in of_devices if cell.isdecimal()]
        samples.setdefault(int(row[0]), {"Hit": [], "Miss": []})[kind].append(sum(counts))
    return {socket: list(zip(kinds["Hit"], kinds["Miss"], strict=False)) for socket, kinds in samples.items()}
