"""What a simulation tells: counters turned into the vocabulary's metrics, in PCM's units.

The counters are those of Intel PCM (metrics table of SLOMO, SIGCOMM'20, section 5); everything is free of noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import SlomoError
from slomo.simulator import state as s
from slomo.simulator.programs.layout import Seat, arrival_mpps
from slomo.simulator.programs.program import LINE_B
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: A core that finds its ring empty polls; a poll loop of loads and a predicted branch retires about so many a cycle.
POLL_IPC = 1.5
#: A channel may be asked for so much more than it serves: what stands in its queue at the end, and rounding.
QUEUED_NS, POSSIBLE_ROUNDING = 5000.0, 0.005


@dataclass(frozen=True)
class TenantResult:
    """How one tenant fared.

    Attributes
    ----------
    throughput_mpps : float
        Packets processed [Mpps].
    loss : float
        Share of the packets offered (for a saturating load: of the line rate) that were not processed, 0 to 1.
    latency_us : mapping of str to float
        ``p50``, ``p95``, ``p99`` of the time from arrival to departure [us]; empty if no packet left.
    vector : MetricVector
        Core-level metrics.
    arrived_mpps : float
        Packets that arrived, processed or not [Mpps]; for a saturating load the line rate. Over a short time it differs
        from the rate that was asked for, as arrivals are random.
    instructions_per_packet, cycles_per_packet, l3_references_per_packet : float
        As ResQ (NSDI'18) Table 1 reports them.
    """

    throughput_mpps: float
    loss: float
    latency_us: Mapping[str, float]
    vector: MetricVector
    arrived_mpps: float
    instructions_per_packet: float
    cycles_per_packet: float
    l3_references_per_packet: float


@dataclass(frozen=True)
class SimulationResult:
    """What a simulation of one machine tells.

    Attributes
    ----------
    tenants : tuple of TenantResult
        In the order given.
    sockets : tuple of MetricVector
        One socket-level vector each.
    system : MetricVector
        The whole machine.
    duration_us : float
        Simulated time measured [us].
    accesses : int
        Line accesses simulated, warm-up included.
    """

    tenants: tuple[TenantResult, ...]
    sockets: tuple[MetricVector, ...]
    system: MetricVector
    duration_us: float
    accesses: int


@dataclass(frozen=True)
class Totals:
    """Counts of one tenant over the time measured; sums of them give a socket's."""

    instructions: float = 0.0
    cycles: float = 0.0
    l2_hit: float = 0.0
    l2_miss: float = 0.0
    l3_hit: float = 0.0
    l3_miss: float = 0.0
    local_lines: float = 0.0
    remote_lines: float = 0.0
    read_lines: float = 0.0
    write_lines: float = 0.0
    latency_ns: float = 0.0
    occupancy_lines: float = 0.0
    ddio_lines: float = 0.0
    pcie_hit: float = 0.0
    pcie_miss: float = 0.0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Readings:
    """The raw readings of one simulation: the counters' state, time span, mean lines held, packets (with fractions)."""

    state: s.State
    span_ns: float
    held: s.Floats
    in_ddio: s.Floats
    packets: s.Floats
    scale: int


def totals(machine: Machine, seats: Sequence[Seat], readings: Readings, tenant: int) -> Totals:
    """Collect one tenant's counts."""
    count = readings.state.counters[tenant].astype(float)
    idle_ns = min(readings.span_ns, float(readings.state.sums[tenant, s.A_IDLE]))
    cycles = readings.span_ns * machine.frequency_ghz
    polled = idle_ns * machine.frequency_ghz * POLL_IPC
    return Totals(
        instructions=float(readings.packets[tenant]) * seats[tenant].program.instructions + polled,
        cycles=cycles,
        l2_hit=count[s.C_L2_HIT],
        l2_miss=count[s.C_L2_MISS],
        l3_hit=count[s.C_L3_HIT],
        l3_miss=count[s.C_L3_MISS],
        local_lines=count[s.C_READ_LOCAL] + count[s.C_WRITE_LOCAL],
        remote_lines=count[s.C_READ_REMOTE] + count[s.C_WRITE_REMOTE],
        read_lines=count[s.C_READ_LOCAL] + count[s.C_READ_REMOTE],
        write_lines=count[s.C_WRITE_LOCAL] + count[s.C_WRITE_REMOTE],
        latency_ns=float(readings.state.sums[tenant, s.A_DRAM_LATENCY]),
        occupancy_lines=float(readings.held[2 * tenant] + readings.held[2 * tenant + 1]) * readings.scale,
        ddio_lines=float(readings.in_ddio[tenant]) * readings.scale,
        pcie_hit=count[s.C_RX_HIT] + count[s.C_TX_HIT],
        pcie_miss=count[s.C_RX_MISS] + count[s.C_TX_MISS],
    )


def vector(
    machine: Machine, scope: Scope, counts: Totals, *, span_ns: float, cores: int, link: float | None = None
) -> MetricVector:
    """Turn counts into metrics; a ratio without events is not reported."""
    per_us = 1e3 / span_ns  # counts per microsecond are millions per second
    to_gb_s = LINE_B / span_ns
    to_mib_s = to_gb_s * 1e9 / 2**20
    nominal = span_ns * machine.frequency_ghz * cores
    reads, misses = counts.l2_hit + counts.l2_miss, counts.l3_hit + counts.l3_miss
    values: dict[str, float | None] = {
        "IPC": _ratio(counts.instructions, counts.cycles),
        "INST": counts.instructions * per_us,
        "EXEC": counts.instructions / nominal,
        "FREQ": counts.cycles / nominal,
        "AFREQ": 1.0 if counts.cycles else None,
        "L3MISS": counts.l3_miss * per_us,
        "L3MPI": _ratio(counts.l3_miss, counts.instructions),
        "L3HIT": _ratio(counts.l3_hit, misses),
        "L3OCC": counts.occupancy_lines * LINE_B / 1024,
        "L2MISS": counts.l2_miss * per_us,
        "L2MPI": _ratio(counts.l2_miss, counts.instructions),
        "L2HIT": _ratio(counts.l2_hit, reads),
        "LMB": counts.local_lines * to_mib_s,
        "RMB": counts.remote_lines * to_mib_s,
        "READ": counts.read_lines * to_gb_s,
        "WRITE": counts.write_lines * to_gb_s,
        "DDIOOCC": counts.ddio_lines * LINE_B / 1024,
        "PCIEHIT": counts.pcie_hit * per_us,
        "PCIEMISS": counts.pcie_miss * per_us,
        "UPI": link,
    }
    if scope is not Scope.CORE:
        values["LLCMISSLAT"] = _ratio(counts.latency_ns, counts.l3_miss) if scope is Scope.SOCKET else None
    return MetricVector(values, scope=scope)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def assemble(machine: Machine, seats: Sequence[Seat], readings: Readings, accesses: int) -> SimulationResult:
    """Turn the readings of a finished simulation into its result.

    Raises
    ------
    SlomoError
        An internal fault: more was moved than a channel, the link, the ports or the IIO can, or packets vanished.
    """
    require_possible(machine, readings.state.channels, readings.span_ns)
    _require_counted(seats, readings.state)
    each = [totals(machine, seats, readings, tenant) for tenant in range(len(seats))]
    sockets, everything = [], Totals()
    busy = float(readings.state.channels[machine.sockets, s.H_BUSY_TOTAL]) / readings.span_ns
    link = min(1.0, busy) if machine.sockets > 1 else None
    for socket in range(machine.sockets):
        inside = [counts for counts, seat in zip(each, seats, strict=True) if machine.socket_of(seat.core) == socket]
        summed = sum(inside, Totals())
        everything += summed
        sockets.append(
            vector(machine, Scope.SOCKET, summed, span_ns=readings.span_ns, cores=machine.cores_per_socket, link=link)
        )
    return SimulationResult(
        tenants=tuple(_tenant(machine, seats[i], readings, each[i], i) for i in range(len(seats))),
        sockets=tuple(sockets),
        system=vector(machine, Scope.SYSTEM, everything, span_ns=readings.span_ns, cores=machine.cores, link=link),
        duration_us=readings.span_ns / 1e3,
        accesses=accesses,
    )


def require_possible(machine: Machine, channels: s.Floats, span_ns: float) -> None:
    """Refuse what no hardware moves in so long: a fault of the simulator, whatever was asked of it.

    Raises
    ------
    SlomoError
        With what was moved and what can be.
    """
    names = [*(f"memory channels of socket {socket}" for socket in range(machine.sockets)), "link between sockets"]
    for name, row in [*zip(names, channels, strict=False), ("ports and IIO", channels[-1])]:
        if row[s.H_BUSY_TOTAL] > span_ns * (1.0 + POSSIBLE_ROUNDING) + QUEUED_NS:
            raise SlomoError(
                f"machine '{machine.name}': the {name} were asked for {row[s.H_BUSY_TOTAL]:.0f} ns of service "
                f"in {span_ns:.0f} ns",
                hint="this is a fault of the simulator; please report the call that led here",
            )


def _require_counted(seats: Sequence[Seat], state: s.State) -> None:
    """Refuse packets that came and were neither processed, lost nor wait."""
    for seat, row, count in zip(seats, state.tenants, state.counters, strict=True):
        if seat.program.offered_mpps is None:
            continue
        missing = int(count[s.C_ARRIVED] - count[s.C_LOST] - count[s.C_PACKETS])
        if abs(missing) > row[s.T_QUEUE_LIMIT] + row[s.T_SLOTS] + 1:
            raise SlomoError(
                f"of {count[s.C_ARRIVED]} packets of the tenant on core {seat.core} {missing} are unaccounted for",
                hint="this is a fault of the simulator; please report the call that led here",
            )


def _tenant(machine: Machine, seat: Seat, readings: Readings, counts: Totals, tenant: int) -> TenantResult:
    packets = float(readings.packets[tenant])
    count = readings.state.counters[tenant]
    throughput = packets * 1e3 / readings.span_ns
    if seat.program.offered_mpps is None:
        arrived = arrival_mpps(machine, seat.program)
        loss = max(0.0, 1.0 - throughput / arrived)
    else:
        arrived = float(count[s.C_ARRIVED]) * 1e3 / readings.span_ns
        loss = float(count[s.C_LOST]) / max(1.0, float(count[s.C_ARRIVED]))
        passed = min(arrival_mpps(machine, seat.program) / seat.program.offered_mpps, 1.0)
        loss = 1.0 - (1.0 - loss) * passed if passed < 1.0 else loss
    return TenantResult(
        throughput_mpps=throughput,
        loss=loss,
        latency_us=_latency(readings.state, tenant),
        vector=vector(machine, Scope.CORE, counts, span_ns=readings.span_ns, cores=1),
        arrived_mpps=arrived,
        instructions_per_packet=_ratio(counts.instructions, packets) or 0.0,
        cycles_per_packet=_ratio(counts.cycles, packets) or 0.0,
        l3_references_per_packet=_ratio(counts.l2_miss, packets) or 0.0,
    )


def _latency(state: s.State, tenant: int) -> dict[str, float]:
    samples = state.latency[tenant, : min(s.LATENCY_SAMPLES, int(state.tenants[tenant, s.T_SAMPLES]))]
    if samples.size == 0:
        return {}
    values = np.percentile(samples, [50, 95, 99]) / 1e3
    return {name: float(value) for name, value in zip(("p50", "p95", "p99"), values, strict=True)}
