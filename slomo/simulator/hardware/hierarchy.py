"""One access of one core: private L2, shared LLC, memory.

Inclusive LLCs (Broadwell) evict a line from its owner's L2 too; victim LLCs (Skylake and later, Zen) are filled by
evictions from L2. A line has one owner, so occupancy is counted as lines are inserted and evicted, never estimated.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.cache import empty, l2_find, l2_victim, llc_find, llc_victim, set_of, touch
from slomo.simulator.hardware.memory import request
from slomo.simulator.hardware.prefetch import PER_LOOKUP, next_of_stream, wait_for
from slomo.simulator.state import (
    A_DRAM_LATENCY,
    C_L2_HIT,
    C_L2_MISS,
    C_L3_HIT,
    C_L3_MISS,
    C_READ_LOCAL,
    C_READ_REMOTE,
    C_WRITE_LOCAL,
    C_WRITE_REMOTE,
    H_FACTOR,
    H_READS,
    H_WRITES,
    L2_LANES,
    LLC_LANES,
    M_ADAPTIVE,
    M_DDIO_MASK,
    M_INCLUSIVE,
    M_L2_MASK,
    M_L2_SETS,
    M_LLC_SETS,
    M_MOVED_MASK,
    M_PREFETCH,
    M_SOCKETS,
    NO_LINE,
    T_DATA_LINE,
    T_DOMAIN,
    T_L2,
    T_MEMORY_SOCKET,
    T_SOCKET,
    T_WAY_MASK,
    X_DRAM_LOCAL,
    X_DRAM_REMOTE,
    X_L2_HIT,
    X_LLC_HIT,
    State,
)

#: One set of this many leads for each insertion policy, and the largest lead in misses.
DUELLISTS, MOST_AHEAD = 32, 512
#: Bits of `l2_dirty`.
CHANGED, PREFETCHED = 1, 2


@compiled
def memory_read(state: State, tenant: int, now: float) -> float:
    """Read one line from the tenant's memory; return the latency [ns]."""
    return read_from(state, tenant, state.tenants[tenant, T_MEMORY_SOCKET], now)


@compiled
def read_from(state: State, tenant: int, home: int, now: float) -> float:
    """Read one line from the memory of socket `home` for a tenant; return the latency [ns]."""
    state.channels[home, H_READS] += 1.0
    wait = request(state.channels, home, now, 1.0, state.timing)
    factor = state.channels[home, H_FACTOR]
    if home == state.tenants[tenant, T_SOCKET]:
        state.counters[tenant, C_READ_LOCAL] += 1
        return state.timing[X_DRAM_LOCAL] * factor + wait
    link = state.machine[M_SOCKETS]
    state.counters[tenant, C_READ_REMOTE] += 1
    wait += request(state.channels, link, now, 1.0, state.timing)
    distance = state.timing[X_DRAM_REMOTE] - state.timing[X_DRAM_LOCAL]
    return state.timing[X_DRAM_LOCAL] * factor + distance * state.channels[link, H_FACTOR] + wait


@compiled
def memory_write(state: State, tenant: int, now: float) -> None:
    """Write one line back to the tenant's memory, without latency but with use of the channel."""
    home = state.tenants[tenant, T_MEMORY_SOCKET]
    state.channels[home, H_WRITES] += 1.0
    request(state.channels, home, now, 1.0, state.timing)
    if home == state.tenants[tenant, T_SOCKET]:
        state.counters[tenant, C_WRITE_LOCAL] += 1
        return
    state.counters[tenant, C_WRITE_REMOTE] += 1
    request(state.channels, state.machine[M_SOCKETS], now, 1.0, state.timing)


@compiled
def l2_set(state: State, tenant: int, line: int) -> int:
    """Return the number of the set of a core's L2 in which a line belongs."""
    return set_in_l2(state, state.tenants[tenant, T_L2], line)


@compiled
def set_in_l2(state: State, cache: int, line: int) -> int:
    """Return the number of the set in which a line belongs in one of the L2 caches."""
    sets = state.machine[M_L2_SETS]
    return cache * sets + set_of(line, sets)


@compiled
def in_l2(state: State, tenant: int, line: int) -> bool:
    """Return whether a core's L2 contains a line."""
    return l2_find(state.l2, l2_set(state, tenant, line), line) < L2_LANES


@compiled
def drop_from_l2(state: State, tenant: int, line: int) -> int:
    """Remove a line from a core's L2; return 1 if it was there and changed."""
    return drop_from_cache(state, state.tenants[tenant, T_L2], line)


