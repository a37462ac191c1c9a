"""Measure what cold caches cost a function on a shared core, from its cost per packet after it gets the core.

One run suffices, so drift of the machine between runs does not matter: late in a turn the caches are warm, and the
additional cost of earlier packets is the cost of refilling them. A reporter (a program that senses pressure, as in
Bubble-Up, MICRO'11) measures what a function evicts: the reporter's refill after a turn of that function, divided by
its refill after a turn of another reporter.
"""

import math
from dataclasses import dataclass

from slomo.testbed.host.chains.looks import StageOutcome

#: End of the first time bin in `synthetic_nf/src/chain_turns.h`; each further bin is twice as long.
_FIRST_BIN_US = 1e6 / 65536
#: Bins from 2 ms on count as warm, or from 1 ms if those hold too few packets; least share of all packets in them.
_WARM_BINS, _LEAST_WARM = (8, 7), 0.02
_LEAST_OVER_US = 50.0
_MOST_EVICTED, _LEAST_EVICTED = 0.95, 1e-3


@dataclass(frozen=True)
class Refill:
    """Additional time per turn on the core if all caches are cold, and how long it takes to fill them [us]."""

    extra_us: float = 0.0
    over_us: float = 1.0


def switches(stage: StageOutcome) -> int:
    """Return how often a stage left its core, at least 1."""
    return max(stage.voluntary_switches + stage.involuntary_switches, 1)


def refill_of(stage: StageOutcome) -> Refill:
    """Return what cold caches cost a stage; an empty `Refill` if too few packets find warm caches."""
    total = sum(packets for packets, _ in stage.turns)
    for first in _WARM_BINS:
        warm = sum(packets for packets, _ in stage.turns[first:])
        if warm > _LEAST_WARM * total:
            cost_us = sum(us for _, us in stage.turns[first:]) / warm
            break
    else:
        return Refill()
    extra = [us - cost_us * packets for packets, us in stage.turns[:first]]
    positive_us = [max(us, 0.0) for us in extra]
    if sum(extra) <= 0.0:
        return Refill()
    middles = [0.75 * _FIRST_BIN_US * 2.0**number for number in range(first)]
    over = sum(us * middle for us, middle in zip(positive_us, middles, strict=True)) / sum(positive_us)
    return Refill(sum(extra) / switches(stage), max(over, _LEAST_OVER_US))


def evicts_over_us(other: StageOutcome, reporter: StageOutcome, full_us: float, seconds: float) -> float:
    """Return the CPU time in which a function evicts 63 % of the lines of the other program on its core [us].

    Both outcomes are of one run of `seconds` on one core. `full_us`: the reporter's refill per turn if it shares the
    core with a second reporter. If random lines pass through a cache, the share ``1 - exp(-t / tau)`` of its content is
    evicted after t.
    """
    evicted = refill_of(reporter).extra_us / full_us if full_us > 0.0 else 0.0
    evicted = min(max(evicted, _LEAST_EVICTED), _MOST_EVICTED)
    turn_us = 1e6 * other.processor_share * seconds / switches(other)
    return max(-turn_us / math.log1p(-evicted), 1.0)
