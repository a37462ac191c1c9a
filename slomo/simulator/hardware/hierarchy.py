"""Simulate one access of one core: private L2, then shared LLC, then memory.

Inclusive LLCs (Broadwell) evict a line from its owner's L2 too; victim LLCs (Skylake and later, Zen) are filled by
evictions from L2. A line has one owner, so occupancy is counted as lines are inserted and evicted, never estimated.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.cache import empty, find, set_of, touch, victim
from slomo.simulator.hardware.lanes import fetch_ahead, natural
from slomo.simulator.hardware.memory import request
from slomo.simulator.hardware.prefetch import PER_LOOKUP, next_of_stream, wait_for
from slomo.simulator.state import State

#: Of this many sets, one leads for each insertion policy; largest lead of a policy, in misses.
DUELLISTS, MOST_AHEAD = 32, 512


@compiled
def memory_read(state: State, tenant: int, now: float) -> float:
    """Read one line from the tenant's memory; return the latency [ns]."""
    return read_from(state, tenant, natural(state.tenants[tenant, s.T_MEMORY_SOCKET]), now)


@compiled
def read_from(state: State, tenant: int, home: int, now: float) -> float:
    """Read one line from the memory of socket `home`; return the latency [ns]."""
    wait = request(state.channels, home, now, 1.0, state.timing)
    factor = state.channels[home, s.H_FACTOR]
    if home == state.tenants[tenant, s.T_SOCKET]:
        state.counters[tenant, s.C_READ_LOCAL] += 1
        return state.timing[s.X_DRAM_LOCAL] * factor + wait
    link = state.machine[s.M_SOCKETS]
    state.counters[tenant, s.C_READ_REMOTE] += 1
    wait += request(state.channels, link, now, 1.0, state.timing)
    distance = state.timing[s.X_DRAM_REMOTE] - state.timing[s.X_DRAM_LOCAL]
    return state.timing[s.X_DRAM_LOCAL] * factor + distance * state.channels[link, s.H_FACTOR] + wait


@compiled
def memory_write(state: State, tenant: int, now: float) -> None:
    """Write one line back to the tenant's memory: it occupies the channel, and the core does not wait for it."""
    home = natural(state.tenants[tenant, s.T_MEMORY_SOCKET])
    request(state.channels, home, now, 1.0, state.timing)
    if home == state.tenants[tenant, s.T_SOCKET]:
        state.counters[tenant, s.C_WRITE_LOCAL] += 1
        return
    state.counters[tenant, s.C_WRITE_REMOTE] += 1
    request(state.channels, state.machine[s.M_SOCKETS], now, 1.0, state.timing)


@compiled
def l2_first(state: State, cache: int, line: int) -> int:
    """Return the first slot of the set in which a line belongs in one of the L2 caches."""
    sets = state.machine[s.M_L2_SETS]
    return natural(cache * sets + set_of(line, sets) << state.machine[s.M_L2_SHIFT])


@compiled
def l2_lookup(state: State, cache: int, line: int) -> int:
    """Return the slot of a line in one of the L2 caches, or -1."""
    return find(state.l2, l2_first(state, cache, line), state.machine[s.M_L2_SHIFT], line)


@compiled
def drop_from_l2(state: State, cache: int, line: int) -> int:
    """Remove a line from one of the L2 caches; return 1 if it was there and modified."""
    slot = l2_lookup(state, cache, line)
    if slot < 0:
        return 0
    empty(state.l2, state.l2_stamps, slot, state.machine[s.M_L2_SHIFT])
    return state.l2_flags[slot] & s.CHANGED


@compiled
def llc_first(state: State, tenant: int, line: int) -> int:
    """Return the first slot of the set in which a line belongs in a tenant's LLC."""
    sets = state.machine[s.M_LLC_SETS]
    return natural(state.tenants[tenant, s.T_DOMAIN] * sets + set_of(line, sets) << state.machine[s.M_LLC_SHIFT])


