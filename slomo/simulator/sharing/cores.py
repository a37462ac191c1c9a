"""Simulate how several NFs share a core: which runs next, for how long, and what a switch costs.

Round robin (SCHED_RR) gives each NF one quantum in turn. CFS follows Linux 3 to 6.5 (kernel/sched/fair.c). The task
with the smallest virtual runtime runs; virtual runtime grows inversely to weight. A task that wakes has at most half a
period of credit. It preempts the running task under SCHED_NORMAL, not under SCHED_BATCH. EEVDF:
`slomo.simulator.sharing.eevdf`. A switch costs the time of the kernel's code, whose lines evict others from L2. The NFs
of a core share its simulated L2, so the cost of refilling it needs no constant.
"""

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.hierarchy import access
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.eevdf import fall_asleep, next_due, pick, slice_over, wake
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State

#: Kernel lines in flight at once.
KERNEL_MLP = 4.0


@compiled
def account(sharing: Sharing, core: int) -> None:
    """Charge the running NF for the time since the last charge."""
    times = sharing.core_times[core]
    stage = sharing.cores[core, h.K_RUNNING]
    spent = times[h.L_CLOCK] - times[h.L_MARK]
    times[h.L_MARK] = times[h.L_CLOCK]
    if stage < 0 or spent <= 0.0:
        return
    row = sharing.stage_times[stage]
    row[h.R_CPU] += spent
    row[h.R_RUNTIME] += spent * h.UNIT_WEIGHT / row[h.R_WEIGHT]


@compiled
def next_of(sharing: Sharing, core: int) -> int:
    """Return which ready NF runs next on a core, by its scheduler's rule; -1 if none is ready."""
    policy = sharing.cores[core, h.K_POLICY]
    if policy >= h.EEVDF:
        return next_due(sharing, core, -1)
    best, least = -1, h.NEVER
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, h.Q_CORE] == core and sharing.stages[stage, h.Q_STATE] == h.READY:
            rank = float(sharing.stages[stage, h.Q_TURN])
            if policy != h.ROUND_ROBIN:
                rank = sharing.stage_times[stage, h.R_RUNTIME]
            if rank < least:
                best, least = stage, rank
    return best


@compiled
def raise_least(sharing: Sharing, core: int) -> None:
    """Raise the core's minimum virtual runtime to the smallest one of its active NFs."""
    least = h.NEVER
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, h.Q_CORE] == core and (
            sharing.stages[stage, h.Q_STATE] == h.READY or sharing.stages[stage, h.Q_STATE] == h.RUNNING
        ):
            least = min(least, sharing.stage_times[stage, h.R_RUNTIME])
    if least < h.NEVER:
        sharing.core_times[core, h.L_LEAST] = max(sharing.core_times[core, h.L_LEAST], least)


@compiled
def look_at_slice(sharing: Sharing, core: int) -> None:
    """Apply EEVDF's tick: an NF whose time slice is over yields if others wait."""
    account(sharing, core)
    running = sharing.cores[core, h.K_RUNNING]
    if running >= 0:
        over = slice_over(sharing, running)
        row = sharing.stage_times[running]
        if (over or row[h.R_RUNTIME] >= row[h.R_PROTECTED]) and sharing.cores[core, h.K_READY] > 0:
            sharing.cores[core, h.K_RESCHEDULE] = 1


@inner
def make_ready(sharing: Sharing, stage: int, now: float) -> None:
    """Wake an NF: make it ready to run, by the rules of the core's scheduler; start it if the core is idle.

    Under round robin the NF joins the end of the core's queue. CFS gives it a credit for the time that it slept.
    """
    core = sharing.stages[stage, h.Q_CORE]
    times, row = sharing.core_times[core], sharing.stage_times[stage]
    running, policy = sharing.cores[core, h.K_RUNNING], sharing.cores[core, h.K_POLICY]
    idle = running < 0 and sharing.cores[core, h.K_READY] == 0
    if policy >= h.EEVDF:
        look_at_slice(sharing, core)
        wake(sharing, core, stage)
    sharing.stages[stage, h.Q_STATE] = h.READY
    sharing.cores[core, h.K_READY] += 1
    sharing.cores[core, h.K_TURN] += 1
    sharing.stages[stage, h.Q_TURN] = sharing.cores[core, h.K_TURN]
    account(sharing, core)
    if policy < h.EEVDF:
        raise_least(sharing, core)
        row[h.R_RUNTIME] = max(row[h.R_RUNTIME], times[h.L_LEAST] - 0.5 * sharing.settings[h.E_LATENCY])
    if idle:
        times[h.L_IDLE] += max(0.0, now - times[h.L_CLOCK])
        times[h.L_CLOCK] = max(times[h.L_CLOCK], now)
        times[h.L_MARK] = times[h.L_CLOCK]
    elif running >= 0 and policy == h.EEVDF:
        if pick(sharing, core, running) == stage:
            sharing.cores[core, h.K_RESCHEDULE] = 1
    elif running >= 0 and policy == h.NORMAL:
        ahead = sharing.stage_times[running, h.R_RUNTIME] - row[h.R_RUNTIME]
        if ahead > sharing.settings[h.E_WAKEUP] * h.UNIT_WEIGHT / row[h.R_WEIGHT]:
            sharing.cores[core, h.K_RESCHEDULE] = 1


