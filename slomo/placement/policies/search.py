"""Policy `slomo-search`: plan a batch by column generation over mixes; never worse than best fit.

Extends SLOMO (SIGCOMM'20): predictions say which mixes are feasible, a linear program how often to use each. With
profiles over cache ways (ResQ, NSDI'18, section 5.2) a piece may have exclusive ways, and a request may use fewer ways
on more cores. If mixes can be predicted too, one search decides for every socket between exclusive ways and a shared
cache.

Gilmore and Gomory (Operations Research 9, 1961) for the bound, Belov and Scheithauer (INFORMS Journal on Computing 19,
2007) for the plan.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slomo.models.responses.partition import PartitionResponse
from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import MOST_MIXES
from slomo.placement.feasibility.worst_case import STRANGER
from slomo.placement.planning.columns import Column, Either, Pricing, relaxed
from slomo.placement.planning.pricing import Item, Knapsack, enumerate_mixes
from slomo.placement.planning.rounding import Listed, fill_by_value, whole_plan
from slomo.placement.policies.base import Demand
from slomo.placement.policies.predicted import PredictedBestFit
from slomo.placement.problem.request import Request
from slomo.units import plural

#: Share of the time limit spent on the bound; the rest is for the integer solution.
_BOUND_SHARE = 0.5
#: Number of passes over a batch with exclusive ways before columns are generated.
_PASSES = 3
#: Largest number of instances on one socket into which a request may be split to save ways.
_MOST_SPLIT = 4
#: Condition of the bound in shared caches: only mixes that stay feasible if any tenant leaves.
_PREMISE = "for mixes that hold in every part"


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
        return f"{plural(self.count, 'socket')}, lower bound {self.lower_bound} ({proof}), gap {100 * self.gap:.2f} %"


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


class MixSearch(PredictedBestFit):
    """Plans batches by mixes; admits single requests as `predicted` does.

    `last` is the latest plan, with its lower bound; `time_limit_s` limits one batch; `shares` says whether sockets may
    share their caches where all profiles over ways are known.
    """

    name = "slomo-search"
    time_limit_s = 10.0
    shares = True
    reads_profiles = True
    last: MixPlan | None = None

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield ways to split a request: with a shared cache, or with own ways if all profiles are known."""
        profiles, any_owned = self.estimates.profiles_of(host.machine, request), False
        workloads = self.estimates.keys(host.machine, request)
        if profiles is None or STRANGER in workloads:  # whose stand-in shares the cache
            yield from super().cuts(request, host, needed_mpps)
            return
        for count in range(1, request.replicas + 1):
            most = min(_MOST_SPLIT, request.replicas // count, request.most_together)
            needs = [self.each(request, host, needed_mpps, count * split) for split in range(1, most + 1)]
            options = self.options(host, workloads, profiles, needs)
            if options:
                any_owned = True
                numbers = [self.pieces.number(piece) for piece in options]
                self.cutting(host).alternatives[numbers[0]] = tuple(numbers)
                self.cutting(host).primary |= dict.fromkeys(numbers, numbers[0])
                if count == 1 and self.shares:
                    cutting = self.cutting(host)
                    for shared in self.together(request, host, needed_mpps)[:1]:  # of the class of those with own ways
                        cutting.shared[numbers[0]] = shared
                        cutting.primary |= dict.fromkeys(cutting.splits[shared].values(), numbers[0])
                yield (options[0],) * count
        if self.shares and not any_owned:  # profiles promise less than they measured, so that own ways may not do
            yield from super().cuts(request, host, needed_mpps)

    def options(
        self,
        host: Host,
        workloads: tuple[str, ...],
        profiles: Sequence[PartitionResponse],
        needs: Sequence[float | None],
    ) -> tuple[Piece, ...]:
        """Return pieces of 1, 2, ... instances that own ways on one socket; each next one uses fewer ways.

        `needs` gives each instance's need by number of instances [Mpps], None for numbers that do not suffice.
        """
        pieces: list[Piece] = []
        for split, mpps in enumerate(needs, 1):
            ways = [None if mpps is None else profile.ways_for(mpps) for profile in profiles]
            own_ways = [way for way in ways if way is not None]
            piece = Piece(workloads * split, mpps or 0.0, tuple(own_ways) * split, False, split, len(needs))
            fits = len(piece.workloads) <= host.cores and sum(piece.ways) <= host.ways
            if len(own_ways) == len(workloads) and fits and all(sum(piece.ways) < sum(other.ways) for other in pieces):
                pieces.append(piece)
        return tuple(pieces)

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Plan a batch by choosing mixes for sockets; return best fit's plan if it needs no more sockets."""
        owned = any(self.pieces[piece].ways for piece in demand)
        mix_plan, packed = self._with_ways(host, demand) if owned else self._shared(host, demand)
        if mix_plan.count >= sum(packed.values()):
            mix_plan = replace(mix_plan, sockets=dict(packed))
        self.last = mix_plan
        return mix_plan.sockets

    def _with_ways(self, host: Host, demand: Demand) -> tuple[MixPlan, Mapping[Signature, int]]:
        """Plan sockets on which all tenants own cache ways, and sockets on which all share the cache."""
        classes, cutting = {piece: number for number, piece in enumerate(demand)}, self.cutting(host)
        owned = {piece: count for piece, count in demand.items() if self.pieces[piece].ways}
        rest = {piece: count for piece, count in demand.items() if piece not in owned}
        items = [
            Item(option, classes[piece], len(self.pieces[option].workloads), sum(self.pieces[option].ways))
            for piece in owned
            for option in cutting.alternatives.get(piece, (piece,))
        ]
        knapsack = Knapsack(host, items, len(classes))
        owned_counts = np.array([owned.get(piece, 0) for piece in demand], dtype=np.int64)
        shares = np.array([self.weight(host, piece) for piece in demand])
        packed: dict[Signature, int] = dict(fill_by_value(owned_counts, shares, knapsack, passes=_PASSES).best)
        packed |= super().plan(host, rest) or {} if rest else {}
        twins = {cutting.shared.get(piece, piece): count for piece, count in demand.items()}
        shareable = len(twins) == len(demand) and not any(self.pieces[piece].ways for piece in twins)
        together = (super().plan(host, twins) or {}) if shareable else {}
        pricing = self.pricing(host, twins, MOST_MIXES) if shareable else None
        counts, limit = [*demand.values()], self.time_limit_s
        start = self.starting_columns(host, demand, (*packed, *together))
        best = together if together and sum(together.values()) < sum(packed.values()) else packed
        if pricing is None:
            return cover(counts, start, knapsack, complete=not rest, time_limit_s=limit), best
        either, finished = Either((knapsack, pricing)), pricing.finished
        return cover(counts, start, either, complete=finished, premise=_PREMISE, time_limit_s=limit), best

    def _shared(self, host: Host, demand: Demand) -> tuple[MixPlan, Mapping[Signature, int]]:
        counts = [*demand.values()]
        packed = super().plan(host, demand) or {}
        start = self.starting_columns(host, demand, packed)
        pricing = self.pricing(host, demand, MOST_MIXES)
        if pricing is not None:
            limit, finished = self.time_limit_s, pricing.finished
            return cover(counts, start, pricing, complete=finished, premise=_PREMISE, time_limit_s=limit), packed
        cuts = self.cutting(host).alternatives
        every = {option: count for piece, count in demand.items() for option in cuts.get(piece, (piece,))}
        mixes, complete = enumerate_mixes(self.oracle, host, every)
        start += [self.column(host, mix, demand) for mix in mixes]
        return cover(counts, start, complete=complete, premise=_PREMISE, time_limit_s=self.time_limit_s), packed
