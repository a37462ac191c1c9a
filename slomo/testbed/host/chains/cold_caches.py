"""What cold caches cost a stage that shares a core, from what its packets cost by the time since its turn began.

One run tells, whatever the machine's speed does between runs: late in a turn caches are warm, what packets cost more
before that is the refill. A reporter, as in Bubble-Up (MICRO'11), tells what a function evicts: the refill that the
reporter has after a turn of that function, beside what it has after a turn of its like.
"""

import math
from dataclasses import dataclass

from slomo.testbed.host.chains.looks import StageOutcome

#: `synthetic_nf/src/chain_turns.h`: the first bin ends there, each further one lasts twice as long.
_FIRST_BIN_US = 1e6 / 65536
#: Bins from 2 ms (or 1 ms) on are warm; they must hold some packets to tell.
_WARM_BINS, _LEAST_WARM = (8, 7), 0.02
_LEAST_OVER_US = 50.0
_MOST_EVICTED, _LEAST_EVICTED = 0.95, 1e-3


@dataclass(frozen=True)
class Refill:
    """Extra time per turn after everything was evicted, and the time of the stage's own that it is spread over [us]."""

    extra_us: float = 0.0
    over_us: float = 1.0


def switches(stage: StageOutcome) -> int:
    """Return how often a stage left its core, 1 at least."""
    return max(stage.voluntary_switches + stage.involuntary_switches, 1)


def refill_of(stage: StageOutcome) -> Refill:
    """Return what a stage's turns cost it; nothing where none lasts long enough for warm caches.

    Examples
    --------
    >>> from dataclasses import fields
    >>> turns = ((0, 0.0),) * 4 + ((1000, 1200.0),) + ((0, 0.0),) * 3 + ((9000, 9000.0),) + ((0, 0.0),) * 3
    >>> values = {f.name: 0 for f in fields(StageOutcome)} | {"turns": turns, "involuntary_switches": 10}
    >>> refill_of(StageOutcome(**values)).extra_us
    20.0
    """
    total = sum(packets for packets, _ in stage.turns)
    for first in _WARM_BINS:
        warm = sum(packets for packets, _ in stage.turns[first:])
        if warm > _LEAST_WARM * total:
            cost_us = sum(us for _, us in stage.turns[first:]) / warm
            break
    else:
        return Refill()
    extra = [us - cost_us * packets for packets, us in stage.turns[:first]]
    felt = [max(us, 0.0) for us in extra]
    if sum(extra) <= 0.0:
        return Refill()
    middles = [0.75 * _FIRST_BIN_US * 2.0**number for number in range(first)]
    over = sum(us * middle for us, middle in zip(felt, middles, strict=True)) / sum(felt)
    return Refill(sum(extra) / switches(stage), max(over, _LEAST_OVER_US))


def evicts_over_us(other: StageOutcome, reporter: StageOutcome, full_us: float, seconds: float) -> float:
    """Return the time in which a function evicts 63 % of what the reporter beside it had cached [us].

    Parameters
    ----------
    other, reporter : StageOutcome
        Both, of one run on one core.
    full_us : float
        The reporter's refill beside its like [us].
    seconds : float
        Length of the run [s].

    Notes
    -----
    Of a cache that random lines go through, ``1 - exp(-t / tau)`` is evicted after t.
    """
    evicted = refill_of(reporter).extra_us / full_us if full_us > 0.0 else 0.0
    evicted = min(max(evicted, _LEAST_EVICTED), _MOST_EVICTED)
    turn_us = 1e6 * other.processor_share * seconds / switches(other)
    return max(-turn_us / math.log1p(-evicted), 1.0)
