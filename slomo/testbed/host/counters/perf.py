"""Read counters by ``perf stat``, on any Linux host whose processor has performance counters.

Events are the kernel's generic ones (perf_event_open(2)): on Intel ``cache-references`` and ``cache-misses`` count at
the last-level cache, on AMD at L2 (arch/x86/events/{intel,amd}/core.c). ``<not supported>`` and ``<not counted>`` mean
missing; perf's exit code does not report them.
"""

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slomo.errors import TestbedError
from slomo.files.json_text import json_object
from slomo.host.cores import socket_of
from slomo.host.tool import RunningTool, run_tool
from slomo.testbed.host.counters.base import CounterSample, ProgramReader
from slomo.testbed.host.counters.events import Events, total
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_EVENTS = ("cycles", "instructions", "ref-cycles", "cache-references", "cache-misses")
_MEMORY = {"READ": "cas_count_read", "WRITE": "cas_count_write"}
_DEVICES = Path("/sys/bus/event_source/devices")
_TRIAL_LIMIT_S, _START_LIMIT_S = 10.0, 5.0
_INTERVAL_MS = 200  # the first interval shows that perf counts; perf reports its start in no other way
_MIB_PER_GB = 2**20 / 1e9
_LEAST_RUNNING = 5.0  # [%]: a multiplexed event that ran for a smaller share is ignored

Cell = tuple[str, str]


class PerfReader(ProgramReader):
    """Runs ``perf stat -j -a -A`` until stopped.

    `vendor`: ``"intel"`` or ``"amd"``, which determines the level of the cache events; by default this machine's.
    """

    name = "perf"

    def __init__(self, command: str = "perf", vendor: str | None = None, devices: Path = _DEVICES) -> None:
        super().__init__(command)
        self._devices = devices
        self.vendor = _vendor() if vendor is None else vendor
        self._running: list[RunningTool] = []

    def start(self, cores: Sequence[int]) -> None:
        """Start counting on all CPUs, so that counts can be added up per socket."""
        self._require()
        self._cores = tuple(cores)
        commands = [self._words(_EVENTS, "-A")]
        if self._has_memory_counters():
            commands.append(self._words([f"uncore_imc/{event}/" for event in _MEMORY.values()], "--per-socket"))
        try:
            for words in commands:
                self._running.append(RunningTool(words))
            for tool in self._running:
                if not tool.wait(functools.partial(_has_counted, tool), _START_LIMIT_S):
                    raise _vanished(tool)
        except BaseException:
            self._end()
            raise

    def stop(self) -> CounterSample:
        """Stop counting and return the counts. Raises TestbedError if perf ended before."""
        if not self._running:
            raise self._not_started()
        try:
            if not self._running[0].alive:
                raise _vanished(self._running[0])
            texts = [tool.stop().stderr for tool in self._running]
        finally:
            self._end()
        cells = counted(texts[0].splitlines(), "cpu")
        duration_s = enabled_s(texts[0].splitlines())
        memory = counted(texts[1].splitlines(), "socket") if len(texts) > 1 else {}
        # the two tools start at different times; counts are scaled to the first one's time span
        span_s = enabled_s(texts[1].splitlines(), "socket") if memory else 0.0
        memory = {cell: count * duration_s / span_s if span_s else count for cell, count in memory.items()}
        return self._sample(cells, memory, duration_s)

    def _sample(self, cells: Mapping[Cell, float], memory: Mapping[Cell, float], duration_s: float) -> CounterSample:
        events = {int(cpu): self._events(cpu, cells) for cpu in {cpu for cpu, _ in cells} if cpu.isdigit()}
        cores = {
            core: MetricVector(events[core].metrics(duration_s), scope=Scope.CORE)
            for core in self._cores
            if core in events
        }
        sockets = {
            socket: MetricVector(
                {
                    **total(item for core, item in events.items() if socket_of(core) == socket).metrics(duration_s),
                    **_memory_values(socket, memory, duration_s),
                },
                scope=Scope.SOCKET,
            )
            for socket in sorted({socket_of(core) for core in events})
        }
        return CounterSample(cores, sockets, None, duration_s)

    def _events(self, cpu: str, cells: Mapping[Cell, float]) -> Events:
        references, misses = cells.get((cpu, "cache-references")), cells.get((cpu, "cache-misses"))
        hits = None if references is None or misses is None else max(0.0, references - misses)
        plain = Events(cells.get((cpu, "instructions")), cells.get((cpu, "cycles")), cells.get((cpu, "ref-cycles")))
        if self.vendor == "intel":
            return replace(plain, l3_misses=misses, l3_hits=hits, l2_misses=references)
        if self.vendor == "amd":
            return replace(plain, l2_misses=misses, l2_hits=hits)
        return plain

    def _words(self, events: Iterable[str], by: str) -> list[str]:
        return [self.command, "stat", "-j", "-a", by, "-I", str(_INTERVAL_MS), "-e", ",".join(events)]

    def _has_memory_counters(self) -> bool:
        folders = sorted(self._devices.glob("uncore_imc*"))
        return any(all((f / "events" / event).exists() for event in _MEMORY.values()) for f in folders)

    def _end(self) -> None:
        tools, self._running = self._running, []
        with contextlib.ExitStack() as stack:
            for tool in tools:
                stack.callback(tool.stop)

    def _tried(self) -> tuple[bool, str]:
        finished = run_tool([*self._words(_EVENTS, "-A"), "--", "sleep", "0.05"], _TRIAL_LIMIT_S)
        if finished.code != 0:
            return False, f"exit code {finished.code}: {finished.last_words()}"
        names = {event for _, event in counted(finished.stderr.splitlines(), "cpu")}
        if "cycles" not in names:
            return False, "it counts no cycles here: this machine shows no performance counters (no vPMU)"
        return True, f"it counts {', '.join(name for name in _EVENTS if name in names)}"

    def _hint(self, why: str) -> str:  # noqa: ARG002 - perf's reasons are all of one kind
        return "see `slomo doctor`, or use 'probe'"


