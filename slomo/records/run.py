"""One run of one experiment, raw: what a testbed hands back.

Two phases, as SLOMO (SIGCOMM'20) measures and its published scripts do: PCM runs once with only the competitors, before
the target starts (its socket-level columns are the vector V), and again with the target beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.vector import MetricVector

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TenantSample(Stored):
    """What one tenant did during one phase.

    Attributes
    ----------
    throughput_mpps : float
        Packets served [Mpps].
    vector : MetricVector
        Core-level metrics of the tenant's core.
    loss : float or None
        Share of offered packets dropped, 0 to 1; None where input saturates or is not counted.
    latency_p50_us, latency_p95_us, latency_p99_us : float or None
        Sojourn time percentiles [us].
    standard_errors : mapping of str to float
        Of the fields above by their name, and of metrics of the vector by theirs, where the testbed knows them.
    effective_packets : float or None
        Independent packets that the percentiles are worth.
    converged : bool
        False where the testbed knows that the tenant's rate did not stand still, or not to its tolerance.
    """

    throughput_mpps: float
    vector: MetricVector
    loss: float | None = None
    latency_p50_us: float | None = None
    latency_p95_us: float | None = None
    latency_p99_us: float | None = None
    standard_errors: Mapping[str, float] = field(default_factory=dict)
    effective_packets: float | None = None
    converged: bool = True


@dataclass(frozen=True)
class Phase(Stored):
    """One phase of a run: the tenants that ran, and the socket and system they shared.

    Attributes
    ----------
    tenants : tuple of TenantSample
        In the order of the co-location's tenants that took part.
    socket : MetricVector
        Metrics of the socket the target's core belongs to.
    system : MetricVector or None
        Metrics of the whole machine.
    duration_s : float
        Length of the measured window [s] (simulated time in the simulator).
    socket_errors : mapping of str to float
        Standard errors of the socket's metrics, where the testbed knows them.
    """

    tenants: tuple[TenantSample, ...]
    socket: MetricVector
    system: MetricVector | None = None
    duration_s: float = 0.0
    socket_errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether every tenant converged."""
        return all(tenant.converged for tenant in self.tenants)


@dataclass(frozen=True)
class RunRecord(Stored, version=SCHEMA_VERSION):
    """One run: a co-location, measured once.

    Attributes
    ----------
    colocation : Colocation
        What ran.
    seed : int
        Seed of everything random in the run.
    alone : Phase or None
        Competitors only, before the target starts; None where there are no competitors.
    beside : Phase or None
        Everybody; None where the co-location has no target. The first tenant is the target.
    provenance : mapping
        What was measured, where, with which versions (see `records.provenance`).
    truth : RunRecord or None
        The same run without measurement noise, where the testbed knows it.
    """

    colocation: Colocation
    seed: int
    alone: Phase | None
    beside: Phase | None
    provenance: Mapping[str, Any]
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
        """The target's sample beside its competitors."""
        if self.beside is None or self.colocation.target is None:
            raise InvalidValueError(f"{self.colocation.label}: there is no target in this run")
        return self.beside.tenants[0]
