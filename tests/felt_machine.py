"""A host without counters that is made of formulas: what reporters feel is drawn, speed wanders, readings are noisy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import FELT, Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

MACHINE = "e5-2620v4"
TARGETS = [Workload(name) for name in ("l2fwd", "ip-router", "flowstats", "maglev", "mazunat", "stateless-firewall")]
PRESSURES = [Workload("synthetic", {"data_size_mib": float(size)}) for size in (1, 2, 4, 8, 16, 32, 64, 128)]


class FeltMachine:
    """A host whose reporters feel what is drawn for each workload, and whose speed wanders."""

    name, exclusive = "host", True

    def __init__(
        self, seed: int, noise: float = 0.05, scale: float | np.ndarray = 1.0, calibration: str = "f00d"
    ) -> None:
        self.scale, self.calibration = scale, calibration
        self.random, self.noise, self.speed = np.random.default_rng(seed), noise, 1.0
        drawn = np.random.default_rng(1000 + seed)
        everybody = [*TARGETS, *PRESSURES]
        self.pressure = {item.key: drawn.gamma(1.2, 0.35, 4) for item in everybody}
        self.sensitivity = {item.key: drawn.gamma(1.0, 0.25, 4) for item in everybody}

    def share(self, target: Workload, other: Workload) -> float:
        """Return the true share of its solo speed that a target keeps."""
        return 1.0 / (1.0 + float(self.sensitivity[target.key] @ self.pressure[other.key]))

    def _read(self, workload: Workload, scope: Scope) -> MetricVector:
        felt = self.scale * (self.pressure[workload.key] + 0.03 * self.random.standard_normal(4))
        return MetricVector(dict(zip(FELT, np.maximum(felt, 0.0).tolist(), strict=True)), scope=scope)

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run one co-location, as `HostTestbed` records it."""
        self.speed *= float(np.exp(0.03 * self.random.standard_normal()))
        target, others = colocation.target, colocation.competitors
        assert target is not None
        solo = 5.0 * self.speed
        own = self._read(target, Scope.CORE)
        host: dict[str, Any] = {"drift": {"change": 1.0, "repeated": 0, "rates": {"cache": self.speed}}}
        if not others:
            host["solo"] = {"mpps": [solo]}
            phase = Phase((TenantSample(solo, own),), MetricVector({}), None, 1.0)
            return RunRecord(colocation, seed, None, phase, self._told(host))
        ratio = self.share(target, others[0]) * (1.0 + self.noise * float(self.random.standard_normal()))
        host["pairs"] = {"ratio": ratio, "solo_mpps": [solo]}
        if others[0].nf != "synthetic":
            host["pairs"]["competitor_ratio"] = self.share(others[0], target) * (
                1.0 + 0.01 * self.random.standard_normal()
            )
        felt = self._read(others[0], Scope.SOCKET)
        other = TenantSample(5.0, MetricVector(dict(felt), scope=Scope.CORE))
        alone = Phase((other,), felt, None, 1.0)
        beside = Phase((TenantSample(ratio * solo, own), other), MetricVector({}), None, 1.0)
        return RunRecord(colocation, seed, alone, beside, self._told(host))

    def _told(self, host: Mapping[str, Any]) -> dict[str, Any]:
        return {"testbed": "host", "settings": {"interleaved": True}, "host": host}

    def environment(self) -> Mapping[str, Any]:
        """Return what a calibrated host states."""
        machines = {MACHINE: load_machine(MACHINE).to_dict()}
        reporters = {"programs": {}, "felt": {}, "full": 4.0}
        settings = {"counters": "probe", "calibration": self.calibration, "interleaved": True, "reporters": reporters}
        return {"testbed": "host", "settings": settings, "machines": machines}

    def estimate_s(self, colocation: Colocation) -> float:
        """Return a guess."""
        return 1.0


def felt_plan() -> ExperimentPlan:
    """Return the plan of every target beside every pressure."""
    solo = [Colocation(MACHINE, target) for target in TARGETS]
    pressed = [Colocation(MACHINE, target, (other,)) for target in TARGETS for other in PRESSURES]
    return ExperimentPlan("felt", (*solo, *pressed), replicates=2)
