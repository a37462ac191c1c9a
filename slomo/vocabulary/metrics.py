"""The table of all metrics (counters): name, unit, what it describes, PCM column, rule for combining, limit.

Composition, the simulator, the PCM reader and the documentation all derive from :data:`METRICS`. Names are those of
Intel PCM as SLOMO (SIGCOMM'20, section 5, table of candidate metrics) uses them; units are PCM's, with amounts per
sampling interval turned into rates per second (PCM 202604, src/pcm.cpp, print_csv; src/cpucounters.cpp).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from slomo.errors import UnknownNameError


class Scope(StrEnum):
    """What a value describes: one core, one socket, or the whole system."""

    CORE = "core"
    SOCKET = "socket"
    SYSTEM = "system"


class Kind(StrEnum):
    """Kind of quantity, which decides how values of several competitors may be combined."""

    RATE = "rate"  # events per second
    BANDWIDTH = "bandwidth"  # bytes per second
    OCCUPANCY = "occupancy"  # bytes held
    RATIO = "ratio"  # events per event
    FREQUENCY = "frequency"  # share of nominal cycles
    LATENCY = "latency"  # time per event
    UTILISATION = "utilisation"  # share of a capacity
    FELT = "felt"  # extra time of a reporter, relative to its time alone


class Rule(StrEnum):
    """How a socket's value follows from the values of the cores on it."""

    SUM = "sum"
    PER_CORE = "sum / cores"  # PCM divides socket EXEC and FREQ by the threads of the socket
    WEIGHTED_MEAN = "weighted mean"
    QUOTIENT = "quotient of composed metrics"


class Cap(StrEnum):
    """Which capacity of the machine limits a combined value."""

    NONE = "none"
    ONE = "1"
    LLC = "LLC size"
    DDIO = "DDIO share of the LLC"
    MEMORY = "peak memory bandwidth"
    LINK = "inter-socket link"
    REPORTER = "extra time of the reporter when it never hits"


@dataclass(frozen=True)
class Metric:
    """One counter by which pressure on shared resources is measured."""

    #: PCM's name, the key everywhere.
    name: str
    #: Unit of every value stored under this name.
    unit: str
    #: Sort of quantity.
    kind: Kind
    #: Where PCM reports it.
    scopes: tuple[Scope, ...]
    #: One sentence.
    definition: str
    #: How the tenants' values compose to the socket's.
    rule: Rule
    #: For a weighted mean, the metric that weighs (``"L2REF"`` stands for L2MISS / (1 - L2HIT)). For a quotient,
    #: ``"numerator/denominator"``.
    weight: str | None = None
    #: Capacity that bounds the composed value.
    cap: Cap = Cap.NONE
    #: Names of the column in row 2 of ``pcm -csv``, oldest first; empty if PCM's main tool has none.
    pcm_columns: tuple[str, ...] = ()
    #: PCM prints the amount per sampling interval; divide by the interval to get this unit.
    per_interval: bool = False
    #: Whether a larger value means more pressure on a neighbour (for monotone models).
    pressure: bool = False
    #: The contended resource that it indicates: ``"cache"``, ``"DDIO"``, ``"memory bandwidth"``, ``"interconnect"`` or
    #: ``"core"``.
    resource: str = "core"


_ALL = (Scope.CORE, Scope.SOCKET, Scope.SYSTEM)
_UNCORE = (Scope.SOCKET, Scope.SYSTEM)


def _metric(
    name: str, unit: str, kind: Kind, definition: str, rule: Rule, weight: str | None = None, **rest: object
) -> Metric:
    settings: dict[str, object] = {"scopes": _ALL, "pcm_columns": (name,), **rest}
    return Metric(name=name, unit=unit, kind=kind, definition=definition, rule=rule, weight=weight, **settings)  # type: ignore[arg-type]


def _pressure(name: str, unit: str, kind: Kind, definition: str, resource: str, cap: Cap = Cap.NONE) -> Metric:
    """Return a metric of which more is more pressure on neighbours: an amount, or the slowdown of a reporter."""
    in_pcm = resource != "DDIO" and kind is not Kind.FELT  # PCM's main tool has neither
    return _metric(name, unit, kind, definition, Rule.SUM, cap=cap, pressure=True, resource=resource,
                   pcm_columns=(name,) * in_pcm, per_interval=in_pcm and kind is not Kind.OCCUPANCY)  # fmt: skip


def _cache_ratio(name: str, unit: str, definition: str, rule: Rule, weight: str, cap: Cap = Cap.NONE) -> Metric:
    return _metric(name, unit, Kind.RATIO, definition, rule, weight, cap=cap, resource="cache")


def _felt(name: str, who: str, resource: str, cap: Cap = Cap.NONE) -> Metric:
    """Return a metric that a reporter (probe program) measures: its slowdown."""
    definition = f"Extra time per unit of work of {who}, beside the competition over alone."
    slowdown = _pressure(name, "1", Kind.FELT, definition, resource, cap)
    return replace(slowdown, scopes=(Scope.CORE, Scope.SOCKET))


