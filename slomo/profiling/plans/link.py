"""A plan with all data on another socket's memory, to measure competition for the link between sockets.

SLOMO (SIGCOMM'20, section 5.1) selects metrics on the sources of contention of one socket. A function whose memory is
on the other node has two more sources. One is the link, which tenants on the function's own socket use too; its
pressure is the link's utilisation. The other is the memory channels of the other node, which cores there use without
the link; their pressure is the latency of misses.
"""

from collections.abc import Sequence

from slomo.errors import InvalidValueError
from slomo.profiling.plans.designs import MOST_INSTANCES
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.profiling.plans.sources import DEFAULT_POINTS, memory_pressures, sources
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.workload import Workload

#: Of every so many points one has competitors on the far socket.
_FAR = 2


def link_plan(
    targets: Sequence[Workload],
    machine: Machine,
    *,
    runs: int | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return the plan that runs targets with their memory on another socket, beside competitors on both.

    Competitors beside the target are those of design ``sources``; in every second point others press on the memory from
    its own socket. All data are on that socket; the target alone runs so, too.
    """
    if machine.sockets < 2:
        raise InvalidValueError(
            f"design 'link' needs the memory of another socket, '{machine.name}' has {machine.sockets}",
            hint="choose a machine with two, or design 'sources'",
        )
    points = DEFAULT_POINTS if runs is None else runs
    near, far = machine.nic_socket, (machine.nic_socket + 1) % machine.sockets
    most = min(MOST_INSTANCES, machine.cores_per_socket - 1)
    beside = sources(machine, points, seed, most)
    beyond = memory_pressures(machine, points, seed + 1, most)
    mixes: list[tuple[tuple[Workload, ...], tuple[Workload, ...]]] = [((), ())]
    for number, (here, there) in enumerate(zip(beside, beyond, strict=True)):
        mixes.append((here.competitors, () if number % _FAR else there.competitors))
    colocations = tuple(
        Colocation(
            machine.name,
            target,
            (*here, *there),
            sockets=(near,) * (1 + len(here)) + (far,) * len(there),
            memory_node=far,
        )
        for target in targets
        for here, there in mixes
    )
    return ExperimentPlan("pressure", colocations, replicates=replicates, seed=seed)
