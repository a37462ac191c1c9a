"""Simulate chains of NFs on shared cores: put stages on cores, warm the caches, count packets.

Time advances in milliseconds, as for schedulers and controllers. After each one, `on_tick` receives what a controller
of a real machine could observe, and may set new shares.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.simulator import first_compile
from slomo.simulator import state as s
from slomo.simulator.programs.layout import seat_of
from slomo.simulator.programs.prefill import prefill
from slomo.simulator.programs.program import Program, program
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.kernel import run_shared
from slomo.simulator.sharing.layout import build_shared
from slomo.simulator.sharing.result import ChainSimulation, assemble_chains
from slomo.simulator.sharing.settings import Manager, Scheduler
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.service_chains import ChainStage, ChainSystem

STEP_NS = 1e6
#: Instructions per cycle of an NF that only computes.
_WORK_IPC = 2.0


@dataclass(frozen=True)
class StageTick:
    """What was observed of one stage at a tick of the controller."""

    #: Name of the stage.
    name: str
    #: CPU it runs on.
    core: int
    #: Packets that came to the stage's ring since the simulation began, including those dropped there.
    arrivals: int
    #: Cost of the stage's latest packet [cycles]; 0 before the first.
    cost_cycles: float


#: Time [ms] and observations -> new CPU shares by stage, or None to keep them.
OnTick = Callable[[float, Sequence[StageTick]], Mapping[str, int] | None]


@dataclass(frozen=True)
class StagePlace:
    """Where a stage runs: its LLC ways, throttle [%] and memory socket; None for no limit."""

    llc_way_mask: int | None = None
    mba_percent: float | None = None
    memory_socket: int | None = None


def simulate_chains(
    machine: Machine,
    system: ChainSystem,
    functions: Mapping[str, NetworkFunction],
    *,
    scheduler: Scheduler | None = None,
    manager: Manager | None = None,
    on_tick: OnTick | None = None,
    places: Mapping[str, StagePlace] | None = None,
    wire_gbps: float | None = None,
    duration_ms: float = 500.0,
    warm_ms: float = 200.0,
    seed: int = 0,
) -> ChainSimulation:
    r"""Simulate chains of NFs that share cores.

    Pure function except for `on_tick`: equal arguments give equal results, byte for byte.

    `functions`: the NFs that the stages name. `scheduler`: the same on all cores; CFS by default. Without a `manager`
    there is no back-pressure. `on_tick` is called every millisecond with the observed state, and returns new CPU shares
    or None. `places`: stage -> its LLC ways, throttle and memory socket. `wire_gbps`: line rate of the wire that all
    chains share [Gbit/s], one port of the machine by default; a chain with a constant rate gets at most one port's.
    `duration_ms`: simulated time over which packets are counted; `warm_ms`: time simulated before. `seed`: of random
    accesses, arrivals and costs.

    Raises InvalidValueError for a core that the machine does not have or a duration that is not above 0,
    UnsupportedPredictionError for a machine with an L2 prefetcher or hyper-threads.

    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.service_chains import parse_chains
    >>> system = parse_chains("stages: {nat: {cycles: 270, core: 0}}\nchains: {web: {stages: [nat], mpps: 1}}")
    >>> played = simulate_chains(load_machine("e5-2620v4"), system, {}, duration_ms=2, warm_ms=1)
    >>> round(played.chains["web"].throughput_mpps, 1)
    1.0
    """
    if not 0.0 < duration_ms < math.inf or not 0.0 <= warm_ms < math.inf:
        raise InvalidValueError(f"{warm_ms:g} ms of warming up, {duration_ms:g} ms counted, needed above 0 to count")
    if machine.l2_prefetcher != "none" or machine.threads_per_core != 1:
        raise UnsupportedPredictionError(
            f"machine '{machine.name}': l2_prefetcher is '{machine.l2_prefetcher}', threads_per_core is "
            f"{machine.threads_per_core}; shared cores are simulated with 'none' and 1",
            hint="state these in a machine file of its own for chains",
        )
    seats = []
    for stage in system.stages:
        apart = astuple((places or {}).get(stage.name, StagePlace()))
        work = _program(stage, system, functions)
        seats.append(seat_of(machine, f"stage '{stage.name}'", work, stage.core, *apart))
    scheduler, manager = scheduler or Scheduler(), manager or Manager()
    state, sharing = build_shared(machine, system, seats, scheduler, manager, seed=seed, wire_gbps=wire_gbps)
    prefill(state)
    first_compile.announce(run_shared)
    now_ns, earlier = 0.0, np.zeros(len(seats), dtype=np.int64)
    for end_ns in (warm_ms * 1e6, (warm_ms + duration_ms) * 1e6):
        s.zero_counters(state)
        earlier += sharing.stages[:, h.Q_ARRIVED]
        h.zero_counts(sharing)
        while now_ns < end_ns:
            now_ns = min(now_ns + STEP_NS, end_ns)
            run_shared(state, sharing, now_ns)
            if on_tick is not None:
                _tick(machine, system, sharing, earlier, on_tick, now_ns / 1e6)
    return assemble_chains(machine, system, state, sharing, duration_ms * 1e6)


def _tick(
    machine: Machine, system: ChainSystem, sharing: h.Sharing, earlier: s.Ints, on_tick: OnTick, now_ms: float
) -> None:
    """Call the controller and set its shares; `earlier`: arrivals at each stage before the counts were reset."""
    arrived, costs = earlier + sharing.stages[:, h.Q_ARRIVED], sharing.stage_times[:, h.R_COST] * machine.frequency_ghz
    rows = zip(system.stages, arrived.tolist(), costs.tolist(), strict=True)
    shares = on_tick(now_ms, [StageTick(stage.name, stage.core, arrivals, cost) for stage, arrivals, cost in rows])
    for place, stage in enumerate(system.stages):
        if shares is not None and stage.name in shares:
            sharing.stage_times[place, h.R_WEIGHT] = shares[stage.name]


def _program(stage: ChainStage, system: ChainSystem, functions: Mapping[str, NetworkFunction]) -> Program:
    sizes = [chain.packet_size_b for chain in system.chains if stage.name in chain.stages] or [64]
    if stage.workload is None:
        cycles = stage.cycles[0]
        return Program(cycles, max(1.0, _WORK_IPC * cycles), max(sizes), 1, 1, 6.0, 32, 1, None, None, ())
    filled = program(functions[stage.workload.nf], stage.workload)
    if filled.accelerator is not None:
        raise UnsupportedPredictionError(
            f"stage '{stage.name}' uses accelerator '{filled.accelerator.name}', which shared cores do not simulate",
            hint="give it a core of its own and simulate it as a tenant",
        )
    return filled
