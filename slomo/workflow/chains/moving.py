"""Compute what moving a network function to another NUMA node of a simulated machine costs."""

from collections.abc import Sequence
from functools import lru_cache

from slomo.placement.chains.moves import INTERVAL_S, MoveCost, Mover, Moving, refill_s
from slomo.placement.problem.chain import RatedChain
from slomo.simulator.programs.program import program
from slomo.simulator.sharing.result import StageResult
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.handover import lone_chain


@lru_cache(maxsize=4096)
def mover_of(machine: Machine, workload: Workload, own: tuple[NetworkFunction, ...] = ()) -> Mover:
    """Return how much memory and cache moves with a function, from simulated runs with local and remote memory.

    On a machine with one socket no data are remote.
    """
    mine = {function.name: function for function in own}
    function = mine.get(workload.nf) or load_network_function(workload.nf)
    memory_b = sum(item.size_b for item in program(function, workload.saturated).structures)
    beside = _stage(machine, workload, own, 0)
    ways = ((0, 1), (1, 0)) if machine.sockets > 1 else ()
    shares = [_stage(machine, workload, own, *way).processed_mpps for way in ways]
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
