"""Simulate the manager's round over the rings: find overloaded stages, drop packets at the entry, mark packets.

NFVnice (SIGCOMM'17), section 3.3. Stages on a shared core sleep on an empty ring until the manager's thread finds
packets there (OpenNetVM's wake thread). If the manager also moves packets into and out of the chains, as on a host
(`synthetic_nf/src/chain.c`), its round takes time.
"""

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.chain import receive
from slomo.simulator.sharing.cores import make_ready
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State


@compiled
def look_at_rings(sharing: Sharing, now: float) -> None:
    """Determine which stages are overloaded, and update the mean lengths of rings."""
    for stage in range(sharing.stages.shape[0]):
        row = sharing.stages[stage]
        length = row[h.Q_TAIL] - row[h.Q_HEAD]
        if row[h.Q_OVERLOADED]:
            row[h.Q_OVERLOADED] = 1 if length >= row[h.Q_LOW] else 0
        elif length > row[h.Q_HIGH]:
            oldest = sharing.rings[stage, row[h.Q_HEAD] & (row[h.Q_CAPACITY] - 1)]
            row[h.Q_OVERLOADED] = 1 if now - sharing.packet_times[oldest, 1] > sharing.settings[h.E_WAITING] else 0
        weight = sharing.settings[h.E_SMOOTHING]
        smoothed = sharing.stage_times[stage, h.R_SMOOTHED] * (1.0 - weight) + length * weight
        sharing.stage_times[stage, h.R_SMOOTHED] = smoothed
        row[h.Q_MARK] = 1 if smoothed > sharing.settings[h.E_MARK_ABOVE] * row[h.Q_CAPACITY] else 0


@compiled
def stop_upstream(sharing: Sharing) -> None:
    """Drop packets at the entry of chains with an overloaded stage."""
    for stage in range(sharing.stages.shape[0]):
        sharing.stages[stage, h.Q_YIELD] = 0
    for chain in range(sharing.chains.shape[0]):
        sharing.chains[chain, h.J_DROPPING] = 0
        for hop in range(1, sharing.chains[chain, h.J_HOPS]):
            if sharing.stages[sharing.paths[chain, hop], h.Q_OVERLOADED]:
                sharing.chains[chain, h.J_DROPPING] = 1
                for before in range(hop):
                    sharing.stages[sharing.paths[chain, before], h.Q_YIELD] = 1
    for chain in range(sharing.chains.shape[0]):  # a stage may run if nothing behind it is overloaded
        for hop in range(sharing.chains[chain, h.J_HOPS] - 1, -1, -1):
            sharing.stages[sharing.paths[chain, hop], h.Q_YIELD] = 0
            if sharing.stages[sharing.paths[chain, hop], h.Q_OVERLOADED]:
                break


@compiled
def bring(state: State, sharing: Sharing, now: float) -> float:
    """Let the manager move packets out of the chains and into them; return the time that it takes [ns]."""
    each = 0.5 * sharing.settings[h.E_CARRY]
    spent = each * sharing.settings[h.E_LEFT]
    for chain in range(sharing.chains.shape[0]):
        row, times = sharing.chains[chain], sharing.chain_times[chain]
        if row[h.J_KIND] != h.CONSTANT or not times[h.G_NEXT] <= min(now, times[h.G_TO]):
            continue
        due = int((min(now, times[h.G_TO]) - times[h.G_NEXT]) / times[h.G_INTERVAL]) + 1
        times[h.G_NEXT] += due * times[h.G_INTERVAL]
        row[h.J_OFFERED] += due
        if row[h.J_DROPPING]:
            row[h.J_ENTRY_LOST] += due
            continue
        first = sharing.stages[sharing.paths[chain, 0]]
        put = min(due, first[h.Q_CAPACITY] - (first[h.Q_TAIL] - first[h.Q_HEAD]))
        first[h.Q_ARRIVED] += due - put
        first[h.Q_DROPPED] += due - put
        row[h.J_QUEUE_LOST] += due - put
        for _ in range(put):
            receive(state, sharing, chain, now + spent)
            spent += each
    sharing.settings[h.E_LEFT] = 0.0
    return spent


@compiled
def wake_stages(sharing: Sharing, now: float) -> None:
    """Wake stages whose rings hold packets, and stages for which the next ring has room again."""
    for stage in range(sharing.stages.shape[0]):
        row = sharing.stages[stage]
        if row[h.Q_YIELD] or row[h.Q_TAIL] == row[h.Q_HEAD]:
            continue
        room = False
        if row[h.Q_STATE] == h.STUCK:
            ahead = sharing.stages[row[h.Q_WAITS_FOR]]
            room = ahead[h.Q_TAIL] - ahead[h.Q_HEAD] <= ahead[h.Q_LOW]
        if room or row[h.Q_STATE] == h.ASLEEP or row[h.Q_STATE] == h.YIELDED:
            make_ready(sharing, stage, now)


@inner
def scan(state: State, sharing: Sharing) -> None:
    """Run one round of the manager: overload marks, packets if the manager moves them, then wake-ups."""
    settings = sharing.settings
    now = settings[h.E_NEXT_SCAN]
    if settings[h.E_WAKING] == 0.0:
        look_at_rings(sharing, now)
        if settings[h.E_PRESSURE]:
            stop_upstream(sharing)
        if settings[h.E_CARRY] > 0.0:
            settings[h.E_WAKING] = 1.0
            settings[h.E_NEXT_SCAN] = now + bring(state, sharing, now)
            return
    settings[h.E_WAKING] = 0.0
    settings[h.E_NEXT_SCAN] = now + settings[h.E_SCAN]
    wake_stages(sharing, now)
