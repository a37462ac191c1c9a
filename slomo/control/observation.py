"""Input of controllers (measurements of a machine) and their output (decisions)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from slomo.enforce.plan import EnforcementPlan

_UNITS = {
    "throughput_mpps": "Mpps", "offered_mpps": "Mpps", "occupancy_kib": "KiB", "misses_m_s": "M/s", "latency_us": "us",
}  # fmt: skip
#: Limits of plausible readings: packet or miss rates [M/s], cache [KiB], latency [us].
_MOST = 1e9


@dataclass(frozen=True)
class TenantReading:
    """Measurements of one tenant since the last round."""

    #: Measured throughput.
    throughput_mpps: float
    #: Promised throughput; None without a promise. If the offered load is less, serving that load suffices.
    target_mpps: float | None = None
    #: Offered load; None if unknown.
    offered_mpps: float | None = None
    #: LLC occupancy, and LLC misses [millions/s].
    occupancy_kib: float | None = None
    misses_m_s: float | None = None
    #: Cost of a packet [cycles].
    cost_cycles: float | None = None
    #: 95th percentile of packets' sojourn time [us], and its promised limit; None if unknown.
    latency_us: float | None = None
    latency_limit_us: float | None = None

    @property
    def fault(self) -> str:
        """Why the reading is impossible (not a number, infinite, negative, above any port's rate); else empty."""
        for name, unit in _UNITS.items():
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= _MOST:
                return f"{name.rpartition('_')[0]} is {value:g} {unit}"
        return ""

    @property
    def needed_mpps(self) -> float | None:
        """Throughput that the tenant must reach now: its promise or, if less, its offered load."""
        if self.target_mpps is None:
            return None
        return self.target_mpps if self.offered_mpps is None else min(self.target_mpps, self.offered_mpps)

    @property
    def late(self) -> bool:
        """Whether the tenant's packets take longer than promised."""
        return None not in (self.latency_us, self.latency_limit_us) and self.latency_us > self.latency_limit_us  # type: ignore[operator]

    @property
    def broken(self) -> bool:
        """Whether the tenant misses its promise; an impossible reading counts as a miss.

        >>> TenantReading(0.9, target_mpps=1.0).broken, TenantReading(0.5, target_mpps=1.0, offered_mpps=0.5).broken
        (True, False)
        >>> TenantReading(1.0, target_mpps=1.0, latency_us=9.0, latency_limit_us=5.0).broken
        True
        """
        needed = self.needed_mpps
        if needed is None and self.latency_limit_us is None:
            return False
        # the sampled throughput of an NF that serves its whole load varies by less than one percent
        return bool(self.fault) or self.late or self.throughput_mpps < 0.99 * (needed or 0.0)


@dataclass(frozen=True)
class MachineReading:
    """Measurements of all tenants of a machine at one time."""

    #: Time of the measurement.
    time_s: float
    #: Readings by tenant.
    tenants: Mapping[str, TenantReading]
    #: Whether this is a probe, a more exact measurement that a controller may ask for.
    probed: bool = False

    @property
    def broken(self) -> tuple[str, ...]:
        """Tenants that miss their promise."""
        return tuple(name for name, reading in self.tenants.items() if reading.broken)


@dataclass(frozen=True)
class ControlDecision:
    """A controller's decision: a plan of settings, with reasons."""

    #: Plan for the machine; None leaves all settings unchanged.
    plan: EnforcementPlan | None = None
    #: State that the loop passes to the controller in the next round.
    memory: Any = None
    #: Reasons, for display.
    reasons: tuple[str, ...] = ()
    #: Tenants whose promises this machine cannot keep; they should be moved or scaled out.
    escalated: tuple[str, ...] = ()
    #: Whether the loop may skip the cool-down, because the last change did not help.
    urgent: bool = False
    #: Whether to probe the plant and ask the controller again before any change.
    probe: bool = False
    #: Whether the plan protects less than the one in force; it is undone if sensors fail before a reading confirms it.
    loosens: bool = False


class Controller(Protocol):
    """Interface of controllers, which have no side effects: equal readings and memory give equal decisions."""

    name: str

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the decision for one round; `memory` is None in the first one."""
        ...


@runtime_checkable
class Foresighted(Protocol):
    """A controller that can also decide before the first reading."""

    def start(self) -> ControlDecision:
        """Return the decision before the first reading."""
        ...


@runtime_checkable
class Cautious(Protocol):
    """A controller that can also decide when sensors have failed."""

    def protect(self, memory: Any) -> ControlDecision:
        """Return the decision that protects promises best, whatever loads come."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long the loop waits after changes, and how many failed rounds it accepts."""

    #: Time between observations.
    period_s: float = 1.0
    #: Least time between changes.
    dwell_s: float = 5.0
    #: Time without changes after a change that was undone because it did not help.
    cool_down_s: float = 30.0
    #: Number of successive rounds without a plausible reading after which an alarm is raised. A loosened setting that
    #: no reading has confirmed is then undone; all other settings stay in force.
    faults: int = 2
