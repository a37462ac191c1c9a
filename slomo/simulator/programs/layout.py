"""Convert a machine and its tenants (NFs) to the simulator's arrays; scale all sizes down together if asked.

Cache sets, footprints and packet buffers shrink by the same factor, so reuse distances keep their ratio to cache sizes
(set sampling: Kessler, Hill and Wood, IEEE ToC 43(6), 1994). Rates, latencies and bandwidths are not scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator import state as s
from slomo.simulator.hardware.cache import empty_cache, shift_of
from slomo.simulator.programs.program import LINE_B, Program
from slomo.simulator.random_numbers import seeded
from slomo.units import plural
from slomo.vocabulary.machine import Machine

#: Memory speed over load, fitted by benchmarks/memory_fit.py; one curve for every machine. Its shape is that of ResQ
#: (NSDI'18) Fig. 3: linear to about 90 % load, then steep to 40 % of the unloaded speed. Its slope is that of Intel's
#: Memory Latency Checker on a Silver 4110 with six channels per socket (community.intel.com, thread 1126268).
SPEED_KNEE, SPEED_AT_KNEE, SPEED_FULL = 0.9, 0.57, 0.4
#: Window over which utilisation is averaged to set the latency; the queues of memory controllers turn over in about 1
#: us.
WINDOW_NS = 2000.0
#: Backlog that fits into a memory controller's queues, about 100 lines; its delay is part of the curve above.
BUFFERED_NS = 200.0
#: Instructions per cycle of a core that polls its empty ring: a loop of loads and a predicted branch.
POLL_IPC = 1.5
#: Largest number of a core's lines in flight, those of its prefetcher included (ResQ, NSDI'18, section 4.2: 12 GB/s).
#: If a prefetcher is simulated, the core's line-fill buffers limit its demand misses (Intel's Optimization Reference
#: Manual).
CORE_LINES, FILL_BUFFERS = 20.0, 10.0
#: How far a core's clock may run ahead of the next core's; docs/concepts/simulator.md has the error of this choice.
SLACK_NS = 100.0
#: Coarsest scale, and least number of packets that the scaled DDIO ways must hold; docs/concepts/simulator.md has the
#: errors.
COARSEST, PACKETS_IN_DDIO = 16, 300


@dataclass(frozen=True)
class Seat:
    """A tenant's program, core, memory, cache ways and throttle."""

    program: Program
    core: int
    memory_socket: int
    way_mask: int
    mba_percent: float


def seat_of(
    machine: Machine,
    name: str,
    program: Program,
    core: int,
    way_mask: int | None = None,
    mba_percent: float | None = None,
    memory_socket: int | None = None,
) -> Seat:
    """Return on which core, ways and memory a program runs; by default it has all ways and full bandwidth.

    Raises InvalidValueError, naming `name`, for a core, way mask, throttle or socket that the machine does not have.
    """
    own_socket = machine.socket_of(core)
    mask = machine.full_way_mask if way_mask is None else way_mask
    if not 0 < mask <= machine.full_way_mask:
        raise InvalidValueError(f"{name}: way mask {mask:#x}, but '{machine.name}' has {machine.llc_ways} ways")
    percent = 100.0 if mba_percent is None else float(mba_percent)
    if not 10.0 <= percent <= 100.0:
        raise InvalidValueError(f"{name}: memory bandwidth throttle is {percent:g} %, needed 10 to 100 %")
    home = own_socket if memory_socket is None else memory_socket
    if not 0 <= home < machine.sockets:
        raise InvalidValueError(
            f"{name}: memory socket {home}, but '{machine.name}' has {plural(machine.sockets, 'socket')}"
        )
    return Seat(program, core, home, mask, percent)


