"""Simulate which share of its throughput a chain keeps when its packets cross between NUMA nodes.

NUMASFP (COMSNETS'22) measured 22 % less for a remote chain and 52 % less if stages alternate between nodes. Here the
cache lines of packets and rings cross the simulated link (`slomo.simulator.sharing.link`); the simulation uses no
number of the paper.
"""

from collections.abc import Sequence
from functools import lru_cache

from slomo.simulator.sharing.engine import StagePlace, simulate_chains
from slomo.simulator.sharing.result import ChainSimulation
from slomo.simulator.sharing.settings import Manager, Scheduler
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain
from slomo.vocabulary.workload import Workload

#: Ring size: rings fill in a fraction of the measured time.
_RING = 512
_WARM_MS, _COUNTED_MS = 2.0, 4.0


@lru_cache(maxsize=4096)
def handover_kept(machine: Machine, chain: tuple[Workload, ...], nodes: tuple[int, ...]) -> float:
    """Return the share of its saturated throughput that a chain alone keeps on `nodes`, 0 to 1.

    Node 0 is that of the machine's NIC, where the packets' buffers are. Each stage has a core of its own, and its data
    beside it.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.workload import Workload
    >>> handover_kept(load_machine("e5-2620v4"), (Workload("l2fwd"), Workload("l2fwd")), (0, 0))
    1.0
    """
    if not any(nodes):
        return 1.0
    here, near = (lone_chain(machine, chain, places) for places in (nodes, (0,) * len(nodes)))
    return min(here.chains["chain"].throughput_mpps / near.chains["chain"].throughput_mpps, 1.0)


@lru_cache(maxsize=4096)
def lone_chain(
    machine: Machine,
    chain: tuple[Workload, ...],
    nodes: tuple[int, ...],
    own: tuple[NetworkFunction, ...] = (),
    memory: int | None = None,
) -> ChainSimulation:
    """Simulate a saturated `chain` alone on a machine, with the data of all stages on node `memory` if given.

    Parameters are those of :func:`handover_kept`, and additional network functions; stages are called `stage0` and so
    on.
    """
    sockets = _sockets(machine)
    size_b = chain[0].traffic.packet_size_b
    stages = tuple(
        ChainStage(f"stage{i}", core, workload=workload.saturated)
        for i, (workload, core) in enumerate(zip(chain, _cores(machine, nodes), strict=True))
    )
    line = ServiceChain("chain", tuple(stage.name for stage in stages), packet_size_b=size_b)
    system = ChainSystem(stages, (line,), machine=machine.name, queue_capacity=_RING, buffer_b=max(2048, size_b))
    own_functions = {function.name: function for function in own}
    functions = {item.nf: own_functions.get(item.nf) or load_network_function(item.nf) for item in chain}
    # back-pressure on: the count is then the slowest stage's throughput, without work wasted on packets dropped later
    manager = Manager(pressure=True)
    places = {} if memory is None else {stage.name: StagePlace(memory_socket=sockets[memory]) for stage in stages}
    return simulate_chains(
        machine,
        system,
        functions,
        scheduler=Scheduler("cfs"),
        manager=manager,
        places=places,
        duration_ms=_COUNTED_MS,
        warm_ms=_WARM_MS,
    )


def _sockets(host: Machine) -> list[int]:
    """Return the socket of each node; node 0 is the NIC's socket."""
    return [host.nic_socket, *(number for number in range(host.sockets) if number != host.nic_socket)]


def _cores(host: Machine, nodes: Sequence[int]) -> list[int]:
    """Return a free core for each stage, on the node of the stage."""
    sockets = _sockets(host)
    used = dict.fromkeys(sockets, 0)
    cores = []
    for node in nodes:
        socket = sockets[node]
        cores.append(socket * host.cores_per_socket + used[socket])
        used[socket] += 1
    return cores
