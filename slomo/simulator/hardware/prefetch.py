"""Simulate an L2 stream prefetcher, if the machine file says `l2_prefetcher: stream`.

The streamer of Intel's L2 (64 and IA-32 Architectures Optimization Reference Manual, "Data Prefetch to L2 and LLC")
observes L1's requests to L2. In each of 32 pages of 4 KiB it follows one stream, upwards or downwards. It requests two
lines at each lookup and runs up to 20 lines ahead, never into another page. Outstanding lines of a core's L2 share one
queue (superqueue); while it is full of demand misses and prefetches, nothing is prefetched. All prefetched lines go
into the L2; real hardware leaves some of them in the LLC when it is busy.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.cache import find, touch, victim
from slomo.simulator.state import State

#: Lines that the streamer runs ahead; lines that it requests at each lookup; binary logarithm of the lines of a page.
AHEAD, PER_LOOKUP, PAGE_BITS = 20, 2, 6
#: Number of consecutive steps in one direction after which a stream starts.
_STEPS = 2


@compiled
def earliest_place(state: State, tenant: int) -> int:
    """Return the entry of the L2's queue of missing lines that becomes free first."""
    queue = state.in_flight[state.tenants[tenant, s.T_L2]]
    first = 0
    for place in range(1, s.IN_FLIGHT):
        if queue[place] < queue[first]:
            first = place
    return first


@inner
def wait_for(state: State, tenant: int, ready: float) -> None:
    """Enter a line that arrives at time `ready` into the L2's queue of missing lines."""
    state.in_flight[state.tenants[tenant, s.T_L2], earliest_place(state, tenant)] = ready


@inner
def next_of_stream(state: State, tenant: int, line: int, now: float) -> int:
    """Record an L2 request; return the line to prefetch now, -1 for none."""
    cache, page = state.tenants[tenant, s.T_L2], line >> PAGE_BITS
    slot = find(state.streams, cache << s.WIDE_SHIFT, s.WIDE_SHIFT, page)
    if slot < 0:
        slot = victim(state.stream_stamps, cache << s.WIDE_SHIFT, s.WIDE_SHIFT, (1 << s.LANES) - 1)
        state.streams[slot] = page
        stream = state.stream_ends[slot]
        stream[s.P_LAST], stream[s.P_DIRECTION], stream[s.P_STEPS] = line, 0, 0
    touch(state.stream_stamps, state.stream_clock, slot, s.WIDE_SHIFT)
    stream = state.stream_ends[slot]
    step = line - stream[s.P_LAST]
    if step != 0:
        direction = 1 if step > 0 else -1
        if direction == stream[s.P_DIRECTION] and abs(step) <= AHEAD:
            stream[s.P_STEPS] += 1
        else:
            stream[s.P_DIRECTION], stream[s.P_STEPS], stream[s.P_FURTHEST] = direction, 1, line
        stream[s.P_LAST] = line
    if stream[s.P_STEPS] < _STEPS:
        return -1
    direction = stream[s.P_DIRECTION]
    if (stream[s.P_FURTHEST] - line) * direction < 0:  # the core has overtaken it
        stream[s.P_FURTHEST] = line
    following = stream[s.P_FURTHEST] + direction
    inside = state.tenants[tenant, s.T_FIRST_LINE] <= following < state.tenants[tenant, s.T_END_LINE]
    if abs(following - line) > AHEAD or following >> PAGE_BITS != page or not inside:
        return -1
    if state.in_flight[cache, earliest_place(state, tenant)] > now:
        return -1
    stream[s.P_FURTHEST] = following
    return following
