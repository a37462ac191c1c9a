"""The main loop for shared cores: the core, source or manager with the earliest time runs next, briefly.

A core takes packets from the rings of its NFs as its scheduler decides; accesses are interleaved as in
`slomo.simulator.kernel`, whose code for caches, memory and data structures is reused.

The two loops stay apart, since different things wait and act in them. In `slomo.simulator.kernel`, each NF owns its
core, card and buffers: arrivals are computed from the NF's own clock when it takes a packet, so no actor sleeps, wakes
or sends, and the choice of the earliest core is a scan of clocks. In this loop, sources, wake-ups and the manager are
actors with their own clocks, packets pass from ring to ring, and buffers belong to a chain. With one NF per core, this
loop would fill the DDIO ways with other bursts, scan more actors for each step, and lack accelerators, hyper-threads
and scaled caches.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, kernel
from slomo.simulator.kernel import next_structure, work
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.chain import dequeue, hand_on, ring_access
from slomo.simulator.sharing.cores import leave, next_of, preempt, switch_to, tick, timers
from slomo.simulator.sharing.link import packet_access
from slomo.simulator.sharing.pressure import scan
from slomo.simulator.sharing.sources import room_again, send
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State


@compiled
def begin(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Take the next packet; leave the core if there is none, the NF must yield, or the next ring is full."""
    row, times = sharing.stages[stage], sharing.core_times[core]
    if row[h.Q_DONE] and (row[h.Q_BATCH] <= 0 or row[h.Q_TAIL] == row[h.Q_HEAD]):
        for place in range(row[h.Q_DONE]):  # a whole batch, or fewer before the stage sleeps
            times[h.L_CLOCK] += hand_on(state, sharing, stage, sharing.done[stage, place], times[h.L_CLOCK])
        row[h.Q_DONE] = 0
    if row[h.Q_BATCH] <= 0:
        row[h.Q_BATCH] = int(sharing.settings[h.E_BATCH])
        if row[h.Q_YIELD]:
            leave(sharing, core, h.YIELDED)
            return
    if row[h.Q_TAIL] == row[h.Q_HEAD]:
        leave(sharing, core, h.ASLEEP)
        return
    target = row[h.Q_ONLY_NEXT]
    if row[h.Q_LOCAL] and target >= 0:
        ahead = sharing.stages[target]
        if ahead[h.Q_TAIL] - ahead[h.Q_HEAD] >= ahead[h.Q_CAPACITY]:
            ahead[h.Q_WAITERS] = 1
            row[h.Q_WAITS_FOR] = target
            leave(sharing, core, h.STUCK)
            return
    row[h.Q_BATCH] -= 1
    now, position = times[h.L_CLOCK], row[h.Q_HEAD]
    packet = dequeue(sharing, stage, now)
    chain = sharing.packets[packet, h.P_CHAIN]
    if sharing.packets[packet, h.P_HOP] == 0:
        room_again(sharing, chain, now)
    sharing.stage_times[stage, h.R_BEGUN] = now
    times[h.L_CLOCK] = now + ring_access(state, sharing, sharing.chains[chain, h.J_PORT], stage, stage, position, now)
    row[h.Q_PACKET] = packet
    state.tenants[stage, s.T_OPERATION] = 0
    state.tenants[stage, s.T_REMAINING] = state.tenants[stage, s.T_TOUCHED_LINES] + 1
    if row[h.Q_COSTS] > 1:
        state.rates[stage, s.F_GAP] = sharing.costs[stage, (next_bits(state.random, stage) * row[h.Q_COSTS]) >> 31]


@compiled
def on_packet(state: State, sharing: Sharing, core: int, stage: int, until: float) -> None:
    """Access the lines of a packet: metadata first, then bytes."""
    row, packet = state.tenants[stage], sharing.stages[stage, h.Q_PACKET]
    port = sharing.chains[sharing.packets[packet, h.P_CHAIN], h.J_PORT]
    gap, parallel, throttle = (
        state.rates[stage, s.F_GAP],
        state.rates[stage, s.F_PACKET_MLP],
        state.rates[stage, s.F_THROTTLE],
    )
    now, remaining = sharing.core_times[core, h.L_CLOCK], row[s.T_REMAINING]
    while remaining > 0 and now <= until:
        part = row[s.T_TOUCHED_LINES] + 1 - remaining
        line = sharing.packets[packet, h.P_LINE] + part
        dirty = 1 if part <= row[s.T_WRITTEN_LINES] else 0
        now += gap + packet_access(state, sharing, port, stage, line, dirty, now) * throttle / parallel
        remaining -= 1
    row[s.T_REMAINING] = remaining
    sharing.core_times[core, h.L_CLOCK] = now


