"""The manager's look at the rings: which stages are overloaded, whom that stops, and where packets are marked.

NFVnice (SIGCOMM'17), section 3.3. The manager's thread plays these rules every few microseconds, as it
does beside real NFs (`synthetic_nf/src/`).
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.sharing.cores import make_ready
from slomo.simulator.sharing.state import (
    ASLEEP,
    E_MARK_ABOVE,
    E_NEXT_SCAN,
    E_PRESSURE,
    E_SCAN,
    E_SMOOTHING,
    E_WAITING,
    J_DROPPING,
    J_HOPS,
    Q_CAPACITY,
    Q_HEAD,
    Q_HIGH,
    Q_LOW,
    Q_MARK,
    Q_OVERLOADED,
    Q_STATE,
    Q_TAIL,
    Q_YIELD,
    R_SMOOTHED,
    YIELDED,
    Sharing,
)


@compiled
def look_at_rings(sharing: Sharing, now: float) -> None:
    """See which stages are overloaded and how long their rings are on average."""
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
    """Drop chains that pass an overloaded stage at their entry, and flag the stages that would only fill its ring."""
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


@inner
def scan(sharing: Sharing) -> None:
    """Do one round of the manager's thread."""
    now = sharing.settings[E_NEXT_SCAN]
    sharing.settings[E_NEXT_SCAN] = now + sharing.settings[E_SCAN]
    look_at_rings(sharing, now)
    if not sharing.settings[E_PRESSURE]:
        return
    stop_upstream(sharing)
    for stage in range(sharing.stages.shape[0]):
        row = sharing.stages[stage]
        if row[Q_YIELD]:
            continue
        if row[Q_STATE] == YIELDED or (row[Q_STATE] == ASLEEP and row[Q_TAIL] > row[Q_HEAD]):
            make_ready(sharing, stage, now)
