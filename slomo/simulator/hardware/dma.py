"""What the network card does: write arriving packets into the cache (DDIO), read departing ones.

A line that is cached is updated in place; otherwise it is allocated in the DDIO ways only, evicting what was there
(Intel DDIO; ResQ, NSDI'18, section 4.2; "leaky DMA" is what happens when there are more buffers than DDIO space). On
Skylake a packet's line that a core reads moves from the DDIO ways to two others, which lines held by an L2 as well
share with the data (Park et al., arXiv 2506.11329, C1; `hierarchy.fetch` plays it where the machine file says so). A
card on another socket, and processors without DDIO, write to memory.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled
from slomo.simulator.hardware.hierarchy import (
    drop_from_l2,
    in_l2,
    llc_drop,
    llc_insert,
    llc_lookup,
    llc_touch,
    memory_read,
    memory_write,
)
from slomo.simulator.hardware.memory import request
from slomo.simulator.state import (
    C_RX_HIT,
    C_RX_MISS,
    C_TX_HIT,
    C_TX_MISS,
    F_RECEIVE_LINES,
    F_SEND_LINES,
    H_BUSY_TOTAL,
    H_SERVICE,
    M_DDIO_MASK,
    M_SOCKETS,
    T_DATA_LINES,
    T_FIRST_LINE,
    T_MEMORY_SOCKET,
    T_NIC_LOCAL,
    T_SLOTS,
    State,
)


@compiled
def buffer_line(state: State, tenant: int, sequence: int, part: int) -> int:
    """Return the line of a packet's buffer: part 0 is its metadata, parts 1 and up its bytes."""
    slot = sequence % state.tenants[tenant, T_SLOTS]
    return state.tenants[tenant, T_FIRST_LINE] + slot * (state.tenants[tenant, T_DATA_LINES] + 1) + part


@compiled
def receive_line(state: State, tenant: int, line: int, now: float) -> None:
    """Let the card write one line of an arriving packet."""
    drop_from_l2(state, tenant, line)
    position = llc_lookup(state, tenant, line)
    if state.tenants[tenant, T_NIC_LOCAL] and state.machine[M_DDIO_MASK]:
        if position >= 0:
            state.counters[tenant, C_RX_HIT] += 1
            llc_touch(state, position, 1)
        else:
            state.counters[tenant, C_RX_MISS] += 1
            llc_insert(state, tenant, line, 1, state.machine[M_DDIO_MASK], now)
        return
    if position >= 0:
        llc_drop(state, position)
    state.counters[tenant, C_RX_MISS] += 1
    memory_write(state, tenant, now)
    if not state.tenants[tenant, T_NIC_LOCAL]:
        request(state.channels, state.machine[M_SOCKETS], now, 1.0, state.timing)


@compiled
def send_line(state: State, tenant: int, line: int, now: float) -> None:
    """Let the card read one line of a departing packet, from a cache if one has it, else from memory."""
    if not state.tenants[tenant, T_NIC_LOCAL]:
        request(state.channels, state.machine[M_SOCKETS], now, 1.0, state.timing)
    if llc_lookup(state, tenant, line) >= 0 or in_l2(state, tenant, line):
        state.counters[tenant, C_TX_HIT] += 1
    else:
        state.counters[tenant, C_TX_MISS] += 1
        memory_read(state, tenant, now)


@compiled
def memory_lines(state: State, tenant: int) -> float:
    """Return the lines moved so far by what holds a tenant's card back: its memory, or the link before it."""
    local = state.tenants[tenant, T_NIC_LOCAL]
    home = state.channels[state.tenants[tenant, T_MEMORY_SOCKET] if local else state.machine[M_SOCKETS]]
    return home[H_BUSY_TOTAL] / home[H_SERVICE]


@compiled
def receive_packet(state: State, tenant: int, sequence: int, now: float) -> None:
    """Let the card write a whole packet into its buffer; remember how many lines that moved in memory."""
    before, first = memory_lines(state, tenant), buffer_line(state, tenant, sequence, 1)
    for line in range(first, first + state.tenants[tenant, T_DATA_LINES]):
        receive_line(state, tenant, line, now)
    state.rates[tenant, F_RECEIVE_LINES] = memory_lines(state, tenant) - before


@compiled
def send_packet(state: State, tenant: int, sequence: int, now: float) -> None:
    """Let the card read a whole packet from its buffer; remember how many lines that moved in memory."""
    before, first = memory_lines(state, tenant), buffer_line(state, tenant, sequence, 1)
    for line in range(first, first + state.tenants[tenant, T_DATA_LINES]):
        send_line(state, tenant, line, now)
    state.rates[tenant, F_SEND_LINES] = memory_lines(state, tenant) - before
