"""Control a real machine: run NFs, measure them in windows, and limit them by control groups.

A promise concerns the effect of neighbours through caches and memory only. Other programs may take CPU time from an NF,
so its throughput is divided by its share of CPU time (`slomo.testbed.host.tenant.Window`).
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slomo.control.observation import ControlDecision, Controller, Foresighted, MachineReading, TenantReading
from slomo.enforce.change import Backend
from slomo.enforce.plan import TenantSetting
from slomo.errors import InvalidValueError
from slomo.testbed.host.tenant import HostTenant, Window, paused, take_windows

#: Length of a probe, in observation windows.
PROBE = 3
#: Share of a core's time below which an NF's throughput is not divided by it.
_LEAST_SHARE = 0.02


class OnProcesses:
    """Wraps a controller and adds the processes of this host's tenants to its plans."""

    def __init__(self, controller: Controller, settings: Mapping[str, TenantSetting]) -> None:
        self.name, self._controller, self._settings = controller.name, controller, dict(settings)

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the wrapped controller's decision with the tenants' processes; see `Controller`."""
        return self._of_processes(self._controller.decide(observation, memory))

    def start(self) -> ControlDecision:
        """Return the wrapped controller's decision before the first reading; no change if it needs a reading."""
        if isinstance(self._controller, Foresighted):
            return self._of_processes(self._controller.start())
        return ControlDecision()

    def _of_processes(self, decision: ControlDecision) -> ControlDecision:
        if decision.plan is None:
            return decision
        tenants = tuple(
            replace(tenant, process_ids=self._settings[tenant.tenant].process_ids) for tenant in decision.plan.tenants
        )
        return replace(decision, plan=replace(decision.plan, tenants=tenants))


class HostPlant:
    """The NFs that run on this host, with promised throughputs, as the plant of a control loop.

    `targets_mpps`: tenant -> throughput that it must reach on a core of its own. `window_s`: length of an observation.
    """

    def __init__(
        self,
        tenants: Mapping[str, HostTenant],
        targets_mpps: Mapping[str, float],
        backend: Backend,
        *,
        window_s: float = 0.5,
    ) -> None:
        unknown = sorted(set(targets_mpps) - set(tenants))
        if unknown or not window_s > 0.0:
            raise InvalidValueError(
                f"a target for '{unknown[0]}', which does not run" if unknown else f"a window of {window_s:g} s"
            )
        self.tenants, self.targets_mpps, self.backend = dict(tenants), dict(targets_mpps), backend
        self._window_s = window_s

    def observe(self, times: int = 1) -> MachineReading:
        """Measure all tenants for `times` windows. Raises SlomoError if a tenant has ended or reports nothing."""
        windows = take_windows(list(self.tenants.values()), times * self._window_s) if self.tenants else []
        readings = {}
        for name, window in zip(self.tenants, windows, strict=True):
            target = self.targets_mpps.get(name)
            rate = window.rate_mpps if target is None else whole_core_mpps(window)
            readings[name] = TenantReading(rate, target)
        return MachineReading(self.now_s(), readings, probed=times > 1)

    def probe(self) -> MachineReading:
        """Measure all tenants for a longer window."""
        return self.observe(PROBE)

    def solo_mpps(self, name: str) -> float:
        """Return a tenant's throughput while all others are paused [Mpps]."""
        others = [tenant for other, tenant in self.tenants.items() if other != name]
        paused(others, True)
        try:
            return whole_core_mpps(take_windows([self.tenants[name]], PROBE * self._window_s)[0])
        finally:
            paused(others, False)

    def settings(self) -> dict[str, TenantSetting]:
        """Return a setting for each tenant, which names only the tenant's process."""
        return {name: TenantSetting(name, process_ids=(t.process.pid,)) for name, t in self.tenants.items()}

    def now_s(self) -> float:
        """Return the present time of a monotonic clock [s]."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)


def whole_core_mpps(window: Window) -> float:
    """Return an NF's throughput divided by its share of CPU time [Mpps]; the plain throughput if that share is tiny."""
    return window.rate_mpps / min(1.0, window.cpu_share) if window.cpu_share >= _LEAST_SHARE else window.rate_mpps
