"""Simulate accelerators (regex, crypto, compression): each serves one request at a time, its users in turn.

Yala (ASPLOS'25) finds that SmartNIC accelerators serve their queues round-robin: each user with waiting requests is
served once per round, so its request rate is 1 / (time of its request + sum of the others' times). A packet's requests
are served one per turn; packets of one user leave in order. The queues are simulated lazily: each access to an
accelerator advances it to the clock of its slowest user, but no further, since that user may still submit an earlier
request.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.state import State

#: Polling interval of a waiting core [ns].
POLL_NS = 10.0


@compiled
def submit(state: State, tenant: int, now: float) -> None:
    """Send the packet that the core has just finished to the accelerator."""
    slot = state.tenants[tenant, s.T_HEAD] % s.ACCELERATOR_SLOTS
    rates = state.rates[tenant]
    rates[s.F_REQUEST_CREDIT] += rates[s.F_REQUESTS]
    count = int(rates[s.F_REQUEST_CREDIT])
    rates[s.F_REQUEST_CREDIT] -= count
    state.requests[tenant, slot] = count
    state.queued[tenant, slot] = now


@inner
def pass_empty(state: State, tenant: int) -> None:
    """Mark packets without a request to the accelerator as finished, in order."""
    row = state.tenants[tenant]
    while row[s.T_SERVED] < row[s.T_HEAD]:
        slot = row[s.T_SERVED] % s.ACCELERATOR_SLOTS
        if state.requests[tenant, slot] > 0:
            return
        if row[s.T_SERVED] > 0:
            before = state.queued[tenant, (row[s.T_SERVED] - 1) % s.ACCELERATOR_SLOTS]
            state.queued[tenant, slot] = max(state.queued[tenant, slot], before)
        row[s.T_SERVED] += 1


@inner
def earliest_request(state: State, accelerator: int) -> float:
    """Return when the oldest waiting request was queued; infinity if none waits."""
    soonest = float("inf")
    for tenant in range(state.clock.size):
        row = state.tenants[tenant]
        if row[s.T_ACCELERATOR] == accelerator:
            pass_empty(state, tenant)
            if row[s.T_SERVED] < row[s.T_HEAD]:
                soonest = min(soonest, state.queued[tenant, row[s.T_SERVED] % s.ACCELERATOR_SLOTS])
    return soonest


@inner
def serve(state: State, accelerator: int) -> None:
    """Serve all requests in turn that start before any user can submit another one."""
    channel = state.channels[accelerator]
    users = state.clock.size
    now = float("inf")
    for tenant in range(users):
        if state.tenants[tenant, s.T_ACCELERATOR] == accelerator:
            now = min(now, state.clock[tenant])
    while True:
        start = max(earliest_request(state, accelerator), channel[s.H_FREE])
        if start > now:
            return
        tenant = int(channel[s.H_TURN])
        for _ in range(users):
            tenant = tenant + 1 if tenant + 1 < users else 0
            row = state.tenants[tenant]
            waiting = row[s.T_ACCELERATOR] == accelerator and row[s.T_SERVED] < row[s.T_HEAD]
            if waiting and state.queued[tenant, row[s.T_SERVED] % s.ACCELERATOR_SLOTS] <= start:
                break
        channel[s.H_TURN] = tenant
        channel[s.H_FREE] = start + state.rates[tenant, s.F_ACCELERATOR]
        channel[s.H_BUSY_TOTAL] += state.rates[tenant, s.F_ACCELERATOR]
        row = state.tenants[tenant]
        slot = row[s.T_SERVED] % s.ACCELERATOR_SLOTS
        state.requests[tenant, slot] -= 1
        if state.requests[tenant, slot] == 0:
            state.queued[tenant, slot] = channel[s.H_FREE]
            row[s.T_SERVED] += 1


@compiled
def retire(state: State, tenant: int, now: float) -> int:
    """Remove the packets that the accelerator has finished by `now`; return how many are still there."""
    row = state.tenants[tenant]
    serve(state, row[s.T_ACCELERATOR])
    while row[s.T_RETIRED] < row[s.T_SERVED] and state.queued[tenant, row[s.T_RETIRED] % s.ACCELERATOR_SLOTS] <= now:
        row[s.T_RETIRED] += 1
    return row[s.T_HEAD] - row[s.T_RETIRED]


@compiled
def look_again(state: State, tenant: int) -> float:
    """Return when the next packet at the accelerator may be finished.

    If that time has passed because other users' clocks are behind, return the core's next polling time.
    """
    row = state.tenants[tenant]
    if row[s.T_RETIRED] < row[s.T_SERVED]:
        return state.queued[tenant, row[s.T_RETIRED] % s.ACCELERATOR_SLOTS]
    return max(state.channels[row[s.T_ACCELERATOR], s.H_FREE], state.clock[tenant] + POLL_NS)
