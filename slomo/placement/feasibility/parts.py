"""Take each tenant's lower bound over all smaller mixes, so that no bound falls when another tenant leaves.

Bounds of single mixes come from each mix's own kind of neighbourhood, and are not ordered among each other. More
competitors never raise a tenant's throughput (law 3), so a promise must hold with all neighbours and without any of
them. The bound of a tenant is the least over all sub-mixes that contain it (isotonic over sub-mixes).
"""

import math
from collections.abc import Sequence
from itertools import product

from slomo.placement.feasibility.estimates import Rate, Tenants
from slomo.placement.feasibility.memo import Memo
from slomo.placement.feasibility.rates import RateBook, without_one

#: Largest number of sub-mixes examined; for larger mixes, only those with one or two tenants less.
MOST_PARTS = 30_000
#: Largest number of mixes with a cached minimum.
MOST_LEAST = 200_000
#: A mix, and the number of its different workloads with a promise.
_Key = tuple[Tenants, int]


class LeastRates:
    """Computes the lowest throughput of each tenant over all smaller mixes of a mix."""

    def __init__(self, book: RateBook) -> None:
        self._book = book
        self._seen: Memo[tuple[str, Tenants, int], dict[str, float]] = Memo(MOST_LEAST)

    def sizes(self) -> dict[str, int]:
        """Return the number of cached mixes."""
        return {"mixes looked at in every part": len(self._seen)}

    def below(self, machine: str, mix: Tenants, promised: int, rates: dict[str, Rate]) -> dict[str, Rate]:
        """Return a mix's throughputs, with lower bounds taken over all its smaller mixes.

        `promised` is how many different workloads of the mix are promised something; its keys are in ascending
        order.
        """
        least = self._seen.recall((machine, mix, promised)) or self._book.least(machine, mix, promised)
        if least is None:
            least = self._found(machine, mix, promised)
        return {key: (rate[0], _lower(rate[1], least[key]), rate[2]) for key, rate in rates.items()}

    def _found(self, machine: str, mix: Tenants, promised: int) -> dict[str, float]:
        kinds = list(dict.fromkeys(mix))
        counts = [mix.count(kind) for kind in kinds]
        size, least_of = len(mix), dict[_Key, dict[str, float]]()
        everything = math.prod(count + 1 for count in counts) <= MOST_PARTS
        spans = [range(count + 1) if everything else range(max(count - 2, 0), count + 1) for count in counts]
        parts = [part for part in product(*spans) if sum(part) > 0 and (everything or sum(part) >= size - 2)]
        keys = [_key(kinds, part, promised) for part in sorted(parts, key=sum)]
        unseen = []
        for key in keys:
            remembered = self._seen.recall((machine, *key)) or self._book.least(machine, *key)
            if remembered is None:
                unseen.append(key)
            else:
                least_of[key] = remembered
        rates = self._book.rates(machine, [key[0] for key in unseen], [key[1] for key in unseen])
        for key, own in zip(unseen, rates, strict=True):  # the smaller parts come first
            lowest = {kind: rate[1] for kind, rate in own.items()}
            for part in without_one(key[0]):
                for kind, low in least_of.get((part, min(promised, len(set(part)))), {}).items():
                    lowest[kind] = _lower(lowest[kind], low)
            least_of[key] = self._seen[(machine, *key)] = lowest
        return least_of[mix, promised]


def _key(kinds: Sequence[str], part: Sequence[int], promised: int) -> _Key:
    mix = tuple(sorted(kind for kind, count in zip(kinds, part, strict=True) for _ in range(count)))
    return mix, min(promised, len(set(mix)))


def _lower(one: float, other: float) -> float:
    """Return the lower of two throughputs; NaN (an unknown smaller mix) is ignored."""
    return one if not other < one else other