def _empty_caches(machine: Machine, sets: Sequence[int], private: int) -> dict[str, Any]:
    """Return the empty caches of a `State`: LLCs of ``sets[0]`` sets and `private` L2 caches of ``sets[1]`` sets."""
    shared, own = machine.llc_domains * sets[0], private * sets[1]
    streams = int(machine.l2_prefetcher == "stream")
    llc, l2 = empty_cache(shared, machine.llc_ways), empty_cache(own, machine.l2_ways)
    followed = empty_cache(private * streams, s.LANES)
    return {
        **dict(zip(("llc", "llc_stamps", "llc_clock"), llc, strict=True)),
        "llc_duel": np.zeros((machine.llc_domains, 2), dtype=np.int64),
        "llc_owner": np.full(llc[0].size, -1, dtype=np.int16),
        **dict(zip(("l2", "l2_stamps", "l2_clock"), l2, strict=True)),
        "l2_flags": np.zeros(l2[0].size, dtype=np.uint8),
        "l2_ready": np.zeros(l2[0].size * streams),
        **dict(zip(("streams", "stream_stamps", "stream_clock"), followed, strict=True)),
        "stream_ends": np.zeros((followed[0].size, s.P_COLUMNS), dtype=np.int64),
        "in_flight": np.zeros((private * streams, s.IN_FLIGHT)),
    }


def scale_of(machine: Machine, seats: Sequence[Seat]) -> int:
    """Return the coarsest scale at which the DDIO ways hold enough of the tenants' largest packets."""
    ways = machine.ddio_way_mask.bit_count()
    if not ways:
        return COARSEST
    lines = machine.llc_mib * 2**20 / LINE_B / machine.llc_ways * ways
    packets = lines / (1 + max(seat.program.data_lines for seat in seats))
    return max(1, min(COARSEST, int(packets / PACKETS_IN_DDIO)))


def build(
    machine: Machine,
    seats: Sequence[Seat],
    *,
    seed: int,
    scale: int,
    slack_ns: float = SLACK_NS,
    port_gbps: float | None = None,
) -> s.State:
    """Return the simulator's state before the first packet: tenants on their cores, all caches empty."""
    tenants = _scaled_rows(machine, seats, scale)
    structures = _structure_rows(machine, seats, tenants, scale)
    state = empty_state(machine, seats, tenants, structures, len(seats), seed, slack_ns, scale, port_gbps)
    for tenant in range(len(seats)):  # equal tenants begin at different points, so that they do not run in step
        first, last = tenants[tenant, s.T_FIRST_STRUCTURE], tenants[tenant, s.T_LAST_STRUCTURE]
        state.demand[first:last, s.D_ACCESS_CREDIT] = (0.37 * (tenant + 1)) % 1.0
        state.clock[tenant] = 7.0 * tenant
    return state


def empty_state(
    machine: Machine,
    seats: Sequence[Seat],
    tenants: s.Ints,
    structures: tuple[s.Ints, s.Floats, s.Ints],
    private: int,
    seed: int,
    slack_ns: float,
    scale: int = 1,
    port_gbps: float | None = None,
) -> s.State:
    """Return a state with all caches and queues empty; `private` is the number of L2 caches in use."""
    sets = [
        max(1, round(size_b / LINE_B / ways / scale))
        for size_b, ways in ((machine.llc_mib * 2**20, machine.llc_ways), (machine.l2_kib * 2**10, machine.l2_ways))
    ]
    numbers, demand, zipf = structures
    queue = int((tenants[:, s.T_QUEUE_LIMIT] + tenants[:, s.T_SLOTS] + tenants[:, s.T_DELAY]).max()) + 1
    count = len(seats)
    return s.State(
        machine=_machine_row(machine, sets),
        timing=_timing_row(machine, slack_ns),
        **_empty_caches(machine, sets, private),
        tenants=tenants,
        rates=_rate_rows(machine, seats, tenants),
        clock=np.zeros(count),
        random=seeded(seed, count),
        structures=numbers,
        demand=demand,
        zipf=zipf,
        arrivals=np.zeros((count, queue)),
        latency=np.zeros((count, s.LATENCY_SAMPLES)),
        occupancy=np.zeros(2 * count, dtype=np.int64),
        counters=np.zeros((count, s.C_COLUMNS), dtype=np.int64),
        sums=np.zeros((count, s.A_COLUMNS)),
        channels=_channel_rows(machine, seats, port_gbps),
        queued=np.zeros((count, s.ACCELERATOR_SLOTS)),
        requests=np.zeros((count, s.ACCELERATOR_SLOTS), dtype=np.int64),
        line_owner=np.zeros(0, dtype=np.int16),
        line_holder=np.zeros(0, dtype=np.int16),
    )


