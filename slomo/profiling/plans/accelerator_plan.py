"""The plan that measures how NFs use an accelerator: alone, and beside a competitor that keeps it busy.

Yala (ASPLOS'25) profiles every resource separately; the competitor here does not press on memory.
"""

from collections.abc import Sequence

from slomo.errors import InvalidValueError
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Workload

#: Accelerators with a competitor `synthetic-<name>`.
ACCELERATORS = ("regex",)
#: Times per request of the competitor [ns], shorter and longer than those of shipped NFs, and numbers of instances.
SERVICES_NS, INSTANCES = (200.0, 500.0, 1000.0, 2000.0), (1, 2)


def accelerator_plan(
    targets: Sequence[Workload], machine: str | Machine, *, replicates: int = 1, seed: int = 0
) -> ExperimentPlan:
    """Return the plan: one run alone, and one per request time and number of instances of the competitor.

    >>> len(accelerator_plan([Workload("flow-monitor-regex")], "e5-2620v4"))
    9
    """
    host = load_machine(machine)
    if host.cores_per_socket < 1 + max(INSTANCES):
        raise InvalidValueError(
            f"machine '{host.name}' has {host.cores_per_socket} cores on a socket, needed {1 + max(INSTANCES)}"
        )
    beside: list[tuple[Workload, ...]] = [()]
    for name in ACCELERATORS:
        for service in SERVICES_NS:
            competitor = Workload(f"synthetic-{name}", {"service_ns": service})
            beside += [(competitor,) * count for count in INSTANCES]
    colocations = tuple(Colocation(host.name, target, others) for target in targets for others in beside)
    return ExperimentPlan("accelerator", colocations, replicates=replicates, seed=seed)
