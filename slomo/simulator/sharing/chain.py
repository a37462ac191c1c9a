"""Move packets through a chain: into it, from stage to stage, and out; a full ring drops them.

Before each stage is a ring with a capacity and two watermarks (OpenNetVM, NFVnice, SIGCOMM'17). A ring's descriptors
are cache lines too, eight per line, which move between the caches of producer and consumer (DPDK ``rte_ring``).
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.cores import make_ready
from slomo.simulator.sharing.link import card_reads, card_writes, packet_access
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State

#: Descriptors (pointers) per cache line of a ring.
SLOTS_PER_LINE = 8


@inner
def send_answer(sharing: Sharing, chain: int, now: float, verdict: int) -> None:
    """Tell a TCP-like source, one round trip later, whether its packet was delivered, marked or lost."""
    row = sharing.chains[chain]
    slot = row[h.J_ANSWER_TAIL] % h.ANSWERS
    when = now + sharing.chain_times[chain, h.G_ROUND_TRIP]
    if row[h.J_ANSWER_TAIL] > row[h.J_ANSWER_HEAD]:
        when = max(when, sharing.answers[chain, (row[h.J_ANSWER_TAIL] - 1) % h.ANSWERS])
    sharing.answers[chain, slot] = when
    sharing.verdicts[chain, slot] = verdict
    row[h.J_ANSWER_TAIL] += 1
    first = sharing.answers[chain, row[h.J_ANSWER_HEAD] % h.ANSWERS]
    sharing.chain_times[chain, h.G_NEXT] = min(sharing.chain_times[chain, h.G_NEXT_SEND], first)


@compiled
def answer(sharing: Sharing, chain: int, now: float, verdict: int) -> None:
    """Tell a TCP-like source at once whether its packet was delivered, marked or lost."""
    if sharing.chains[chain, h.J_KIND] == h.RESPONSIVE:
        send_answer(sharing, chain, now, verdict)


@compiled
def give_back(sharing: Sharing, packet: int) -> None:
    """Return a packet's buffer to the end of its pool's free ring."""
    row = sharing.chains[sharing.packets[packet, h.P_CHAIN]]
    sharing.free[row[h.J_FREE_BASE] + row[h.J_FREE_TAIL] % row[h.J_BUFFERS]] = packet
    row[h.J_FREE_TAIL] += 1


@compiled
def lose(sharing: Sharing, packet: int, now: float) -> None:
    """Drop a packet, and tell a TCP-like source."""
    sharing.settings[h.E_LEFT] += 1.0
    answer(sharing, sharing.packets[packet, h.P_CHAIN], now, h.LOST)
    give_back(sharing, packet)


@compiled
def enqueue(sharing: Sharing, packet: int, stage: int, now: float) -> bool:
    """Put a packet into a stage's ring, or drop it if the ring is full."""
    row, chain = sharing.stages[stage], sharing.packets[packet, h.P_CHAIN]
    row[h.Q_ARRIVED] += 1
    if row[h.Q_TAIL] - row[h.Q_HEAD] >= row[h.Q_CAPACITY]:
        row[h.Q_DROPPED] += 1
        sharing.chains[chain, h.J_QUEUE_LOST] += 1
        if sharing.packets[packet, h.P_HOP] > 0:
            sharing.chains[chain, h.J_WASTED] += 1
        lose(sharing, packet, now)
        return False
    if row[h.Q_MARK] and sharing.chains[chain, h.J_KIND] == h.RESPONSIVE:
        sharing.packets[packet, h.P_MARKED] = 1
    sharing.rings[stage, row[h.Q_TAIL] & (row[h.Q_CAPACITY] - 1)] = packet
    sharing.packet_times[packet, 1] = now
    row[h.Q_TAIL] += 1
    if row[h.Q_POLLS] and row[h.Q_STATE] == h.ASLEEP and not row[h.Q_YIELD]:
        make_ready(sharing, stage, now)
    return True


@compiled
def ring_access(state: State, sharing: Sharing, port: int, tenant: int, stage: int, position: int, now: float) -> float:
    """Access a ring's descriptor; return the latency [ns], which is 0 if its line was accessed just before."""
    if position % SLOTS_PER_LINE:
        return 0.0
    row = sharing.stages[stage]
    line = row[h.Q_RING_LINE] + (position & (row[h.Q_CAPACITY] - 1)) // SLOTS_PER_LINE
    return packet_access(state, sharing, port, tenant, line, 1, now)


