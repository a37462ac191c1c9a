"""The raw result of one run on a testbed.

A run has two phases, as in SLOMO (SIGCOMM'20) and its published scripts. In the first, only the competitors run, and
the socket-level metrics are the vector V. In the second, the target runs beside them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.vector import MetricVector

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TenantSample(Stored):
    """Measurements of one network function in one phase of a run."""

    #: Packets served [Mpps].
    throughput_mpps: float
    #: Core-level metrics of the tenant's core.
    vector: MetricVector
    #: Share of offered packets dropped, 0 to 1; None at saturation or if not counted.
    loss: float | None = None
    #: Percentiles of packets' sojourn time [us].
    latency_p50_us: float | None = None
    latency_p95_us: float | None = None
    latency_p99_us: float | None = None
    #: Standard errors of the fields above and of the vector's metrics, by name, if the testbed knows them.
    standard_errors: Mapping[str, float] = field(default_factory=dict)
    #: Number of independent packets that would give percentiles of the same precision.
    effective_packets: float | None = None
    #: False if the testbed reports that the tenant's rate did not settle within the tolerance.
    converged: bool = True


@dataclass(frozen=True)
class Phase(Stored):
    """One phase of a run: the network functions that ran, and the counters of their socket."""

    #: Samples in the order of the co-location's tenants that ran.
    tenants: tuple[TenantSample, ...]
    #: Metrics of the socket of the target's core; READ and WRITE are of the socket that holds the target's memory.
    socket: MetricVector
    #: Metrics of the whole machine.
    system: MetricVector | None = None
    #: Length of the measured window [s] (simulated time in the simulator).
    duration_s: float = 0.0
    #: Standard errors of the socket's metrics, if the testbed knows them.
    socket_errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether every tenant's throughput converged."""
        return all(tenant.converged for tenant in self.tenants)

    def with_vectors(self, change: Callable[[MetricVector], MetricVector]) -> "Phase":
        """Return the phase with the vectors of its tenants and of the socket changed."""
        tenants = tuple(replace(each, vector=change(each.vector)) for each in self.tenants)
        return replace(self, tenants=tenants, socket=change(self.socket))


@dataclass(frozen=True)
class RunRecord(Stored, version=SCHEMA_VERSION):
    """One run of network functions together, as measured."""

    #: The network functions that ran together.
    colocation: Colocation
    #: Seed of everything random in the run.
    seed: int
    #: Phase with only the competitors; None without competitors.
    alone: Phase | None
    #: Phase with all tenants, the target first; None if the co-location has no target.
    beside: Phase | None
    #: Provenance: machine, workloads, versions (see `records.provenance`).
    provenance: Mapping[str, Any]
    #: The same run without measurement noise, if the testbed knows it (as the simulator does).
    truth: "RunRecord | None" = None

    def __post_init__(self) -> None:
        for name, phase, expected in (
            ("alone", self.alone, len(self.colocation.competitors)),
            ("beside", self.beside, len(self.colocation.tenants)),
        ):
            if phase is not None and len(phase.tenants) != expected:
                raise InvalidValueError(
                    f"phase '{name}' of {self.colocation.label} reports {len(phase.tenants)} tenants, needed {expected}"
                )

    @property
    def converged(self) -> bool:
        """Whether every tenant of both phases converged."""
        return all(phase.converged for phase in (self.alone, self.beside) if phase is not None)

    @property
    def target(self) -> TenantSample:
        """The target's sample in the phase with all tenants."""
        if self.beside is None or self.colocation.target is None:
            raise InvalidValueError(f"{self.colocation.label}: there is no target in this run")
        return self.beside.tenants[0]
