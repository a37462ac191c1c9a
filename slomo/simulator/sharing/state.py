"""The state of shared cores and chains as plain arrays, and the names of their columns.

Tenants in the machine's arrays are, in this order: the stages; for each chain, a network card, which owns the chain's
buffers; for each used core, the operating system's own lines.
"""

from typing import NamedTuple

import numpy as np

from slomo.simulator.state import Ints
from slomo.vocabulary.vector import Floats


class Sharing(NamedTuple):
    """Queues, schedulers, sources; the columns are the constants below."""

    settings: Floats  # (E_COLUMNS,)
    cores: Ints  # (cores, K_COLUMNS)
    core_times: Floats  # (cores, L_COLUMNS) [ns]
    stages: Ints  # (stages, Q_COLUMNS)
    stage_times: Floats  # (stages, R_COLUMNS) [ns]
    rings: Ints  # (stages, capacity) packets that wait
    done: Ints  # (stages, batch) processed packets that wait until their batch is complete
    costs: Floats  # (stages, costs) work per packet to draw from [ns per access]
    packets: Ints  # (packets, P_COLUMNS)
    packet_times: Floats  # (packets, 2) arrival at the machine, at the ring it waits in [ns]
    free: Ints  # (packets,) rings of free buffers, one after the other for each chain
    chains: Ints  # (chains, J_COLUMNS)
    chain_times: Floats  # (chains, G_COLUMNS) [ns]
    paths: Ints  # (chains, longest) stages in order
    answers: Floats  # (chains, ANSWERS) when the acknowledgement of a packet reaches the source [ns]
    verdicts: Ints  # (chains, ANSWERS) fate of the packet: delivered, marked or lost
    latency: Floats  # (chains, LATENCY_SAMPLES) [ns]
    l2_sockets: Ints  # (cores,) socket of each core in use
    domain_sockets: Ints  # (domains,) socket of each last-level cache


#: Capacity for acknowledgements in flight to a responsive source; larger than its window can be.
ANSWERS = 16384
MOST_WINDOW = 8192.0
DELIVERED, MARKED, LOST = range(3)
NEVER = np.inf

# settings: times of the machine [ns], and features of the manager
(
    E_SWITCH, E_SNOOP, E_SLICE, E_LATENCY, E_GRANULARITY, E_WAKEUP, E_TICK, E_SCAN, E_NEXT_SCAN, E_PRESSURE,
    E_WAITING, E_MARK_ABOVE, E_SMOOTHING, E_WIRE_BACKLOG, E_RECEIVE_FREE, E_SEND_FREE, E_STORAGE_FREE,
    E_STORAGE_NS_PER_B, E_STORAGE_LATENCY, E_SLACK, E_BATCH, E_KERNEL_LINES, E_BASE_SLICE, E_CARRY, E_LEFT, E_WAKING,
    E_COLUMNS,
) = range(27)  # fmt: skip
# cores
(
    K_RUNNING, K_LAST, K_POLICY, K_RESCHEDULE, K_TURN, K_KERNEL, K_KERNEL_LINE, K_READY, K_COLUMNS,
) = range(9)  # fmt: skip
ROUND_ROBIN, NORMAL, BATCH, EEVDF, EEVDF_BATCH = range(5)
#: Weight of a task of nice 0, the unit of virtual runtime (kernel/sched/sched.h).
UNIT_WEIGHT = 1024.0
# times of cores
L_CLOCK, L_MARK, L_PICKED, L_LEAST, L_NEXT_TICK, L_IDLE, L_SWITCHING, L_TIMER, L_COLUMNS = range(9)
# stages
(
    Q_CORE, Q_STATE, Q_HEAD, Q_TAIL, Q_CAPACITY, Q_HIGH, Q_LOW, Q_PACKET, Q_BATCH, Q_YIELD, Q_MARK, Q_LOCAL,
    Q_ONLY_NEXT, Q_OVERLOADED, Q_TURN, Q_ARRIVED, Q_DROPPED, Q_PROCESSED, Q_VOLUNTARY, Q_INVOLUNTARY, Q_WAITS_FOR,
    Q_STORAGE_B, Q_STORAGE_BUFFER_B, Q_BLOCKING, Q_WRITTEN_B, Q_COSTS, Q_RING_LINE, Q_WAITERS, Q_DONE, Q_DELAYED,
    Q_POLLS, Q_COLUMNS,
) = range(32)  # fmt: skip
ASLEEP, READY, RUNNING, YIELDED, STUCK, WRITING = range(6)
# times of stages; R_RUNTIME is the fair schedulers' virtual runtime
(
    R_RUNTIME, R_WEIGHT, R_CPU, R_BEGUN, R_COST, R_SMOOTHED, R_WAKE, R_OTHER_DONE, R_DEADLINE, R_LAG, R_PROTECTED,
    R_COLUMNS,
) = range(12)  # fmt: skip
# packets
P_CHAIN, P_HOP, P_MARKED, P_LINE, P_COLUMNS = range(5)
# chains
(
    J_HOPS, J_PORT, J_LINES, J_KIND, J_DROPPING, J_FREE_BASE, J_BUFFERS, J_FREE_HEAD, J_FREE_TAIL, J_ANSWER_HEAD,
    J_ANSWER_TAIL, J_OFFERED, J_ENTRY_LOST, J_QUEUE_LOST, J_WASTED, J_DELIVERED, J_MARKS, J_SAMPLES, J_COLUMNS,
) = range(19)  # fmt: skip
CONSTANT, SATURATING, RESPONSIVE = range(3)
# times of chains
(
    G_INTERVAL, G_NEXT, G_FROM, G_TO, G_WINDOW, G_THRESHOLD, G_IN_FLIGHT, G_ROUND_TRIP, G_RECOVERED, G_NEXT_SEND,
    G_WIRE, G_LAST_SENT, G_COLUMNS,
) = range(13)  # fmt: skip


def zero_counts(sharing: Sharing) -> None:
    """Reset all counts; queues, schedulers and sources continue."""
    for column in (Q_ARRIVED, Q_DROPPED, Q_PROCESSED, Q_VOLUNTARY, Q_INVOLUNTARY):
        sharing.stages[:, column] = 0
    sharing.stage_times[:, R_CPU] = 0.0
    sharing.core_times[:, [L_IDLE, L_SWITCHING]] = 0.0
    sharing.chains[:, J_OFFERED:J_COLUMNS] = 0