@compiled
def dequeue(sharing: Sharing, stage: int, now: float) -> int:
    """Take the oldest packet from a ring; a stage that waits for room in the ring may continue."""
    row = sharing.stages[stage]
    packet = sharing.rings[stage, row[h.Q_HEAD] & (row[h.Q_CAPACITY] - 1)]
    row[h.Q_HEAD] += 1
    if row[h.Q_WAITERS] and row[h.Q_TAIL] - row[h.Q_HEAD] < row[h.Q_HIGH]:
        row[h.Q_WAITERS] = 0
        for other in range(sharing.stages.shape[0]):
            waits = sharing.stages[other, h.Q_STATE] == h.STUCK and sharing.stages[other, h.Q_WAITS_FOR] == stage
            if waits and sharing.stages[other, h.Q_POLLS]:
                make_ready(sharing, other, now)
    return packet


@compiled
def hold_card(state: State, sharing: Sharing, port: int, now: float) -> None:
    """Let the network card wait until the queue of the memory that holds its buffers has room again."""
    channel = state.channels[state.tenants[port, s.T_MEMORY_SOCKET]]
    excess = channel[s.H_BACKLOG] - max(0.0, now - channel[s.H_LAST]) - state.timing[s.X_BUFFERED]
    if excess > 0.0:
        sharing.settings[h.E_RECEIVE_FREE] = max(sharing.settings[h.E_RECEIVE_FREE], now + excess)


@inner
def receive(state: State, sharing: Sharing, chain: int, begin: float) -> bool:
    """Put an arrived packet into a buffer and the first ring, unless back-pressure drops it at the chain's entry."""
    row = sharing.chains[chain]
    if row[h.J_FREE_HEAD] == row[h.J_FREE_TAIL]:
        answer(sharing, chain, begin, h.LOST)
        return False
    packet = sharing.free[row[h.J_FREE_BASE] + row[h.J_FREE_HEAD] % row[h.J_BUFFERS]]
    row[h.J_FREE_HEAD] += 1
    sharing.packets[packet, h.P_HOP] = 0
    sharing.packets[packet, h.P_MARKED] = 0
    sharing.packet_times[packet, 0] = begin
    for part in range(1, row[h.J_LINES] + 1):
        card_writes(state, row[h.J_PORT], sharing.packets[packet, h.P_LINE] + part, begin)
    hold_card(state, sharing, row[h.J_PORT], begin)
    if row[h.J_DROPPING]:
        row[h.J_ENTRY_LOST] += 1
        lose(sharing, packet, begin)
        return False
    return enqueue(sharing, packet, sharing.paths[chain, 0], begin)


@compiled
def emit(state: State, sharing: Sharing, chain: int, now: float) -> bool:
    """Let a packet arrive over the port that all chains share."""
    row = sharing.chains[chain]
    row[h.J_OFFERED] += 1
    begin = max(now, sharing.settings[h.E_RECEIVE_FREE])
    if begin - now > sharing.settings[h.E_WIRE_BACKLOG]:
        answer(sharing, chain, now, h.LOST)
        return False
    sharing.settings[h.E_RECEIVE_FREE] = begin + sharing.chain_times[chain, h.G_WIRE]
    return receive(state, sharing, chain, begin)


@compiled
def deliver(state: State, sharing: Sharing, packet: int, now: float) -> None:
    """Send a packet that has passed its chain, over the port shared by all chains."""
    chain = sharing.packets[packet, h.P_CHAIN]
    row = sharing.chains[chain]
    for part in range(1, row[h.J_LINES] + 1):
        card_reads(state, sharing, row[h.J_PORT], sharing.packets[packet, h.P_LINE] + part, now)
    hold_card(state, sharing, row[h.J_PORT], now)
    left = max(now, sharing.settings[h.E_SEND_FREE]) + sharing.chain_times[chain, h.G_WIRE]
    sharing.settings[h.E_SEND_FREE] = left
    sharing.latency[chain, row[h.J_SAMPLES] % s.LATENCY_SAMPLES] = left - sharing.packet_times[packet, 0]
    row[h.J_SAMPLES] += 1
    row[h.J_DELIVERED] += 1
    sharing.settings[h.E_LEFT] += 1.0
    row[h.J_MARKS] += sharing.packets[packet, h.P_MARKED]
    answer(sharing, chain, left, h.MARKED if sharing.packets[packet, h.P_MARKED] else h.DELIVERED)
    give_back(sharing, packet)


@compiled
def hand_on(state: State, sharing: Sharing, tenant: int, packet: int, now: float) -> float:
    """Pass a processed packet to the next stage, or send it; return the core's time for that [ns]."""
    chain = sharing.packets[packet, h.P_CHAIN]
    hop = sharing.packets[packet, h.P_HOP] + 1
    sharing.packets[packet, h.P_HOP] = hop
    if hop == sharing.chains[chain, h.J_HOPS]:
        deliver(state, sharing, packet, now)
        return 0.0
    stage = sharing.paths[chain, hop]
    position = sharing.stages[stage, h.Q_TAIL]
    port = sharing.chains[chain, h.J_PORT]
    if not enqueue(sharing, packet, stage, now):
        return 0.0
    return ring_access(state, sharing, port, tenant, stage, position, now)
