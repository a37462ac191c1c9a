"""Packets between rings: they enter a chain, wait before a stage, are passed on, and leave or are dropped.

Before each stage is a ring with a capacity and two watermarks (OpenNetVM, NFVnice, SIGCOMM'17). A ring's descriptors
are cache lines too, eight per line, which move between the caches of producer and consumer (DPDK ``rte_ring``).
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.sharing.cores import make_ready
from slomo.simulator.sharing.link import card_reads, card_writes, packet_access
from slomo.simulator.sharing.state import (
    ANSWERS,
    ASLEEP,
    DELIVERED,
    E_LEFT,
    E_RECEIVE_FREE,
    E_SEND_FREE,
    E_WIRE_BACKLOG,
    G_NEXT,
    G_NEXT_SEND,
    G_ROUND_TRIP,
    G_WIRE,
    J_ANSWER_HEAD,
    J_ANSWER_TAIL,
    J_BUFFERS,
    J_CARD_LOST,
    J_DELIVERED,
    J_DROPPING,
    J_ENTRY_LOST,
    J_FREE_BASE,
    J_FREE_HEAD,
    J_FREE_TAIL,
    J_HOPS,
    J_KIND,
    J_LINES,
    J_MARKS,
    J_OFFERED,
    J_PORT,
    J_QUEUE_LOST,
    J_SAMPLES,
    J_WASTED,
    J_WIRE_LOST,
    LOST,
    MARKED,
    P_CHAIN,
    P_HOP,
    P_LINE,
    P_MARKED,
    Q_ARRIVED,
    Q_CAPACITY,
    Q_DROPPED,
    Q_HEAD,
    Q_HIGH,
    Q_MARK,
    Q_POLLS,
    Q_RING_LINE,
    Q_STATE,
    Q_TAIL,
    Q_WAITERS,
    Q_WAITS_FOR,
    Q_YIELD,
    RESPONSIVE,
    STUCK,
    Sharing,
)
from slomo.simulator.state import H_BACKLOG, H_LAST, LATENCY_SAMPLES, T_MEMORY_SOCKET, X_BUFFERED, State

#: Pointers per line of a ring.
SLOTS_PER_LINE = 8


@inner
def send_answer(sharing: Sharing, chain: int, now: float, verdict: int) -> None:
    """Send the news of a packet's fate to its source; it arrives a round trip later, in order."""
    row = sharing.chains[chain]
    slot = row[J_ANSWER_TAIL] % ANSWERS
    when = now + sharing.chain_times[chain, G_ROUND_TRIP]
    if row[J_ANSWER_TAIL] > row[J_ANSWER_HEAD]:
        when = max(when, sharing.answers[chain, (row[J_ANSWER_TAIL] - 1) % ANSWERS])
    sharing.answers[chain, slot] = when
    sharing.verdicts[chain, slot] = verdict
    row[J_ANSWER_TAIL] += 1
    first = sharing.answers[chain, row[J_ANSWER_HEAD] % ANSWERS]
    sharing.chain_times[chain, G_NEXT] = min(sharing.chain_times[chain, G_NEXT_SEND], first)


@compiled
def answer(sharing: Sharing, chain: int, now: float, verdict: int) -> None:
    """Report a packet's fate to a responsive source."""
    if sharing.chains[chain, J_KIND] == RESPONSIVE:
        send_answer(sharing, chain, now, verdict)


@compiled
def give_back(sharing: Sharing, packet: int) -> None:
    """Return a packet's buffer to the end of its pool's free ring."""
    row = sharing.chains[sharing.packets[packet, P_CHAIN]]
    sharing.free[row[J_FREE_BASE] + row[J_FREE_TAIL] % row[J_BUFFERS]] = packet
    row[J_FREE_TAIL] += 1


@compiled
def lose(sharing: Sharing, packet: int, now: float) -> None:
    """Drop a packet, and report the loss to a responsive source."""
    sharing.settings[E_LEFT] += 1.0
    answer(sharing, sharing.packets[packet, P_CHAIN], now, LOST)
    give_back(sharing, packet)


@compiled
def enqueue(sharing: Sharing, packet: int, stage: int, now: float) -> bool:
    """Put a packet into a stage's ring, or drop it if the ring is full; a stage with its own core polls the ring."""
    row, chain = sharing.stages[stage], sharing.packets[packet, P_CHAIN]
    row[Q_ARRIVED] += 1
    if row[Q_TAIL] - row[Q_HEAD] >= row[Q_CAPACITY]:
        row[Q_DROPPED] += 1
        sharing.chains[chain, J_QUEUE_LOST] += 1
        if sharing.packets[packet, P_HOP] > 0:
            sharing.chains[chain, J_WASTED] += 1
        lose(sharing, packet, now)
        return False
    if row[Q_MARK] and sharing.chains[chain, J_KIND] == RESPONSIVE:
        sharing.packets[packet, P_MARKED] = 1
    sharing.rings[stage, row[Q_TAIL] & (row[Q_CAPACITY] - 1)] = packet
    sharing.packet_times[packet, 1] = now
    row[Q_TAIL] += 1
    if row[Q_POLLS] and row[Q_STATE] == ASLEEP and not row[Q_YIELD]:
        make_ready(sharing, stage, now)
    return True