@compiled
def llc_insert(state: State, tenant: int, line: int, dirty: int, mask: int, now: float) -> None:
    """Put a tenant's line into its LLC in a way that `mask` allows, evicting the least recently used line there."""
    shift = state.machine[s.M_LLC_SHIFT]
    slot = victim(state.llc_stamps, llc_first(state, tenant, line), shift, mask)
    gone, owner = state.llc[slot], state.llc_owner[slot]
    state.llc[slot] = line
    if not state.machine[s.M_ADAPTIVE] or comes_first(
        state, state.tenants[tenant, s.T_DOMAIN], (slot >> shift) % state.machine[s.M_LLC_SETS]
    ):
        touch(state.llc_stamps, state.llc_clock, slot, shift)
    mine = 2 * tenant + (1 if line >= state.tenants[tenant, s.T_DATA_LINE] else 0)
    if line < state.line_owner.size:
        mine = natural(state.line_owner[line])
    state.llc_owner[slot] = 2 * mine + dirty
    state.occupancy[mine] += 1
    if gone == s.NO_LINE:
        return
    changed, owner, gone = owner & 1, natural(owner >> 1), natural(gone)
    state.occupancy[owner] -= 1
    if state.machine[s.M_INCLUSIVE]:
        holder = state.line_holder[gone] if gone < state.line_holder.size else state.tenants[owner >> 1, s.T_L2]
        if holder >= 0:
            changed |= drop_from_l2(state, holder, gone)
    if changed:
        memory_write(state, owner >> 1, now)


