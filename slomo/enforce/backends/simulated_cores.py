"""Simulated shared cores whose CPU weights can be set; weights take effect in the next simulation.

Knobs: ``weight:S`` of each stage S, as ``cpu.shares`` of control groups (version 1).
"""

import threading
from dataclasses import replace

from slomo.enforce.backends.simulated import SimulatedKnobs
from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError
from slomo.host.knobs import Wish
from slomo.simulator.sharing.engine import simulate_chains
from slomo.simulator.sharing.result import ChainSimulation
from slomo.vocabulary.chain_file import DEFAULT_SHARES
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.service_chains import LEAST_SHARES, MOST_SHARES, ChainSystem


class SimulatedCores:
    """Chains of NFs on simulated shared cores, and the CPU weights in force.

    An observation takes `duration_ms` of simulated time; half as much warm-up precedes it.
    """

    def __init__(self, system: ChainSystem, *, duration_ms: float = 100.0) -> None:
        self.machine, self.system, self.lock = load_machine(system.machine), system, threading.RLock()
        named = {stage.workload.nf for stage in system.stages if stage.workload is not None}
        self._functions = {name: load_network_function(name) for name in named}
        self._duration_ms = duration_ms
        self.knobs: dict[str, str | None] = {f"weight:{stage.name}": None for stage in system.stages}

    def simulate(self, seed: int = 0, times: int = 1) -> ChainSimulation:
        """Simulate all chains under the weights in force; `times` multiplies the usual duration."""
        stages = tuple(
            replace(stage, shares=int(self.knobs[f"weight:{stage.name}"] or stage.shares))
            for stage in self.system.stages
        )
        return simulate_chains(
            self.machine,
            replace(self.system, stages=stages),
            self._functions,
            duration_ms=times * self._duration_ms,
            warm_ms=0.5 * self._duration_ms,
            seed=seed,
        )


class SimulatedCoresBackend(SimulatedKnobs, Backend):
    """Applies CPU weights to `SimulatedCores`."""

    def __init__(self, cores: SimulatedCores) -> None:
        super().__init__(cores)
        self.cores = cores

    def place(self) -> str:
        """Return the machine's name."""
        return f"simulated cores of {self.cores.machine.name}"

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the weight that the plan requires for every stage."""
        return tuple(self._wish(tenant) for tenant in plan.tenants)

    def _wish(self, tenant: TenantSetting) -> Wish:
        names = [stage.name for stage in self.cores.system.stages]
        if tenant.tenant not in names:
            raise RefusedSettingError(
                f"no stage '{tenant.tenant}' on {self.place()}", hint=f"stages: {', '.join(names)}"
            )
        if tenant != TenantSetting(tenant.tenant, cpu_weight=tenant.cpu_weight):
            raise RefusedSettingError(
                f"stage '{tenant.tenant}': {self.place()} take CPU weights only", hint="give cpu_weight"
            )
        if tenant.cpu_weight is None:
            return Wish(f"weight:{tenant.tenant}", None)
        shares = min(max(round(DEFAULT_SHARES * tenant.cpu_weight), LEAST_SHARES), MOST_SHARES)
        return Wish(f"weight:{tenant.tenant}", str(shares))