_TABLE = (
    _metric("IPC", "instructions/cycle", Kind.RATIO, "Instructions per unhalted cycle.", Rule.WEIGHTED_MEAN, "FREQ"),
    _metric("INST", "M/s", Kind.RATE, "Instructions retired.", Rule.SUM, per_interval=True),
    _metric(
        "EXEC",
        "instructions/nominal cycle",
        Kind.RATIO,
        "Instructions per nominal cycle, halted or not.",
        Rule.PER_CORE,
    ),
    _metric("FREQ", "1", Kind.FREQUENCY, "Unhalted cycles per nominal cycle.", Rule.PER_CORE),
    _metric(
        "AFREQ", "1", Kind.FREQUENCY, "Frequency relative to nominal while not halted.", Rule.WEIGHTED_MEAN, "FREQ"
    ),
    _pressure("L3MISS", "M/s", Kind.RATE, "Misses in the last-level cache.", "cache"),
    _cache_ratio(
        "L3MPI", "misses/instruction", "Last-level cache misses per instruction.", Rule.QUOTIENT, "L3MISS/INST"
    ),
    _cache_ratio("L3HIT", "1", "Share of last-level cache accesses that hit.", Rule.WEIGHTED_MEAN, "L2MISS", Cap.ONE),
    _pressure("L3OCC", "KiB", Kind.OCCUPANCY, "Last-level cache held.", "cache", Cap.LLC),
    _pressure("L2MISS", "M/s", Kind.RATE, "Misses in L2, that is the cache access rate CAR.", "cache"),
    _cache_ratio("L2MPI", "misses/instruction", "L2 misses per instruction.", Rule.QUOTIENT, "L2MISS/INST"),
    _cache_ratio("L2HIT", "1", "Share of L2 accesses that hit.", Rule.WEIGHTED_MEAN, "L2REF", Cap.ONE),
    _pressure("LMB", "MiB/s", Kind.BANDWIDTH, "Memory bandwidth to the local node.", "memory bandwidth", Cap.MEMORY),
    _pressure("RMB", "MiB/s", Kind.BANDWIDTH, "Memory bandwidth to remote nodes.", "interconnect", Cap.LINK),
    _pressure(
        "READ", "GB/s", Kind.BANDWIDTH, "Read from memory, by cores and devices.", "memory bandwidth", Cap.MEMORY
    ),
    _pressure(
        "WRITE", "GB/s", Kind.BANDWIDTH, "Written to memory, by cores and devices.", "memory bandwidth", Cap.MEMORY
    ),
    _metric(
        "LLCMISSLAT",
        "ns",
        Kind.LATENCY,
        "Mean latency of a last-level cache read miss.",
        Rule.WEIGHTED_MEAN,
        "L3MISS",
        scopes=(Scope.SOCKET,),
        pcm_columns=("LLCRDMISSLAT (ns)",),
        resource="memory bandwidth",
    ),
    _metric(
        "UPI",
        "1",
        Kind.UTILISATION,
        "Utilisation of the inter-socket links (QPI before Skylake).",
        Rule.SUM,
        scopes=_UNCORE,
        cap=Cap.ONE,
        pcm_columns=("QPI", "UPI"),
        resource="interconnect",
    ),
    _pressure("DDIOOCC", "KiB", Kind.OCCUPANCY, "Last-level cache held by lines that devices wrote.", "DDIO", Cap.DDIO),
    _pressure(
        "PCIEHIT", "M/s", Kind.RATE, "Lines that devices read or wrote and found in the last-level cache.", "DDIO"
    ),
    _pressure("PCIEMISS", "M/s", Kind.RATE, "Lines that devices read or wrote and did not find there.", "DDIO"),
    _felt("FELTLLC", "a reporter whose data fill the shared cache", "cache", Cap.REPORTER),
    _felt("FELTL3", "a reporter that lives in the shared cache, just beyond L2", "cache"),
    _felt("FELTREAD", "a reporter that reads from memory", "memory bandwidth"),
    _felt("FELTWRITE", "a reporter that writes to memory", "memory bandwidth"),
)

#: name -> Metric, in the order of the documentation
METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}

#: Reporter metrics, for hosts without counters (`slomo.testbed.host.probe`).
FELT = tuple(name for name, item in METRICS.items() if item.kind is Kind.FELT)

#: Other names people use for a metric.
ALIASES: dict[str, str] = {"CAR": "L2MISS", "QPI": "UPI", "LLCRDMISSLAT": "LLCMISSLAT", "LLC_OCCUPANCY": "L3OCC"}


def metric(name: str) -> Metric:
    """Return the metric of a given name or alias; UnknownNameError with the nearest name."""
    definition = METRICS.get(ALIASES.get(name, name))
    if definition is None:
        raise UnknownNameError("metric", name, [*METRICS, *ALIASES])
    return definition


def no_pressure(*, reporters: bool) -> dict[str, float]:
    """Return the counters of a socket on which nothing runs.

    >>> "FELTLLC" in no_pressure(reporters=False), no_pressure(reporters=True)["FELTLLC"]
    (False, 0.0)
    """
    added = (item for item in METRICS.values() if item.rule is Rule.SUM)
    return {item.name: 0.0 for item in added if reporters or item.kind is not Kind.FELT}


def canonical_names(names: Iterable[str]) -> tuple[str, ...]:
    """Resolve aliases, check that every name is a metric, and return them in table order."""
    chosen = {metric(name).name for name in names}
    return tuple(name for name in METRICS if name in chosen)
