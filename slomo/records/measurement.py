"""A measurement: the summary of repeated runs of one experiment, with a verdict on their stability.

As in pyperf, a measurement holds values, metadata and a verdict; the raw replicates are kept.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slomo.errors import InvalidValueError
from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import METRICS, Rule, Scope
from slomo.vocabulary.vector import MetricVector


class Stability(StrEnum):
    """Verdict on repeated runs: they agree, they disagree, or at least one did not converge."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    UNCONVERGED = "unconverged"


@dataclass(frozen=True)
class Measurement:
    """Repeated runs of the same network functions together, summarised by medians."""

    #: The network functions that ran together.
    colocation: Colocation
    #: The target's throughput in every replicate [Mpps].
    throughput_mpps: tuple[float, ...]
    #: SLOMO's V: socket-level metrics of the competitors running alone; None for a solo run.
    competition: MetricVector | None
    #: Socket-level metrics while the target runs, minus the target's own part; input of the equilibrium models.
    beside: MetricVector | None
    #: Core-level metrics of the target beside its competitors.
    contentiousness: MetricVector
    #: Latencies ``p50``, ``p95``, ``p99`` [us]; empty if not measured.
    latency_us: Mapping[str, float]
    loss: float | None
    #: Verdict on the replicates.
    stability: Stability
    #: Provenance as in `RunRecord`.
    provenance: Mapping[str, Any]
    #: Standard error of one replicate's throughput [Mpps], if the testbed knows it; median over replicates.
    throughput_error_mpps: float | None = None

    @property
    def median_mpps(self) -> float:
        """Median throughput of the repeated runs [Mpps]."""
        return statistics.median(self.throughput_mpps)

    @property
    def dispersion(self) -> float:
        """Standard deviation of the replicates' throughput divided by its mean; 0 for a single replicate."""
        return dispersion(self.throughput_mpps)


def dispersion(values: Sequence[float]) -> float:
    """Return the standard deviation of values divided by their mean; 0 for a single value."""
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if len(values) > 1 and mean > 0.0 else 0.0


def summarise(records: Sequence[RunRecord], *, limit: float = 0.05) -> Measurement:
    """Summarise repeated runs of one co-location; `limit` is the largest dispersion that still counts as stable."""
    if not records or any(record.colocation != records[0].colocation for record in records):
        raise InvalidValueError("a measurement needs at least one run, all of one co-location")
    throughput = tuple(record.target.throughput_mpps for record in records)
    spread = dispersion(throughput)
    targets = [record.target for record in records]
    latency = {name: [getattr(t, f"latency_{name}_us") for t in targets] for name in ("p50", "p95", "p99")}
    errors = [t.standard_errors["throughput_mpps"] for t in targets if "throughput_mpps" in t.standard_errors]
    losses = [t.loss for t in targets if t.loss is not None]
    alone = [record.alone.socket for record in records if record.alone is not None]
    beside = [others_of(each.beside.socket, each.target.vector) for each in records if each.beside is not None]
    return Measurement(
        colocation=records[0].colocation,
        throughput_mpps=throughput,
        competition=median_vector(alone) if alone else None,
        beside=median_vector(beside) if alone else None,
        contentiousness=median_vector([t.vector for t in targets]),
        latency_us={name: statistics.median(values) for name, values in latency.items() if None not in values},
        loss=statistics.median(losses) if losses else None,
        stability=_verdict(records, agree=spread <= limit),
        provenance=records[0].provenance,
        throughput_error_mpps=statistics.median(errors) if len(errors) == len(targets) else None,
    )


def _verdict(records: Sequence[RunRecord], *, agree: bool) -> Stability:
    if not all(record.converged for record in records):
        return Stability.UNCONVERGED
    return Stability.STABLE if agree else Stability.UNSTABLE


def median_vector(vectors: Sequence[MetricVector]) -> MetricVector:
    """Return the median of each metric over several vectors; a metric that any of them lacks stays missing."""
    names = [name for name in METRICS if all(name in vector for vector in vectors)]
    return MetricVector(
        {name: statistics.median(vector[name] for vector in vectors) for name in names}, scope=vectors[0].scope
    )


def others_of(socket: MetricVector, own: MetricVector) -> MetricVector:
    """Return a socket's counters minus those of one network function.

    Only additive metrics can be subtracted; for all other metrics, the socket's value is returned.
    """
    values: dict[str, float] = {}
    for name, value in socket.items():
        if METRICS[name].rule is not Rule.SUM:
            values[name] = value
        elif name in own:
            values[name] = max(0.0, value - own[name])
    return MetricVector(values, scope=Scope.SOCKET)