def counted(lines: Iterable[str], by: str) -> dict[Cell, float]:
    """Return the counts of ``perf stat -j`` by CPU or socket and event; events that perf did not count are absent.

    `lines`: output of perf, of which each JSON object is one line; counts of all intervals are added up. An event that
    is missing in some intervals is scaled to all of them, as perf itself scales multiplexed events. `by`: JSON field
    that holds the CPU or socket.

    >>> counted(['{"cpu" : "0", "counter-value" : "7.0", "event" : "cycles", "pcnt-running" : 100.00}',
    ...          '{"cpu" : "0", "counter-value" : "<not supported>", "event" : "cache-misses"}'], "cpu")
    {('0', 'cycles'): 7.0}
    """
    spans = _spans(lines, by)
    longest_s = max((enabled for _, enabled in spans.values()), default=0.0)
    return {cell: value * longest_s / enabled if enabled else value for cell, (value, enabled) in spans.items()}


def enabled_s(lines: Iterable[str], by: str = "cpu") -> float:
    """Return the time for which perf counted [s], by its own clock, since its start-up takes an unknown time."""
    return max((enabled for _, enabled in _spans(lines, by).values()), default=0.0)


def _spans(lines: Iterable[str], by: str) -> dict[Cell, tuple[float, float]]:
    """Return each event's count and enabled time [s] by CPU or socket, summed over perf's output intervals."""
    spans: dict[Cell, tuple[float, float]] = {}
    for item in filter(None, map(json_object, lines)):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            value, share = float(item["counter-value"]), float(item.get("pcnt-running", 100.0))
            if share < _LEAST_RUNNING or value < 0.0:
                continue
            cell = str(item[by]).lstrip("CPUS"), _plain(str(item["event"]))
            enabled = float(item.get("event-runtime", 0.0)) / 1e9 / (share / 100.0)
            count, before = spans.get(cell, (0.0, 0.0))
            spans[cell] = (count + value, before + enabled)
    return spans


def _has_counted(tool: RunningTool) -> bool:
    return any(line.startswith("{") for line in tool.lines("stderr"))


def _plain(event: str) -> str:
    """Return an event's name without modifiers such as ``:u``, without ``/`` and without the PMU's name."""
    return event.partition("/")[2].strip("/") if "/" in event else event.partition(":")[0]


def _memory_values(socket: int, memory: Mapping[Cell, float], duration_s: float) -> dict[str, float]:
    counts = {name: memory.get((str(socket), event)) for name, event in _MEMORY.items()}
    return {name: mib * _MIB_PER_GB / duration_s for name, mib in counts.items() if mib is not None}


def _vendor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return ""
    return "intel" if "GenuineIntel" in text else "amd" if "AuthenticAMD" in text else ""


def _vanished(tool: RunningTool) -> TestbedError:
    finished = tool.stop()
    return TestbedError(
        f"counters vanished: 'perf' ended while it was needed (exit code {finished.code}): {finished.last_words()}",
        hint="see `slomo doctor` for perf_event_paranoid and the vPMU, or use 'probe', which needs no counters",
    )
