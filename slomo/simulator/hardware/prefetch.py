"""An L2 stream prefetcher, used if the machine file says `l2_prefetcher: stream`.

The streamer of Intel's L2 (64 and IA-32 Architectures Optimization Reference Manual, "Data Prefetch to L2 and LLC")
observes L1's requests to L2. In each of 32 pages of 4 KiB it follows one stream, upwards or downwards. It requests two
lines at each lookup and runs up to 20 lines ahead, never into another page. Outstanding lines of a core's L2 share one
queue (superqueue); while it is full of demand misses and prefetches, nothing is prefetched. All prefetched lines go
into the L2; the hardware leaves some in the LLC when busy.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.hardware.cache import find, touch, victim
from slomo.simulator.state import (
    IN_FLIGHT,
    LANES,
    P_DIRECTION,
    P_FURTHEST,
    P_LAST,
    P_STEPS,
    T_END_LINE,
    T_FIRST_LINE,
    T_L2,
    WIDE_SHIFT,
    State,
)

#: Number of lines that it runs ahead and requests at each lookup, and lines of a page as a power of two.
AHEAD, PER_LOOKUP, PAGE_BITS = 20, 2, 6
#: Steps in one direction that start a stream.
_STEPS = 2


@compiled
def earliest_place(state: State, tenant: int) -> int:
    """Return the entry of the L2's queue that becomes free first."""
    queue = state.in_flight[state.tenants[tenant, T_L2]]
    first = 0
    for place in range(1, IN_FLIGHT):
        if queue[place] < queue[first]:
            first = place
    return first


@inner
def wait_for(state: State, tenant: int, ready: float) -> None:
    """Enter a line that arrives at time `ready` into the L2's queue."""
    state.in_flight[state.tenants[tenant, T_L2], earliest_place(state, tenant)] = ready


@inner
def next_of_stream(state: State, tenant: int, line: int, now: float) -> int:
    """Record an L2 request; return the line to prefetch now, -1 for none."""
    cache, page = state.tenants[tenant, T_L2], line >> PAGE_BITS
    slot = find(state.streams, cache << WIDE_SHIFT, WIDE_SHIFT, page)
    if slot < 0:
        slot = victim(state.stream_stamps, cache << WIDE_SHIFT, WIDE_SHIFT, (1 << LANES) - 1)
        state.streams[slot] = page
        stream = state.stream_ends[slot]
        stream[P_LAST], stream[P_DIRECTION], stream[P_STEPS] = line, 0, 0
    touch(state.stream_stamps, state.stream_clock, slot, WIDE_SHIFT)
    stream = state.stream_ends[slot]
    step = line - stream[P_LAST]
    if step != 0:
        direction = 1 if step > 0 else -1
        if direction == stream[P_DIRECTION] and abs(step) <= AHEAD:
            stream[P_STEPS] += 1
        else:
            stream[P_DIRECTION], stream[P_STEPS], stream[P_FURTHEST] = direction, 1, line
        stream[P_LAST] = line
    if stream[P_STEPS] < _STEPS:
        return -1
    direction = stream[P_DIRECTION]
    if (stream[P_FURTHEST] - line) * direction < 0:  # the core has overtaken it
        stream[P_FURTHEST] = line
    following = stream[P_FURTHEST] + direction
    inside = state.tenants[tenant, T_FIRST_LINE] <= following < state.tenants[tenant, T_END_LINE]
    if abs(following - line) > AHEAD or following >> PAGE_BITS != page or not inside:
        return -1
    if state.in_flight[cache, earliest_place(state, tenant)] > now:
        return -1
    stream[P_FURTHEST] = following
    return following
