"""The main loop: of all cores, the one with the earliest clock runs next, for a few accesses.

If cores took turns by whole packets, a shared memory channel would bias throughput. They therefore take turns after a
few accesses: a core runs until its clock is `slack` nanoseconds ahead of the next core's. docs/concepts/simulator.md
shows the error of that choice.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner, kernel
from slomo.simulator.hardware.dma import buffer_line
from slomo.simulator.hardware.hierarchy import access, expect
from slomo.simulator.hardware.lanes import natural
from slomo.simulator.programs.traffic import begin_packet, end_packet
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.state import Batches, Floats, State


@compiled
def next_line(state: State, tenant: int, structure: int, pattern: int, lines: int) -> int:
    """Choose which line of a data structure is accessed next."""
    if pattern == s.SEQUENTIAL:
        cursor = state.structures[structure, s.S_CURSOR]
        state.structures[structure, s.S_CURSOR] = cursor + 1 if cursor + 1 < lines else 0
        return cursor
    bits = next_bits(state.random, tenant)
    if pattern == s.ZIPF:
        table = state.zipf[natural(state.structures[structure, s.S_ZIPF])]
        piece = bits & (s.ZIPF_PIECES - 1)
        low, high = table[piece], table[piece + 1]
        return low + ((bits >> 10) * (high - low) >> 21) if high > low else low
    return (bits * lines) >> 31


@inner
def issue_delay(state: State, tenant: int, steps: int) -> float:
    """Return by which factor the sibling slows a hyper-thread.

    Both threads share the core's issue slots. A thread gets the slots that its sibling recently left free, at least
    half.
    """
    row, other = state.rates[tenant], state.rates[state.tenants[tenant, s.T_SIBLING]]
    elapsed = state.clock[tenant] - row[s.F_SLOTS_SINCE]
    if elapsed >= state.timing[s.X_WINDOW]:
        row[s.F_SLOTS_SHARE] = 0.5 * (row[s.F_SLOTS_SHARE] + min(1.0, row[s.F_SLOTS_USED] / elapsed))
        row[s.F_SLOTS_SINCE], row[s.F_SLOTS_USED] = state.clock[tenant], 0.0
    row[s.F_SLOTS_USED] += steps * row[s.F_GAP] * row[s.F_SLOTS]
    return max(1.0, row[s.F_SLOTS] / max(0.5, 1.0 - other[s.F_SLOTS_SHARE]))


@compiled
def work(state: State, tenant: int, structure: int, until: float) -> None:
    """Continue accessing the core's packet (structure -1) or one of the NF's data structures, up to time `until`."""
    row = state.tenants[tenant]
    gap = state.rates[tenant, s.F_GAP]
    throttle = state.rates[tenant, s.F_THROTTLE]
    remaining, writes = row[s.T_REMAINING], row[s.T_WRITES_LEFT]
    parallel, base, lines, pattern = state.rates[tenant, s.F_PACKET_MLP], 0, 0, 0
    if structure >= 0:
        structure = natural(structure)
        parallel = state.demand[structure, s.D_MLP]
        base = state.structures[structure, s.S_BASE]
        lines = state.structures[structure, s.S_LINES]
        pattern = state.structures[structure, s.S_PATTERN]
    else:
        base = buffer_line(state, tenant, row[s.T_HEAD], 0)
    if row[s.T_SIBLING] >= 0:
        gap *= issue_delay(state, tenant, 0)
    pending = row[s.T_PENDING]
    before, now = remaining, state.clock[tenant]
    while remaining > 0 and now <= until:
        if structure >= 0:
            line = natural(pending if pending >= 0 else base + next_line(state, tenant, structure, pattern, lines))
            pending = -1
            if remaining > 1:
                pending = natural(base + next_line(state, tenant, structure, pattern, lines))
                expect(state, tenant, pending)
            dirty = 1 if remaining <= writes else 0
        else:  # metadata first, then the packet's bytes; the first of them are written
            part = row[s.T_TOUCHED_LINES] + 1 - remaining
            line = natural(base + part)
            dirty = 1 if part <= row[s.T_WRITTEN_LINES] else 0
        now += gap + access(state, tenant, line, dirty, now, throttle) / parallel
        remaining -= 1
    row[s.T_REMAINING] = remaining
    row[s.T_PENDING] = pending
    state.clock[tenant] = now
    if row[s.T_SIBLING] >= 0:
        issue_delay(state, tenant, before - remaining)


@compiled
def next_structure(state: State, tenant: int) -> bool:
    """Begin the accesses to the packet's next data structure; return False after the last one.

    Fractions of accesses are carried over to the next packet.
    """
    row = state.tenants[tenant]
    structure = row[s.T_FIRST_STRUCTURE] + row[s.T_OPERATION]
    if structure >= row[s.T_LAST_STRUCTURE]:
        return False
    demand = state.demand[structure]
    demand[s.D_ACCESS_CREDIT] += demand[s.D_ACCESSES]
    demand[s.D_WRITE_CREDIT] += demand[s.D_WRITES]
    count = int(demand[s.D_ACCESS_CREDIT])
    writes = min(count, int(demand[s.D_WRITE_CREDIT]))
    demand[s.D_ACCESS_CREDIT] -= count
    demand[s.D_WRITE_CREDIT] -= writes
    row[s.T_REMAINING] = count
    row[s.T_WRITES_LEFT] = writes
    row[s.T_OPERATION] += 1
    return True


@compiled
def advance(state: State, tenant: int, until: float) -> None:
    """Run one core until its clock passes `until`."""
    row = state.tenants[tenant]
    while state.clock[tenant] <= until:
        operation = row[s.T_OPERATION]
        if operation < 0:
            begin_packet(state, tenant)
        elif row[s.T_REMAINING] == 0:
            if not next_structure(state, tenant):
                end_packet(state, tenant)
        else:
            work(state, tenant, row[s.T_FIRST_STRUCTURE] + operation - 1 if operation > 0 else -1, until)


@inner
def run_until(state: State, end: float) -> None:
    """Run all cores, earliest first, until every clock has reached `end` [ns]."""
    clock = state.clock
    slack = state.timing[s.X_SLACK]
    while True:
        tenant = 0
        earliest = clock[0]
        second = end
        for other in range(1, clock.size):
            due = clock[other]
            later = due if due > earliest else earliest
            second = later if later < second else second
            tenant = other if due < earliest else tenant
            earliest = due if due < earliest else earliest
        if earliest >= end:
            return
        advance(state, natural(tenant), min(second + slack, end))


@compiled
def packets_done(state: State, tenant: int) -> float:
    """Return how many packets a tenant has processed, with the finished share of the current one."""
    row, done = state.tenants[tenant], state.counters[tenant, s.C_PACKETS]
    total, finished = row[s.T_TOUCHED_LINES] + 1.0, 0.0
    if row[s.T_OPERATION] < 0:
        return done + 0.0
    finished = total
    for structure in range(row[s.T_FIRST_STRUCTURE], row[s.T_LAST_STRUCTURE]):
        total += state.demand[structure, s.D_ACCESSES]
        if structure < row[s.T_FIRST_STRUCTURE] + row[s.T_OPERATION]:
            finished = total
    return done + min(1.0, max(0.0, (finished - row[s.T_REMAINING]) / total))


@inner
def count_ddio_lines(state: State, lines: Floats) -> None:
    """Count each tenant's packet-buffer lines in the DDIO ways."""
    lines[:] = 0.0
    ways = 1 << state.machine[s.M_LLC_SHIFT]
    for way in range(ways):
        if (state.machine[s.M_DDIO_MASK] >> way) & 1:
            for slot in range(way, state.llc_owner.size, ways):
                owner = state.llc_owner[slot] >> 1
                if owner >= 0 and owner & 1 == 0:
                    lines[owner >> 1] += 1.0


