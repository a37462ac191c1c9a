"""The controller `throttle` keeps promises without models: it limits the CPU time of tenants without a promise.

If a promise breaks, the quotas of tenants without a promise are halved. While promises hold with headroom, quotas grow
by a tenth of a core per step, but for some time stay below the value at which a promise broke (additive increase,
multiplicative decrease: Chiu and Jain, 1989). If promises break although quotas are minimal, the violation is
escalated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slomo.control.observation import ControlDecision, MachineReading
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import InvalidValueError

#: Quotas in cores: the largest (a full core), the least, and the increase per step.
WHOLE, LEAST, GROWTH = 1.0, 0.05, 0.1
#: Headroom required for an increase, quiet rounds before an increase, and rounds until a failed quota is tried again.
ROOM, QUIET, FORGIVEN = 0.02, 3, 20


@dataclass(frozen=True)
class ThrottleMemory:
    """The controller's state between rounds."""

    #: Quota of every tenant without a promise [cores].
    quota: float = WHOLE
    #: Least quota at which a promise broke recently; infinite if none did.
    broke_at: float = float("inf")
    #: Number of rounds since a promise broke or the quota changed.
    quiet: int = 0
    #: Number of rounds since a promise broke.
    since_broken: int = 0
    #: Tenants with a promise; a tenant that is no longer reported counts as missing its promise.
    promised: frozenset[str] = frozenset()


class ThrottleController:
    """Gives tenants without a promise as much CPU time as the promises to others allow.

    `tenants` may be throttled, and have processes or control groups; InvalidValueError if there are none.
    """

    name = "throttle"

    def __init__(self, server: str, tenants: Mapping[str, TenantSetting]) -> None:
        if not tenants:
            raise InvalidValueError("no tenant to throttle", hint="omit `slo` for tenants that may be throttled")
        self.server, self.tenants = server, dict(tenants)

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the next CPU quota for tenants without a promise; see `Controller`."""
        state = memory if isinstance(memory, ThrottleMemory) else ThrottleMemory()
        promised = {name for name, reading in observation.tenants.items() if reading.target_mpps is not None}
        missing = state.promised - promised
        state = replace(state, promised=state.promised | promised)
        if missing:
            plan = self._plan(state) if state.quota < WHOLE else None
            return ControlDecision(plan, replace(state, quiet=0), (f"{', '.join(sorted(missing))}: not seen, hold",))
        if observation.broken and not observation.probed:
            return ControlDecision(memory=state, probe=True)
        if observation.broken:
            return self._less(observation, state)
        state = replace(state, quiet=state.quiet + 1, since_broken=state.since_broken + 1)
        quota = min(WHOLE, state.quota + GROWTH)
        allowed = quota < state.broke_at or state.since_broken >= FORGIVEN
        if state.quota < WHOLE and state.quiet >= QUIET and allowed and _room(observation) >= ROOM:
            return replace(self._set(replace(state, quota=quota, quiet=0), "promises hold: more"), loosens=True)
        return ControlDecision(self._plan(state) if state.quota < WHOLE else None, state)

    def _less(self, observation: MachineReading, state: ThrottleMemory) -> ControlDecision:
        short = ", ".join(observation.broken)
        if state.quota <= LEAST:
            settled = replace(state, quiet=0, since_broken=0)
            return ControlDecision(
                self._plan(state), settled, (f"{short}: throttling helps no more",), observation.broken
            )
        fresh = ThrottleMemory(max(LEAST, state.quota / 2), min(state.quota, state.broke_at), promised=state.promised)
        return self._set(fresh, f"{short} at risk: less")

    def _set(self, state: ThrottleMemory, why: str) -> ControlDecision:
        return ControlDecision(self._plan(state), state, (f"{why} CPU time for {', '.join(self.tenants)}",))

    def _plan(self, state: ThrottleMemory) -> EnforcementPlan:
        settings = tuple(replace(setting, cpu_quota=round(state.quota, 4)) for setting in self.tenants.values())
        return EnforcementPlan(self.server, settings)


def _room(observation: MachineReading) -> float:
    """Return the smallest relative headroom above any promise."""
    room = [r.throughput_mpps / r.needed_mpps - 1.0 for r in observation.tenants.values() if r.needed_mpps]
    return min(room, default=float("inf"))
