"""Simulate the network card: write arriving packets into the cache (DDIO), read departing ones.

A cached line is updated in place; otherwise it is allocated in the DDIO ways only, evicting a line there (Intel DDIO;
ResQ, NSDI'18, section 4.2; with more buffers than DDIO space this is "leaky DMA"). On Skylake, a packet line that a
core reads moves from the DDIO ways to two other ways, which also hold lines shared with an L2 (Park et al., arXiv
2506.11329, C1; `hierarchy.fetch` simulates it if the machine file says so). A card on another socket, or of a processor
without DDIO, writes to memory.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled
from slomo.simulator.hardware.hierarchy import (
    drop_from_l2,
    l2_lookup,
    llc_drop,
    llc_insert,
    llc_lookup,
    llc_touch,
    memory_read,
    memory_write,
)
from slomo.simulator.hardware.lanes import natural
from slomo.simulator.hardware.memory import request
from slomo.simulator.state import State


@compiled
def buffer_line(state: State, tenant: int, sequence: int, part: int) -> int:
    """Return the number of a line in a packet's buffer: part 0 is its metadata, parts 1 and up its bytes."""
    slot = sequence % state.tenants[tenant, s.T_SLOTS]
    return natural(state.tenants[tenant, s.T_FIRST_LINE] + slot * (state.tenants[tenant, s.T_DATA_LINES] + 1) + part)


@compiled
def receive_line(state: State, tenant: int, line: int, now: float) -> None:
    """Write one line of an arriving packet, as the card does."""
    drop_from_l2(state, state.tenants[tenant, s.T_L2], line)
    position = llc_lookup(state, tenant, line)
    if state.tenants[tenant, s.T_NIC_LOCAL] and state.machine[s.M_DDIO_MASK]:
        if position >= 0:
            state.counters[tenant, s.C_RX_HIT] += 1
            llc_touch(state, position, 1)
        else:
            state.counters[tenant, s.C_RX_MISS] += 1
            llc_insert(state, tenant, line, 1, state.machine[s.M_DDIO_MASK], now)
        return
    if position >= 0:
        llc_drop(state, position)
    state.counters[tenant, s.C_RX_MISS] += 1
    memory_write(state, tenant, now)
    if not state.tenants[tenant, s.T_NIC_LOCAL]:
        request(state.channels, state.machine[s.M_SOCKETS], now, 1.0, state.timing)


@compiled
def send_line(state: State, tenant: int, line: int, now: float) -> None:
    """Read one line of a departing packet for the card, from a cache if one has it, else from memory."""
    if not state.tenants[tenant, s.T_NIC_LOCAL]:
        request(state.channels, state.machine[s.M_SOCKETS], now, 1.0, state.timing)
    if llc_lookup(state, tenant, line) >= 0 or l2_lookup(state, state.tenants[tenant, s.T_L2], line) >= 0:
        state.counters[tenant, s.C_TX_HIT] += 1
    else:
        state.counters[tenant, s.C_TX_MISS] += 1
        memory_read(state, tenant, now)


@compiled
def memory_lines(state: State, tenant: int) -> float:
    """Return the total number of lines moved over the memory channel or link that limits a tenant's card."""
    local = state.tenants[tenant, s.T_NIC_LOCAL]
    home = state.channels[state.tenants[tenant, s.T_MEMORY_SOCKET] if local else state.machine[s.M_SOCKETS]]
    return home[s.H_BUSY_TOTAL] / home[s.H_SERVICE]


@compiled
def move_packet(state: State, tenant: int, sequence: int, now: float, lines: int) -> None:
    """Write a packet into its buffer, or read it; record in `lines` (F_RECEIVE_LINES, F_SEND_LINES) those of memory."""
    before, first = memory_lines(state, tenant), buffer_line(state, tenant, sequence, 1)
    for line in range(first, first + state.tenants[tenant, s.T_DATA_LINES]):
        if lines == s.F_RECEIVE_LINES:
            receive_line(state, tenant, natural(line), now)
        else:
            send_line(state, tenant, natural(line), now)
    state.rates[tenant, lines] = memory_lines(state, tenant) - before