@compiled
def switch_to(state: State, sharing: Sharing, core: int, stage: int) -> None:
    """Switch the core to an NF, and charge the cost of the switch."""
    times, row = sharing.core_times[core], sharing.cores[core]
    if sharing.stages[stage, h.Q_POLLS] and row[h.K_LAST] == stage and sharing.stages[stage, h.Q_STORAGE_B] == 0:
        start(sharing, core, stage)
        return
    begun = times[h.L_CLOCK]
    now = begun + sharing.settings[h.E_SWITCH]
    for part in range(int(sharing.settings[h.E_KERNEL_LINES])):
        now += access(state, row[h.K_KERNEL], row[h.K_KERNEL_LINE] + part, 1, now, 1.0) / KERNEL_MLP
    times[h.L_CLOCK] = now
    times[h.L_SWITCHING] += now - begun
    start(sharing, core, stage)


@compiled
def start(sharing: Sharing, core: int, stage: int) -> None:
    """Make an NF the running one of its core."""
    times, row = sharing.core_times[core], sharing.cores[core]
    times[h.L_MARK] = times[h.L_CLOCK]
    times[h.L_PICKED] = times[h.L_CLOCK]
    if row[h.K_RUNNING] != stage:  # an NF that continues is protected no longer than before
        sharing.stage_times[stage, h.R_PROTECTED] = sharing.stage_times[stage, h.R_DEADLINE]
    row[h.K_RUNNING] = stage
    row[h.K_LAST] = stage
    row[h.K_RESCHEDULE] = 0
    row[h.K_READY] -= 1
    sharing.stages[stage, h.Q_STATE] = h.RUNNING


@compiled
def leave(sharing: Sharing, core: int, becomes: int) -> None:
    """Take the running NF off its core because it sleeps, yields or waits."""
    account(sharing, core)
    stage = sharing.cores[core, h.K_RUNNING]
    if sharing.cores[core, h.K_POLICY] >= h.EEVDF:
        fall_asleep(sharing, core, stage)
    sharing.stages[stage, h.Q_STATE] = becomes
    sharing.stages[stage, h.Q_VOLUNTARY] += 1
    sharing.stages[stage, h.Q_BATCH] = 0
    sharing.cores[core, h.K_RUNNING] = -1


@compiled
def period_share(sharing: Sharing, core: int, stage: int) -> float:
    """Return CFS's slice [ns]: a part of the period (longer with many NFs), in proportion to weight."""
    count, total = 0, 0.0
    for other in range(sharing.stages.shape[0]):
        ready = sharing.stages[other, h.Q_STATE] == h.READY or sharing.stages[other, h.Q_STATE] == h.RUNNING
        if sharing.stages[other, h.Q_CORE] == core and ready:
            count += 1
            total += sharing.stage_times[other, h.R_WEIGHT]
    period = max(sharing.settings[h.E_LATENCY], count * sharing.settings[h.E_GRANULARITY])
    return period * sharing.stage_times[stage, h.R_WEIGHT] / total


@inner
def tick(sharing: Sharing, core: int) -> None:
    """Apply the scheduler's tick: check whether the running NF has used its slice or quantum."""
    times, stage = sharing.core_times[core], sharing.cores[core, h.K_RUNNING]
    while times[h.L_NEXT_TICK] <= times[h.L_CLOCK]:
        times[h.L_NEXT_TICK] += sharing.settings[h.E_TICK]
    if sharing.cores[core, h.K_POLICY] >= h.EEVDF:
        look_at_slice(sharing, core)
        return
    account(sharing, core)
    other = next_of(sharing, core)
    if other < 0:
        return
    ran = times[h.L_CLOCK] - times[h.L_PICKED]
    if sharing.cores[core, h.K_POLICY] == h.ROUND_ROBIN:
        due = ran > sharing.settings[h.E_SLICE] - 0.5 * sharing.settings[h.E_TICK]  # a quantum is whole ticks
    else:
        ideal = period_share(sharing, core, stage)
        ahead = sharing.stage_times[stage, h.R_RUNTIME] - sharing.stage_times[other, h.R_RUNTIME]
        due = ran > ideal or (ran >= sharing.settings[h.E_GRANULARITY] and ahead > ideal)
    if due:
        sharing.cores[core, h.K_RESCHEDULE] = 1


@inner
def preempt(sharing: Sharing, core: int) -> None:
    """Put the running NF back into the queue; if the scheduler chooses it again, no switch is charged."""
    account(sharing, core)
    stage = sharing.cores[core, h.K_RUNNING]
    sharing.cores[core, h.K_TURN] += 1
    sharing.cores[core, h.K_READY] += 1
    sharing.stages[stage, h.Q_STATE] = h.READY
    sharing.stages[stage, h.Q_TURN] = sharing.cores[core, h.K_TURN]
    if sharing.cores[core, h.K_POLICY] >= h.EEVDF:
        due = next_due(sharing, core, stage)
    else:
        raise_least(sharing, core)
        due = next_of(sharing, core)
    if due == stage:
        start(sharing, core, stage)
        return
    sharing.stages[stage, h.Q_INVOLUNTARY] += 1
    sharing.cores[core, h.K_RUNNING] = -1


@inner
def timers(sharing: Sharing, core: int) -> None:
    """Wake the NFs of a core whose write to storage has finished."""
    now, soonest = sharing.core_times[core, h.L_CLOCK], h.NEVER
    if (
        sharing.cores[core, h.K_RUNNING] < 0 and sharing.cores[core, h.K_READY] == 0
    ):  # an idle core sleeps until the first timer
        now = max(now, sharing.core_times[core, h.L_TIMER])
    for stage in range(sharing.stages.shape[0]):
        if sharing.stages[stage, h.Q_CORE] == core and sharing.stages[stage, h.Q_STATE] == h.WRITING:
            wake = sharing.stage_times[stage, h.R_WAKE]
            if wake <= now:
                make_ready(sharing, stage, wake)
            else:
                soonest = min(soonest, wake)
    sharing.core_times[core, h.L_TIMER] = soonest
