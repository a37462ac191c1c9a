"""Linux's fair scheduler since 6.6 (EEVDF): earliest deadline among tasks that have had at most their share.

Stoica and Abdel-Wahab (1995), as in kernel/sched/fair.c of Linux 6.12 to 6.18 with default features: lag is kept during
sleep (PLACE_LAG), a sleeper that owes time stays queued until it would run (DELAY_DEQUEUE, DELAY_ZERO), and a chosen
task runs to its deadline while eligible (RUN_TO_PARITY). `slomo.compose.turns` predicts with the same published rules;
the simulator shares no code with it.
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

#: Rounding tolerance of virtual times [ns], which are sums of many terms.
_ROUNDING = 1e-3


@compiled
def queued(sharing: Sharing, stage: int) -> bool:
    """Return whether an NF competes for its core: ready, running, or asleep while it owes time."""
    state = sharing.stages[stage, Q_STATE]
    return state in (READY, RUNNING) or sharing.stages[stage, Q_DELAYED] == 1


@compiled
def mean_runtime(sharing: Sharing, core: int) -> float:
    """Return the weighted mean of the competing NFs' virtual runtimes; the last mean if there are none."""
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
    """Return whether an NF has used its slice, and set its next deadline."""
    row = sharing.stage_times[stage]
    if row[R_RUNTIME] < row[R_DEADLINE]:
        return False
    row[R_DEADLINE] = row[R_RUNTIME] + slice_of(sharing, stage)
    return True


@compiled
def keep_lag(sharing: Sharing, core: int, stage: int) -> None:
    """Store the time owed to an NF that leaves, at most two slices or a tick (`entity_lag`)."""
    row = sharing.stage_times[stage]
    most = max(2.0 * sharing.settings[E_BASE_SLICE], sharing.settings[E_TICK]) * UNIT_WEIGHT / row[R_WEIGHT]
    row[R_LAG] = min(max(mean_runtime(sharing, core) - row[R_RUNTIME], -most), most)


@compiled
def place(sharing: Sharing, core: int, stage: int) -> None:
    """Place a returning NF so that it keeps its lag, adjusted for its own weight; its deadline is one slice later."""
    row, others = sharing.stage_times[stage], 0.0
    for other in range(sharing.stages.shape[0]):
        if other != stage and sharing.stages[other, Q_CORE] == core and queued(sharing, other):
            others += sharing.stage_times[other, R_WEIGHT]
    lag = row[R_LAG] * (others + row[R_WEIGHT]) / others if others > 0.0 else 0.0
    row[R_RUNTIME] = mean_runtime(sharing, core) - lag
    row[R_DEADLINE] = row[R_RUNTIME] + slice_of(sharing, stage)


@compiled
def pick(sharing: Sharing, core: int, running: int) -> int:
    """Return the NF to run, or -1: the running one while eligible and protected, else the earliest deadline."""
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
    """Return the next NF that is awake; sleepers whose turn comes leave the queue and their debt is cleared."""
    while True:
        stage = pick(sharing, core, running)
        if stage < 0 or sharing.stages[stage, Q_DELAYED] == 0:
            return stage
        keep_lag(sharing, core, stage)
        sharing.stage_times[stage, R_LAG] = min(0.0, sharing.stage_times[stage, R_LAG])
        sharing.stages[stage, Q_DELAYED] = 0


@compiled
def fall_asleep(sharing: Sharing, core: int, stage: int) -> None:
    """Take a running NF off the queue, unless it owes time; called before its state changes."""
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
