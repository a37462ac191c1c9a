"""Run ChampSim on traces and read its report: retired records, cycles, and JSON statistics.

A run ends with the shortest trace. It has no limit of instructions, since with a limit the statistics would cover the
time until the slowest core reaches it, but the rates would not. Counters cover the whole run, so those of a shorter run
with the same start are subtracted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from slomo.errors import ConfigurationError, TestbedError
from slomo.files.documents import convert, parse
from slomo.files.opening import read_text
from slomo.files.stored import Stored
from slomo.host.tool import run_tool
from slomo.testbed.champsim.binaries import Binary

_PHASE = re.compile(r"^(Warmup|Simulation) complete CPU (\d+) instructions: (\d+) cycles: (\d+) ", re.MULTILINE)
_CORES = re.compile(r"^Number of CPUs: (\d+)$", re.MULTILINE)
_KINDS = ("LOAD", "RFO", "PREFETCH", "WRITE", "TRANSLATION")
_LIMIT_S = 3600.0
RECORD_B = 64
_AGAIN = "remove the file; the run is made again"
_Amount = Annotated[int, Meta(ge=0)]


class _Accesses(Struct):
    """Accesses of one kind to a cache, by core."""

    hit: list[_Amount]
    miss: list[_Amount]


class _ChannelRows(Struct):
    """Row-buffer hits and misses of one memory channel."""

    read_hit: _Amount = field(name="RQ ROW_BUFFER_HIT")
    read_miss: _Amount = field(name="RQ ROW_BUFFER_MISS")
    write_hit: _Amount = field(name="WQ ROW_BUFFER_HIT")
    write_miss: _Amount = field(name="WQ ROW_BUFFER_MISS")


@dataclass(frozen=True, eq=False)
class Execution(Stored):
    """Report of the measured phase of one ChampSim run."""

    #: Number of records that each core had retired when the phase began.
    start: tuple[int, ...]
    #: Number of records that each core retired during the phase.
    records: tuple[int, ...]
    #: Length of the phase [cycles].
    cycles: int
    #: JSON statistics of the phase ("sim").
    counters: Mapping[str, Any]


def execute(binary: Binary, traces: Sequence[Path], warm: int, folder: Path) -> Execution:
    """Run a binary on one trace per core and return its report; `warm`: number of records of the warm-up.

    Raises ConfigurationError if a trace ends within a record or during warm-up, or if the statistics cannot be read;
    TestbedError if ChampSim fails.
    """
    for trace in traces:
        check_length(trace, warm)
    output = folder / "statistics.json"
    words = [str(binary.path), "-w", str(warm), *map(str, traces), f"--json={output}"]
    try:
        done = run_tool(words, _LIMIT_S)
    except TestbedError as problem:
        raise TestbedError(
            f"{binary.path.name}: {problem.message}", hint="build it again, from upstream's documentation"
        ) from None
    if done.code != 0 or not output.exists():
        raise TestbedError(
            f"{binary.path.name} ended with code {done.code}: {done.last_words()}",
            hint="run it by hand on one of upstream's traces",
        )
    return read_execution(done.stdout, output.read_text(encoding="utf-8"), binary.cores, warm, str(output))


def check_length(trace: Path, warm: int) -> None:
    """Raise an error if ChampSim cannot run this trace, because it is too short or incomplete."""
    size = trace.stat().st_size
    fault = f"{size} bytes, needed a multiple of {RECORD_B}" if size % RECORD_B else ""
    if not fault and size // RECORD_B <= warm:
        fault = f"{size // RECORD_B} records, needed more than the {warm} of the warm-up"
    if fault:
        raise ConfigurationError(f"{trace}: has {fault}", hint="the trace was cut short: remove it, it is made again")


def read_execution(text: str, statistics: str, cores: int, warm: int, file: str = "statistics.json") -> Execution:
    """Read ChampSim's output and statistics."""
    number = _CORES.search(text)
    if number is None or int(number[1]) != cores:
        raise ConfigurationError(
            f"{file}: 'Number of CPUs' is {number[1] if number else 'missing'}, needed {cores}",
            hint="the binary was built from another configuration than the JSON file beside it says",
        )
    phases = {(name, int(core)): (int(done), int(cycles)) for name, core, done, cycles in _PHASE.findall(text)}
    try:
        start = tuple(phases["Warmup", core][0] for core in range(cores))
        ends = [phases["Simulation", core] for core in range(cores)]
    except KeyError as error:
        raise ConfigurationError(f"{file}: no line says 'complete' for {error}", hint="the run was cut short") from None
    if min(start) < warm:
        raise ConfigurationError(
            f"{file}: core {start.index(min(start))} warmed up with {min(start)} records, needed {warm}",
            hint="a trace ended while warming up: make the traces longer",
        )
    try:
        phase: Mapping[str, Any] = parse(statistics, file).data[0]["sim"]
    except (KeyError, IndexError, TypeError) as error:
        raise _strange(file, error) from None
    return Execution(start, tuple(done for done, _ in ends), ends[0][1], _checked(phase, cores, file))


def read_run(path: Path, cores: int) -> Execution:
    """Return a stored run. Raises ConfigurationError if its file is damaged."""
    execution = Execution.from_dict(parse(read_text(path), str(path)).table())
    if not len(execution.start) == len(execution.records) == cores:
        raise ConfigurationError(f"{path}: holds {len(execution.start)} cores, needed {cores}", hint=_AGAIN)
    _checked(execution.counters, cores, str(path))
    return execution


def _checked(phase: Mapping[str, Any], cores: int, file: str) -> Mapping[str, Any]:
    """Return the phase's counters; ChampSim lists cores in descending order, but a cache's counts ascending."""
    try:
        if len(phase["cores"]) != cores:
            raise ConfigurationError(f"{file}: field 'cores' has {len(phase['cores'])} entries, needed {cores}")
        for name in ("LLC", *(f"cpu{core}_L2C" for core in range(cores))):
            for kind in _KINDS:
                accesses = convert(phase[name][kind], _Accesses, f"{file}: {name}.{kind}", _AGAIN)
                if not len(accesses.hit) == len(accesses.miss) == cores:
                    raise ConfigurationError(f"{file}: field '{name}.{kind}' has not {cores} counts, needed one a core")
        convert(phase["DRAM"], list[_ChannelRows], f"{file}: DRAM", _AGAIN)
    except (KeyError, TypeError) as error:
        raise _strange(file, error) from None
    return dict(phase)


def _strange(file: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{file}: these are not ChampSim's statistics: {type(error).__name__} {error}, needed phases with 'sim'",
        hint=_AGAIN,
    )


def counted(execution: Execution, cache: str, core: int, kinds: Sequence[str], what: str) -> int:
    """Return a core's number of accesses to a cache with the given outcome, ``"hit"`` or ``"miss"``."""
    return int(sum(execution.counters[cache][kind][what][core] for kind in kinds))


def memory_lines(execution: Execution, queue: str) -> int:
    """Return the number of cache lines read from memory (``"RQ"``) or written to it (``"WQ"``)."""
    channels = execution.counters["DRAM"]
    return int(sum(item[f"{queue} ROW_BUFFER_HIT"] + item[f"{queue} ROW_BUFFER_MISS"] for item in channels))
