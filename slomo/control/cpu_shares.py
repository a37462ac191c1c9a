"""NFVnice's controller: compute CPU weights of NFs that share cores from their loads and costs.

NFVnice (SIGCOMM'17): an NF's share of its core is proportional to arrival rate x cost per packet, times its priority.
The cost is the median of a window of observations (single packets in the simulator, CPU time over packets on a real
machine); arrivals include dropped packets. Pure: observations in, weights out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from slomo.control.observation import ControlDecision, MachineReading
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError
from slomo.host.cgroup import WEIGHTS
from slomo.vocabulary.chain_file import DEFAULT_SHARES

#: NFVnice, section 3: costs are sampled every millisecond over a window of 100 ms; weights are written every 10 ms.
SAMPLE_MS, WINDOW_MS, UPDATE_MS = 1.0, 100.0, 10.0
#: In a loop with periods of seconds: least relative change of a weight that is applied, and number of rounds over which
#: the median cost is taken.
STEADY, WINDOW_ROUNDS = 0.1, 5


@dataclass(frozen=True)
class NFObservation:
    """Load and cost of one NF, as observed since the controller's last decision."""

    #: Name of the NF.
    name: str
    #: Core that the NF shares.
    core: int
    #: Packets per second that arrived for the NF, including those dropped before its queue, 0 or more.
    arrivals: float
    #: Median cost of a packet over the window [cycles]; None before the first sample.
    cost_cycles: float | None = None
    #: Factor by which the NF's share is multiplied, above 0.
    priority: float = 1.0

    def __post_init__(self) -> None:
        cost = self.cost_cycles
        if not 0.0 <= self.arrivals < float("inf") or (cost is not None and not 0.0 <= cost < float("inf")):
            raise InvalidValueError(
                f"NF '{self.name}': {self.arrivals:g} arrivals/s of {cost} cycles, needed 0 or more of each"
            )
        if not 0.0 < self.priority < float("inf"):
            raise InvalidValueError(
                f"NF '{self.name}': priority is {self.priority:g}, needed above 0", hint="1 is the default"
            )


@dataclass(frozen=True)
class CostWindow:
    """Samples of one NF's cost per packet over the last 100 ms."""

    #: Time [ms] and cost [cycles] of each sample, oldest first.
    samples: tuple[tuple[float, float], ...] = ()

    def plus(self, time_ms: float, cycles: float) -> "CostWindow":
        """Return the window with one more sample and without samples older than 100 ms."""
        recent = tuple(item for item in self.samples if item[0] > time_ms - WINDOW_MS)
        return CostWindow((*recent, (time_ms, cycles)))

    @property
    def median_cycles(self) -> float | None:
        """Median of the samples, which is robust against outliers; None if there are no samples."""
        return median(cycles for _, cycles in self.samples) if self.samples else None


def fair_shares(observations: Sequence[NFObservation]) -> dict[str, float]:
    """Return each NF's share of its core, 0 to 1, in proportion to priority x arrival rate x cost per packet.

    A core is shared equally if all its NFs are idle, or if a loaded NF on it has no cost sample yet.

    References
    ----------
    NFVnice (SIGCOMM'17), section 3.2: Shares_i = Priority_i x load(i) / TotalLoad(core), load(i) = lambda_i x s_i.
    """
    by_core: dict[int, list[NFObservation]] = defaultdict(list)
    for item in observations:
        by_core[item.core].append(item)
    shares: dict[str, float] = {}
    for members in by_core.values():
        unknown = any(item.cost_cycles is None and item.arrivals > 0.0 for item in members)
        loads = [item.priority * item.arrivals * (item.cost_cycles or 0.0) for item in members]
        total = sum(loads)
        for item, load in zip(members, loads, strict=True):
            shares[item.name] = 1.0 / len(members) if unknown or total == 0.0 else load / total
    return {item.name: shares[item.name] for item in observations}


def cpu_shares(observations: Sequence[NFObservation]) -> dict[str, int]:
    """Return ``cpu.shares`` (cgroup version 1) of each NF; their mean over a core is 1024."""
    return _scaled(observations, 1, DEFAULT_SHARES)


def cpu_weights(observations: Sequence[NFObservation]) -> dict[str, int]:
    """Return ``cpu.weight`` (cgroup version 2) of each NF, 1 to 10 000; their mean over a core is 1000.

    Only ratios on a core matter; a mean of ten times the default reduces the effect of rounding to integers.
    """
    return _scaled(observations, 2, 1000)


@dataclass(frozen=True)
class SharesMemory:
    """The controller's state between rounds: costs in recent rounds, and the weights in force."""

    costs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


class SharesController:
    """Sets CPU weights of NFs on shared cores by their loads, in a control loop (`slomo.control.loop`).

    `seats`: NF -> the core that it shares, and its priority.
    """

    name = "cpu_shares"

    def __init__(self, server: str, seats: Mapping[str, tuple[int, float]]) -> None:
        self.server, self.seats = server, dict(seats)

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the CPU weights for the present loads; see `Controller`."""
        state = memory if isinstance(memory, SharesMemory) else SharesMemory()
        costs = {
            name: (*state.costs.get(name, ()), reading.cost_cycles)[-WINDOW_ROUNDS:]
            for name, reading in observation.tenants.items()
            if reading.cost_cycles is not None and name in self.seats
        }
        state = replace(state, costs={**state.costs, **costs})
        seen = []
        for name, reading in observation.tenants.items():
            if name in self.seats:
                core, priority = self.seats[name]
                arrived_mpps = reading.throughput_mpps if reading.offered_mpps is None else reading.offered_mpps
                cost_cycles = median(costs[name]) if name in costs else None
                seen.append(NFObservation(name, core, 1e6 * arrived_mpps, cost_cycles, priority))
        weights = {name: shares / DEFAULT_SHARES for name, shares in cpu_shares(seen).items()}
        before = {name: state.weights.get(name, 1.0) for name in weights}
        moved = [name for name, weight in weights.items() if abs(weight - before[name]) > STEADY * before[name]]
        if not moved:
            return ControlDecision(self._plan(state.weights), state, escalated=observation.broken)
        fresh = replace(state, weights=weights)
        why = f"loads of {', '.join(moved)} moved"
        return ControlDecision(self._plan(weights), fresh, (why,), escalated=observation.broken)

    def _plan(self, weights: Mapping[str, float]) -> EnforcementPlan | None:
        settings = tuple(TenantSetting(name, cpu_weight=round(weight, 4)) for name, weight in weights.items())
        return EnforcementPlan(self.server, settings) if settings else None


def _scaled(observations: Sequence[NFObservation], version: int, mean: int) -> dict[str, int]:
    on_core = Counter(item.core for item in observations)
    shares, (_, least, most, _) = fair_shares(observations), WEIGHTS[version]
    return {
        item.name: min(max(round(shares[item.name] * mean * on_core[item.core]), least), most) for item in observations
    }
