"""RMD's pools as a controller: apply the pools' ways in each round, and report tenants that miss their promise.

Pools divide the cache by requests, not by observations. If a promise breaks nevertheless, the orchestrator must act, as
with RMD (OSS EU'18).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slomo.control.observation import ControlDecision, MachineReading
from slomo.control.pools.manager import PoolManager
from slomo.errors import InvalidValueError


class PoolController:
    """Keeps tenants in RMD's pools, as a controller for the control loop; raises the errors of `PoolManager.admit`.

    `pools` must be made with ``enforces=False``, since the loop applies its plan. Each wish is RMD's body of ``POST
    /v1/workloads``.

    >>> from slomo.control.pools.configuration import configuration_from
    >>> pools = {"guarantee": 10, "besteffort": 7, "shared": 2}
    >>> manager = PoolManager(configuration_from({"OSGroup": {"cacheways": 1}, "CachePool": pools}), 20, enforces=False)
    >>> controller = PoolController(manager, {"nat": {"core_ids": ["4"], "policy": "gold"}})
    >>> plan = controller.decide(MachineReading(0.0, {}), None).plan
    >>> [(tenant.tenant, hex(tenant.llc_way_mask)) for tenant in plan.tenants]
    [('nat', '0xc00')]
    """

    name = "pools"

    def __init__(self, pools: PoolManager, wishes: Mapping[str, Mapping[str, Any]]) -> None:
        if not wishes:
            raise InvalidValueError("no tenant to keep in pools", hint="name tenants with a policy")
        self.pools = pools
        self._names = {pools.admit(wish).identifier: name for name, wish in wishes.items()}

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the pools' plan; see `Controller`."""
        plan = self.pools.plan()
        tenants = tuple(replace(each, tenant=self._names.get(each.tenant, each.tenant)) for each in plan.tenants)
        short = observation.broken
        reasons = (f"{', '.join(short)}: short within the pools",) if short else ()
        return ControlDecision(replace(plan, tenants=tenants), memory, reasons, escalated=short)
