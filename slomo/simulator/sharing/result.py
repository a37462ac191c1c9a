"""Result of a simulation of chains: throughput, drops by place, CPU time, context switches, latency."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slomo.simulator import state as s
from slomo.simulator.programs.program import LINE_B
from slomo.simulator.result import require_possible
from slomo.simulator.sharing import state as h
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.service_chains import ChainSystem
from slomo.vocabulary.wire import WIRE_OVERHEAD_B


@dataclass(frozen=True)
class StageResult:
    """Simulated counts and times of one stage."""

    #: Packets that the stage processed, that came to its ring, and that its full ring dropped [Mpps].
    processed_mpps: float
    arrived_mpps: float
    dropped_mpps: float
    #: Share of its core's time that the stage had, 0 to 1.
    cpu_share: float
    #: CPU time per packet [cycles]; 0 if no packet was processed.
    cycles_per_packet: float
    #: Voluntary and involuntary context switches, per second.
    voluntary_per_s: float
    involuntary_per_s: float
    #: Share of the stage's accesses beyond L2 that the last-level cache served.
    l3_hit: float | None
    #: The stage's traffic to and from memory [GB/s].
    memory_gb_s: float
    #: Occupancy of the stage's data in the last-level caches at the end, without packets [KiB].
    llc_kib: float


@dataclass(frozen=True)
class ChainResult:
    """Simulated throughput, losses and latency of one chain."""

    #: Packets sent to the chain, and packets that left it [Mpps].
    offered_mpps: float
    throughput_mpps: float
    #: Rate of the packets that left the chain, preamble and gap included [Gbit/s].
    gbps: float
    #: Packets dropped at the chain's entry before any work, and packets dropped by full rings [Mpps].
    entry_dropped_mpps: float
    queue_dropped_mpps: float
    #: Packets dropped by full rings after at least one stage had processed them [Mpps].
    wasted_mpps: float
    #: Packets that left with an ECN mark [Mpps].
    marked_mpps: float
    #: ``p50``, ``p95``, ``p99`` from arrival to departure [us]; empty if no packet left.
    latency_us: Mapping[str, float]


@dataclass(frozen=True)
class ChainSimulation:
    """Result of a simulation of chains."""

    #: Results by name, in the order in which the chain system lists them.
    stages: Mapping[str, StageResult]
    chains: Mapping[str, ChainResult]
    #: Core -> share of its time in which it was idle, 0 to 1.
    idle: Mapping[int, float]
    #: Core -> share of its time that went into context switches, 0 to 1.
    switching: Mapping[int, float]
    #: Share of each socket's memory bandwidth in use, 0 to 1.
    memory_used: tuple[float, ...]
    #: Share of the link between sockets in use, 0 to 1.
    link_used: float
    #: Simulated time over which packets were counted [ms].
    duration_ms: float


def assemble_chains(
    machine: Machine, system: ChainSystem, state: s.State, sharing: h.Sharing, span_ns: float
) -> ChainSimulation:
    """Convert the counts of a finished simulation to its result.

    Raises SlomoError (an internal fault) if more was moved than a memory channel or the link can move.
    """
    require_possible(machine, state.channels[:, s.H_BUSY_TOTAL], span_ns)
    cores = sorted({stage.core for stage in system.stages})
    times = sharing.core_times
    # a core idle at the end has been idle since its clock stopped
    end_ns = max(sharing.settings[h.E_NEXT_SCAN] - sharing.settings[h.E_SCAN], times[:, h.L_CLOCK].max())
    left = np.maximum(0.0, end_ns - times[:, h.L_CLOCK])
    idle = np.where(sharing.cores[:, h.K_RUNNING] < 0, times[:, h.L_IDLE] + left, times[:, h.L_IDLE])
    busy = state.channels[: machine.sockets + 1, s.H_BUSY_TOTAL] / span_ns
    return ChainSimulation(
        stages={
            stage.name: _stage(machine, state, sharing, place, span_ns) for place, stage in enumerate(system.stages)
        },
        chains={
            chain.name: _chain(sharing, place, span_ns, chain.packet_size_b)
            for place, chain in enumerate(system.chains)
        },
        idle={core: float(min(1.0, idle[place] / span_ns)) for place, core in enumerate(cores)},
        switching={core: float(times[place, h.L_SWITCHING] / span_ns) for place, core in enumerate(cores)},
        memory_used=tuple(float(min(1.0, value)) for value in busy[:-1]),
        link_used=float(min(1.0, busy[-1])),
        duration_ms=span_ns / 1e6,
    )


def _stage(machine: Machine, state: s.State, sharing: h.Sharing, place: int, span_ns: float) -> StageResult:
    row, times, count = sharing.stages[place], sharing.stage_times[place], state.counters[place]
    per_us, per_s = 1e3 / span_ns, 1e9 / span_ns
    processed, references = int(row[h.Q_PROCESSED]), int(count[s.C_L3_HIT] + count[s.C_L3_MISS])
    moved = count[[s.C_READ_LOCAL, s.C_READ_REMOTE, s.C_WRITE_LOCAL, s.C_WRITE_REMOTE]].sum()
    return StageResult(
        processed_mpps=processed * per_us,
        arrived_mpps=int(row[h.Q_ARRIVED]) * per_us,
        dropped_mpps=int(row[h.Q_DROPPED]) * per_us,
        cpu_share=float(times[h.R_CPU] / span_ns),
        cycles_per_packet=float(times[h.R_CPU] * machine.frequency_ghz / processed) if processed else 0.0,
        voluntary_per_s=int(row[h.Q_VOLUNTARY]) * per_s,
        involuntary_per_s=int(row[h.Q_INVOLUNTARY]) * per_s,
        l3_hit=float(count[s.C_L3_HIT] / references) if references else None,
        memory_gb_s=float(moved * LINE_B / span_ns),
        llc_kib=float(state.occupancy[2 * place : 2 * place + 2].sum() * LINE_B / 1024),
    )


def _chain(sharing: h.Sharing, place: int, span_ns: float, packet_size_b: int) -> ChainResult:
    row = sharing.chains[place]
    mpps = {column: int(row[column]) * 1e3 / span_ns for column in range(h.J_OFFERED, h.J_SAMPLES)}
    samples = sharing.latency[place, : min(s.LATENCY_SAMPLES, int(row[h.J_SAMPLES]))]
    values = np.percentile(samples, [50, 95, 99]) / 1e3 if samples.size else ()
    return ChainResult(
        offered_mpps=mpps[h.J_OFFERED],
        throughput_mpps=mpps[h.J_DELIVERED],
        gbps=mpps[h.J_DELIVERED] * 8e-3 * (packet_size_b + WIRE_OVERHEAD_B),
        entry_dropped_mpps=mpps[h.J_ENTRY_LOST],
        queue_dropped_mpps=mpps[h.J_QUEUE_LOST],
        wasted_mpps=mpps[h.J_WASTED],
        marked_mpps=mpps[h.J_MARKS],
        latency_us={name: float(value) for name, value in zip(("p50", "p95", "p99"), values, strict=False)},
    )
