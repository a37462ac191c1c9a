"""The manager's round over the rings: detect overloaded stages, stop upstream packets, mark packets.

NFVnice (SIGCOMM'17), section 3.3. Stages on a shared core sleep on an empty ring until the manager's thread finds
packets there (OpenNetVM's wake thread). If one process does everything, as on a host (`synthetic_nf/src/chain.c`), a
round also brings packets in and out, which takes time.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.sharing.chain import receive
from slomo.simulator.sharing.cores import make_ready
from slomo.simulator.sharing.state import (
    ASLEEP,
    CONSTANT,
    E_CARRY,
    E_LEFT,
    E_MARK_ABOVE,
    E_NEXT_SCAN,
    E_PRESSURE,
    E_SCAN,
    E_SMOOTHING,
    E_WAITING,
    E_WAKING,
    G_INTERVAL,
    G_NEXT,
    G_TO,
    J_DROPPING,
    J_ENTRY_LOST,
    J_HOPS,
    J_KIND,
    J_OFFERED,
    J_QUEUE_LOST,
    Q_ARRIVED,
    Q_CAPACITY,
    Q_DROPPED,
    Q_HEAD,
    Q_HIGH,
    Q_LOW,
    Q_MARK,
    Q_OVERLOADED,
    Q_STATE,
    Q_TAIL,
    Q_WAITS_FOR,
    Q_YIELD,
    R_SMOOTHED,
    STUCK,
    YIELDED,
    Sharing,
)
from slomo.simulator.state import State


@compiled
def look_at_rings(sharing: Sharing, now: float) -> None:
    """Determine which stages are overloaded, and their rings' mean lengths."""
    for stage in range(sharing.stages.shape[0]):
        row = sharing.stages[stage]
        length = row[Q_TAIL] - row[Q_HEAD]
        if row[Q_OVERLOADED]:
            row[Q_OVERLOADED] = 1 if length >= row[Q_LOW] else 0
        elif length > row[Q_HIGH]:
            oldest = sharing.rings[stage, row[Q_HEAD] & (row[Q_CAPACITY] - 1)]
            row[Q_OVERLOADED] = 1 if now - sharing.packet_times[oldest, 1] > sharing.settings[E_WAITING] else 0
        weight = sharing.settings[E_SMOOTHING]
        smoothed = sharing.stage_times[stage, R_SMOOTHED] * (1.0 - weight) + length * weight
        sharing.stage_times[stage, R_SMOOTHED] = smoothed
        row[Q_MARK] = 1 if smoothed > sharing.settings[E_MARK_ABOVE] * row[Q_CAPACITY] else 0


@compiled
def stop_upstream(sharing: Sharing) -> None:
    """Drop packets at the entry of chains with an overloaded stage, and flag the stages before it."""
    for stage in range(sharing.stages.shape[0]):
        sharing.stages[stage, Q_YIELD] = 0
    for chain in range(sharing.chains.shape[0]):
        sharing.chains[chain, J_DROPPING] = 0
        for hop in range(1, sharing.chains[chain, J_HOPS]):
            if sharing.stages[sharing.paths[chain, hop], Q_OVERLOADED]:
                sharing.chains[chain, J_DROPPING] = 1
                for before in range(hop):
                    sharing.stages[sharing.paths[chain, before], Q_YIELD] = 1
    for chain in range(sharing.chains.shape[0]):  # a stage is still of use to a chain with nothing overloaded behind it
        for hop in range(sharing.chains[chain, J_HOPS] - 1, -1, -1):
            sharing.stages[sharing.paths[chain, hop], Q_YIELD] = 0
            if sharing.stages[sharing.paths[chain, hop], Q_OVERLOADED]:
                break


@compiled
def bring(state: State, sharing: Sharing, now: float) -> float:
    """Take packets that left the chains, bring those that arrived; return the time for that [ns]."""
    each = 0.5 * sharing.settings[E_CARRY]
    spent = each * sharing.settings[E_LEFT]
    for chain in range(sharing.chains.shape[0]):
        row, times = sharing.chains[chain], sharing.chain_times[chain]
        if row[J_KIND] != CONSTANT or not times[G_NEXT] <= min(now, times[G_TO]):
            continue
        due = int((min(now, times[G_TO]) - times[G_NEXT]) / times[G_INTERVAL]) + 1
        times[G_NEXT] += due * times[G_INTERVAL]
        row[J_OFFERED] += due
        if row[J_DROPPING]:
            row[J_ENTRY_LOST] += due
            continue
        first = sharing.stages[sharing.paths[chain, 0]]
        put = min(due, first[Q_CAPACITY] - (first[Q_TAIL] - first[Q_HEAD]))
        first[Q_ARRIVED] += due - put
        first[Q_DROPPED] += due - put
        row[J_QUEUE_LOST] += due - put
        for _ in range(put):
            receive(state, sharing, chain, now + spent)
            spent += each
    sharing.settings[E_LEFT] = 0.0
    return spent


@compiled
def wake_stages(sharing: Sharing, now: float) -> None:
    """Wake stages that sleep before waiting packets, or that waited for room which now exists."""
    for stage in range(sharing.stages.shape[0]):
        row = sharing.stages[stage]
        if row[Q_YIELD] or row[Q_TAIL] == row[Q_HEAD]:
            continue
        room = False
        if row[Q_STATE] == STUCK:
            ahead = sharing.stages[row[Q_WAITS_FOR]]
            room = ahead[Q_TAIL] - ahead[Q_HEAD] <= ahead[Q_LOW]
        if room or row[Q_STATE] == ASLEEP or row[Q_STATE] == YIELDED:
            make_ready(sharing, stage, now)


@inner
def scan(state: State, sharing: Sharing) -> None:
    """Run one round of the manager's thread: marks, packets if it carries them, then wake-ups."""
    settings = sharing.settings
    now = settings[E_NEXT_SCAN]
    if settings[E_WAKING] == 0.0:
        look_at_rings(sharing, now)
        if settings[E_PRESSURE]:
            stop_upstream(sharing)
        if settings[E_CARRY] > 0.0:
            settings[E_WAKING] = 1.0
            settings[E_NEXT_SCAN] = now + bring(state, sharing, now)
            return
    settings[E_WAKING] = 0.0
    settings[E_NEXT_SCAN] = now + settings[E_SCAN]
    wake_stages(sharing, now)
