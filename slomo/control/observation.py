"""What a controller reads (measurements of a machine) and what it returns (decisions)."""

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
    """What was measured of one tenant since the last round."""

    #: What it did.
    throughput_mpps: float
    #: Throughput that it must reach; None without a promise. If less is offered, serving that suffices.
    target_mpps: float | None = None
    #: Offered load; None if unknown.
    offered_mpps: float | None = None
    #: LLC occupancy, and misses [millions/s].
    occupancy_kib: float | None = None
    misses_m_s: float | None = None
    #: Cost of a packet [cycles].
    cost_cycles: float | None = None
    #: 95th percentile of the sojourn time [us], and its promised limit; None if unknown.
    latency_us: float | None = None
    latency_limit_us: float | None = None

    @property
    def fault(self) -> str:
        """Description of an impossible reading: not a number, infinite, negative, or more than any port carries."""
        for name, unit in _UNITS.items():
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= _MOST:
                return f"{name.rpartition('_')[0]} is {value:g} {unit}"
        return ""

    @property
    def needed_mpps(self) -> float | None:
        """Throughput that the tenant must reach now: its promise, or its load if that is less."""
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

        Examples
        --------
        >>> TenantReading(0.9, target_mpps=1.0).broken, TenantReading(0.5, target_mpps=1.0, offered_mpps=0.5).broken
        (True, False)
        >>> TenantReading(1.0, target_mpps=1.0, latency_us=9.0, latency_limit_us=5.0).broken
        True
        """
        needed = self.needed_mpps
        if needed is None and self.latency_limit_us is None:
            return False
        # the sampled rate of an NF that serves its whole load varies by less than a percent
        return bool(self.fault) or self.late or self.throughput_mpps < 0.99 * (needed or 0.0)


@dataclass(frozen=True)
class MachineReading:
    """What was measured of all tenants of a machine at one time."""

    #: When.
    time_s: float
    #: By tenant.
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

    #: Plan for the machine; None changes nothing.
    plan: EnforcementPlan | None = None
    #: State that the controller gets back in the next round.
    memory: Any = None
    #: Why.
    reasons: tuple[str, ...] = ()
    #: Tenants that this machine cannot serve, to be moved or scaled out.
    escalated: tuple[str, ...] = ()
    #: Whether the cool-down may be skipped, because an attempt did not help.
    urgent: bool = False
    #: Whether to probe the plant and ask the controller again before any change.
    probe: bool = False
    #: Whether the plan protects less than the one in force: it is undone if sensors fail before it is confirmed.
    loosens: bool = False


class Controller(Protocol):
    """A controller has no side effects: equal readings and memory give equal decisions."""

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


@dataclass(frozen=True)
class Patience:
    """How long the loop waits after changes, and how many failed rounds it accepts.

    Attributes
    ----------
    period_s : float
        Between observations.
    dwell_s : float
        Between changes, at least.
    cool_down_s : float
        After a change that was undone because it did not help.
    faults : int
        Rounds in a row without a plausible reading after which an alarm is raised; a loosened setting that no reading
        has confirmed is then taken back, and all other settings stay in force.
    """

    period_s: float = 1.0
    dwell_s: float = 5.0
    cool_down_s: float = 30.0
    faults: int = 2
