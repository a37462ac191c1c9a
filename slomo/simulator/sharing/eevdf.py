"""Linux's fair scheduler since 6.6: the earliest deadline among those that had no more than their part.

Stoica and Abdel-Wahab (1995), as kernel/sched/fair.c of Linux 6.12 to 6.18 by its default features: lag is kept
while asleep (PLACE_LAG), who sleeps owing time competes on until it is due (DELAY_DEQUEUE, DELAY_ZERO), and who was
picked runs to its deadline while it is eligible (RUN_TO_PARITY). `slomo.compose.turns` predicts with the same published
rules; this room shares no code with it.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled
from slomo.simulator.sharing.state import (
    E_BASE_SLICE,
    E_TICK,
    K_RUNNING,
    L_LEAST,
    NEVER,
    Q_CORE,
    Q_DELAYED,
    Q_STATE,
    R_DEADLINE,
    R_LAG,
    R_PROTECTED,
    R_RUNTIME,
    R_WEIGHT,
    READY,
    RUNNING,
    UNIT_WEIGHT,
    Sharing,
)

#: Virtual times [ns] are sums of many: so much is no difference.
_ROUNDING = 1e-3


@compiled
def queued(sharing: Sharing, stage: int) -> bool:
    """Say whether an NF competes for its core: ready, running, or asleep while it owes time."""
    state = sharing.stages[stage, Q_STATE]
    return state in (READY, RUNNING) or sharing.stages[stage, Q_DELAYED] == 1


@compiled
def mean_runtime(sharing: Sharing, core: int) -> float:
    """Return the weighted mean of virtual runtimes of those that compete for a core; the last one if nobody does."""
    weight, total = 0.0, 0.0
    base = sharing.core_times[core, L_LEAST]
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, Q_CORE] == core and queued(sharing, stage):
            row = sharing.stage_times[stage]
            weight += row[R_WEIGHT]
            total += row[R_WEIGHT] * (row[R_RUNTIME] - base)
    if weight > 0.0:
        sharing.core_times[core, L_LEAST] = base + total / weight
    return sharing.core_times[core, L_LEAST]


@compiled
def slice_of(sharing: Sharing, stage: int) -> float:
    """Return an NF's slice in virtual time [ns]."""
    return sharing.settings[E_BASE_SLICE] * UNIT_WEIGHT / sharing.stage_times[stage, R_WEIGHT]


@compiled
def slice_over(sharing: Sharing, stage: int) -> bool:
    """Say whether an NF has had its slice, and set its next deadline."""
    row = sharing.stage_times[stage]
    if row[R_RUNTIME] < row[R_DEADLINE]:
        return False
    row[R_DEADLINE] = row[R_RUNTIME] + slice_of(sharing, stage)
    return True


@compiled
def keep_lag(sharing: Sharing, core: int, stage: int) -> None:
    """Note what is owed to an NF that leaves, at most two slices or a tick."""
    row = sharing.stage_times[stage]
    most = max(2.0 * sharing.settings[E_BASE_SLICE], sharing.settings[E_TICK]) * UNIT_WEIGHT / row[R_WEIGHT]
    row[R_LAG] = min(max(mean_runtime(sharing, core) - row[R_RUNTIME], -most), most)


@compiled
def place(sharing: Sharing, core: int, stage: int) -> None:
    """Put an NF that comes back where it keeps its lag, which its own weight moves; its deadline is a slice on."""
    row, others = sharing.stage_times[stage], 0.0
    for other in range(sharing.stages.shape[0]):
        if other != stage and sharing.stages[other, Q_CORE] == core and queued(sharing, other):
            others += sharing.stage_times[other, R_WEIGHT]
    lag = row[R_LAG] * (others + row[R_WEIGHT]) / others if others > 0.0 else 0.0
    row[R_RUNTIME] = mean_runtime(sharing, core) - lag
    row[R_DEADLINE] = row[R_RUNTIME] + slice_of(sharing, stage)


@compiled
def pick(sharing: Sharing, core: int, running: int) -> int:
    """Return who is due on a core, or -1: who runs while it is eligible and protected, else the earliest deadline."""
    limit = mean_runtime(sharing, core) + _ROUNDING
    if running >= 0:
        row = sharing.stage_times[running]
        if row[R_RUNTIME] <= limit and row[R_RUNTIME] < row[R_PROTECTED]:
            return running
    best, least = -1, NEVER
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, Q_CORE] == core and queued(sharing, stage):
            row = sharing.stage_times[stage]
            if row[R_RUNTIME] <= limit and row[R_DEADLINE] < least:
                best, least = stage, row[R_DEADLINE]
    return best


@compiled
def next_due(sharing: Sharing, core: int, running: int) -> int:
    """Return who is due and awake; sleepers whose turn comes leave, and owe nothing more than they are owed."""
    while True:
        stage = pick(sharing, core, running)
        if stage < 0 or sharing.stages[stage, Q_DELAYED] == 0:
            return stage
        keep_lag(sharing, core, stage)
        sharing.stage_times[stage, R_LAG] = min(0.0, sharing.stage_times[stage, R_LAG])
        sharing.stages[stage, Q_DELAYED] = 0


@compiled
def fall_asleep(sharing: Sharing, core: int, stage: int) -> None:
    """Take an NF that runs off the queue, unless it owes time; called before its state changes."""
    slice_over(sharing, stage)
    if sharing.stage_times[stage, R_RUNTIME] <= mean_runtime(sharing, core) + _ROUNDING:
        keep_lag(sharing, core, stage)
    else:
        sharing.stages[stage, Q_DELAYED] = 1


@compiled
def wake(sharing: Sharing, core: int, stage: int) -> None:
    """Put an NF back on the queue; called before it is ready."""
    if sharing.cores[core, K_RUNNING] < 0:
        next_due(sharing, core, -1)  # an idle core has let go of all who slept on it owing time
    if sharing.stages[stage, Q_DELAYED] == 1:
        keep_lag(sharing, core, stage)
        sharing.stages[stage, Q_DELAYED] = 0
        if sharing.stage_times[stage, R_LAG] > 0.0:
            sharing.stage_times[stage, R_LAG] = 0.0
            place(sharing, core, stage)
    else:
        place(sharing, core, stage)