@compiled
def drop_from_cache(state: State, cache: int, line: int) -> int:
    """Remove a line from one of the L2 caches; return 1 if it was there and changed."""
    index = set_in_l2(state, cache, line)
    way = l2_find(state.l2, index, line)
    if way == L2_LANES:
        return 0
    empty(state.l2, index, way, L2_LANES)
    return state.l2_dirty[index * L2_LANES + way] & CHANGED


@compiled
def llc_insert(state: State, tenant: int, line: int, dirty: int, mask: int, now: float) -> None:
    """Put a tenant's line into its LLC in a way that `mask` allows, evicting the least recently used line there."""
    sets = state.machine[M_LLC_SETS]
    index = state.tenants[tenant, T_DOMAIN] * sets + set_of(line, sets)
    way = llc_victim(state.llc, index, mask)
    slot = index * LLC_LANES + way
    gone, owner, changed = state.llc[index * (2 * LLC_LANES) + way], state.llc_owner[slot], state.llc_dirty[slot]
    state.llc[index * (2 * LLC_LANES) + way] = line
    if not state.machine[M_ADAPTIVE] or comes_first(state, state.tenants[tenant, T_DOMAIN], index % sets):
        touch(state.llc, state.llc_clock, index, way, LLC_LANES)
    mine = 2 * tenant + (1 if line >= state.tenants[tenant, T_DATA_LINE] else 0)
    if line < state.line_owner.size:
        mine = state.line_owner[line]
    state.llc_owner[slot] = mine
    state.llc_dirty[slot] = dirty
    state.occupancy[mine] += 1
    if gone == NO_LINE:
        return
    state.occupancy[owner] -= 1
    if state.machine[M_INCLUSIVE]:
        if gone < state.line_holder.size:
            if state.line_holder[gone] >= 0:
                changed |= drop_from_cache(state, state.line_holder[gone], gone)
        else:
            changed |= drop_from_l2(state, owner >> 1, gone)
    if changed:
        memory_write(state, owner >> 1, now)


@inner
def comes_first(state: State, domain: int, index: int) -> bool:
    """Return whether a missed line is inserted as the most recently used of its set, if the LLC chooses adaptively.

    Set duelling (Qureshi et al., ISCA'07, DIP): of each `DUELLISTS` sets, one inserts lines as most recently used, one
    inserts all but every `DUELLISTS`-th as least recently used; the other sets follow the policy with fewer misses.
    Intel's LLCs choose between two policies by leader sets, too (Vila et al., PLDI'20, section 7).
    """
    duel = state.llc_duel[domain]
    leader = index % DUELLISTS
    if leader == 0:
        duel[0] = min(duel[0] + 1, MOST_AHEAD)
        return True
    if leader == 1:
        duel[0] = max(duel[0] - 1, -MOST_AHEAD)
    elif duel[0] <= 0:
        return True
    duel[1] += 1
    return duel[1] % DUELLISTS == 0


@compiled
def llc_lookup(state: State, tenant: int, line: int) -> int:
    """Return the slot of a line in the tenant's LLC, or -1."""
    sets = state.machine[M_LLC_SETS]
    index = state.tenants[tenant, T_DOMAIN] * sets + set_of(line, sets)
    way = llc_find(state.llc, index, line)
    return index * LLC_LANES + way if way < LLC_LANES else -1


