"""Simulate chains of NFs on shared cores: put stages on cores, warm the caches, count packets.

Time advances in milliseconds, as for schedulers and controllers. After each one, `on_tick` receives what a controller
of a real machine could observe, and may set new shares.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from slomo.errors import UnsupportedPredictionError
from slomo.simulator import state as s
from slomo.simulator.programs.layout import Seat, seat_of
from slomo.simulator.programs.prefill import prefill
from slomo.simulator.programs.program import Program, program
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.layout import build_shared
from slomo.simulator.sharing.result import ChainSimulation, assemble_chains
from slomo.simulator.sharing.settings import Manager, Scheduler, Span, SpanFields
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
    **span: Unpack[SpanFields],
) -> ChainSimulation:
    r"""Simulate chains of NFs that share cores.

    Pure function except for `on_tick`: equal arguments give equal results, byte for byte.

    `functions`: the NFs that the stages name. `scheduler`: the same on all cores; CFS by default. Without a `manager`
    there is no back-pressure. `on_tick` is called every millisecond with the observed state, and returns new CPU shares
    or None. `places`: stage -> its LLC ways, throttle and memory socket. `wire_gbps`: line rate of the wire that all
    chains share [Gbit/s], one port of the machine by default; a chain with a constant rate gets at most one port's.
    `span`: as in `slomo.simulator.sharing.settings.Span`.

    Raises InvalidValueError for a core that the machine does not have or a duration that is not above 0,
    UnsupportedPredictionError for a machine with an L2 prefetcher or hyper-threads.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.service_chains import parse_chains
    >>> system = parse_chains("stages: {nat: {cycles: 270, core: 0}}\nchains: {web: {stages: [nat], mpps: 1}}")
    >>> played = simulate_chains(load_machine("e5-2620v4"), system, {}, duration_ms=2, warm_ms=1)
    >>> round(played.chains["web"].throughput_mpps, 1)
    1.0
    """
    lasts = Span(**span)
    if machine.l2_prefetcher != "none" or machine.threads_per_core != 1:
        raise UnsupportedPredictionError(
            f"machine '{machine.name}': l2_prefetcher is '{machine.l2_prefetcher}', threads_per_core is "
            f"{machine.threads_per_core}; shared cores are simulated with 'none' and 1",
            hint="state these in a machine file of its own for chains",
        )
    scheduler, manager = scheduler or Scheduler(), manager or Manager()
    seats = [_seat(machine, stage, system, functions, (places or {}).get(stage.name)) for stage in system.stages]
    state, sharing = build_shared(machine, system, seats, scheduler, manager, seed=lasts.seed, wire_gbps=wire_gbps)
    prefill(state)
    run = _TickLoop(machine, system, state, sharing, on_tick)
    run.until(lasts.warm_ms * 1e6)
    s.zero_counters(state)
    h.zero_counts(sharing)
    run.until((lasts.warm_ms + lasts.duration_ms) * 1e6)
    return assemble_chains(machine, system, state, sharing, lasts.duration_ms * 1e6)


class _TickLoop:
    """Advances the simulation by one millisecond at a time, and calls the controller after each."""

    def __init__(
        self, machine: Machine, system: ChainSystem, state: s.State, sharing: h.Sharing, on_tick: OnTick | None
    ) -> None:
        self.machine, self.system, self.state, self.sharing, self.on_tick = machine, system, state, sharing, on_tick
        self.now_ns = 0.0
        self._arrived = np.zeros(len(system.stages), dtype=np.int64)
        self._seen = np.zeros(len(system.stages), dtype=np.int64)

    def until(self, end_ns: float) -> None:
        self._seen[:] = self.sharing.stages[:, h.Q_ARRIVED]  # counts may have been reset since the last tick
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + STEP_NS, end_ns)
            _kernels().run_shared(self.state, self.sharing, self.now_ns)
            if self.on_tick is not None:
                self._look(self.on_tick)

    def _look(self, on_tick: OnTick) -> None:
        stages, times = self.sharing.stages, self.sharing.stage_times
        self._arrived += stages[:, h.Q_ARRIVED] - self._seen
        self._seen[:] = stages[:, h.Q_ARRIVED]
        seen = [
            StageTick(
                stage.name,
                stage.core,
                int(self._arrived[place]),
                float(times[place, h.R_COST]) * self.machine.frequency_ghz,
            )
            for place, stage in enumerate(self.system.stages)
        ]
        shares = on_tick(self.now_ns / 1e6, seen)
        for place, stage in enumerate(self.system.stages):
            if shares is not None and stage.name in shares:
                times[place, h.R_WEIGHT] = shares[stage.name]


def _seat(
    machine: Machine,
    stage: ChainStage,
    system: ChainSystem,
    functions: Mapping[str, NetworkFunction],
    place: StagePlace | None,
) -> Seat:
    apart = () if place is None else (place.llc_way_mask, place.mba_percent, place.memory_socket)
    return seat_of(machine, f"stage '{stage.name}'", _program(stage, system, functions), stage.core, *apart)


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


def _kernels() -> Any:
    from slomo.simulator import first_compile
    from slomo.simulator.sharing import kernel

    first_compile.announce(kernel.run_shared)
    return kernel
