"""Simulate packets in and out of an NF: arrivals, receive ring, bursts, departures, latencies.

At saturation the ring is always full: the card writes a packet into every free buffer at once, a whole ring ahead of
the core (ResQ, NSDI'18, section 4.2), unless the shared wire or a full memory channel delays it. With an offered load,
packets arrive as a Poisson process and are lost if the wire cannot carry them or the ring is full.
"""

import math

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled
from slomo.simulator.hardware.accelerator import look_again, retire, submit
from slomo.simulator.hardware.dma import move_packet
from slomo.simulator.hardware.port import AHEAD, WAITING, carry, held_back
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.state import State


@compiled
def admit(state: State, tenant: int, now: float) -> None:
    """Put every packet that arrived up to `now` into the ring, or drop it if the ring is full."""
    row = state.tenants[tenant]
    rates = state.rates[tenant]
    while rates[s.F_NEXT_ARRIVAL] <= now:
        state.counters[tenant, s.C_ARRIVED] += 1
        if row[s.T_ARRIVED] - row[s.T_HEAD] < row[s.T_QUEUE_LIMIT] and carry(state, tenant, now, WAITING) == 0.0:
            state.arrivals[tenant, row[s.T_ARRIVED] % state.arrivals.shape[1]] = rates[s.F_NEXT_ARRIVAL]
            row[s.T_ARRIVED] += 1
        else:
            state.counters[tenant, s.C_LOST] += 1
        uniform = (next_bits(state.random, tenant) + 1) / 2147483648.0
        rates[s.F_NEXT_ARRIVAL] -= rates[s.F_INTERARRIVAL] * math.log(uniform)


@compiled
def refill(state: State, tenant: int, now: float) -> None:
    """Write waiting packets into free buffers, as the network card does."""
    row = state.tenants[tenant]
    rates = state.rates[tenant]
    limit = row[s.T_SENT] + row[s.T_SLOTS]
    if not row[s.T_SATURATED]:
        limit = min(limit, row[s.T_ARRIVED])
    while row[s.T_FILLED] < limit:
        if held_back(state, tenant, rates[s.F_RECEIVE_LINES], now):
            return
        if row[s.T_SATURATED]:
            if rates[s.F_NEXT_ARRIVAL] > now:
                return
            wait = carry(state, tenant, now, AHEAD)
            if wait > 0.0:
                rates[s.F_NEXT_ARRIVAL] = now + wait
                return
            rates[s.F_NEXT_ARRIVAL] += rates[s.F_INTERARRIVAL]
            state.arrivals[tenant, row[s.T_FILLED] % state.arrivals.shape[1]] = now
        move_packet(state, tenant, row[s.T_FILLED], now, s.F_RECEIVE_LINES)
        row[s.T_FILLED] += 1
    if row[s.T_SATURATED]:  # frames that arrived while the ring was full are lost
        rates[s.F_NEXT_ARRIVAL] = max(rates[s.F_NEXT_ARRIVAL], now)


@compiled
def flush(state: State, tenant: int, waiting: bool, now: float) -> None:
    """Send the processed packets, free their buffers and record latencies; hold back the last burst if packets wait."""
    row = state.tenants[tenant]
    limit = row[s.T_HEAD] - (row[s.T_BURST] if waiting else 0)
    if row[s.T_ACCELERATOR] >= 0:
        limit = min(limit, row[s.T_RETIRED])
    while row[s.T_SENT] < limit and not held_back(state, tenant, state.rates[tenant, s.F_SEND_LINES], now):
        move_packet(state, tenant, row[s.T_SENT], now, s.F_SEND_LINES)
        row[s.T_SENT] += 1
    left = min(row[s.T_SENT], row[s.T_HEAD] - (row[s.T_DELAY] if waiting else 0))
    while row[s.T_SAMPLES] < left:
        arrived = state.arrivals[tenant, row[s.T_SAMPLES] % state.arrivals.shape[1]]
        state.latency[tenant, row[s.T_SAMPLES] % s.LATENCY_SAMPLES] = (now - arrived) * state.rates[
            tenant, s.F_RING_FACTOR
        ]
        row[s.T_SAMPLES] += 1


@compiled
def idle_until(state: State, tenant: int, wake: float) -> None:
    """Advance a core that polls its empty ring until its next event."""
    now = state.clock[tenant]
    state.clock[tenant] = max(now, wake)
    state.sums[tenant, s.A_IDLE] += state.clock[tenant] - now
    if state.tenants[tenant, s.T_SIBLING] >= 0:  # a thread that polls issues
        state.rates[tenant, s.F_SLOTS_USED] += (state.clock[tenant] - now) * state.timing[s.X_POLL_SLOTS]


@compiled
def begin_packet(state: State, tenant: int) -> None:
    """Send finished packets, then take the next packet from the ring, or let the core poll until one arrives."""
    row = state.tenants[tenant]
    now = state.clock[tenant]
    away = 0
    if row[s.T_ACCELERATOR] >= 0:
        away = retire(state, tenant, now)
        if away >= row[s.T_DEPTH]:
            idle_until(state, tenant, look_again(state, tenant))
            return
    if row[s.T_SATURATED]:
        waiting = True
    else:
        admit(state, tenant, now)
        waiting = row[s.T_HEAD] < row[s.T_ARRIVED]
    # packets of a burst leave after processing, one at a time at wire speed; an idle core holds none back
    flush(state, tenant, waiting, now)
    if not waiting:
        wake = state.rates[tenant, s.F_NEXT_ARRIVAL]
        if away > 0:
            wake = min(wake, look_again(state, tenant))
        if row[s.T_SENT] < row[s.T_HEAD] and state.rates[tenant, s.F_CARD_FREE] > now:
            wake = min(wake, state.rates[tenant, s.F_CARD_FREE])
        idle_until(state, tenant, wake)
        return
    refill(state, tenant, now)
    if row[s.T_HEAD] == row[s.T_FILLED]:  # the wire or the card is slower than the core
        card_free = state.rates[tenant, s.F_CARD_FREE]
        idle_until(state, tenant, card_free if card_free > now else state.rates[tenant, s.F_NEXT_ARRIVAL])
        return
    row[s.T_OPERATION] = 0
    row[s.T_REMAINING] = row[s.T_TOUCHED_LINES] + 1


@compiled
def end_packet(state: State, tenant: int) -> None:
    """Count the packet, and pass it to the accelerator if the NF uses one."""
    row = state.tenants[tenant]
    if row[s.T_ACCELERATOR] >= 0:
        submit(state, tenant, state.clock[tenant])
    state.counters[tenant, s.C_PACKETS] += 1
    row[s.T_HEAD] += 1
    row[s.T_OPERATION] = -1
