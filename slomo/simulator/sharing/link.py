"""Move a packet's lines between cores: they stay in the last stage's cache until the next stage reads them.

If the next stage runs on the same core, it finds them in the L2. If it runs on another core with the same LLC, it gets
them from that L2 or from the LLC. If it runs on another socket, they cross the link or come from the memory of the
buffers' socket. A transferred line changes its owner, as the next stage writes to it (migratory sharing: Gupta and
Weber, IEEE ToC 41(7), 1992). Transfer latencies are sums of the machine file's latencies. For a line in another
socket's cache they give 90 ns; Molka et al. (ICPP'15) measured 84-113 ns.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.cache import find, set_of, touch
from slomo.simulator.hardware.dma import receive_line
from slomo.simulator.hardware.hierarchy import (
    drop_from_l2,
    fill_l2,
    l2_lookup,
    llc_drop,
    llc_insert,
    llc_lookup,
    llc_touch,
    memory_read,
    read_from,
)
from slomo.simulator.hardware.memory import request
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State


@compiled
def other_cache(state: State, domain: int, line: int) -> int:
    """Return where a line is in the last-level cache of another domain; -1 if it is in none."""
    sets, shift = state.machine[s.M_LLC_SETS], state.machine[s.M_LLC_SHIFT]
    inside = set_of(line, sets)
    for other in range(state.llc_clock.size // sets):
        if other != domain:
            slot = find(state.llc, other * sets + inside << shift, shift, line)
            if slot >= 0:
                return slot
    return -1


@compiled
def transfer(state: State, sharing: Sharing, tenant: int, socket: int, now: float) -> float:
    """Return the time to transfer a line from another core's or socket's cache [ns]."""
    latency = state.timing[s.X_LLC_HIT] + sharing.settings[h.E_SNOOP]
    if socket == state.tenants[tenant, s.T_SOCKET]:
        return latency
    link = state.machine[s.M_SOCKETS]
    wait = request(state.channels, link, now, 1.0, state.timing)
    distance = state.timing[s.X_DRAM_REMOTE] - state.timing[s.X_DRAM_LOCAL]
    return latency + distance * state.channels[link, s.H_FACTOR] + wait


@compiled
def fetch_packet_line(state: State, sharing: Sharing, port: int, tenant: int, line: int, now: float) -> float:
    """Fetch a packet line missing in the core's L2; return the latency [ns], negated for a dirty line."""
    domain, dirty = state.tenants[tenant, s.T_DOMAIN], 0
    holder, mine = state.line_holder[line], state.tenants[tenant, s.T_L2]
    place, elsewhere, from_core = llc_lookup(state, tenant, line), -1, -1
    if holder >= 0 and holder != mine and l2_lookup(state, holder, line) >= 0:
        dirty |= drop_from_l2(state, holder, line)
        from_core = sharing.l2_sockets[holder]
    if place < 0:
        elsewhere = other_cache(state, domain, line)
        if elsewhere >= 0:
            dirty |= llc_drop(state, elsewhere)
    inclusive = state.machine[s.M_INCLUSIVE]
    if place >= 0:
        state.counters[tenant, s.C_L3_HIT] += 1
        if inclusive:
            llc_touch(state, place, 0)
        else:
            dirty |= llc_drop(state, place)
        latency = state.timing[s.X_LLC_HIT] + (sharing.settings[h.E_SNOOP] if from_core >= 0 else 0.0)
        return -latency if dirty else latency
    if from_core >= 0:
        latency = transfer(state, sharing, tenant, from_core, now)
    elif elsewhere >= 0:
        other = (elsewhere >> state.machine[s.M_LLC_SHIFT]) // state.machine[s.M_LLC_SETS]
        latency = transfer(state, sharing, tenant, sharing.domain_sockets[other], now)
    else:
        latency = read_from(state, tenant, state.tenants[port, s.T_MEMORY_SOCKET], now)
        state.sums[tenant, s.A_DRAM_LATENCY] += latency
    if from_core >= 0 and from_core == state.tenants[tenant, s.T_SOCKET]:
        state.counters[tenant, s.C_L3_HIT] += 1
    else:
        state.counters[tenant, s.C_L3_MISS] += 1
    if inclusive:
        llc_insert(state, tenant, line, 0, state.tenants[tenant, s.T_WAY_MASK], now)
    return -latency if dirty else latency


@inner
def packet_miss(state: State, sharing: Sharing, port: int, tenant: int, line: int, dirty: int, now: float) -> float:
    """Fetch a packet line missing in the core's L2 into it; return the latency [ns]."""
    state.counters[tenant, s.C_L2_MISS] += 1
    latency = fetch_packet_line(state, sharing, port, tenant, line, now)
    if latency < 0.0:
        latency, dirty = -latency, 1
    fill_l2(state, tenant, line, dirty, now)
    state.line_holder[line] = state.tenants[tenant, s.T_L2]
    return latency


@compiled
def packet_access(state: State, sharing: Sharing, port: int, tenant: int, line: int, dirty: int, now: float) -> float:
    """Read or write one line of a packet or a ring, wherever it is; return the latency [ns]."""
    slot = l2_lookup(state, state.tenants[tenant, s.T_L2], line)
    if slot >= 0:
        state.counters[tenant, s.C_L2_HIT] += 1
        touch(state.l2_stamps, state.l2_clock, slot, state.machine[s.M_L2_SHIFT])
        state.l2_flags[slot] |= dirty
        return state.timing[s.X_L2_HIT]
    return packet_miss(state, sharing, port, tenant, line, dirty, now)


@compiled
def card_writes(state: State, port: int, line: int, now: float) -> None:
    """Write one line of an arriving packet as the card does; other caches drop their copies."""
    holder = state.line_holder[line]
    if holder >= 0:
        drop_from_l2(state, holder, line)
        state.line_holder[line] = -1
    elsewhere = other_cache(state, state.tenants[port, s.T_DOMAIN], line)
    if elsewhere >= 0:
        llc_drop(state, elsewhere)
    receive_line(state, port, line, now)


@compiled
def card_reads(state: State, sharing: Sharing, port: int, line: int, now: float) -> None:
    """Read one line of a departing packet for the card, from the cache that has it, else from memory."""
    holder, home, socket = state.line_holder[line], state.tenants[port, s.T_SOCKET], -1
    if llc_lookup(state, port, line) >= 0:
        socket = home
    elif holder >= 0 and l2_lookup(state, holder, line) >= 0:
        socket = sharing.l2_sockets[holder]
    else:
        elsewhere = other_cache(state, state.tenants[port, s.T_DOMAIN], line)
        if elsewhere >= 0:
            socket = sharing.domain_sockets[(elsewhere >> state.machine[s.M_LLC_SHIFT]) // state.machine[s.M_LLC_SETS]]
    if socket < 0:
        state.counters[port, s.C_TX_MISS] += 1
        memory_read(state, port, now)
        return
    state.counters[port, s.C_TX_HIT] += 1
    if socket != home:
        request(state.channels, state.machine[s.M_SOCKETS], now, 1.0, state.timing)
