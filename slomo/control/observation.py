"""What a controller is told about a machine, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slomo.enforce.plan import EnforcementPlan


@dataclass(frozen=True)
class TenantReading:
    """What is seen of one tenant since the last observation.

    Attributes
    ----------
    throughput_mpps : float
        What it did.
    target_mpps : float or None
        What it must do; None promises nothing. Where less is offered, that is enough.
    offered_mpps : float or None
        What it was offered; None where that is not known.
    occupancy_kib, misses_m_s : float or None
        Last-level cache held, and misses [millions/s].
    cost_cycles : float or None
        What a packet costs it [cycles].
    """

    throughput_mpps: float
    target_mpps: float | None = None
    offered_mpps: float | None = None
    occupancy_kib: float | None = None
    misses_m_s: float | None = None
    cost_cycles: float | None = None

    @property
    def needed_mpps(self) -> float | None:
        """What it must do now: the target, or its load where that is less."""
        if self.target_mpps is None:
            return None
        return self.target_mpps if self.offered_mpps is None else min(self.target_mpps, self.offered_mpps)

    @property
    def broken(self) -> bool:
        """Whether it does less than it must.

        Examples
        --------
        >>> TenantReading(0.9, target_mpps=1.0).broken, TenantReading(0.5, target_mpps=1.0, offered_mpps=0.5).broken
        (True, False)
        """
        needed = self.needed_mpps
        # A sampled rate of an NF that serves all it is offered varies by less than a percent around it.
        return needed is not None and self.throughput_mpps < 0.99 * needed


@dataclass(frozen=True)
class MachineReading:
    """A machine at one time.

    Attributes
    ----------
    time_s : float
        When.
    tenants : mapping of str to TenantReading
        By tenant.
    probed : bool
        Whether the plant was looked at closely, which a controller may ask for.
    """

    time_s: float
    tenants: Mapping[str, TenantReading]
    probed: bool = False

    @property
    def broken(self) -> tuple[str, ...]:
        """Tenants that do less than they must."""
        return tuple(name for name, reading in self.tenants.items() if reading.broken)


@dataclass(frozen=True)
class ControlDecision:
    """What a controller wants.

    Attributes
    ----------
    plan : EnforcementPlan or None
        How the machine is to be; None leaves it.
    memory : object
        What the controller wants to be told next time.
    reasons : tuple of str
        Why.
    escalated : tuple of str
        Tenants that this machine cannot serve: to be moved or scaled out.
    urgent : bool
        Whether the cool-down may be skipped, because something that was tried did not help.
    probe : bool
        Whether the plant is to be probed and the controller asked again before anything is done.
    """

    plan: EnforcementPlan | None = None
    memory: Any = None
    reasons: tuple[str, ...] = ()
    escalated: tuple[str, ...] = ()
    urgent: bool = False
    probe: bool = False


class Controller(Protocol):
    """A pure decision: equal observations and memory give equal answers."""

    name: str

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return what is wanted; `memory` is None at first."""
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
        Failed steps in a row after which the machine is given back and the loop ends.
    """

    period_s: float = 1.0
    dwell_s: float = 5.0
    cool_down_s: float = 30.0
    faults: int = 3