@compiled
def store(sharing: Sharing, core: int, stage: int) -> None:
    """Write a packet's log into a buffer; a full buffer is written to the storage device."""
    row, times = sharing.stages[stage], sharing.stage_times[stage]
    row[h.Q_WRITTEN_B] += row[h.Q_STORAGE_B]
    if row[h.Q_WRITTEN_B] < row[h.Q_STORAGE_BUFFER_B]:
        return
    settings, now = sharing.settings, sharing.core_times[core, h.L_CLOCK]
    free = max(now, settings[h.E_STORAGE_FREE])
    settings[h.E_STORAGE_FREE] = free + row[h.Q_WRITTEN_B] * settings[h.E_STORAGE_NS_PER_B]
    done = settings[h.E_STORAGE_FREE] + settings[h.E_STORAGE_LATENCY]
    row[h.Q_WRITTEN_B] = 0
    wake = done
    if not row[h.Q_BLOCKING]:
        wake = times[h.R_OTHER_DONE]
        times[h.R_OTHER_DONE] = done
    if wake > now:
        times[h.R_WAKE] = wake
        sharing.core_times[core, h.L_TIMER] = min(sharing.core_times[core, h.L_TIMER], wake)
        leave(sharing, core, h.WRITING)


@compiled
def finish(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Add the packet to the stage's batch, record its cost, and write its log if the NF writes logs."""
    row, times = sharing.stages[stage], sharing.core_times[core]
    packet = row[h.Q_PACKET]
    row[h.Q_PACKET] = -1
    state.tenants[stage, s.T_OPERATION] = -1
    row[h.Q_PROCESSED] += 1
    sharing.done[stage, row[h.Q_DONE]] = packet
    row[h.Q_DONE] += 1
    sharing.stage_times[stage, h.R_COST] = times[h.L_CLOCK] - sharing.stage_times[stage, h.R_BEGUN]
    if row[h.Q_STORAGE_B] > 0:
        store(sharing, core, stage)


@compiled
def run_core(state: State, sharing: Sharing, core: int, until: float) -> None:
    """Run one core until its clock passes `until` or none of its NFs has work."""
    times, row = sharing.core_times[core], sharing.cores[core]
    while times[h.L_CLOCK] <= until:
        stage = row[h.K_RUNNING]
        if stage < 0 or sharing.stages[stage, h.Q_PACKET] < 0:
            if times[h.L_TIMER] <= max(times[h.L_CLOCK], until):
                timers(sharing, core)
            if stage < 0:
                if row[h.K_READY] == 0:
                    return
                switch_to(state, sharing, core, next_of(sharing, core))
                continue
            if times[h.L_NEXT_TICK] <= times[h.L_CLOCK]:
                tick(sharing, core)
            if row[h.K_RESCHEDULE]:
                row[h.K_RESCHEDULE] = 0
                if row[h.K_READY] > 0:
                    preempt(sharing, core)
                    continue
            begin(state, sharing, core, stage)
            continue
        operation = state.tenants[stage, s.T_OPERATION]
        if state.tenants[stage, s.T_REMAINING] > 0:
            if operation == 0:
                on_packet(state, sharing, core, stage, until)
            else:
                state.clock[stage] = times[h.L_CLOCK]
                work(state, stage, state.tenants[stage, s.T_FIRST_STRUCTURE] + operation - 1, until)
                times[h.L_CLOCK] = state.clock[stage]
        elif not next_structure(state, stage):
            finish(state, sharing, core, stage)


@compiled
def core_time(sharing: Sharing, core: int) -> float:
    """Return when a core can continue: now, when a write to storage finishes, or never."""
    if sharing.cores[core, h.K_RUNNING] >= 0 or sharing.cores[core, h.K_READY] > 0:
        return sharing.core_times[core, h.L_CLOCK]
    return max(sharing.core_times[core, h.L_CLOCK], sharing.core_times[core, h.L_TIMER])


@kernel
def run_shared(state: State, sharing: Sharing, end: float) -> None:
    """Run cores, sources and the manager, earliest first, until all have reached `end` [ns]."""
    cores, chains = sharing.cores.shape[0], sharing.chains.shape[0]
    while True:
        turn, earliest, second = -1, sharing.settings[h.E_NEXT_SCAN], end
        for core in range(cores):
            due = core_time(sharing, core)
            if due < earliest:
                turn, earliest, second = core, due, min(second, earliest)
            else:
                second = min(second, due)
        for chain in range(chains):
            due = sharing.chain_times[chain, h.G_NEXT]
            if sharing.settings[h.E_CARRY] > 0.0 and sharing.chains[chain, h.J_KIND] == h.CONSTANT:
                continue  # the manager brings this chain's packets
            if due < earliest:
                turn, earliest, second = cores + chain, due, min(second, earliest)
            else:
                second = min(second, due)
        if earliest >= end or earliest == h.NEVER:
            return
        slack = sharing.settings[h.E_SLACK]
        until = min(min(second, earliest + slack) + slack, end)  # other actors may be woken before this time
        if turn < 0:
            scan(state, sharing)
        elif turn < cores:
            run_core(state, sharing, turn, until)
        else:
            send(state, sharing, turn - cores, until)
