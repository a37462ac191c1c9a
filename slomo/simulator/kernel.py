"""The many-core loop: the core with the earliest clock runs next, for a few accesses.

Interleaving whole packets against a shared memory channel biases throughput, so cores are interleaved by accesses: a
core runs until it is `slack` nanoseconds ahead of the next one. docs/concepts/simulator.md shows the error of that
choice.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner, kernel
from slomo.simulator.hardware.dma import buffer_line
from slomo.simulator.hardware.hierarchy import access, expect
from slomo.simulator.hardware.lanes import natural
from slomo.simulator.programs.traffic import begin_packet, end_packet
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.state import (
    D_ACCESS_CREDIT,
    D_ACCESSES,
    D_MLP,
    D_WRITE_CREDIT,
    D_WRITES,
    F_GAP,
    F_PACKET_MLP,
    F_SLOTS,
    F_SLOTS_SHARE,
    F_SLOTS_SINCE,
    F_SLOTS_USED,
    F_THROTTLE,
    S_BASE,
    S_CURSOR,
    S_LINES,
    S_PATTERN,
    S_ZIPF,
    SEQUENTIAL,
    T_FIRST_STRUCTURE,
    T_HEAD,
    T_LAST_STRUCTURE,
    T_OPERATION,
    T_PENDING,
    T_REMAINING,
    T_SIBLING,
    T_TOUCHED_LINES,
    T_WRITES_LEFT,
    T_WRITTEN_LINES,
    X_SLACK,
    X_WINDOW,
    ZIPF,
    ZIPF_PIECES,
    State,
)


@compiled
def next_line(state: State, tenant: int, structure: int, pattern: int, lines: int) -> int:
    """Choose the next line of a data structure to access."""
    if pattern == SEQUENTIAL:
        cursor = state.structures[structure, S_CURSOR]
        state.structures[structure, S_CURSOR] = cursor + 1 if cursor + 1 < lines else 0
        return cursor
    bits = next_bits(state.random, tenant)
    if pattern == ZIPF:
        table = state.zipf[natural(state.structures[structure, S_ZIPF])]
        piece = bits & (ZIPF_PIECES - 1)
        low, high = table[piece], table[piece + 1]
        return low + ((bits >> 10) * (high - low) >> 21) if high > low else low
    return (bits * lines) >> 31


@inner
def issue_delay(state: State, tenant: int, steps: int) -> float:
    """Return the factor by which a hyper-thread's sibling slows its computing; record that it computes `steps` steps.

    Both share the core's issue slots. A thread gets the slots that its sibling recently left free, at least half.
    """
    row, other = state.rates[tenant], state.rates[state.tenants[tenant, T_SIBLING]]
    elapsed = state.clock[tenant] - row[F_SLOTS_SINCE]
    if elapsed >= state.timing[X_WINDOW]:
        row[F_SLOTS_SHARE] = 0.5 * (row[F_SLOTS_SHARE] + min(1.0, row[F_SLOTS_USED] / elapsed))
        row[F_SLOTS_SINCE], row[F_SLOTS_USED] = state.clock[tenant], 0.0
    row[F_SLOTS_USED] += steps * row[F_GAP] * row[F_SLOTS]
    return max(1.0, row[F_SLOTS] / max(0.5, 1.0 - other[F_SLOTS_SHARE]))


@compiled
def work(state: State, tenant: int, structure: int, until: float) -> None:
    """Continue the core's packet (structure -1) or one of its data structures, up to time `until`."""
    row = state.tenants[tenant]
    gap = state.rates[tenant, F_GAP]
    throttle = state.rates[tenant, F_THROTTLE]
    remaining, writes = row[T_REMAINING], row[T_WRITES_LEFT]
    parallel, base, lines, pattern = state.rates[tenant, F_PACKET_MLP], 0, 0, 0
    if structure >= 0:
        structure = natural(structure)
        parallel = state.demand[structure, D_MLP]
        base = state.structures[structure, S_BASE]
        lines = state.structures[structure, S_LINES]
        pattern = state.structures[structure, S_PATTERN]
    else:
        base = buffer_line(state, tenant, row[T_HEAD], 0)
    if row[T_SIBLING] >= 0:
        gap *= issue_delay(state, tenant, 0)
    pending = row[T_PENDING]
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
            part = row[T_TOUCHED_LINES] + 1 - remaining
            line = natural(base + part)
            dirty = 1 if part <= row[T_WRITTEN_LINES] else 0
        now += gap + access(state, tenant, line, dirty, now, throttle) / parallel
        remaining -= 1
    row[T_REMAINING] = remaining
    row[T_PENDING] = pending
    state.clock[tenant] = now
    if row[T_SIBLING] >= 0:
        issue_delay(state, tenant, before - remaining)


@compiled
def next_structure(state: State, tenant: int) -> bool:
    """Go on to the next data structure, False after the last; fractions of accesses are carried over."""
    row = state.tenants[tenant]
    structure = row[T_FIRST_STRUCTURE] + row[T_OPERATION]
    if structure >= row[T_LAST_STRUCTURE]:
        return False
    demand = state.demand[structure]
    demand[D_ACCESS_CREDIT] += demand[D_ACCESSES]
    demand[D_WRITE_CREDIT] += demand[D_WRITES]
    count = int(demand[D_ACCESS_CREDIT])
    writes = min(count, int(demand[D_WRITE_CREDIT]))
    demand[D_ACCESS_CREDIT] -= count
    demand[D_WRITE_CREDIT] -= writes
    row[T_REMAINING] = count
    row[T_WRITES_LEFT] = writes
    row[T_OPERATION] += 1
    return True


@compiled
def advance(state: State, tenant: int, until: float) -> None:
    """Run one core until its clock passes `until`."""
    row = state.tenants[tenant]
    while state.clock[tenant] <= until:
        operation = row[T_OPERATION]
        if operation < 0:
            begin_packet(state, tenant)
        elif row[T_REMAINING] == 0:
            if not next_structure(state, tenant):
                end_packet(state, tenant)
        else:
            work(state, tenant, row[T_FIRST_STRUCTURE] + operation - 1 if operation > 0 else -1, until)


@kernel
def run_until(state: State, end: float) -> None:
    """Run all cores, earliest first, until every clock has reached `end` [ns]."""
    clock = state.clock
    slack = state.timing[X_SLACK]
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
