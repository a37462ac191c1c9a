"""Run all checks of this host and a memory measurement, and report the worst status.

`slomo doctor` prints this; it changes nothing and needs no special rights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import SlomoError
from slomo.files.stored import stored
from slomo.host.cores import available_cores
from slomo.host.tool import is_installed, run_tool
from slomo.testbed.host.doctor import counting, equipment, tuning
from slomo.testbed.host.doctor.check import Check, Finding, Status, System, check, ok, warn
from slomo.testbed.host.doctor.drift import MachineDrift, watch_drift
from slomo.testbed.host.doctor.memory import MemoryCurve, measure_memory
from slomo.testbed.host.machine.this_machine import cache_mib
from slomo.testbed.host.settings import HostSettings

_VERSION_LIMIT_S = 5.0
_MUCH_LESS = 0.75
_TYPICAL_LLC_MIB = 32.0

Measure = Callable[[Sequence[int], float, float | None], MemoryCurve]
Watch = Callable[[Sequence[int], float, float], MachineDrift]


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a host, with its measured memory latency and drift."""

    #: Findings in order.
    checks: tuple[Check, ...]
    #: Measured memory curve; None if it was skipped or failed.
    curve: MemoryCurve | None
    #: Change of the machine's speed over a few seconds; None if it was skipped or failed.
    drift: MachineDrift | None = None

    @property
    def status(self) -> Status:
        """The worst status of all checks."""
        statuses = {check.status for check in self.checks}
        return next((status for status in (Status.FAIL, Status.WARN) if status in statuses), Status.OK)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {
            "status": str(self.status),
            "checks": stored(self.checks),
            "memory": stored(self.curve),
            "drift": stored(self.drift),
        }


def this_system() -> System:
    """Return access to this host's files and tools for the checks."""
    return System(Path("/"), available_cores(), version_of)


def diagnose(
    system: System | None = None,
    *,
    quick: bool = False,
    measure: Measure = measure_memory,
    watch: Watch = watch_drift,
) -> Diagnosis:
    """Run all checks on a host; `quick` skips `measure` (memory) and `watch` (drift), which take seconds."""
    host = system or this_system()
    checks = [check for room in (counting, tuning, equipment) for check in room.checks(host)]
    curve = drift = None
    if not quick:
        curve, memory_checks = _memory(host, measure)
        checks += memory_checks
    if curve is not None:
        drift, check = _drift(host, curve, watch)
        checks.append(check)
    return Diagnosis(tuple(checks), curve, drift)


def version_of(words: tuple[str, ...]) -> str | None:
    """Return the line of a program's output that states its version; None if the program is not installed."""
    if not is_installed(words[0]):
        return None
    try:
        finished = run_tool(words, _VERSION_LIMIT_S)
    except SlomoError as problem:
        return problem.message[:80]
    numbered = [line for line in finished.output if any(character.isdigit() for character in line)]
    stated = [line for line in numbered if "version" in line.lower()]
    # exit codes are ignored: pqos prints its version and returns 1
    return (stated or numbered or finished.output or ["installed"])[0][:80]


def _memory(system: System, measure: Measure) -> tuple[MemoryCurve | None, list[Check]]:
    l2_mib, stated = (cache_mib(2) or (1.0, 0))[0], (cache_mib(3) or (None, 0))[0]
    try:
        curve = measure(system.cores, l2_mib, stated)
    except SlomoError as problem:
        failed = warn(problem.message, problem.hint or "slomo doctor --quick")
    except OSError as problem:  # the home directory is not writable, so the competitor cannot be built
        failed = warn(f"'{problem.filename}': {problem.strerror}", "set XDG_CACHE_HOME to a folder you may write to")
    else:
        return curve, [_cache(curve, stated), _latency(curve), _bandwidth(curve)]
    return None, [Check("memory", "latency curve", *failed)]


def _drift(system: System, curve: MemoryCurve, watch: Watch) -> tuple[MachineDrift | None, Check]:
    l2_mib = (cache_mib(2) or (1.0, 0))[0]
    llc_mib = curve.llc_mib or (cache_mib(3) or (_TYPICAL_LLC_MIB, 0))[0]
    try:
        drift = watch(system.cores, l2_mib, llc_mib)
    except SlomoError as problem:
        return None, Check("memory", "drift", Status.WARN, problem.message, problem.hint or "stop other tasks")
    return drift, drift.check(HostSettings().drift_limit)


@check("memory", "effective cache")
def _cache(curve: MemoryCurve, stated_mib: float | None) -> Finding:
    stated = "the kernel states none" if stated_mib is None else f"the kernel states {stated_mib:g} MiB"
    if curve.llc_mib is None:
        return warn(f"the curve shows no edge; {stated}", "stop other tasks, then `slomo doctor` again")
    if curve.llc_ns is None:
        remedy = "ask who shares the machine below, and measure again; only memory bandwidth is contended for"
        finding = f"no shared cache behind L2 ({curve.llc_mib:g} MiB): others hold it, or it is not ours; {stated}"
        return warn(finding, remedy)
    finding = f"{curve.llc_mib:.1f} MiB (with L2); {stated}"
    if stated_mib is not None and curve.llc_mib < _MUCH_LESS * stated_mib:
        remedy = "slomo doctor --out this-host.yaml   # plan with what is ours; others use the rest"
        return warn(finding, remedy)
    return ok(finding)


@check("memory", "latency curve")
def _latency(curve: MemoryCurve) -> Finding:
    levels = (("L2", curve.l2_ns), ("LLC", curve.llc_ns), ("memory", curve.dram_ns))
    latencies = ", ".join(f"{name} {value:.1f} ns" for name, value in levels if value is not None)
    return ok(latencies or f"{len(curve.sizes_mib)} sizes")


@check("memory", "bandwidth")
def _bandwidth(curve: MemoryCurve) -> Finding:
    finding = (
        "not measured" if curve.read_gb_s is None else f"{curve.read_gb_s:.1f} GB/s read by the cores of one socket"
    )
    return ok(finding)
