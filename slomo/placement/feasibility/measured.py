"""Use measured throughputs of a mix instead of predictions; measured mixes with more tenants give lower bounds.

More competitors never raise a tenant's throughput (law 3), so what a mix was measured to serve, every sub-mix serves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slomo.placement.feasibility.bounds import level_of
from slomo.placement.feasibility.student import probability_below, quantile
from slomo.vocabulary.vector import Floats

if TYPE_CHECKING:
    from slomo.models.nf_model import NFModel

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

    def __init__(self, models: "Sequence[NFModel]") -> None:
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
