"""Use measured throughputs of a mix instead of predictions; measured mixes with more tenants give lower bounds.

More competitors never raise a tenant's throughput (law 3), so what a mix was measured to serve, every sub-mix serves.

Student's t distribution is computed by finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions (1964),
26.7.3 and 26.7.4. Placement is part of the core, which is installed without scipy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from slomo.models.nf_model import NFModel
from slomo.placement.feasibility.bounds import level_of
from slomo.vocabulary.vector import Floats

#: Numbers of tenants in ascending order.
_Mix = tuple[int, ...]
#: Largest measured mix whose sub-mixes are listed: 2 ** 8 of them.
_MOST_TENANTS = 8


@dataclass(frozen=True)
class _Known:
    """Measured throughput of one tenant: mean and standard error [Mpps], and whether it is of exactly this mix.

    `freedom` is the number of degrees of freedom of the standard error.
    """

    mpps: float
    error_mpps: float
    freedom: int
    exact: bool


class MeasuredRates:
    """Measured throughputs of mixes on one machine, found by numbers of models."""

    def __init__(self, models: Sequence[NFModel]) -> None:
        numbers = {model.workload.key: number for number, model in enumerate(models)}
        self._known: dict[_Mix, dict[int, _Known]] = {}
        for number, model in enumerate(models):
            for mix in model.measured:
                if all(key in numbers for key in mix.competitors):
                    others = tuple(sorted(numbers[key] for key in mix.competitors))
                    self._note(number, others, _Known(mix.mpps, mix.error_mpps, mix.freedom, exact=True))

    def _note(self, tenant: int, others: _Mix, known: _Known) -> None:
        least = 1 if len(others) < _MOST_TENANTS else len(others)
        for size in range(least, len(others) + 1):
            for part in set(combinations(others, size)):
                here = self._known.setdefault(tuple(sorted((tenant, *part))), {})
                exact = size == len(others)
                held = here.get(tenant)
                if held is None or exact or (not held.exact and held.mpps < known.mpps):
                    here[tenant] = replace(known, exact=exact)

    def apply(
        self,
        members: NDArray[np.int64],
        rates: tuple[Floats, Floats, Floats],
        confidence: float,
        different: NDArray[np.int64],
    ) -> None:
        """Replace predicted throughputs and bounds of mixes by measured ones, where a mix was measured."""
        if not self._known:
            return
        mpps, low, high = rates
        for row, tenants in enumerate(members.tolist()):
            known = self._known.get(tuple(sorted(tenant for tenant in tenants if tenant >= 0)))
            if known is None:
                continue
            level = level_of(confidence, int(different[row]))
            for place, tenant in enumerate(tenants):
                if tenant in known:
                    each = known[tenant]
                    away = quantile(level, each.freedom) * each.error_mpps if confidence > 0.5 else 0.0
                    ends = (each.mpps, each.mpps - away, each.mpps + away)
                    for part, end in zip((mpps, low, high), ends, strict=True):
                        part[row, place] = end if each.exact else np.fmax(part[row, place], end)

    def breaking(self, members: NDArray[np.int64], needed_mpps: Floats) -> float | None:
        """Return the probability that a measured mix breaks a promise; None unless every promised tenant is measured.

        Shapes are ``(places,)``; the promise is 0 for a tenant without one.
        """
        known = self._known.get(tuple(sorted(members.tolist())), {})
        promised = {tenant: need for tenant, need in sorted(zip(members.tolist(), needed_mpps, strict=True)) if need}
        if not all(tenant in known and known[tenant].exact for tenant in promised):
            return None
        hold = 1.0
        for tenant, need in promised.items():  # of equal tenants, the largest promise
            each = known[tenant]
            hold *= probability_below((each.mpps - need) / each.error_mpps, each.freedom)
        return 1.0 - hold


#: Degrees of freedom from which the normal distribution stands for Student's: quantiles up to 0.999 differ by 0.3 %.
MANY = 1000


def probability_below(value: float, freedom: int) -> float:
    """Return the probability that a t-distributed value is below `value`.

    >>> [round(probability_below(2.0, freedom), 4) for freedom in (1, 2, 5, MANY)]
    [0.8524, 0.9082, 0.949, 0.9772]
    """
    if freedom >= MANY:
        return NormalDist().cdf(value)
    angle = math.atan2(value, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (step - 1) / step
    inside = math.sin(angle) * total
    return 0.5 + (0.5 * inside if not odd else (angle + inside) / math.pi)


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: int) -> float:
    """Return the t-distributed value that is not exceeded with this probability, 0.5 or more.

    >>> [round(quantile(0.95, freedom), 3) for freedom in (1, 2, 5, MANY)]
    [6.314, 2.92, 2.015, 1.645]
    """
    if freedom >= MANY:
        return NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while probability_below(high, freedom) < probability:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if probability_below(middle, freedom) < probability else (low, middle)
    return high