@inner
def comes_first(state: State, domain: int, index: int) -> bool:
    """Return whether a new line becomes the most recently used of its set (adaptive insertion).

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
    return find(state.llc, llc_first(state, tenant, line), state.machine[s.M_LLC_SHIFT], line)


@compiled
def llc_touch(state: State, slot: int, dirty: int) -> None:
    """Make the line in a slot the most recently used of its set, and mark it dirty if `dirty` is 1."""
    touch(state.llc_stamps, state.llc_clock, slot, state.machine[s.M_LLC_SHIFT])
    state.llc_owner[slot] |= dirty


@compiled
def llc_drop(state: State, slot: int) -> int:
    """Remove the line in a slot from the LLC without writing it back; return 1 if it was modified."""
    owner = state.llc_owner[slot]
    state.occupancy[natural(owner >> 1)] -= 1
    state.llc_owner[slot] = -1
    empty(state.llc, state.llc_stamps, slot, state.machine[s.M_LLC_SHIFT])
    return owner & 1


@compiled
def fill_l2(state: State, tenant: int, line: int, flags: int, now: float) -> int:
    """Put a line into the core's L2 and return the slot.

    A victim LLC receives the evicted line; an inclusive LLC holds it already and marks it dirty if it changed.
    """
    shift = state.machine[s.M_L2_SHIFT]
    first = l2_first(state, state.tenants[tenant, s.T_L2], line)
    slot = victim(state.l2_stamps, first, shift, state.machine[s.M_L2_MASK])
    gone, changed = state.l2[slot], state.l2_flags[slot] & s.CHANGED
    state.l2[slot] = line
    state.l2_flags[slot] = flags
    touch(state.l2_stamps, state.l2_clock, slot, shift)
    if gone == s.NO_LINE:
        return slot
    if not state.machine[s.M_INCLUSIVE]:
        moved = llc_lookup(state, tenant, gone) if state.machine[s.M_MOVED_MASK] else -1
        if moved >= 0:  # moved to the LLC when the core read it
            llc_touch(state, moved, changed)
        else:
            llc_insert(state, tenant, natural(gone), changed, state.tenants[tenant, s.T_WAY_MASK], now)
    elif changed:
        marked = llc_lookup(state, tenant, gone)
        if marked >= 0:
            state.llc_owner[marked] |= 1
    return slot


@compiled
def fetch(state: State, tenant: int, line: int, now: float) -> float:
    """Fetch a line that is not in L2 from LLC or memory; return the latency [ns], negated for a modified line."""
    slot = llc_lookup(state, tenant, line)
    if slot >= 0:
        state.counters[tenant, s.C_L3_HIT] += 1
        if state.machine[s.M_INCLUSIVE]:
            llc_touch(state, slot, 0)
            return state.timing[s.X_LLC_HIT]
        changed = llc_drop(state, slot)
        moved = state.machine[s.M_MOVED_MASK]
        if (
            moved
            and (state.machine[s.M_DDIO_MASK] >> (slot & ((1 << state.machine[s.M_LLC_SHIFT]) - 1))) & 1
            and line < state.tenants[tenant, s.T_DATA_LINE]
        ):
            llc_insert(state, tenant, line, changed, moved, now)
            return state.timing[s.X_LLC_HIT]
        return -state.timing[s.X_LLC_HIT] if changed else state.timing[s.X_LLC_HIT]
    state.counters[tenant, s.C_L3_MISS] += 1
    latency = memory_read(state, tenant, now)
    state.sums[tenant, s.A_DRAM_LATENCY] += latency
    if state.machine[s.M_INCLUSIVE]:
        llc_insert(state, tenant, line, 0, state.tenants[tenant, s.T_WAY_MASK], now)
    return latency


@compiled
def access(state: State, tenant: int, line: int, dirty: int, now: float, throttle: float) -> float:
    """Read one line, or write it if `dirty` is 1; return the latency [ns] if no other access is in flight."""
    slot = l2_lookup(state, state.tenants[tenant, s.T_L2], line)
    if slot >= 0:
        state.counters[tenant, s.C_L2_HIT] += 1
        touch(state.l2_stamps, state.l2_clock, slot, state.machine[s.M_L2_SHIFT])
        flags = state.l2_flags[slot]
        state.l2_flags[slot] = flags & s.CHANGED | dirty
        if flags & s.PREFETCHED:
            return first_use(state, tenant, line, slot, now, throttle)
        return state.timing[s.X_L2_HIT]
    state.counters[tenant, s.C_L2_MISS] += 1
    latency = fetch(state, tenant, line, now)
    if latency < 0.0:
        latency, dirty = -latency, 1
    fill_l2(state, tenant, line, dirty, now)
    if state.machine[s.M_PREFETCH]:
        wait_for(state, tenant, now + latency * throttle)
        prefetch(state, tenant, line, now, throttle)
    return latency * throttle


@compiled
def expect(state: State, tenant: int, line: int) -> None:
    """Load, on the processor that runs the simulator, the arrays that the next access will read."""
    first = llc_first(state, tenant, line)
    fetch_ahead(state.llc, first)
    fetch_ahead(state.llc_stamps, first)
    fetch_ahead(state.llc_owner, first)
    if state.machine[s.M_LLC_SHIFT] == s.WIDE_SHIFT:
        fetch_ahead(state.llc, first + s.LANES // 2)


@inner
def first_use(state: State, tenant: int, line: int, slot: int, now: float, throttle: float) -> float:
    """Handle the first use of a prefetched line, which triggers more prefetches; return its remaining latency [ns]."""
    latency = max(state.timing[s.X_L2_HIT], state.l2_ready[slot] - now)
    prefetch(state, tenant, line, now, throttle)
    return latency


@inner
def prefetch(state: State, tenant: int, line: int, now: float, throttle: float) -> None:
    """Report an L2 access to the core's prefetcher, and prefetch the lines that it chooses."""
    for _ in range(PER_LOOKUP):
        following = next_of_stream(state, tenant, line, now)
        if following < 0:
            return
        if l2_lookup(state, state.tenants[tenant, s.T_L2], following) >= 0:
            continue
        latency, dirty = fetch(state, tenant, following, now), 0
        if latency < 0.0:
            latency, dirty = -latency, s.CHANGED
        slot = fill_l2(state, tenant, following, dirty | s.PREFETCHED, now)
        state.l2_ready[slot] = now + latency * throttle
        wait_for(state, tenant, now + latency * throttle)
