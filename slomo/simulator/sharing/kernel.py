"""The event loop of shared cores: the core, source or manager with the earliest time runs next, briefly.

A core takes packets from the rings of its NFs as its scheduler decides; accesses are interleaved as in
`slomo.simulator.kernel`, whose code for data structures is reused.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, kernel
from slomo.simulator.kernel import next_structure, work
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.sharing.chain import dequeue, hand_on, ring_access
from slomo.simulator.sharing.cores import leave, next_of, preempt, switch_to, tick, timers
from slomo.simulator.sharing.link import packet_access
from slomo.simulator.sharing.pressure import scan
from slomo.simulator.sharing.sources import room_again, send
from slomo.simulator.sharing.state import (
    ASLEEP,
    CONSTANT,
    E_BATCH,
    E_CARRY,
    E_NEXT_SCAN,
    E_SLACK,
    E_STORAGE_FREE,
    E_STORAGE_LATENCY,
    E_STORAGE_NS_PER_B,
    G_NEXT,
    J_KIND,
    J_PORT,
    K_READY,
    K_RESCHEDULE,
    K_RUNNING,
    L_CLOCK,
    L_NEXT_TICK,
    L_TIMER,
    NEVER,
    P_CHAIN,
    P_HOP,
    P_LINE,
    Q_BATCH,
    Q_BLOCKING,
    Q_CAPACITY,
    Q_COSTS,
    Q_DONE,
    Q_HEAD,
    Q_LOCAL,
    Q_ONLY_NEXT,
    Q_PACKET,
    Q_PROCESSED,
    Q_STORAGE_B,
    Q_STORAGE_BUFFER_B,
    Q_TAIL,
    Q_WAITERS,
    Q_WAITS_FOR,
    Q_WRITTEN_B,
    Q_YIELD,
    R_BEGUN,
    R_COST,
    R_OTHER_DONE,
    R_WAKE,
    STUCK,
    WRITING,
    YIELDED,
    Sharing,
)
from slomo.simulator.state import (
    F_GAP,
    F_PACKET_MLP,
    F_THROTTLE,
    T_FIRST_STRUCTURE,
    T_OPERATION,
    T_REMAINING,
    T_TOUCHED_LINES,
    T_WRITTEN_LINES,
    State,
)


@compiled
def flush(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Pass on a stage's finished packets: a batch, or fewer before it goes to sleep."""
    times = sharing.core_times[core]
    for place in range(sharing.stages[stage, Q_DONE]):
        times[L_CLOCK] += hand_on(state, sharing, stage, sharing.done[stage, place], times[L_CLOCK])
    sharing.stages[stage, Q_DONE] = 0


