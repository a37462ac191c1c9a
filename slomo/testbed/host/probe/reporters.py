"""Reporters: small programs, each of which slows down under one kind of pressure.

Bubble-Up (MICRO'11, section 4.2) measures the pressure of an application by how much it slows a reporter of known
sensitivity; with one reporter per shared resource of SLOMO (SIGCOMM'20, section 3), the result is a vector instead of a
score.
"""

from dataclasses import dataclass
from typing import Any

from slomo.files.stored import Stored
from slomo.vocabulary.workload import Setting, Workload

_STREAM_AT_LEAST_MIB = 64.0
_STREAM_AT_MOST_MIB = 512.0
_PER_PACKET = 256
_LEAST_RATIO = 1e-3


@dataclass(frozen=True)
class Reporter(Stored):
    """A small program whose slowdown measures one kind of pressure."""

    #: Description of the program.
    name: str
    #: The metric that its extra time measures.
    metric: str
    #: Workload of the synthetic NF that the program runs.
    workload: Workload


def candidates(l2_mib: float, llc_mib: float) -> tuple[Reporter, ...]:
    """Return the candidate reporters for a machine with the given cache sizes [MiB]."""
    stream, beyond_l2 = stream_mib(llc_mib), 1.5 * l2_mib
    capacity = [
        _reporter(f"{pattern}-{share:g}", "FELTLLC", data_size_mib=share * llc_mib, pattern=pattern)
        for pattern, share in (("random", 0.5), ("random", 0.65), ("random", 0.8), ("chain", 0.5), ("chain", 0.8))
    ]
    return (
        *capacity,
        # data slightly larger than L2, with dependent loads: the speed shows the latency of the shared cache
        _reporter("chain-l2", "FELTL3", data_size_mib=beyond_l2, pattern="chain"),
        _reporter("random-l2", "FELTL3", data_size_mib=beyond_l2, pattern="random"),
        _reporter("stream-read", "FELTREAD", data_size_mib=stream, pattern="sequential"),
        _reporter("random-read", "FELTREAD", data_size_mib=stream, pattern="random"),
        _reporter("stream-write", "FELTWRITE", data_size_mib=stream, pattern="sequential", writes=_PER_PACKET),
        _reporter("random-write", "FELTWRITE", data_size_mib=stream, pattern="random", writes=_PER_PACKET),
    )


def bubbles(l2_mib: float, llc_mib: float) -> dict[str, Workload]:
    """Return, for each resource, the competitor that loads it most and the others least."""
    stream = stream_mib(llc_mib)
    return {
        "FELTLLC": _workload(data_size_mib=llc_mib, pattern="random"),
        "FELTL3": _workload(data_size_mib=max(2.0 * l2_mib, 0.3 * llc_mib), pattern="random"),
        "FELTREAD": _workload(data_size_mib=stream, pattern="sequential"),
        "FELTWRITE": _workload(data_size_mib=stream, pattern="sequential", writes=_PER_PACKET),
    }


def stream_mib(llc_mib: float) -> float:
    """Return a data size that exceeds every cache of the machine [MiB]."""
    return round(min(max(_STREAM_AT_LEAST_MIB, 4.0 * llc_mib), _STREAM_AT_MOST_MIB), 3)


def extra_time(ratio: float) -> float:
    """Return the relative increase of a reporter's time per unit of work over its solo run; never negative.

    Bubble-Up defines an application's pressure by its effect on a reporter. Extra times add up, ratios of speed beside
    to solo (`ratio`) do not: two competitors that cost a reporter 0.2 and 0.3 of its solo time cost 0.5 together, until
    the resource is full.
    """
    return max(0.0, 1.0 / max(ratio, _LEAST_RATIO) - 1.0)


def never_hits(reporter: Reporter, llc_mib: float) -> Workload:
    """Return the reporter's workload with data too large for any cache, as if all its lines were evicted."""
    settings = {**reporter.workload.configuration, "data_size_mib": stream_mib(llc_mib)}
    return Workload(reporter.workload.nf, settings)


def _reporter(name: str, metric: str, **knobs: Any) -> Reporter:
    return Reporter(name, metric, _workload(**knobs, burst=1))


def _workload(data_size_mib: float, pattern: str, writes: int = 0, **rest: Setting) -> Workload:
    """Return a synthetic competitor that only reads or only writes."""
    accesses = {"reads_per_packet": 0 if writes else _PER_PACKET, "writes_per_packet": writes}
    return Workload("synthetic", {"data_size_mib": round(data_size_mib, 3), "pattern": pattern, **accesses, **rest})
