"""Convert a machine, its stages and its chains to the simulator's arrays.

Sizes are not scaled down: a ring holds the packets of a whole time slice, and a shorter ring would overflow earlier.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator import state as s
from slomo.simulator.programs.layout import Seat, StructureRows, empty_state, tenant_rows
from slomo.simulator.programs.program import LINE_B, Program
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.chain import SLOTS_PER_LINE
from slomo.simulator.sharing.settings import KINDS, Manager, Scheduler
from slomo.units import plural
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.service_chains import ChainSystem, ServiceChain

#: Additional cycles to read a line from another core's cache rather than from the LLC (Levinthal, Performance analysis
#: guide for Intel Core i7 and Xeon 5500: 75 cycles for a modified line against 40).
SNOOP_CYCLES = 35.0
#: Kernel time of a switch without its cache misses (Li, Ding and Shen, ExpCS'07, report 3.8 us with two system calls on
#: a machine of 2007; lat_ctx of lmbench gives 1.2 to 2 us on Broadwell).
SWITCH_NS = 1500.0
#: Lines that the kernel touches on a switch: run queue, two task structures, stack, timers; 6 KiB.
KERNEL_LINES = 96
#: Packets that an NF takes from its ring before it checks its flags (OpenNetVM's batch).
BATCH = 32
#: Packets of a traffic generator that would wait for the wire longer than this are lost.
WIRE_BACKLOG_NS = 10_000.0
#: Time by which a core, source or manager may run ahead of the next actor.
SLACK_NS = 200.0
_ZERO_LINE = 1


@dataclass(frozen=True)
class _Lines:
    """Where the lines of buffers, rings, data and kernel begin, and who owns them."""

    buffers: list[int]
    rings: list[int]
    kernel: list[int]
    shared: int
    owners: s.Owners


def build_shared(
    machine: Machine,
    system: ChainSystem,
    seats: Sequence[Seat],
    scheduler: Scheduler,
    manager: Manager,
    *,
    seed: int,
    wire_gbps: float | None = None,
) -> tuple[s.State, h.Sharing]:
    """Return the simulator's state before the first packet: stages on their cores, caches and queues empty."""
    cores = sorted({seat.core for seat in seats})
    everyone = _everyone(machine, system, seats, cores)
    tenants = tenant_rows(machine, everyone)
    tenants[:, s.T_SLOTS] = 1
    cards = range(len(seats), len(seats) + len(system.chains))
    tenants[:, s.T_L2] = [0 if place in cards else cores.index(seat.core) for place, seat in enumerate(everyone)]
    # buffers for full rings, a batch at every stage and one to receive; with fewer, the card would lose packets
    # uncounted
    pools = [len(chain.stages) * (system.queue_capacity + 2 * BATCH) for chain in system.chains]
    structures, lines = _lines(system, everyone, tenants, pools, cores)
    state = empty_state(machine, everyone, tenants, structures, len(cores), seed, SLACK_NS)._replace(
        line_owner=lines.owners, line_holder=np.full(lines.shared, -1, dtype=np.int16)
    )
    packets = np.zeros((sum(pools), h.P_COLUMNS), dtype=np.int64)
    packets[:, h.P_CHAIN] = np.repeat(np.arange(len(pools)), pools)
    packets[:, h.P_LINE] = np.concatenate(
        [
            first + np.arange(count) * (packet_lines(chain) + 1)
            for first, count, chain in zip(lines.buffers, pools, system.chains, strict=True)
        ]
    )
    stage_times = np.zeros((len(seats), h.R_COLUMNS))
    stage_times[:, h.R_WEIGHT] = [stage.shares for stage in system.stages]
    sharing = h.Sharing(
        settings=_settings(machine, system, scheduler, manager),
        cores=_core_rows(scheduler, cores, lines, len(seats) + len(system.chains)),
        core_times=_core_times(scheduler, len(cores)),
        stages=_stage_rows(system, seats, cores, lines, manager),
        stage_times=stage_times,
        rings=np.zeros((len(seats), system.queue_capacity), dtype=np.int64),
        done=np.zeros((len(seats), BATCH + 1), dtype=np.int64),
        costs=_costs(machine, system, seats),
        packets=packets,
        packet_times=np.zeros((len(packets), 2)),
        free=np.arange(len(packets), dtype=np.int64),
        chains=_chain_rows(system, pools, len(seats)),
        chain_times=_chain_times(machine, system, wire_gbps),
        paths=_paths(system),
        answers=np.zeros((len(system.chains), h.ANSWERS)),
        verdicts=np.zeros((len(system.chains), h.ANSWERS), dtype=np.int64),
        latency=np.zeros((len(system.chains), s.LATENCY_SAMPLES)),
        l2_sockets=np.array([machine.socket_of(core) for core in cores], dtype=np.int64),
        domain_sockets=np.arange(machine.llc_domains, dtype=np.int64) // machine.llc_domains_per_socket,
    )
    return state, sharing


