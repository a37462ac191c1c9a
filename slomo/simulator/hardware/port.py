"""Simulate NIC ports that tenants share, and cards that wait for full memory channels.

Tenants share a machine's ports by SR-IOV: every tenant's queue may use each port, one frame at a time. Together the
ports are one wire with their summed line rate, of which one tenant gets at most one port's. Waiting queues share by
bytes: generalised processor sharing, simulated by its virtual time (Parekh and Gallager, IEEE/ACM ToN 1(3), 1993,
section IV), which cards approximate by deficit round robin. A saturating sender has a queue that is never empty: its
frames use the wire whenever a buffer is free to receive them. A sender with a fixed rate loses the frames that the wire
cannot carry.

A card whose lines go to memory waits for a channel with a full queue, in order of requests, as requests wait in the
processor's I/O controller (IIO). Meanwhile it neither fills nor frees buffers.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.state import Floats, State

#: Largest number of frames that a tenant may send ahead of its share of the wire, and that may wait before the wire.
AHEAD, WAITING = 4.0, 256.0


@inner
def waiting_queues(wire: Floats, due: Floats, now: float) -> int:
    """Advance the wire (shared by all tenants) to time `now`; return how many queues still wait for it."""
    elapsed = max(0.0, now - wire[s.H_LAST])
    wire[s.H_LAST] = max(now, wire[s.H_LAST])
    while True:
        virtual, first, active = wire[s.H_VIRTUAL], 1e300, 0
        for tenant in range(due.size):
            if due[tenant] > virtual:
                active += 1
                first = min(first, due[tenant])
        if active == 0 or elapsed <= 0.0:
            return active
        # ns per bit, times the number of queues that share the wire
        until_first = (first - virtual) * active * wire[s.H_SERVICE]
        if until_first > elapsed:
            wire[s.H_VIRTUAL] = virtual + elapsed / (active * wire[s.H_SERVICE])
            return active
        wire[s.H_VIRTUAL] = first
        elapsed -= until_first


@compiled
def carry(state: State, tenant: int, now: float, ahead: float) -> float:
    """Try to send a tenant's frame over the wire; return 0 if it was sent, or the time until it may be sent [ns]."""
    if state.channels[-1, s.H_SERVICE] == 0.0:  # the wire is faster than all tenants together can send
        return 0.0
    return carry_in_turn(state.channels[-1], state.rates, tenant, now, ahead)


@inner
def carry_in_turn(wire: Floats, rates: Floats, tenant: int, now: float, ahead: float) -> float:
    """Try to send a tenant's frame over a wire that may be full, at most `ahead` frames before its turn."""
    active = waiting_queues(wire, rates[:, s.F_WIRE_DUE], now)
    bits = rates[tenant, s.F_WIRE_BITS]
    begin = max(rates[tenant, s.F_WIRE_DUE], wire[s.H_VIRTUAL])
    early = begin - wire[s.H_VIRTUAL] - (ahead - 1.0) * bits
    if early > 1e-6 * bits:
        return early * active * wire[s.H_SERVICE]
    rates[tenant, s.F_WIRE_DUE] = begin + bits
    wire[s.H_BUSY_TOTAL] += bits * wire[s.H_SERVICE]
    return 0.0


@compiled
def held_back(state: State, tenant: int, lines: float, now: float) -> bool:
    """Return whether a tenant's card must wait before it moves a packet with this many lines to memory."""
    rates = state.rates[tenant]
    if rates[s.F_CARD_FREE] > now:
        return True
    if lines == 0.0 or rates[s.F_CARD_GRANTED] > 0.0:
        rates[s.F_CARD_GRANTED] = 0.0
        return False
    buffered = state.timing[s.X_BUFFERED]
    grant = turn_at(state.channels[state.tenants[tenant, s.T_MEMORY_SOCKET]], lines, now, buffered)
    if not state.tenants[tenant, s.T_NIC_LOCAL]:
        grant = max(grant, turn_at(state.channels[state.machine[s.M_SOCKETS]], lines, now, buffered))
    if grant <= now:
        return False
    rates[s.F_CARD_FREE] = grant
    rates[s.F_CARD_GRANTED] = 1.0
    return True


@compiled
def turn_at(channel: Floats, lines: float, now: float, buffered: float) -> float:
    """Return when a full memory channel accepts a card's lines [ns]; 0 for immediately."""
    excess = channel[s.H_BACKLOG] - max(0.0, now - channel[s.H_LAST]) - buffered
    if excess <= 0.0:
        return 0.0
    turn = max(now + excess, channel[s.H_GRANT])
    channel[s.H_GRANT] = turn + lines * channel[s.H_SERVICE]
    return turn
