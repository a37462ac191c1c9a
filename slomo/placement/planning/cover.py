"""Plan a batch by mixes, first with fractions of sockets, then with whole ones; prove a bound for every plan.

Gilmore and Gomory (Operations Research 9, 1961) for the bound, Belov and Scheithauer (INFORMS Journal on Computing 19,
2007) for the plan.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.placement.feasibility.mixes import Signature
from slomo.placement.planning.columns import Column, Pricing, relaxed
from slomo.placement.planning.rounding import Listed, whole_plan

#: Share of the time limit spent on the bound; the rest is for the integer solution.
_BOUND_SHARE = 0.5


@dataclass(frozen=True)
class MixPlan:
    """How many sockets run each mix, with a bound on how few sockets any plan could use."""

    #: Number of sockets with each mix.
    sockets: dict[Signature, int]
    #: No plan needs fewer sockets (if `proven`).
    lower_bound: int
    #: Whether every mix that could improve the bound was examined.
    proven: bool = True
    #: Time taken [s].
    seconds: float = 0.0
    #: Restriction on mixes under which the proof holds; empty for none.
    premise: str = ""

    @property
    def count(self) -> int:
        """Number of sockets that the plan uses."""
        return sum(self.sockets.values())

    @property
    def gap(self) -> float:
        """How many more sockets the plan uses than the bound, relative to the bound."""
        return self.count / self.lower_bound - 1.0 if self.lower_bound else 0.0

    @property
    def text(self) -> str:
        """One line that describes the plan, for display.

        >>> MixPlan({(0,): 101}, 100).text
        '101 sockets, lower bound 100 (proven), gap 1.00 %'
        """
        proof = " ".join(filter(None, ("proven", self.premise))) if self.proven else "not proven"
        return f"{self.count} sockets, lower bound {self.lower_bound} ({proof}), gap {100 * self.gap:.2f} %"


def cover(
    demand: Sequence[int],
    start: Sequence[Column],
    pricing: Pricing | None = None,
    *,
    complete: bool = True,
    premise: str = "",
    time_limit_s: float = 10.0,
) -> MixPlan:
    """Serve all requests (`demand` by class) with as few sockets as possible.

    `start` serves every class. Where `start` and `pricing` together consider every mix (`complete`), the bound is
    proven, for mixes as `premise` says. The time limit includes rounding but for its last step.
    """
    begun = time.perf_counter()
    needed = np.array(demand, dtype=np.float64)
    columns = {column.signature: column for column in start}
    root = relaxed(needed, columns, pricing, begun + _BOUND_SHARE * time_limit_s)
    finder = Listed(list(columns.values())) if pricing is None else pricing
    sockets = whole_plan(needed.astype(np.int64), root, finder, begun + time_limit_s)
    lower = math.ceil(root.bound - 1e-6)
    return MixPlan(sockets, lower, complete, time.perf_counter() - begun, premise)
