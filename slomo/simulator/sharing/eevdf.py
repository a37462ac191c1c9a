"""Simulate Linux's scheduler since 6.6 (EEVDF): of the NFs that had at most their share, the earliest deadline runs.

Stoica and Abdel-Wahab (1995), as in kernel/sched/fair.c of Linux 6.12 to 6.18 with default features: lag is kept during
sleep (PLACE_LAG), a task that falls asleep after more than its share stays queued until it would run (DELAY_DEQUEUE,
DELAY_ZERO), and a chosen task runs to its deadline while eligible (RUN_TO_PARITY). `slomo.compose.turns` predicts with
the same published rules; the simulator shares no code with it.
"""

from slomo.simulator.compilation import compiled
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.state import Sharing

#: Rounding tolerance of virtual times [ns], which are sums of many terms.
_ROUNDING = 1e-3


@compiled
def queued(sharing: Sharing, stage: int) -> bool:
    """Return whether an NF competes for its core: it is ready, running, or asleep after more than its share."""
    state = sharing.stages[stage, h.Q_STATE]
    return state in (h.READY, h.RUNNING) or sharing.stages[stage, h.Q_DELAYED] == 1


@compiled
def mean_runtime(sharing: Sharing, core: int) -> float:
    """Return the weighted mean of the competing NFs' virtual runtimes; the last mean if there are none."""
    weight, total = 0.0, 0.0
    base = sharing.core_times[core, h.L_LEAST]
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, h.Q_CORE] == core and queued(sharing, stage):
            row = sharing.stage_times[stage]
            weight += row[h.R_WEIGHT]
            total += row[h.R_WEIGHT] * (row[h.R_RUNTIME] - base)
    if weight > 0.0:
        sharing.core_times[core, h.L_LEAST] = base + total / weight
    return sharing.core_times[core, h.L_LEAST]


@compiled
def slice_of(sharing: Sharing, stage: int) -> float:
    """Return an NF's slice in virtual time [ns]."""
    return sharing.settings[h.E_BASE_SLICE] * h.UNIT_WEIGHT / sharing.stage_times[stage, h.R_WEIGHT]


@compiled
def slice_over(sharing: Sharing, stage: int) -> bool:
    """Return whether an NF has used its slice, and set its next deadline."""
    row = sharing.stage_times[stage]
    if row[h.R_RUNTIME] < row[h.R_DEADLINE]:
        return False
    row[h.R_DEADLINE] = row[h.R_RUNTIME] + slice_of(sharing, stage)
    return True


@compiled
def keep_lag(sharing: Sharing, core: int, stage: int) -> None:
    """Store the lag (time owed) of an NF that leaves the queue, at most two slices or a tick (`entity_lag`)."""
    row = sharing.stage_times[stage]
    most = max(2.0 * sharing.settings[h.E_BASE_SLICE], sharing.settings[h.E_TICK]) * h.UNIT_WEIGHT / row[h.R_WEIGHT]
    row[h.R_LAG] = min(max(mean_runtime(sharing, core) - row[h.R_RUNTIME], -most), most)


@compiled
def place(sharing: Sharing, core: int, stage: int) -> None:
    """Put a returning NF into the queue so that it keeps its lag; its deadline is one slice later."""
    row, others = sharing.stage_times[stage], 0.0
    for other in range(sharing.stages.shape[0]):
        if other != stage and sharing.stages[other, h.Q_CORE] == core and queued(sharing, other):
            others += sharing.stage_times[other, h.R_WEIGHT]
    lag = row[h.R_LAG] * (others + row[h.R_WEIGHT]) / others if others > 0.0 else 0.0
    row[h.R_RUNTIME] = mean_runtime(sharing, core) - lag
    row[h.R_DEADLINE] = row[h.R_RUNTIME] + slice_of(sharing, stage)


@compiled
def pick(sharing: Sharing, core: int, running: int) -> int:
    """Return which NF runs next; -1 if none does."""
    limit = mean_runtime(sharing, core) + _ROUNDING
    if running >= 0:
        row = sharing.stage_times[running]
        if row[h.R_RUNTIME] <= limit and row[h.R_RUNTIME] < row[h.R_PROTECTED]:
            return running
    best, least = -1, h.NEVER
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, h.Q_CORE] == core and queued(sharing, stage):
            row = sharing.stage_times[stage]
            if row[h.R_RUNTIME] <= limit and row[h.R_DEADLINE] < least:
                best, least = stage, row[h.R_DEADLINE]
    return best


@compiled
def next_due(sharing: Sharing, core: int, running: int) -> int:
    """Return the awake NF that runs next; a sleeping NF whose turn comes leaves the queue."""
    while True:
        stage = pick(sharing, core, running)
        if stage < 0 or sharing.stages[stage, h.Q_DELAYED] == 0:
            return stage
        keep_lag(sharing, core, stage)
        sharing.stage_times[stage, h.R_LAG] = min(0.0, sharing.stage_times[stage, h.R_LAG])
        sharing.stages[stage, h.Q_DELAYED] = 0


@compiled
def fall_asleep(sharing: Sharing, core: int, stage: int) -> None:
    """Take a running NF off the queue, unless it has had more than its share."""
    slice_over(sharing, stage)
    if sharing.stage_times[stage, h.R_RUNTIME] <= mean_runtime(sharing, core) + _ROUNDING:
        keep_lag(sharing, core, stage)
    else:
        sharing.stages[stage, h.Q_DELAYED] = 1


@compiled
def wake(sharing: Sharing, core: int, stage: int) -> None:
    """Put an NF back into the queue, before it is marked as ready."""
    if sharing.cores[core, h.K_RUNNING] < 0:
        next_due(sharing, core, -1)  # on an idle core, every sleeping NF has left the queue
    if sharing.stages[stage, h.Q_DELAYED] == 1:
        keep_lag(sharing, core, stage)
        sharing.stages[stage, h.Q_DELAYED] = 0
        if sharing.stage_times[stage, h.R_LAG] > 0.0:
            sharing.stage_times[stage, h.R_LAG] = 0.0
            place(sharing, core, stage)
    else:
        place(sharing, core, stage)