@compiled
def llc_touch(state: State, slot: int, dirty: int) -> None:
    """Make the line in a slot the most recently used of its set, and dirty if asked."""
    touch(state.llc, state.llc_clock, slot // LLC_LANES, slot % LLC_LANES, LLC_LANES)
    state.llc_dirty[slot] |= dirty


@compiled
def llc_drop(state: State, slot: int) -> None:
    """Remove the line in a slot from the LLC without writing it back."""
    state.occupancy[state.llc_owner[slot]] -= 1
    state.llc_owner[slot] = -1
    empty(state.llc, slot // LLC_LANES, slot % LLC_LANES, LLC_LANES)


@compiled
def fill_l2(state: State, tenant: int, index: int, line: int, dirty: int, now: float) -> int:
    """Put a line into the core's L2, return its way; an evicted line goes to the LLC or, if dirty, is marked."""
    way = l2_victim(state.l2, index, state.machine[M_L2_MASK])
    gone, changed = state.l2[index * (2 * L2_LANES) + way], state.l2_dirty[index * L2_LANES + way] & CHANGED
    state.l2[index * (2 * L2_LANES) + way] = line
    state.l2_dirty[index * L2_LANES + way] = dirty
    touch(state.l2, state.l2_clock, index, way, L2_LANES)
    if gone == NO_LINE:
        return way
    if not state.machine[M_INCLUSIVE]:
        slot = llc_lookup(state, tenant, gone) if state.machine[M_MOVED_MASK] else -1
        if slot >= 0:  # moved there when the core read it
            llc_touch(state, slot, changed)
        else:
            llc_insert(state, tenant, gone, changed, state.tenants[tenant, T_WAY_MASK], now)
    elif changed:
        slot = llc_lookup(state, tenant, gone)
        if slot >= 0:
            state.llc_dirty[slot] = 1
    return way


@compiled
def fetch(state: State, tenant: int, line: int, now: float) -> float:
    """Fetch a line missing in L2 from the LLC or memory; return the latency [ns], negative if the line is dirty."""
    slot = llc_lookup(state, tenant, line)
    if slot >= 0:
        state.counters[tenant, C_L3_HIT] += 1
        if state.machine[M_INCLUSIVE]:
            llc_touch(state, slot, 0)
            return state.timing[X_LLC_HIT]
        llc_drop(state, slot)
        moved = state.machine[M_MOVED_MASK]
        if (
            moved
            and (state.machine[M_DDIO_MASK] >> (slot % LLC_LANES)) & 1
            and line < state.tenants[tenant, T_DATA_LINE]
        ):
            llc_insert(state, tenant, line, state.llc_dirty[slot], moved, now)
            return state.timing[X_LLC_HIT]
        return -state.timing[X_LLC_HIT] if state.llc_dirty[slot] else state.timing[X_LLC_HIT]
    state.counters[tenant, C_L3_MISS] += 1
    latency = memory_read(state, tenant, now)
    state.sums[tenant, A_DRAM_LATENCY] += latency
    if state.machine[M_INCLUSIVE]:
        llc_insert(state, tenant, line, 0, state.tenants[tenant, T_WAY_MASK], now)
    return latency


@compiled
def access(state: State, tenant: int, line: int, dirty: int, now: float, throttle: float) -> float:
    """Read one line, or with ``dirty=1`` write it; return the latency [ns] before memory-level parallelism."""
    index = l2_set(state, tenant, line)
    way = l2_find(state.l2, index, line)
    if way < L2_LANES:
        state.counters[tenant, C_L2_HIT] += 1
        touch(state.l2, state.l2_clock, index, way, L2_LANES)
        held = state.l2_dirty[index * L2_LANES + way]
        state.l2_dirty[index * L2_LANES + way] = held & CHANGED | dirty
        if held & PREFETCHED:
            return first_use(state, tenant, line, index * L2_LANES + way, now, throttle)
        return state.timing[X_L2_HIT]
    state.counters[tenant, C_L2_MISS] += 1
    latency = fetch(state, tenant, line, now)
    if latency < 0.0:
        latency, dirty = -latency, 1
    fill_l2(state, tenant, index, line, dirty, now)
    if state.machine[M_PREFETCH]:
        wait_for(state, tenant, now + latency * throttle)
        prefetch(state, tenant, line, now, throttle)
    return latency * throttle


@inner
def first_use(state: State, tenant: int, line: int, slot: int, now: float, throttle: float) -> float:
    """Handle the first use of a prefetched line, which triggers more; return its remaining latency [ns]."""
    latency = max(state.timing[X_L2_HIT], state.l2_ready[slot] - now)
    prefetch(state, tenant, line, now, throttle)
    return latency


@inner
def prefetch(state: State, tenant: int, line: int, now: float, throttle: float) -> None:
    """Report an L2 access to the core's prefetcher, and prefetch the lines that it chooses."""
    for _ in range(PER_LOOKUP):
        following = next_of_stream(state, tenant, line, now)
        if following < 0:
            return
        index = l2_set(state, tenant, following)
        if l2_find(state.l2, index, following) < L2_LANES:
            continue
        latency, dirty = fetch(state, tenant, following, now), 0
        if latency < 0.0:
            latency, dirty = -latency, CHANGED
        way = fill_l2(state, tenant, index, following, dirty | PREFETCHED, now)
        state.l2_ready[index * L2_LANES + way] = now + latency * throttle
        wait_for(state, tenant, now + latency * throttle)
