"""ResQ's local scheduler for on-demand SLOs: max-min fair cache ways, found by observation.

ResQ (NSDI'18, section 5.3): all tenants start in one class. A tenant that violates its target and misses much gets
about its fair share exclusively; tenants that comply, or hardly miss, share a class of their present size. Remaining
violations are reported to the central scheduler. A tenant that was short once stays isolated, so that the division is
stable under a steady load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slomo.control.observation import ControlDecision, MachineReading
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError

#: Misses per second [millions] below which more cache does not help.
LOW_MISSES_M_S = 0.1
#: Rounds with the fairest division after which a violation is escalated to the central scheduler.
PATIENCE = 2


@dataclass(frozen=True)
class MaxMinMemory:
    """What the controller remembers."""

    #: Isolated tenants and their ways.
    ways: Mapping[str, int]
    #: Ways of the shared class.
    pool: int
    #: Rounds with an unchanged division despite a violation.
    rounds: int = 0
    #: Tenants short at the fairest division; it is not changed for them again.
    escalated: tuple[str, ...] = ()
    #: Divisions tried since a tenant is short; none is tried twice, so that a way does not oscillate.
    tried: tuple[tuple[Mapping[str, int], int], ...] = ()


class MaxMinController:
    """Divides cache ways so that no tenant has more than another one that is short.

    Examples
    --------
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
        """Return the next division; see `Controller`."""
        tenants = observation.tenants
        division: MaxMinMemory = memory if isinstance(memory, MaxMinMemory) else MaxMinMemory({}, self.ways)
        isolated = {name: ways for name, ways in division.ways.items() if name in tenants}
        short = [name for name in observation.broken if self._misses(observation, name) or name in isolated]
        if not short:
            plan = self._plan(observation, division) if division.ways else None
            return ControlDecision(
                plan,
                replace(division, ways=isolated, rounds=0, escalated=(), tried=()),
                (),
                self._hopeless(observation),
            )
        if set(short) <= set(division.escalated):
            return ControlDecision(
                self._plan(observation, division), division, ("waiting to be relieved",), tuple(short)
            )
        demands = {name: float(ways) for name, ways in isolated.items()}
        demands.update(dict.fromkeys(short, float("inf")))
        pooled = [name for name in tenants if name not in demands]
        fresh = self._divide(demands, self._pool_ways(observation, pooled, division), bool(pooled))
        tried = (*division.tried, (isolated, division.pool))
        if (fresh.ways, fresh.pool) in tried:
            rounds = division.rounds + 1
            escalated = tuple(short) if rounds >= PATIENCE else ()
            reasons = (f"{', '.join(short)}: short at the fairest division",)
            settled = replace(division, rounds=rounds, escalated=escalated)
            return ControlDecision(self._plan(observation, division), settled, reasons, escalated)
        because = tuple(f"'{name}' is short: {fresh.ways[name]} ways of its own" for name in short)
        return ControlDecision(self._plan(observation, fresh), replace(fresh, tried=tried), because)

    def _misses(self, observation: MachineReading, name: str) -> bool:
        misses = observation.tenants[name].misses_m_s
        return misses is None or misses >= LOW_MISSES_M_S

    def _hopeless(self, observation: MachineReading) -> tuple[str, ...]:
        """Return the tenants that are short although they hardly miss: more cache would not help."""
        return tuple(name for name in observation.broken if not self._misses(observation, name))

    def _pool_ways(self, observation: MachineReading, pooled: list[str], division: MaxMinMemory) -> float:
        """Return the ways of the compliant tenants: their occupancy, shrinking by at most one way per round.

        On a host without occupancy counters, the pool shrinks by one way per round.
        """
        held = [kib for name in pooled if (kib := observation.tenants[name].occupancy_kib) is not None]
        ways = sum(held) / self.way_kib if len(held) == len(pooled) else float(self.ways)
        return max(1.0, min(ways, division.pool - 1.0)) if pooled else 0.0

    def _divide(self, demands: Mapping[str, float], pool: float, pooled: bool) -> MaxMinMemory:
        """Divide by water-filling: each tenant up to its demand, the rest equally; the pool counts as one tenant."""
        wishes = {**demands, **({"": pool} if pooled else {})}
        left, open_, shares = float(self.ways), dict(wishes), dict.fromkeys(wishes, 0.0)
        while open_ and left > 1e-9:
            level = left / len(open_)
            for name in list(open_):
                part = min(level, open_[name])
                shares[name] += part
                open_[name] -= part
                left -= part
            open_ = {name: rest for name, rest in open_.items() if rest > 1e-9}
        whole = _rounded(shares, self.ways, wishes)
        return MaxMinMemory({name: ways for name, ways in whole.items() if name}, whole.get("", 0))

    def _plan(self, observation: MachineReading, memory: MaxMinMemory) -> EnforcementPlan:
        settings, first = [], 0
        for name, ways in memory.ways.items():
            if name in observation.tenants:
                settings.append(TenantSetting(name, llc_way_mask=((1 << ways) - 1) << first, exclusive=True))
            first += ways
        rest = ((1 << (self.ways - first)) - 1) << first
        pooled = [name for name in observation.tenants if name not in memory.ways]
        settings += [TenantSetting(name, llc_way_mask=rest or None) for name in pooled]
        return EnforcementPlan(self.server, tuple(settings))


def _rounded(shares: Mapping[str, float], ways: int, wishes: Mapping[str, float]) -> dict[str, int]:
    """Return whole ways, at least one each and no more than available; left-over ways go to the largest demand."""
    whole = {name: max(1, int(part + 1e-9)) for name, part in shares.items()}
    order = sorted(whole, key=lambda name: (-(wishes[name] == float("inf")), -(shares[name] - int(shares[name]))))
    left = ways - sum(whole.values())
    hungry = [name for name in order if wishes[name] > whole[name]]
    for number in range(max(0, left)):
        if hungry:
            whole[hungry[number % len(hungry)]] += 1
    while sum(whole.values()) > ways and max(whole.values()) > 1:
        whole[max(whole, key=lambda name: whole[name])] -= 1
    return whole
