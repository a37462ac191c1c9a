"""Simulate sources of packets: at a constant rate, as fast as a ring accepts, or like TCP.

The responsive source is TCP by RFC 5681 (slow start, then one packet more per round trip, half on a loss, at most once
per round trip), with ECN by RFC 3168 (a mark counts as a loss) and one acknowledgement per packet; it never exceeds its
own rate.
"""

from slomo.simulator.compilation import compiled, inner
from slomo.simulator.random_numbers import next_bits
from slomo.simulator.sharing import state as h
from slomo.simulator.sharing.chain import emit
from slomo.simulator.sharing.state import Sharing
from slomo.simulator.state import State


@compiled
def constant(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Send at a constant mean rate; gaps vary from 0.5 to 1.5 times the mean, so that sources do not run in step."""
    times = sharing.chain_times[chain]
    while times[h.G_NEXT] <= until:
        if times[h.G_NEXT] >= times[h.G_TO]:
            times[h.G_NEXT] = h.NEVER
            return
        emit(state, sharing, chain, times[h.G_NEXT])
        uniform = next_bits(state.random, sharing.chains[chain, h.J_PORT]) / 2147483648.0
        times[h.G_NEXT] += times[h.G_INTERVAL] * (0.5 + uniform)


@compiled
def saturating(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Fill the first ring as fast as the wire allows, then pause until the ring has room."""
    times, stage = sharing.chain_times[chain], sharing.stages[sharing.paths[chain, 0]]
    while times[h.G_NEXT] <= until:
        if times[h.G_NEXT] >= times[h.G_TO] or stage[h.Q_TAIL] - stage[h.Q_HEAD] >= stage[h.Q_CAPACITY]:
            times[h.G_NEXT] = h.NEVER
            return
        times[h.G_LAST_SENT] = times[h.G_NEXT]
        emit(state, sharing, chain, times[h.G_NEXT])
        times[h.G_NEXT] += times[h.G_WIRE]


@inner
def hear(sharing: Sharing, chain: int) -> None:
    """Process the oldest acknowledgement: it grows the sending window; a loss or mark halves the window."""
    times, row = sharing.chain_times[chain], sharing.chains[chain]
    slot = row[h.J_ANSWER_HEAD] % h.ANSWERS
    now, verdict = sharing.answers[chain, slot], sharing.verdicts[chain, slot]
    row[h.J_ANSWER_HEAD] += 1
    times[h.G_IN_FLIGHT] -= 1.0
    if verdict == h.DELIVERED:
        slow_start = times[h.G_WINDOW] < times[h.G_THRESHOLD]
        times[h.G_WINDOW] = min(h.MOST_WINDOW, times[h.G_WINDOW] + (1.0 if slow_start else 1.0 / times[h.G_WINDOW]))
    elif now >= times[h.G_RECOVERED]:
        times[h.G_THRESHOLD] = max(2.0, times[h.G_WINDOW] / 2.0)
        times[h.G_WINDOW] = times[h.G_THRESHOLD]
        times[h.G_RECOVERED] = now + times[h.G_ROUND_TRIP]
    if times[h.G_NEXT_SEND] == h.NEVER and times[h.G_IN_FLIGHT] < times[h.G_WINDOW]:
        times[h.G_NEXT_SEND] = max(now, times[h.G_LAST_SENT] + times[h.G_INTERVAL])


@compiled
def responsive(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Send packets as TCP does: while the window allows it, processing acknowledgements."""
    times, row = sharing.chain_times[chain], sharing.chains[chain]
    while True:
        news = h.NEVER
        if row[h.J_ANSWER_HEAD] < row[h.J_ANSWER_TAIL]:
            news = sharing.answers[chain, row[h.J_ANSWER_HEAD] % h.ANSWERS]
        times[h.G_NEXT] = min(news, times[h.G_NEXT_SEND])
        if times[h.G_NEXT] > until:
            return
        if news <= times[h.G_NEXT_SEND]:
            hear(sharing, chain)
            continue
        now = times[h.G_NEXT_SEND]
        if now >= times[h.G_TO]:
            times[h.G_NEXT_SEND] = h.NEVER
            continue
        times[h.G_IN_FLIGHT] += 1.0
        times[h.G_LAST_SENT] = now
        times[h.G_NEXT_SEND] = h.NEVER
        emit(state, sharing, chain, now)
        if times[h.G_IN_FLIGHT] < times[h.G_WINDOW]:
            times[h.G_NEXT_SEND] = now + times[h.G_INTERVAL]


@compiled
def send(state: State, sharing: Sharing, chain: int, until: float) -> None:
    """Let a source send the packets that are due up to time `until`."""
    kind = sharing.chains[chain, h.J_KIND]
    if kind == h.CONSTANT:
        constant(state, sharing, chain, until)
    elif kind == h.SATURATING:
        saturating(state, sharing, chain, until)
    else:
        responsive(state, sharing, chain, until)


@compiled
def room_again(sharing: Sharing, chain: int, now: float) -> None:
    """Let a paused source continue, since its ring has room again."""
    times = sharing.chain_times[chain]
    if (
        sharing.chains[chain, h.J_KIND] == h.SATURATING
        and times[h.G_NEXT] == h.NEVER
        and times[h.G_FROM] <= now < times[h.G_TO]
    ):
        times[h.G_NEXT] = max(now, times[h.G_LAST_SENT] + times[h.G_WIRE])
