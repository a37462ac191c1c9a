"""Prediction of a whole server: throughput and counters of every NF, and convergence of the iteration.

`slomo.prediction.question` makes these values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slomo.files.stored import Stored
from slomo.models.applicability import Verdict, worst
from slomo.models.noise import MeasurementNoise
from slomo.prediction.result import Prediction, label
from slomo.vocabulary.display import Result
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TenantPrediction(Stored, derived=("slowdown",)):
    """Prediction of one NF of a server."""

    #: The NF, its configuration and traffic, offered load included.
    workload: Workload
    #: Socket on which the NF runs.
    socket: int
    #: Solo throughput (at most the offered load), and predicted throughput [Mpps].
    solo_mpps: float
    throughput_mpps: float
    #: Interval of the throughput [Mpps]; its coverage is that of the server's prediction.
    interval: tuple[float, float]
    #: Utilisation: served divided by possible throughput, 0 to 1; 1 if saturated.
    load: float
    #: Core-level vector at the fixed point; None with method ``"composed"``.
    vector: MetricVector | None
    #: Whether the profile supports this prediction.
    verdict: Verdict
    #: Reasons against the prediction.
    reasons: tuple[str, ...] = ()
    #: Measurement noise, from the profile's replicates.
    noise: MeasurementNoise | None = None

    @property
    def slowdown(self) -> float:
        """Share of solo throughput that is lost."""
        return 1.0 - self.throughput_mpps / self.solo_mpps if self.solo_mpps > 0.0 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        data = super().to_dict()
        del data["noise"]
        return {"target": label(self.workload), **data}


@dataclass(frozen=True)
class Convergence:
    """Convergence of the iteration that finds a socket's equilibrium."""

    #: Whether the iteration converged.
    converged: bool
    #: Number of rounds.
    rounds: int
    #: Size of the last step divided by that of the step before; below 1 the iteration contracts.
    ratio: float
    #: Bound on the remaining distance, estimated from the last two steps, as a share of the largest solo value. It is
    #: infinite if steps do not shrink.
    bound: float


@dataclass(frozen=True)
class ServerPrediction(Result):
    """Predictions of all NFs of a server."""

    #: Machine.
    machine: str
    #: Method of the prediction, ``"equilibrium"`` or ``"composed"``.
    method: str
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float
    #: Predictions in the order of the given workloads.
    tenants: tuple[TenantPrediction, ...]
    #: Convergence of the fixed point of each socket; empty with method ``"composed"``.
    sockets: dict[int, Convergence]
    #: Reason why the prediction, or a part of it, is by method ``"composed"`` although the equilibrium was requested.
    fallback: str | None = None

    @property
    def throughput_mpps(self) -> tuple[float, ...]:
        """Predicted throughput of every NF, in the order of the given workloads [Mpps]."""
        return tuple(tenant.throughput_mpps for tenant in self.tenants)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on any NF of the server."""
        return worst(tenant.verdict for tenant in self.tenants)

    def prediction(self, number: int) -> Prediction:
        """Return the prediction of NF `number`, with the others on its socket as competitors."""
        tenant = self.tenants[number]
        others = (t.workload for i, t in enumerate(self.tenants) if i != number and t.socket == tenant.socket)
        return Prediction(
            target=tenant.workload,
            competitors=tuple(others),
            machine=self.machine,
            model=self.method,
            solo_mpps=tenant.solo_mpps,
            throughput_mpps=tenant.throughput_mpps,
            interval=tenant.interval,
            coverage=self.coverage,
            verdict=tenant.verdict,
            reasons=tenant.reasons,
            noise=tenant.noise,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": self.machine,
            "method": self.method,
            "coverage": self.coverage,
            "tenants": [tenant.to_dict() for tenant in self.tenants],
            "sockets": {
                str(socket): {
                    "converged": convergence.converged,
                    "rounds": convergence.rounds,
                    "ratio": convergence.ratio if math.isfinite(convergence.ratio) else None,
                    "bound": convergence.bound if math.isfinite(convergence.bound) else None,
                }
                for socket, convergence in self.sockets.items()
            },
            "fallback": self.fallback,
            "verdict": str(self.verdict),
        }

    def __repr__(self) -> str:
        served = ", ".join(f"{label(t.workload)} {t.throughput_mpps:.4g} Mpps" for t in self.tenants)
        return f"ServerPrediction({self.machine}, {self.method}: {served})"

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the predictions as columns, one entry per tenant."""
        return {
            "target": [label(t.workload) for t in self.tenants],
            "socket": [t.socket for t in self.tenants],
            "solo_mpps": [t.solo_mpps for t in self.tenants],
            "throughput_mpps": [t.throughput_mpps for t in self.tenants],
            "low_mpps": [t.interval[0] for t in self.tenants],
            "high_mpps": [t.interval[1] for t in self.tenants],
            "slowdown": [t.slowdown for t in self.tenants],
            "verdict": [str(t.verdict) for t in self.tenants],
            "reasons": ["; ".join(t.reasons) for t in self.tenants],
        }

    def row_labels(self) -> list[str]:
        """Return the names of the tenants."""
        return [label(t.workload) for t in self.tenants]