@inner
def note(state: State, batches: Batches, row: int) -> None:
    """Write what was counted since the last batch into a row of `batches`."""
    batches.accesses[row] = 0
    for tenant in range(state.clock.size):
        for column in range(state.counters.shape[1]):
            now = state.counters[tenant, column]
            counted = now - batches.counters[-1, tenant, column]
            batches.counters[-1, tenant, column] = now
            batches.counters[row, tenant, column] = counted
            if s.C_L2_HIT <= column <= s.C_L2_MISS or s.C_RX_HIT <= column <= s.C_TX_MISS:
                batches.accesses[row] += counted
        for column in range(state.sums.shape[1]):
            batches.sums[row, tenant, column] = state.sums[tenant, column] - batches.sums[-1, tenant, column]
            batches.sums[-1, tenant, column] = state.sums[tenant, column]
        packets, clock, samples = packets_done(state, tenant), state.clock[tenant], state.tenants[tenant, s.T_SAMPLES]
        batches.packets[row, tenant] = packets - batches.packets[-1, tenant]
        batches.own_ns[row, tenant] = clock - batches.own_ns[-1, tenant]
        fresh = min(samples - batches.samples[-1, tenant], s.LATENCY_SAMPLES)
        batches.packets[-1, tenant], batches.own_ns[-1, tenant], batches.samples[-1, tenant] = packets, clock, samples
        batches.samples[row, tenant] = fresh
        for place in range(fresh):
            batches.latency_ns[row, tenant, place] = state.latency[
                tenant, (samples - fresh + place) % s.LATENCY_SAMPLES
            ]
        for kind in range(2):
            batches.held[row, 2 * tenant + kind] = state.occupancy[2 * tenant + kind]
    for channel in range(len(state.channels)):
        batches.busy_ns[row, channel] = state.channels[channel, s.H_BUSY_TOTAL] - batches.busy_ns[-1, channel]
        batches.busy_ns[-1, channel] = state.channels[channel, s.H_BUSY_TOTAL]
    count_ddio_lines(state, batches.in_ddio[row])


@kernel
def play(
    state: State, batches: Batches, first: int, last: int, now: float, step: float, end: float
) -> tuple[float, int]:
    """Simulate batches of `step` ns from time `now` on, and write their counts into rows.

    Return the time reached and the row after the last one written. The simulation stops at row `last`, or earlier once
    the time has reached `end`.
    """
    row = first
    while row < last and now < end:
        now += step
        run_until(state, now)
        note(state, batches, row)
        batches.span_ns[row] = step
        row += 1
    return now, row