def _machine_row(machine: Machine, sets: Sequence[int]) -> tuple[int, ...]:
    """Return the machine's sizes as a row of numbers."""
    row = [0] * s.M_COLUMNS
    row[s.M_LLC_SETS], row[s.M_L2_SETS] = sets
    row[s.M_LLC_WAYS], row[s.M_L2_MASK] = machine.llc_ways, (1 << machine.l2_ways) - 1
    row[s.M_INCLUSIVE] = machine.llc_policy == "inclusive"
    row[s.M_DDIO_MASK] = machine.ddio_way_mask
    row[s.M_SOCKETS] = machine.sockets
    row[s.M_MOVED_MASK] = machine.ddio_moved_way_mask
    row[s.M_ADAPTIVE] = machine.llc_insertion == "adaptive"
    row[s.M_PREFETCH] = machine.l2_prefetcher == "stream"
    row[s.M_LLC_SHIFT], row[s.M_L2_SHIFT] = shift_of(machine.llc_ways), shift_of(machine.l2_ways)
    return tuple(int(number) for number in row)


def _timing_row(machine: Machine, slack_ns: float) -> tuple[float, ...]:
    """Return the machine's latencies [ns] as a row of numbers."""
    row = [0.0] * s.X_COLUMNS
    row[s.X_L2_HIT], row[s.X_LLC_HIT] = machine.l2_hit_ns, machine.llc_hit_ns
    row[s.X_DRAM_LOCAL], row[s.X_DRAM_REMOTE] = machine.dram_local_ns, machine.dram_remote_ns
    row[s.X_WINDOW], row[s.X_SLACK], row[s.X_BUFFERED] = WINDOW_NS, slack_ns, BUFFERED_NS
    row[s.X_POLL_SLOTS] = POLL_IPC / machine.issue_width
    row[s.X_KNEE], row[s.X_SPEED_AT_KNEE], row[s.X_SPEED_FULL] = SPEED_KNEE, SPEED_AT_KNEE, SPEED_FULL
    return tuple(float(number) for number in row)


def tenant_rows(machine: Machine, seats: Sequence[Seat]) -> s.Ints:
    """Return each tenant's core, caches and packet lines as rows of numbers."""
    rows = np.zeros((len(seats), s.T_COLUMNS), dtype=np.int64)
    rows[:, s.T_PENDING] = -1
    rows[:, s.T_L2], rows[:, s.T_SIBLING] = np.arange(len(seats)), -1
    first = 0
    for row, seat in zip(rows, seats, strict=True):
        program, socket = seat.program, machine.socket_of(seat.core)
        row[s.T_DOMAIN], row[s.T_SOCKET] = machine.llc_domain_of(seat.core), socket
        row[s.T_MEMORY_SOCKET], row[s.T_WAY_MASK] = seat.memory_socket, seat.way_mask
        row[s.T_OPERATION] = -1
        row[s.T_FIRST_STRUCTURE], row[s.T_LAST_STRUCTURE] = first, first + len(program.structures)
        first += len(program.structures)
        row[s.T_TOUCHED_LINES], row[s.T_WRITTEN_LINES] = program.touched_lines, program.written_lines
        row[s.T_NIC_LOCAL] = socket == machine.nic_socket and seat.memory_socket == socket
        row[s.T_ACCELERATOR] = -1
    return rows


