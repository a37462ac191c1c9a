"""ResQ's local scheduler: divide cache ways max-min fairly among tenants with targets, using observations only.

ResQ (NSDI'18, section 5.3): all tenants start in one class. A tenant that misses its target and has many cache misses
gets about its fair share exclusively. Tenants that reach their target, or have hardly any cache misses, share a class
with the ways that they occupy at present. Remaining violations are reported to the central scheduler. A tenant that
missed its target once stays isolated, so that the division is stable under a steady load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slomo.control.observation import ControlDecision, MachineReading
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError
from slomo.placement.feasibility.on_demand import Division
from slomo.units import plural
from slomo.vocabulary.way_masks import way_block

#: Cache misses per second [millions] below which more cache does not help.
LOW_MISSES_M_S = 0.1
#: Rounds with the fairest division after which a violation is escalated to the central scheduler.
PATIENCE = 2


@dataclass(frozen=True)
class MaxMinMemory:
    """The controller's state between rounds."""

    #: Division in force.
    division: Division
    #: Number of rounds with an unchanged division despite a violation.
    rounds: int = 0
    #: Tenants that miss their target at the fairest division; the division is not changed for them again.
    escalated: tuple[str, ...] = ()
    #: Divisions tried since a tenant began to miss its target; none is tried twice, so that ways do not oscillate.
    tried: tuple[Division, ...] = ()


def require_one_cache(llcs: Mapping[str, int]) -> None:
    """Raise InvalidValueError if tenants, with the number of each one's last-level cache, have different caches."""
    other = next((name for name in llcs if llcs[name] != next(iter(llcs.values()))), None)
    if other is not None:
        raise InvalidValueError(
            f"tenants '{next(iter(llcs))}' and '{other}' have different last-level caches, max_min divides one",
            hint="run fewer tenants, or controller guard, which divides each cache",
        )


class MaxMinController:
    """Divides cache ways so that no tenant has more ways than a tenant that misses its target.

    >>> from slomo.control.observation import TenantReading
    >>> seen = {"a": TenantReading(0.8, 1.0, misses_m_s=5.0), "b": TenantReading(1.0, 0.9, occupancy_kib=1024.0)}
    >>> plan = MaxMinController("s", 20, 1024.0).decide(MachineReading(0.0, seen), None).plan
    >>> [tenant.llc_way_mask.bit_count() for tenant in plan.tenants]
    [19, 1]
    """

    name = "max_min"

    def __init__(self, server: str, ways: int, way_kib: float) -> None:
        if ways < 1 or way_kib <= 0.0:
            raise InvalidValueError(f"{ways} ways of {way_kib:g} KiB, needed 1 or more")
        self.server, self.ways, self.way_kib = server, ways, way_kib

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the next division of cache ways; see `Controller`."""
        tenants = observation.tenants
        state = memory if isinstance(memory, MaxMinMemory) else MaxMinMemory(Division({}, self.ways))
        own = {name: ways for name, ways in state.division.own.items() if name in tenants}
        present = Division(own, state.division.shared)
        short = [name for name in observation.broken if self._misses(observation, name) or name in own]
        if not short:
            plan = self._plan(observation, state.division) if state.division.own else None
            # those that miss their targets miss no cache, so more of it cannot help them
            return ControlDecision(plan, MaxMinMemory(present), (), tuple(observation.broken))
        if set(short) <= set(state.escalated):
            return ControlDecision(
                self._plan(observation, state.division), state, ("waiting to be relieved",), tuple(short)
            )
        pooled = [name for name in tenants if name not in own and name not in short]
        fresh = present.fairer(self.ways, short, self._held_ways(observation, pooled))
        tried = (*state.tried, present)
        if fresh in tried:
            rounds = state.rounds + 1
            escalated = tuple(short) if rounds >= PATIENCE else ()
            reasons = (f"{', '.join(short)}: short at the fairest division",)
            settled = replace(state, rounds=rounds, escalated=escalated)
            return ControlDecision(self._plan(observation, state.division), settled, reasons, escalated)
        because = tuple(f"'{name}' is short: {plural(fresh.own[name], 'way')} of its own" for name in short)
        return ControlDecision(self._plan(observation, fresh), MaxMinMemory(fresh, tried=tried), because)

    def _misses(self, observation: MachineReading, name: str) -> bool:
        misses = observation.tenants[name].misses_m_s
        return misses is None or misses >= LOW_MISSES_M_S

    def _held_ways(self, observation: MachineReading, pooled: list[str]) -> float | None:
        """Return how many ways the pooled tenants occupy: all ways if unknown, None without such tenants."""
        held = [kib for name in pooled if (kib := observation.tenants[name].occupancy_kib) is not None]
        everything = sum(held) / self.way_kib if len(held) == len(pooled) else float(self.ways)
        return everything if pooled else None

    def _plan(self, observation: MachineReading, division: Division) -> EnforcementPlan:
        settings, first = [], 0
        for name, ways in division.own.items():
            if name in observation.tenants:
                settings.append(TenantSetting(name, llc_way_mask=way_block(ways, first), exclusive=True))
            first += ways
        rest = way_block(self.ways - first, first)
        pooled = [name for name in observation.tenants if name not in division.own]
        settings += [TenantSetting(name, llc_way_mask=rest or None) for name in pooled]
        return EnforcementPlan(self.server, tuple(settings))