def _everyone(machine: Machine, system: ChainSystem, seats: Sequence[Seat], cores: Sequence[int]) -> list[Seat]:
    """Return all owners of cache lines: stages, a network card per chain, the kernel on each core."""
    home = machine.nic_socket if system.memory_socket is None else system.memory_socket
    if not 0 <= home < machine.sockets:
        raise InvalidValueError(
            f"packet buffers on socket {home}, but '{machine.name}' has {plural(machine.sockets, 'socket')}"
        )
    nobody = Program(0.0, 1.0, 64, 0, 0, 1.0, 32, 1, None, None, ())
    card = [
        Seat(nobody, machine.nic_socket * machine.cores_per_socket, home, machine.full_way_mask, 100.0)
        for _ in system.chains
    ]
    kernel = [Seat(nobody, core, machine.socket_of(core), machine.full_way_mask, 100.0) for core in cores]
    return [*seats, *card, *kernel]


def packet_lines(chain: ServiceChain) -> int:
    """Return the cache lines of a packet's bytes."""
    return -(-chain.packet_size_b // LINE_B)


def _lines(
    system: ChainSystem, everyone: Sequence[Seat], tenants: s.Ints, pools: Sequence[int], cores: Sequence[int]
) -> tuple[tuple[s.Ints, s.Floats, s.Ints], _Lines]:
    """Assign numbers to all lines: buffers by chain, rings by stage, then data by tenant, then the kernel's lines."""
    stages, chains = len(system.stages), len(system.chains)
    counts = [_ZERO_LINE, *(pool * (packet_lines(chain) + 1) for pool, chain in zip(pools, system.chains, strict=True))]
    counts += [max(1, system.queue_capacity // SLOTS_PER_LINE)] * stages
    owners = [0, *(2 * (stages + place) for place in range(chains)), *(2 * place for place in range(stages))]
    *begins, shared = np.cumsum(counts).tolist()
    tenants[:, s.T_DATA_LINE] = line = shared
    structures = StructureRows()
    for place, seat in enumerate(everyone):
        begin, line = line, structures.add(seat.program, line)
        counts.append(line - begin)
        owners.append(2 * place + 1)
    kernel = [line + KERNEL_LINES * place for place in range(len(cores))]
    counts += [KERNEL_LINES] * len(cores)
    owners += [2 * place + 1 for place in range(len(everyone) - len(cores), len(everyone))]
    of_lines = np.repeat(np.array(owners, dtype=np.int16), counts)
    return structures.arrays(), _Lines(begins[:chains], begins[chains:], kernel, shared, of_lines)


def _settings(machine: Machine, system: ChainSystem, scheduler: Scheduler, manager: Manager) -> s.Floats:
    row = np.zeros(h.E_COLUMNS)
    row[h.E_SWITCH], row[h.E_SNOOP] = SWITCH_NS, SNOOP_CYCLES / machine.frequency_ghz
    row[h.E_SLICE], row[h.E_LATENCY] = 1e6 * scheduler.quantum_ms, 1e6 * scheduler.latency_ms
    row[h.E_GRANULARITY], row[h.E_WAKEUP] = 1e6 * scheduler.granularity_ms, 1e6 * scheduler.wakeup_ms
    row[h.E_TICK], row[h.E_SCAN] = 1e6 * scheduler.tick_ms, 1e3 * manager.scan_us
    row[h.E_NEXT_SCAN] = row[h.E_SCAN]
    row[h.E_PRESSURE], row[h.E_WAITING] = manager.pressure, 1e3 * manager.waiting_us
    mark = system.low_water + manager.mark_between * (system.high_water - system.low_water)
    row[h.E_MARK_ABOVE] = mark if manager.pressure else np.inf
    row[h.E_SMOOTHING] = manager.smoothing
    row[h.E_WIRE_BACKLOG], row[h.E_SLACK], row[h.E_BATCH] = WIRE_BACKLOG_NS, SLACK_NS, BATCH
    row[h.E_STORAGE_NS_PER_B] = 1e3 / system.storage.mb_per_s
    row[h.E_STORAGE_LATENCY] = 1e3 * system.storage.latency_us
    row[h.E_KERNEL_LINES] = KERNEL_LINES
    row[h.E_BASE_SLICE], row[h.E_CARRY] = 1e6 * scheduler.base_slice_ms, manager.carry_ns
    return row


def _core_rows(scheduler: Scheduler, cores: Sequence[int], lines: _Lines, first_kernel: int) -> s.Ints:
    rows = np.zeros((len(cores), h.K_COLUMNS), dtype=np.int64)
    rows[:, h.K_RUNNING], rows[:, h.K_LAST] = -1, -1
    rows[:, h.K_POLICY] = KINDS.index(scheduler.kind)
    rows[:, h.K_KERNEL] = first_kernel + np.arange(len(cores))
    rows[:, h.K_KERNEL_LINE] = lines.kernel
    return rows


def _core_times(scheduler: Scheduler, cores: int) -> s.Floats:
    rows = np.zeros((cores, h.L_COLUMNS))
    rows[:, h.L_CLOCK] = 7.0 * np.arange(cores)
    rows[:, h.L_MARK] = rows[:, h.L_CLOCK]
    rows[:, h.L_NEXT_TICK] = 1e6 * scheduler.tick_ms
    rows[:, h.L_TIMER] = h.NEVER
    return rows


def _stage_rows(
    system: ChainSystem, seats: Sequence[Seat], cores: Sequence[int], lines: _Lines, manager: Manager
) -> s.Ints:
    rows = np.zeros((len(seats), h.Q_COLUMNS), dtype=np.int64)
    names = [stage.name for stage in system.stages]
    rows[:, h.Q_CAPACITY] = system.queue_capacity
    rows[:, h.Q_HIGH] = int(np.floor(system.high_water * system.queue_capacity))
    rows[:, h.Q_LOW] = int(np.ceil(system.low_water * system.queue_capacity))
    rows[:, h.Q_PACKET], rows[:, h.Q_LOCAL] = -1, manager.pressure
    rows[:, h.Q_RING_LINE] = lines.rings
    for row, stage, seat in zip(rows, system.stages, seats, strict=True):
        row[h.Q_CORE], row[h.Q_COSTS] = cores.index(seat.core), max(1, len(stage.cycles))
        row[h.Q_STATE] = h.ASLEEP
        row[h.Q_POLLS] = manager.carry_ns == 0.0 and sum(other.core == seat.core for other in seats) == 1
        after = {
            chain.stages[place + 1] if place + 1 < len(chain.stages) else None
            for chain in system.chains
            for place, name in enumerate(chain.stages)
            if name == stage.name
        }
        only = after.pop() if len(after) == 1 else None
        row[h.Q_ONLY_NEXT] = -1 if only is None else names.index(only)
        if stage.storage is not None:
            row[h.Q_STORAGE_B], row[h.Q_BLOCKING] = stage.storage.bytes_per_packet, stage.storage.blocking
            row[h.Q_STORAGE_BUFFER_B] = max(1, round(stage.storage.buffer_b))
    return rows


def _costs(machine: Machine, system: ChainSystem, seats: Sequence[Seat]) -> s.Floats:
    """Return the computing time of each stage per access to a cache line [ns].

    If a stage has several costs, each of its packets gets one of them at random.
    """
    rows = np.zeros((len(seats), max(1, *(len(stage.cycles) for stage in system.stages))))
    for row, stage, seat in zip(rows, system.stages, seats, strict=True):
        costs = np.array(stage.cycles or (seat.program.compute_cycles,))
        row[: costs.size] = costs / machine.frequency_ghz / seat.program.accesses
    return rows


def _chain_rows(system: ChainSystem, pools: Sequence[int], first_port: int) -> s.Ints:
    rows = np.zeros((len(system.chains), h.J_COLUMNS), dtype=np.int64)
    rows[:, h.J_PORT] = first_port + np.arange(len(rows))
    rows[:, h.J_BUFFERS], rows[:, h.J_FREE_TAIL] = pools, pools
    rows[:, h.J_FREE_BASE] = np.cumsum([0, *pools[:-1]])
    for row, chain in zip(rows, system.chains, strict=True):
        row[h.J_HOPS], row[h.J_LINES] = len(chain.stages), packet_lines(chain)
        row[h.J_KIND] = h.RESPONSIVE if chain.responsive else h.SATURATING if chain.mpps is None else h.CONSTANT
    return rows


def _chain_times(machine: Machine, system: ChainSystem, wire_gbps: float | None) -> s.Floats:
    rows = np.zeros((len(system.chains), h.G_COLUMNS))
    for place, (row, chain) in enumerate(zip(rows, system.chains, strict=True)):
        on_port = 1e3 / machine.line_rate_mpps(chain.packet_size_b)
        row[h.G_WIRE] = on_port if wire_gbps is None else on_port * machine.nic_gbps / wire_gbps
        row[h.G_INTERVAL] = on_port if chain.mpps is None else max(on_port, 1e3 / chain.mpps)
        row[h.G_FROM], row[h.G_TO] = 1e6 * chain.from_ms, 1e6 * chain.to_ms
        row[h.G_NEXT] = row[h.G_FROM] + row[h.G_INTERVAL] * (place + 1) / (len(rows) + 1)
        row[h.G_NEXT_SEND], row[h.G_LAST_SENT] = row[h.G_NEXT], row[h.G_FROM] - row[h.G_INTERVAL]
        row[h.G_WINDOW], row[h.G_THRESHOLD] = 10.0, h.MOST_WINDOW
        row[h.G_ROUND_TRIP] = 1e3 * chain.rtt_us
    return rows


def _paths(system: ChainSystem) -> s.Ints:
    names = [stage.name for stage in system.stages]
    paths = np.full((len(system.chains), max(len(chain.stages) for chain in system.chains)), -1, dtype=np.int64)
    for path, chain in zip(paths, system.chains, strict=True):
        path[: len(chain.stages)] = [names.index(name) for name in chain.stages]
    return paths
