"""Simulate what it costs a chain that its packets cross between NUMA nodes, or that a stage moves to another node.

NUMASFP (COMSNETS'22) measured 22 % less for a remote chain and 52 % less if stages alternate between nodes. Here the
cache lines of packets and rings cross the simulated link (`slomo.simulator.sharing.link`); the simulation uses no
number of the paper.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from slomo.placement.chains.moves import INTERVAL_S, MoveCost, Mover, Moving, refill_s
from slomo.placement.chains.nodes import cores_on, socket_of
from slomo.placement.problem.chain import RatedChain
from slomo.simulator.programs.program import program
from slomo.simulator.sharing.engine import StagePlace, simulate_chains
from slomo.simulator.sharing.result import ChainSimulation, StageResult
from slomo.simulator.sharing.settings import Manager, Scheduler
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_functions
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
    nic, size_b = machine.nic_socket, chain[0].traffic.packet_size_b
    stages = tuple(
        ChainStage(f"stage{i}", socket * machine.cores_per_socket + core, workload=workload.saturated)
        for i, (workload, (socket, core)) in enumerate(zip(chain, cores_on(nodes, nic, Counter()), strict=True))
    )
    line = ServiceChain("chain", tuple(stage.name for stage in stages), packet_size_b=size_b)
    system = ChainSystem(stages, (line,), machine=machine.name, queue_capacity=_RING, buffer_b=max(2048, size_b))
    functions = load_network_functions((item.nf for item in chain), own)
    # back-pressure on: the count is then the slowest stage's throughput, without work wasted on packets dropped later
    manager = Manager(pressure=True)
    place = StagePlace(memory_socket=None if memory is None else socket_of(memory, nic))
    return simulate_chains(
        machine,
        system,
        functions,
        scheduler=Scheduler("cfs"),
        manager=manager,
        places={stage.name: place for stage in stages},
        duration_ms=_COUNTED_MS,
        warm_ms=_WARM_MS,
    )


@lru_cache(maxsize=4096)
def mover_of(machine: Machine, workload: Workload, own: tuple[NetworkFunction, ...] = ()) -> Mover:
    """Return how much memory and cache moves with a function, from simulated runs with local and remote memory.

    On a machine with one socket no data are remote.
    """
    function = load_network_functions([workload.nf], own)[workload.nf]
    memory_b = sum(item.size_b for item in program(function, workload.saturated).structures)
    beside = _stage(machine, workload, own, 0)
    ways = ((0, 1), (1, 0)) if machine.sockets > 1 else ()
    shares = [_stage(machine, workload, own, *place).processed_mpps for place in ways]
    home = [_stage(machine, workload, own, node).processed_mpps for node, _ in ways]
    away = min((far / near for far, near in zip(shares, home, strict=True)), default=1.0)
    return Mover(memory_b / 2**20, refill_s(machine, beside.llc_kib), min(1.0, away))


def _stage(
    machine: Machine, workload: Workload, own: tuple[NetworkFunction, ...], node: int, memory: int | None = None
) -> StageResult:
    return lone_chain(machine, (workload.saturated,), (node,), own, memory).stages["stage0"]


def moving_costs(machine: Machine, cost: MoveCost, own: Sequence[NetworkFunction] = ()) -> Moving:
    """Return the share of an interval in which each chain is not served because its stages move between nodes."""
    functions = tuple(own)

    def lost(chain: RatedChain, before: Sequence[int], after: Sequence[int]) -> float:
        stages = zip(chain.request.chain, before, after, strict=True)
        moved = [workload for workload, here, there in stages if here != there]
        return min(sum(cost.lost_s(mover_of(machine, item, functions)) for item in moved) / INTERVAL_S, 1.0)

    return lost