@compiled
def begin(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Take the next packet, or leave the core: no packet, told to yield, or no room for the result."""
    row, times = sharing.stages[stage], sharing.core_times[core]
    if row[Q_DONE] and (row[Q_BATCH] <= 0 or row[Q_TAIL] == row[Q_HEAD]):
        flush(state, sharing, core, stage)
    if row[Q_BATCH] <= 0:
        row[Q_BATCH] = int(sharing.settings[E_BATCH])
        if row[Q_YIELD]:
            leave(sharing, core, YIELDED)
            return
    if row[Q_TAIL] == row[Q_HEAD]:
        leave(sharing, core, ASLEEP)
        return
    target = row[Q_ONLY_NEXT]
    if row[Q_LOCAL] and target >= 0:
        ahead = sharing.stages[target]
        if ahead[Q_TAIL] - ahead[Q_HEAD] >= ahead[Q_CAPACITY]:
            ahead[Q_WAITERS] = 1
            row[Q_WAITS_FOR] = target
            leave(sharing, core, STUCK)
            return
    row[Q_BATCH] -= 1
    now, position = times[L_CLOCK], row[Q_HEAD]
    packet = dequeue(sharing, stage, now)
    chain = sharing.packets[packet, P_CHAIN]
    if sharing.packets[packet, P_HOP] == 0:
        room_again(sharing, chain, now)
    sharing.stage_times[stage, R_BEGUN] = now
    times[L_CLOCK] = now + ring_access(state, sharing, sharing.chains[chain, J_PORT], stage, stage, position, now)
    row[Q_PACKET] = packet
    state.tenants[stage, T_OPERATION] = 0
    state.tenants[stage, T_REMAINING] = state.tenants[stage, T_TOUCHED_LINES] + 1
    if row[Q_COSTS] > 1:
        state.rates[stage, F_GAP] = sharing.costs[stage, (next_bits(state.random, stage) * row[Q_COSTS]) >> 31]


@compiled
def on_packet(state: State, sharing: Sharing, core: int, stage: int, until: float) -> None:
    """Touch the packet's lines: metadata first, then bytes; the first ones are written."""
    row, packet = state.tenants[stage], sharing.stages[stage, Q_PACKET]
    port = sharing.chains[sharing.packets[packet, P_CHAIN], J_PORT]
    gap, parallel, throttle = (
        state.rates[stage, F_GAP],
        state.rates[stage, F_PACKET_MLP],
        state.rates[stage, F_THROTTLE],
    )
    now, remaining = sharing.core_times[core, L_CLOCK], row[T_REMAINING]
    while remaining > 0 and now <= until:
        part = row[T_TOUCHED_LINES] + 1 - remaining
        line = sharing.packets[packet, P_LINE] + part
        dirty = 1 if part <= row[T_WRITTEN_LINES] else 0
        now += gap + packet_access(state, sharing, port, stage, line, dirty, now) * throttle / parallel
        remaining -= 1
    row[T_REMAINING] = remaining
    sharing.core_times[core, L_CLOCK] = now


@compiled
def store(sharing: Sharing, core: int, stage: int) -> None:
    """Log a packet: a full buffer goes to the device; an NF that blocks, or has filled both its buffers, waits."""
    row, times = sharing.stages[stage], sharing.stage_times[stage]
    row[Q_WRITTEN_B] += row[Q_STORAGE_B]
    if row[Q_WRITTEN_B] < row[Q_STORAGE_BUFFER_B]:
        return
    settings, now = sharing.settings, sharing.core_times[core, L_CLOCK]
    free = max(now, settings[E_STORAGE_FREE])
    settings[E_STORAGE_FREE] = free + row[Q_WRITTEN_B] * settings[E_STORAGE_NS_PER_B]
    done = settings[E_STORAGE_FREE] + settings[E_STORAGE_LATENCY]
    row[Q_WRITTEN_B] = 0
    wake = done
    if not row[Q_BLOCKING]:
        wake = times[R_OTHER_DONE]
        times[R_OTHER_DONE] = done
    if wake > now:
        times[R_WAKE] = wake
        sharing.core_times[core, L_TIMER] = min(sharing.core_times[core, L_TIMER], wake)
        leave(sharing, core, WRITING)


@compiled
def finish(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Add the packet to its batch, record its cost, and log it if the NF logs."""
    row, times = sharing.stages[stage], sharing.core_times[core]
    packet = row[Q_PACKET]
    row[Q_PACKET] = -1
    state.tenants[stage, T_OPERATION] = -1
    row[Q_PROCESSED] += 1
    sharing.done[stage, row[Q_DONE]] = packet
    row[Q_DONE] += 1
    sharing.stage_times[stage, R_COST] = times[L_CLOCK] - sharing.stage_times[stage, R_BEGUN]
    if row[Q_STORAGE_B] > 0:
        store(sharing, core, stage)


@compiled
def run_core(state: State, sharing: Sharing, core: int, until: float) -> None:
    """Run one core until its clock passes `until` or none of its NFs has work."""
    times, row = sharing.core_times[core], sharing.cores[core]
    while times[L_CLOCK] <= until:
        stage = row[K_RUNNING]
        if stage < 0 or sharing.stages[stage, Q_PACKET] < 0:
            if times[L_TIMER] <= max(times[L_CLOCK], until):
                timers(sharing, core)
            if stage < 0:
                if row[K_READY] == 0:
                    return
                switch_to(state, sharing, core, next_of(sharing, core))
                continue
            if times[L_NEXT_TICK] <= times[L_CLOCK]:
                tick(sharing, core)
            if row[K_RESCHEDULE]:
                row[K_RESCHEDULE] = 0
                if row[K_READY] > 0:
                    preempt(sharing, core)
                    continue
            begin(state, sharing, core, stage)
            continue
        operation = state.tenants[stage, T_OPERATION]
        if state.tenants[stage, T_REMAINING] > 0:
            if operation == 0:
                on_packet(state, sharing, core, stage, until)
            else:
                state.clock[stage] = times[L_CLOCK]
                work(state, stage, state.tenants[stage, T_FIRST_STRUCTURE] + operation - 1, until)
                times[L_CLOCK] = state.clock[stage]
        elif not next_structure(state, stage):
            finish(state, sharing, core, stage)


@compiled
def core_time(sharing: Sharing, core: int) -> float:
    """Return when a core continues: now, when a write finishes, or never."""
    if sharing.cores[core, K_RUNNING] >= 0 or sharing.cores[core, K_READY] > 0:
        return sharing.core_times[core, L_CLOCK]
    return max(sharing.core_times[core, L_CLOCK], sharing.core_times[core, L_TIMER])


@kernel
def run_shared(state: State, sharing: Sharing, end: float) -> None:
    """Run cores, sources and the manager, earliest first, until all have reached `end` [ns]."""
    cores, chains = sharing.cores.shape[0], sharing.chains.shape[0]
    while True:
        turn, earliest, second = -1, sharing.settings[E_NEXT_SCAN], end
        for core in range(cores):
            due = core_time(sharing, core)
            if due < earliest:
                turn, earliest, second = core, due, min(second, earliest)
            else:
                second = min(second, due)
        for chain in range(chains):
            due = sharing.chain_times[chain, G_NEXT]
            if sharing.settings[E_CARRY] > 0.0 and sharing.chains[chain, J_KIND] == CONSTANT:
                continue  # the manager brings them
            if due < earliest:
                turn, earliest, second = cores + chain, due, min(second, earliest)
            else:
                second = min(second, due)
        if earliest >= end or earliest == NEVER:
            return
        slack = sharing.settings[E_SLACK]
        until = min(min(second, earliest + slack) + slack, end)  # whoever sleeps may be woken on the way
        if turn < 0:
            scan(state, sharing)
        elif turn < cores:
            run_core(state, sharing, turn, until)
        else:
            send(state, sharing, turn - cores, until)
