"""Small values for tests of testbeds and models: workloads, vectors, plans, and a toy testbed.

They are shipped so that authors of testbeds and models test against the same toys as slomo itself.
"""

import time
from collections.abc import Mapping
from typing import Any

from slomo.errors import UnknownNameError
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

TOY_MACHINE = "toy"
#: solo throughput [Mpps], cache access rate [M/s] and LLC share [KiB] of the toy's NFs
TOY_FUNCTIONS: Mapping[str, tuple[float, float, float]] = {
    "lpm": (5.0, 30.0, 4096.0),
    "nat": (3.0, 20.0, 2048.0),
    "firewall": (0.4, 1.0, 64.0),
    "synthetic": (1.0, 50.0, 8192.0),
}


def core_vector(car: float = 10.0, l3occ: float = 1024.0, **others: float) -> MetricVector:
    """Return a core-level vector with a cache access rate [M/s], LLC occupancy [KiB] and further metrics.

    Examples
    --------
    >>> core_vector(car=3.0)["CAR"]
    3.0
    """
    return MetricVector({"L2MISS": car, "L3OCC": l3occ, **others}, scope=Scope.CORE)


def toy_plan(*, competitors: int = 3, replicates: int = 1, seed: int = 0) -> ExperimentPlan:
    """Return a plan for :class:`ToyTestbed`: `lpm` alone, then beside 1, 2, ... synthetic competitors.

    Examples
    --------
    >>> len(toy_plan(competitors=3))
    4
    """
    target, pressure = Workload("lpm"), Workload("synthetic", {"data_size_mib": 4})
    colocations = [Colocation(TOY_MACHINE, target, (pressure,) * count) for count in range(competitors + 1)]
    return ExperimentPlan("toy", tuple(colocations), replicates=replicates, seed=seed)


class ToyTestbed:
    """A testbed defined by one formula: throughput falls with the competitors' summed cache access rate.

    `delay_s`: how long a run takes [s], for tests of interruption.

    Examples
    --------
    >>> run = ToyTestbed().run(toy_plan().colocations[0])
    >>> run.target.throughput_mpps
    5.0
    """

    exclusive = False

    def __init__(self, delay_s: float = 0.0) -> None:
        self.name = "toy"
        self.delay_s = delay_s

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Return the run's record, with throughputs computed by a formula instead of measured."""
        time.sleep(self.delay_s)
        alone = self._phase(colocation.competitors) if colocation.competitors else None
        beside = self._phase(colocation.tenants) if colocation.target is not None else None
        return RunRecord(colocation, seed, alone, beside, {"testbed": self.name, "seed": seed})

    def environment(self) -> Mapping[str, Any]:
        """Return the environment of toy runs."""
        return {"testbed": self.name, "settings": {"formula": 1}}

    def estimate_s(self, colocation: Colocation) -> float:  # noqa: ARG002
        """Return the testbed's fixed delay per run [s]."""
        return self.delay_s

    def _phase(self, tenants: tuple[Workload, ...]) -> Phase:
        characteristics = [self._known(workload) for workload in tenants]
        total = sum(car for _, car, _ in characteristics)
        samples = []
        for solo, car, occupancy in characteristics:
            share = 1.0 / (1.0 + 0.002 * (total - car))
            samples.append(TenantSample(solo * share, core_vector(car * share, occupancy * share)))
        socket = {name: sum(sample.vector[name] for sample in samples) for name in ("L2MISS", "L3OCC")}
        return Phase(tuple(samples), MetricVector(socket), duration_s=0.01)

    def _known(self, workload: Workload) -> tuple[float, float, float]:
        if workload.nf not in TOY_FUNCTIONS:
            raise UnknownNameError("network function", workload.nf, TOY_FUNCTIONS)
        return TOY_FUNCTIONS[workload.nf]