@compiled
def ring_access(state: State, sharing: Sharing, port: int, tenant: int, stage: int, position: int, now: float) -> float:
    """Access a ring's descriptor; return the latency [ns], 0 within the line accessed before."""
    if position % SLOTS_PER_LINE:
        return 0.0
    row = sharing.stages[stage]
    line = row[Q_RING_LINE] + (position & (row[Q_CAPACITY] - 1)) // SLOTS_PER_LINE
    return packet_access(state, sharing, port, tenant, line, 1, now)


@compiled
def dequeue(sharing: Sharing, stage: int, now: float) -> int:
    """Take the oldest packet of a ring; below the high watermark, a producer waiting for room continues."""
    row = sharing.stages[stage]
    packet = sharing.rings[stage, row[Q_HEAD] & (row[Q_CAPACITY] - 1)]
    row[Q_HEAD] += 1
    if row[Q_WAITERS] and row[Q_TAIL] - row[Q_HEAD] < row[Q_HIGH]:
        row[Q_WAITERS] = 0
        for other in range(sharing.stages.shape[0]):
            waits = sharing.stages[other, Q_STATE] == STUCK and sharing.stages[other, Q_WAITS_FOR] == stage
            if waits and sharing.stages[other, Q_POLLS]:
                make_ready(sharing, other, now)
    return packet


@compiled
def hold_card(state: State, sharing: Sharing, port: int, now: float) -> None:
    """Delay the card until the queue of its buffers' memory has room again."""
    channel = state.channels[state.tenants[port, T_MEMORY_SOCKET]]
    excess = channel[H_BACKLOG] - max(0.0, now - channel[H_LAST]) - state.timing[X_BUFFERED]
    if excess > 0.0:
        sharing.settings[E_RECEIVE_FREE] = max(sharing.settings[E_RECEIVE_FREE], now + excess)


@inner
def receive(state: State, sharing: Sharing, chain: int, begin: float) -> bool:
    """Put an arrived packet into a buffer and, if the chain's entry admits it, into the first ring."""
    row = sharing.chains[chain]
    if row[J_FREE_HEAD] == row[J_FREE_TAIL]:
        row[J_CARD_LOST] += 1
        answer(sharing, chain, begin, LOST)
        return False
    packet = sharing.free[row[J_FREE_BASE] + row[J_FREE_HEAD] % row[J_BUFFERS]]
    row[J_FREE_HEAD] += 1
    sharing.packets[packet, P_HOP] = 0
    sharing.packets[packet, P_MARKED] = 0
    sharing.packet_times[packet, 0] = begin
    for part in range(1, row[J_LINES] + 1):
        card_writes(state, row[J_PORT], sharing.packets[packet, P_LINE] + part, begin)
    hold_card(state, sharing, row[J_PORT], begin)
    if row[J_DROPPING]:
        row[J_ENTRY_LOST] += 1
        lose(sharing, packet, begin)
        return False
    return enqueue(sharing, packet, sharing.paths[chain, 0], begin)


@compiled
def emit(state: State, sharing: Sharing, chain: int, now: float) -> bool:
    """Let a packet arrive over the port shared by all chains."""
    row = sharing.chains[chain]
    row[J_OFFERED] += 1
    begin = max(now, sharing.settings[E_RECEIVE_FREE])
    if begin - now > sharing.settings[E_WIRE_BACKLOG]:
        row[J_WIRE_LOST] += 1
        answer(sharing, chain, now, LOST)
        return False
    sharing.settings[E_RECEIVE_FREE] = begin + sharing.chain_times[chain, G_WIRE]
    return receive(state, sharing, chain, begin)


@compiled
def deliver(state: State, sharing: Sharing, packet: int, now: float) -> None:
    """Send a packet that has passed its chain, over the port shared by all chains."""
    chain = sharing.packets[packet, P_CHAIN]
    row = sharing.chains[chain]
    for part in range(1, row[J_LINES] + 1):
        card_reads(state, sharing, row[J_PORT], sharing.packets[packet, P_LINE] + part, now)
    hold_card(state, sharing, row[J_PORT], now)
    left = max(now, sharing.settings[E_SEND_FREE]) + sharing.chain_times[chain, G_WIRE]
    sharing.settings[E_SEND_FREE] = left
    sharing.latency[chain, row[J_SAMPLES] % LATENCY_SAMPLES] = left - sharing.packet_times[packet, 0]
    row[J_SAMPLES] += 1
    row[J_DELIVERED] += 1
    sharing.settings[E_LEFT] += 1.0
    row[J_MARKS] += sharing.packets[packet, P_MARKED]
    answer(sharing, chain, left, MARKED if sharing.packets[packet, P_MARKED] else DELIVERED)
    give_back(sharing, packet)


@compiled
def hand_on(state: State, sharing: Sharing, tenant: int, packet: int, now: float) -> float:
    """Pass a processed packet to the next stage, or send it; return the core's time for that [ns]."""
    chain = sharing.packets[packet, P_CHAIN]
    hop = sharing.packets[packet, P_HOP] + 1
    sharing.packets[packet, P_HOP] = hop
    if hop == sharing.chains[chain, J_HOPS]:
        deliver(state, sharing, packet, now)
        return 0.0
    stage = sharing.paths[chain, hop]
    position = sharing.stages[stage, Q_TAIL]
    port = sharing.chains[chain, J_PORT]
    if not enqueue(sharing, packet, stage, now):
        return 0.0
    return ring_access(state, sharing, port, tenant, stage, position, now)
