"""One access of one core on its way: private L2, shared LLC, memory.

Inclusive LLCs (Broadwell) drop a line from its owner's L2 when they evict it; victim LLCs (Skylake and later, Zen) are
filled by what L2 evicts. A line has one owner, so occupancy is counted as lines come and go, never estimated.
"""

from slomo.simulator.cache import drop, find, mark_dirty, promote, set_of, victim
from slomo.simulator.compilation import compiled
from slomo.simulator.memory import request
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
    DIRTY,
    H_FACTOR,
    H_READS,
    H_WRITES,
    LINE_SHIFT,
    M_INCLUSIVE,
    M_L2_SETS,
    M_L2_WAYS,
    M_LLC_SETS,
    M_LLC_WAYS,
    M_SOCKETS,
    OWNER_SHIFT,
    T_DOMAIN,
    T_MEMORY_SOCKET,
    T_SOCKET,
    T_WAY_MASK,
    WAY_BITS,
    X_DRAM_LOCAL,
    X_DRAM_REMOTE,
    X_L2_HIT,
    X_LLC_HIT,
    State,
)


@compiled
def memory_read(state: State, tenant: int, now: float) -> float:
    """Read one line from the tenant's memory; return the latency [ns]."""
    home = state.tenants[tenant, T_MEMORY_SOCKET]
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
    """Write one line back to the tenant's memory; nobody waits for it, but the channel is busy."""
    home = state.tenants[tenant, T_MEMORY_SOCKET]
    state.channels[home, H_WRITES] += 1.0
    request(state.channels, home, now, 1.0, state.timing)
    if home == state.tenants[tenant, T_SOCKET]:
        state.counters[tenant, C_WRITE_LOCAL] += 1
        return
    state.counters[tenant, C_WRITE_REMOTE] += 1
    request(state.channels, state.machine[M_SOCKETS], now, 1.0, state.timing)


@compiled
def drop_from_l2(state: State, tenant: int, line: int) -> int:
    """Remove a line from a core's L2; return 0 if it was not there, 1 if it was clean, 2 if dirty."""
    ways = state.machine[M_L2_WAYS]
    sets = state.machine[M_L2_SETS]
    first = (tenant * sets + set_of(line, sets)) * ways
    position = find(state.l2, first, ways, line)
    if position < 0:
        return 0
    dirty = state.l2[position] & DIRTY
    drop(state.l2, first, ways, position)
    return 2 if dirty else 1


@compiled
def llc_insert(state: State, domain: int, line: int, dirty: int, mask: int, now: float) -> None:
    """Put a line into the LLC in a way that `mask` allows, evicting the least recently used line there."""
    ways = state.machine[M_LLC_WAYS]
    sets = state.machine[M_LLC_SETS]
    first = (domain * sets + set_of(line, sets)) * ways
    position = victim(state.llc, first, ways, mask)
    old = state.llc[position]
    promote(state.llc, first, position, (line << LINE_SHIFT) | dirty | (old & WAY_BITS))
    state.occupancy[line >> OWNER_SHIFT] += 1
    if old < 0:
        return
    gone = old >> LINE_SHIFT
    owner = gone >> OWNER_SHIFT
    state.occupancy[owner] -= 1
    changed = old & DIRTY
    if state.machine[M_INCLUSIVE] and drop_from_l2(state, owner >> 1, gone) == 2:
        changed = DIRTY
    if changed:
        memory_write(state, owner >> 1, now)


@compiled
def llc_lookup(state: State, domain: int, line: int) -> int:
    """Return the position of a line in its domain's LLC, or -1."""
    ways = state.machine[M_LLC_WAYS]
    sets = state.machine[M_LLC_SETS]
    return find(state.llc, (domain * sets + set_of(line, sets)) * ways, ways, line)


@compiled
def llc_promote(state: State, position: int, dirty: int) -> None:
    """Make the line at `position` the most recently used of its set."""
    first = position - position % state.machine[M_LLC_WAYS]
    promote(state.llc, first, position, state.llc[position] | dirty)


@compiled
def llc_drop(state: State, position: int) -> None:
    """Remove the line at `position` from the LLC without writing it back."""
    ways = state.machine[M_LLC_WAYS]
    state.occupancy[state.llc[position] >> (LINE_SHIFT + OWNER_SHIFT)] -= 1
    drop(state.llc, position - position % ways, ways, position)


@compiled
def fill_l2(state: State, tenant: int, first: int, line: int, dirty: int, now: float) -> None:
    """Put a line into the core's L2; what falls out goes to the LLC or, if changed, is recorded there."""
    ways = state.machine[M_L2_WAYS]
    position = first + ways - 1
    old = state.l2[position]
    promote(state.l2, first, position, (line << LINE_SHIFT) | dirty | (old & WAY_BITS))
    if old < 0:
        return
    gone = old >> LINE_SHIFT
    domain = state.tenants[tenant, T_DOMAIN]
    if not state.machine[M_INCLUSIVE]:
        llc_insert(state, domain, gone, old & DIRTY, state.tenants[tenant, T_WAY_MASK], now)
    elif old & DIRTY:
        place = llc_lookup(state, domain, gone)
        if place >= 0:
            mark_dirty(state.llc, place)


@compiled
def fetch(state: State, tenant: int, line: int, now: float) -> float:
    """Bring a line that L2 lacks from the LLC or memory; return the latency [ns], negative if the line is dirty."""
    domain = state.tenants[tenant, T_DOMAIN]
    position = llc_lookup(state, domain, line)
    if position >= 0:
        state.counters[tenant, C_L3_HIT] += 1
        if state.machine[M_INCLUSIVE]:
            llc_promote(state, position, 0)
            return state.timing[X_LLC_HIT]
        dirty = state.llc[position] & DIRTY
        llc_drop(state, position)
        return -state.timing[X_LLC_HIT] if dirty else state.timing[X_LLC_HIT]
    state.counters[tenant, C_L3_MISS] += 1
    latency = memory_read(state, tenant, now)
    state.sums[tenant, A_DRAM_LATENCY] += latency
    if state.machine[M_INCLUSIVE]:
        llc_insert(state, domain, line, 0, state.tenants[tenant, T_WAY_MASK], now)
    return latency


@compiled
def access(state: State, tenant: int, line: int, dirty: int, now: float, throttle: float) -> float:
    """Read (or, with ``dirty=DIRTY``, write) one line; return the latency [ns] before memory-level parallelism."""
    ways = state.machine[M_L2_WAYS]
    sets = state.machine[M_L2_SETS]
    first = (tenant * sets + set_of(line, sets)) * ways
    position = find(state.l2, first, ways, line)
    if position >= 0:
        state.counters[tenant, C_L2_HIT] += 1
        promote(state.l2, first, position, state.l2[position] | dirty)
        return state.timing[X_L2_HIT]
    state.counters[tenant, C_L2_MISS] += 1
    latency = fetch(state, tenant, line, now)
    if latency < 0.0:
        latency, dirty = -latency, DIRTY
    fill_l2(state, tenant, first, line, dirty, now)
    return latency * throttle
