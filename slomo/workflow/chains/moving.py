"""What moving a network function to another node costs on a simulated machine: memory, cache, remote pages."""

from functools import lru_cache
from typing import TYPE_CHECKING

from slomo.placement.chains.moves import INTERVAL_S, MoveCost, Mover, Moving, refill_s
from slomo.simulator.programs.program import program
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import load_network_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slomo.placement.problem.chain import RatedChain
    from slomo.records.run import TenantSample
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction
    from slomo.vocabulary.workload import Workload

#: Line accesses of a run alone: a share of throughput is wanted, to a per cent.
_ACCESSES = 60_000


@lru_cache(maxsize=4096)
def mover_of(machine: "Machine", workload: "Workload", own: "tuple[NetworkFunction, ...]" = ()) -> Mover:
    """Return what moving has to move of a workload, from runs alone, saturated, its memory beside it and away.

    Parameters
    ----------
    machine : Machine
        Machine type; with one socket nothing is ever away.
    workload : Workload
        Which.
    own : tuple of NetworkFunction
        Ones of one's own.
    """
    mine = {function.name: function for function in own}
    function = mine.get(workload.nf) or load_network_function(workload.nf)
    memory_b = sum(item.size_b for item in program(function, workload.saturated).structures)
    near, far = machine.nic_socket, next((s for s in range(machine.sockets) if s != machine.nic_socket), None)
    held_kib = _alone(machine, workload, own, near, near).vector.get("L3OCC", 0.0) or 0.0
    ways = () if far is None else ((near, far), (far, near))
    shares = [_share(machine, workload, own, *way) for way in ways]
    return Mover(memory_b / 2**20, refill_s(machine, held_kib), min([1.0, *shares]))


def _share(
    machine: "Machine", workload: "Workload", own: "tuple[NetworkFunction, ...]", socket: int, node: int
) -> float:
    away, beside = (_alone(machine, workload, own, socket, memory).throughput_mpps for memory in (node, socket))
    return away / beside


def _alone(
    machine: "Machine", workload: "Workload", own: "tuple[NetworkFunction, ...]", socket: int, node: int
) -> "TenantSample":
    bed = SimulatedTestbed(machine, own, accesses=_ACCESSES)
    phase = bed.run(Colocation(machine.name, workload.saturated, sockets=(socket,), memory_node=node), seed=1).beside
    assert phase is not None, "BUG: a run of a target has a phase of its own"
    return phase.tenants[0]


def moving_costs(machine: "Machine", cost: MoveCost, own: "Sequence[NetworkFunction]" = ()) -> Moving:
    """Return the share of an interval's service that chains lose when stages of theirs change nodes, one by one."""
    functions = tuple(own)

    def lost(chain: "RatedChain", before: "Sequence[int]", after: "Sequence[int]") -> float:
        stages = zip(chain.request.chain, before, after, strict=True)
        moved = [workload for workload, here, there in stages if here != there]
        return min(sum(cost.lost_s(mover_of(machine, item, functions)) for item in moved) / INTERVAL_S, 1.0)

    return lost
