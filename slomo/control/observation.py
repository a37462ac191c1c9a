"""What a controller is told about a machine, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from slomo.enforce.plan import EnforcementPlan

_UNITS = {
    "throughput_mpps": "Mpps", "offered_mpps": "Mpps", "occupancy_kib": "KiB", "misses_m_s": "M/s", "latency_us": "us",
}  # fmt: skip
#: More than this is no rate of packets or misses [M/s], no cache [KiB] and no latency [us].
_MOST = 1e9


@dataclass(frozen=True)
class TenantReading:
    """What is seen of one tenant since the last observation."""

    #: What it did.
    throughput_mpps: float
    #: What it must do; None promises nothing. Where less is offered, that is enough.
    target_mpps: float | None = None
    #: What it was offered; None where that is not known.
    offered_mpps: float | None = None
    #: Last-level cache held, and misses [millions/s].
    occupancy_kib: float | None = None
    misses_m_s: float | None = None
    #: What a packet costs it [cycles].
    cost_cycles: float | None = None
    #: 95th percentile from arrival to departure [us], and what was promised of it; None where that is not known.
    latency_us: float | None = None
    latency_limit_us: float | None = None

    @property
    def fault(self) -> str:
        """Impossible readings: not a number, infinite, negative, or more than any port carries."""
        for name, unit in _UNITS.items():
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= _MOST:
                return f"{name.rpartition('_')[0]} is {value:g} {unit}"
        return ""

    @property
    def needed_mpps(self) -> float | None:
        """What it must do now: the target, or its load where that is less."""
        if self.target_mpps is None:
            return None
        return self.target_mpps if self.offered_mpps is None else min(self.target_mpps, self.offered_mpps)

    @property
    def late(self) -> bool:
        """Whether its packets take longer than promised."""
        return None not in (self.latency_us, self.latency_limit_us) and self.latency_us > self.latency_limit_us  # type: ignore[operator]

    @property
    def broken(self) -> bool:
        """Whether it does less than it must; what it does is not known where its sensor is absurd, so that it counts.

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
        # A sampled rate of an NF that serves all it is offered varies by less than a percent around it.
        return bool(self.fault) or self.late or self.throughput_mpps < 0.99 * (needed or 0.0)


@dataclass(frozen=True)
class MachineReading:
    """A machine at one time."""

    #: When.
    time_s: float
    #: By tenant.
    tenants: Mapping[str, TenantReading]
    #: Whether the plant was looked at closely, which a controller may ask for.
    probed: bool = False

    @property
    def broken(self) -> tuple[str, ...]:
        """Tenants that do less than they must."""
        return tuple(name for name, reading in self.tenants.items() if reading.broken)


@dataclass(frozen=True)
class ControlDecision:
    """What a controller wants."""

    #: How the machine is to be; None leaves it.
    plan: EnforcementPlan | None = None
    #: What the controller wants to be told next time.
    memory: Any = None
    #: Why.
    reasons: tuple[str, ...] = ()
    #: Tenants that this machine cannot serve: to be moved or scaled out.
    escalated: tuple[str, ...] = ()
    #: Whether the cool-down may be skipped, because something that was tried did not help.
    urgent: bool = False
    #: Whether the plant is to be probed and the controller asked again before anything is done.
    probe: bool = False
    #: Whether the plan protects less than the one in force: it is taken back where sensors fail before it was seen to
    #: hold.
    loosens: bool = False


class Controller(Protocol):
    """A pure decision: equal observations and memory give equal answers."""

    name: str

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return what is wanted; `memory` is None at first."""
        ...


@runtime_checkable
class Foresighted(Protocol):
    """A controller that knows before the first reading what protects: its sensors may be silent from the start."""

    def start(self) -> ControlDecision:
        """Return what is wanted before anything was seen."""
        ...


@dataclass(frozen=True)
class Patience:
    """How patient the loop is.

    Attributes
    ----------
    period_s : float
        Between observations.
    dwell_s : float
        Between changes, at least.
    cool_down_s : float
        After a change that was undone because it did not help.
    faults : int
        Rounds in a row without a reading that can be believed, after which an alarm is given; what was loosened and
        not seen to hold is taken back then, and all else is held for as long as it takes.
    """

    period_s: float = 1.0
    dwell_s: float = 5.0
    cool_down_s: float = 30.0
    faults: int = 2