def _scaled_rows(machine: Machine, seats: Sequence[Seat], scale: int) -> s.Ints:
    """Return each tenant's ring and packet buffers as rows of numbers, scaled down."""
    rows, names = tenant_rows(machine, seats), _accelerators(seats)
    for one, other in siblings(machine, seats).items():
        rows[one, s.T_L2], rows[one, s.T_SIBLING] = min(one, other), other
    for row, seat in zip(rows, seats, strict=True):
        program = seat.program
        row[s.T_SLOTS] = max(4, round(program.packet_buffers / scale))
        row[s.T_DATA_LINES], row[s.T_QUEUE_LIMIT] = program.data_lines, program.packet_buffers
        row[s.T_SATURATED] = program.offered_mpps is None
        # the same share of the scaled ring; at a given load it delays packets as long as the unscaled burst
        row[s.T_BURST] = max(1, min(round(program.burst / scale), int(row[s.T_SLOTS]) // 4))
        whole = max(1, min(program.burst, program.packet_buffers // 4))
        row[s.T_DELAY] = row[s.T_BURST] if row[s.T_SATURATED] else whole
        if program.accelerator is not None:
            row[s.T_ACCELERATOR] = machine.sockets + 1 + names.index(program.accelerator.name)
            # packets at the accelerator and in the outgoing burst must leave half of the ring for receiving
            row[s.T_DEPTH] = max(1, min(program.accelerator.depth, int(row[s.T_SLOTS]) // 4))
    return rows


def siblings(machine: Machine, seats: Sequence[Seat]) -> dict[int, int]:
    """Return, for each tenant whose sibling hyper-thread runs a tenant too, that other tenant, by places in `seats`."""
    place_of = {seat.core: place for place, seat in enumerate(seats)}
    pairs = ((place, place_of.get(seat.core ^ 1)) for place, seat in enumerate(seats) if machine.threads_per_core == 2)
    return {place: other for place, other in pairs if other is not None}


def _lines_in_flight(machine: Machine, seats: Sequence[Seat]) -> list[float]:
    """Return each tenant's largest number of lines in flight; a hyper-thread with a sibling gets half of its core's."""
    alone, shared = (FILL_BUFFERS, FILL_BUFFERS) if machine.l2_prefetcher == "stream" else (math.inf, CORE_LINES)
    beside = siblings(machine, seats)
    return [0.5 * shared if place in beside else alone for place in range(len(seats))]


def _accelerators(seats: Sequence[Seat]) -> list[str]:
    return sorted({seat.program.accelerator.name for seat in seats if seat.program.accelerator is not None})


def _rate_rows(machine: Machine, seats: Sequence[Seat], tenants: s.Ints) -> s.Floats:
    """Return each tenant's costs per packet and its packet arrivals as rows of numbers."""
    rows = np.zeros((len(seats), s.F_COLUMNS))
    for row, seat, numbers, most in zip(rows, seats, tenants, _lines_in_flight(machine, seats), strict=True):
        program = seat.program
        row[s.F_SLOTS] = min(1.0, program.instructions / max(1e-9, program.compute_cycles) / machine.issue_width)
        row[s.F_GAP] = program.compute_cycles / machine.frequency_ghz / program.accesses
        row[s.F_PACKET_MLP] = min(program.packet_mlp, most)
        row[s.F_INTERARRIVAL] = 1e3 / arrival_mpps(machine, program)
        row[s.F_WIRE_BITS] = program.wire_bits
        row[s.F_THROTTLE] = 100.0 / seat.mba_percent
        if program.accelerator is not None:
            row[s.F_ACCELERATOR] = program.accelerator.service_ns
            row[s.F_REQUESTS] = program.accelerator.requests
        # a packet waits for the whole ring at saturation; its wait in the scaled ring is multiplied by this factor
        saturated = program.offered_mpps is None
        row[s.F_RING_FACTOR] = program.packet_buffers / numbers[s.T_SLOTS] if saturated else 1.0
    return rows


def arrival_mpps(machine: Machine, program: Program) -> float:
    """Return the packets that reach a tenant's ports [Mpps]: its offered load, at most one port's line rate."""
    line_rate = machine.line_rate_mpps(program.packet_size_b)
    return line_rate if program.offered_mpps is None else min(line_rate, program.offered_mpps)


def _most_gbps(machine: Machine, program: Program) -> float:
    """Return an upper bound on a tenant's use of the wire [Gbit/s]: its rate without L2 misses, or its offered load."""
    inside = sum((item.reads + item.writes) / item.mlp for item in program.structures)
    inside += (program.touched_lines + 1.0) / program.packet_mlp
    work_ns = program.compute_cycles / machine.frequency_ghz + inside * machine.l2_hit_ns
    saturated_mpps = min(arrival_mpps(machine, program), 1e3 / work_ns)
    return 1e-3 * program.wire_bits * (saturated_mpps if program.offered_mpps is None else program.offered_mpps)


class StructureRows:
    """The tenants' data structures as rows of numbers."""

    def __init__(self) -> None:
        self._numbers: list[s.Ints] = []
        self._demand: list[list[float]] = []
        self._tables: list[s.Ints] = [np.zeros(s.ZIPF_PIECES + 1, dtype=np.int64)]

    def add(self, program: Program, line: int, scale: int = 1, most_in_flight: float = math.inf) -> int:
        """Assign lines from `line` on to a program's data; return the next free line."""
        for item in sorted(program.structures, key=lambda each: (each.reads + each.writes) / each.size_b):
            lines = max(1, round(item.size_b / LINE_B / scale))
            row = np.zeros(s.S_COLUMNS, dtype=np.int64)
            row[s.S_BASE], row[s.S_LINES] = line, lines
            row[s.S_PATTERN] = {"sequential": s.SEQUENTIAL, "zipf": s.ZIPF}.get(item.pattern, s.RANDOM)
            if item.pattern == "zipf":
                row[s.S_ZIPF] = len(self._tables)
                self._tables.append(zipf_table(lines, item.zipf_exponent))
            self._numbers.append(row)
            self._demand.append([item.reads + item.writes, item.writes, min(item.mlp, most_in_flight), 0.0, 0.0])
            line += lines
        return line

    def arrays(self) -> tuple[s.Ints, s.Floats, s.Ints]:
        """Return the rows, and tables for Zipf-distributed accesses."""
        return (
            np.array(self._numbers, dtype=np.int64).reshape(-1, s.S_COLUMNS),
            np.array(self._demand, dtype=np.float64).reshape(-1, s.D_COLUMNS),
            np.stack(self._tables),
        )


def _structure_rows(
    machine: Machine, seats: Sequence[Seat], tenants: s.Ints, scale: int
) -> tuple[s.Ints, s.Floats, s.Ints]:
    """Assign numbers to all lines: by tenant, packet buffers first, then structures from rarely to often used."""
    structures, line = StructureRows(), 0
    for seat, tenant, most in zip(seats, tenants, _lines_in_flight(machine, seats), strict=True):
        tenant[s.T_FIRST_LINE] = line
        line += int(tenant[s.T_SLOTS] * (tenant[s.T_DATA_LINES] + 1))
        tenant[s.T_DATA_LINE] = line
        line = structures.add(seat.program, line, scale, most)
        tenant[s.T_END_LINE] = line
    if line >= 2**31:
        raise InvalidValueError(
            f"the tenants' data are {line} lines, needed below 2**31", hint="use a larger scale or less data"
        )
    return structures.arrays()


def zipf_table(lines: int, exponent: float) -> s.Ints:
    """Return the inverse distribution function of a Zipf law over `lines` lines, at equal steps of probability."""
    weight = np.arange(1, lines + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weight) / weight.sum()
    edges = np.arange(1, s.ZIPF_PIECES) / s.ZIPF_PIECES
    inside = np.searchsorted(cumulative, edges, side="right")
    return np.concatenate(([0], inside, [lines])).astype(np.int64)


def _channel_rows(machine: Machine, seats: Sequence[Seat], port_gbps: float | None) -> s.Floats:
    """Return each socket's memory channels, link, accelerators and ports, all idle."""
    rows = np.zeros((machine.sockets + 2 + len(_accelerators(seats)), s.H_COLUMNS))
    rows[:, s.H_FACTOR] = 1.0
    rows[: machine.sockets, s.H_SERVICE] = LINE_B / machine.usable_memory_gb_s
    rows[machine.sockets, s.H_SERVICE] = LINE_B / machine.link_gb_s
    wire_gbps = machine.shared_wire_gbps(port_gbps)
    if sum(_most_gbps(machine, seat.program) for seat in seats) > wire_gbps:
        rows[-1, s.H_SERVICE] = 1.0 / wire_gbps  # ns per bit; 0 if the tenants cannot fill the wire
    return rows
