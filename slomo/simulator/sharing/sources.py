"""Packet sources: constant rate, as fast as a ring accepts, or a window that halves on a loss or ECN mark.

The responsive source is TCP by RFC 5681 (slow start, then one packet more per round trip, half on a loss, at most once
per round trip), with ECN by RFC 3168 (a mark counts as a loss) and one acknowledgement per packet; it never exceeds its
own rate.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.sharing.chain import emit
from slomo.simulator.sharing.state import (
    ANSWERS,
    CONSTANT,
    DELIVERED,
    G_FROM,
    G_IN_FLIGHT,
    G_INTERVAL,
    G_LAST_SENT,
    G_NEXT,
    G_NEXT_SEND,
    G_RECOVERED,
    G_ROUND_TRIP,
    G_THRESHOLD,
    G_TO,
    G_WINDOW,
    G_WIRE,
    J_ANSWER_HEAD,
    J_ANSWER_TAIL,
    J_KIND,
    J_PORT,
    MOST_WINDOW,
    NEVER,
    Q_CAPACITY,
    Q_HEAD,
    Q_TAIL,
    SATURATING,
    Sharing,
)
from slomo.simulator.state import State


@compiled
def constant(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Send at a constant mean rate; gaps vary from 0.5 to 1.5 times the mean, so that sources do not run in step."""
    times = sharing.chain_times[chain]
    while times[G_NEXT] <= until:
        if times[G_NEXT] >= times[G_TO]:
            times[G_NEXT] = NEVER
            return
        emit(state, sharing, chain, times[G_NEXT])
        uniform = next_bits(state.random, sharing.chains[chain, J_PORT]) / 2147483648.0
        times[G_NEXT] += times[G_INTERVAL] * (0.5 + uniform)


@compiled
def saturating(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Fill the first ring at wire speed, then rest until it has room."""
    times, stage = sharing.chain_times[chain], sharing.stages[sharing.paths[chain, 0]]
    while times[G_NEXT] <= until:
        if times[G_NEXT] >= times[G_TO] or stage[Q_TAIL] - stage[Q_HEAD] >= stage[Q_CAPACITY]:
            times[G_NEXT] = NEVER
            return
        times[G_LAST_SENT] = times[G_NEXT]
        emit(state, sharing, chain, times[G_NEXT])
        times[G_NEXT] += times[G_WIRE]


@inner
def hear(sharing: Sharing, chain: int) -> None:
    """Take the oldest acknowledgement or loss: grow the window, or halve it."""
    times, row = sharing.chain_times[chain], sharing.chains[chain]
    slot = row[J_ANSWER_HEAD] % ANSWERS
    now, verdict = sharing.answers[chain, slot], sharing.verdicts[chain, slot]
    row[J_ANSWER_HEAD] += 1
    times[G_IN_FLIGHT] -= 1.0
    if verdict == DELIVERED:
        slow_start = times[G_WINDOW] < times[G_THRESHOLD]
        times[G_WINDOW] = min(MOST_WINDOW, times[G_WINDOW] + (1.0 if slow_start else 1.0 / times[G_WINDOW]))
    elif now >= times[G_RECOVERED]:
        times[G_THRESHOLD] = max(2.0, times[G_WINDOW] / 2.0)
        times[G_WINDOW] = times[G_THRESHOLD]
        times[G_RECOVERED] = now + times[G_ROUND_TRIP]
    if times[G_NEXT_SEND] == NEVER and times[G_IN_FLIGHT] < times[G_WINDOW]:
        times[G_NEXT_SEND] = max(now, times[G_LAST_SENT] + times[G_INTERVAL])


@compiled
def responsive(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Send while the window is open, and process answers."""
    times, row = sharing.chain_times[chain], sharing.chains[chain]
    while True:
        news = NEVER
        if row[J_ANSWER_HEAD] < row[J_ANSWER_TAIL]:
            news = sharing.answers[chain, row[J_ANSWER_HEAD] % ANSWERS]
        times[G_NEXT] = min(news, times[G_NEXT_SEND])
        if times[G_NEXT] > until:
            return
        if news <= times[G_NEXT_SEND]:
            hear(sharing, chain)
            continue
        now = times[G_NEXT_SEND]
        if now >= times[G_TO]:
            times[G_NEXT_SEND] = NEVER
            continue
        times[G_IN_FLIGHT] += 1.0
        times[G_LAST_SENT] = now
        times[G_NEXT_SEND] = NEVER
        emit(state, sharing, chain, now)
        if times[G_IN_FLIGHT] < times[G_WINDOW]:
            times[G_NEXT_SEND] = now + times[G_INTERVAL]


@compiled
def send(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Let a source send its packets up to a time."""
    kind = sharing.chains[chain, J_KIND]
    if kind == CONSTANT:
        constant(state, sharing, chain, until)
    elif kind == SATURATING:
        saturating(state, sharing, chain, until)
    else:
        responsive(state, sharing, chain, until)


@compiled
def room_again(sharing: Sharing, chain: int, now: float) -> None:
    """Wake a resting source, since its ring has room."""
    times = sharing.chain_times[chain]
    if sharing.chains[chain, J_KIND] == SATURATING and times[G_NEXT] == NEVER and times[G_FROM] <= now < times[G_TO]:
        times[G_NEXT] = max(now, times[G_LAST_SENT] + times[G_WIRE])
