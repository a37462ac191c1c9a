"""`slomo-search`: a batch planned at once by column generation over mixes, never worse than best fit.

Extends SLOMO (SIGCOMM'20): predictions tell which mixes hold, a linear problem how often to use each. Where profiles
of throughput over cache ways are given (ResQ, NSDI'18, section 5.2) every piece owns its ways, and one request may
choose fewer ways on more cores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import MOST_MIXES
from slomo.placement.planning.columns import Column
from slomo.placement.planning.cover import MixPlan, cover
from slomo.placement.planning.pricing import Item, Knapsack, enumerate_mixes
from slomo.placement.planning.way_packing import pack_ways
from slomo.placement.policies.base import Demand
from slomo.placement.policies.predicted import PredictedBestFit
from slomo.placement.problem.request import Request

#: Instances on one socket that one request may be split into to save ways.
_MOST_SPLIT = 4
#: What a bound is one for where mixes share the cache: those from which anybody may leave.
_PREMISE = "for mixes that hold in every part"


class MixSearch(PredictedBestFit):
    """Plan batches by mixes; admit single requests as `predicted` does.

    Attributes
    ----------
    last : MixPlan or None
        The latest plan, with its lower bound.
    time_limit_s : float
        For one batch [s].
    """

    name = "slomo-search"
    time_limit_s = 10.0
    last: MixPlan | None = None

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield pieces in the shared cache, or with ways of their own where all profiles are known."""
        profiles = [self.estimates.profile(host.machine, workload.key) for workload in request.chain]
        if None in profiles:
            yield from super().cuts(request, host, needed_mpps)
            return
        workloads = self.estimates.keys(host.machine, request)
        for count in range(1, request.replicas + 1):
            most = min(_MOST_SPLIT, request.replicas // count, request.most_together)
            needs = [self.each(request, host, needed_mpps, count * split) for split in range(1, most + 1)]
            options = self.options(host, workloads, needs)
            if options:
                numbers = [self.pieces.number(piece) for piece in options]
                self.cutting(host).alternatives[numbers[0]] = tuple(numbers)
                self.cutting(host).primary |= dict.fromkeys(numbers, numbers[0])
                yield (options[0],) * count

    def options(self, host: Host, workloads: tuple[str, ...], needs: Sequence[float | None]) -> tuple[Piece, ...]:
        """Return the pieces of 1, 2, ... instances on one socket by own ways, fewest cores first; each next saves ways.

        `needs` says what each instance must serve where there are so many [Mpps], None where that does not do.
        """
        pieces: list[Piece] = []
        for split, mpps in enumerate(needs, 1):
            ways = [None if mpps is None else self.ways_for(host, key, mpps) for key in workloads]
            own_ways = [way for way in ways if way is not None]
            piece = Piece(workloads * split, mpps or 0.0, tuple(own_ways) * split, False, split, len(needs))
            fits = len(piece.workloads) <= host.cores and sum(piece.ways) <= host.ways
            if len(own_ways) == len(workloads) and fits and all(sum(piece.ways) < sum(other.ways) for other in pieces):
                pieces.append(piece)
        return tuple(pieces)

    def ways_for(self, host: Host, workload: str, mpps: float) -> int | None:
        """Return the fewest ways with which an instance serves `mpps`."""
        profile = self.estimates.profile(host.machine, workload)
        return None if profile is None else profile.ways_for(mpps)

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Plan by mixes; take best fit's plan where that is no worse."""
        owned = all(self.pieces[piece].ways for piece in demand)
        mix_plan, packed = self._with_ways(host, demand) if owned else self._shared(host, demand)
        if mix_plan.count >= sum(packed.values()):
            mix_plan = replace(mix_plan, sockets=dict(packed))
        self.last = mix_plan
        return mix_plan.sockets

    def _with_ways(self, host: Host, demand: Demand) -> tuple[MixPlan, Mapping[Signature, int]]:
        classes = {piece: number for number, piece in enumerate(demand)}
        options = {piece: self.cutting(host).alternatives.get(piece, (piece,)) for piece in demand}
        items = [self._item(o, classes[piece]) for piece, numbers in options.items() for o in numbers]
        packed = pack_ways(host, items, dict(enumerate(demand.values())))
        start = [self._column(host, mix, classes) for mix in (*packed, *((piece,) for piece in demand))]
        pricing = Knapsack(host, items, len(classes))
        return cover([*demand.values()], start, pricing, time_limit_s=self.time_limit_s), packed

    def _shared(self, host: Host, demand: Demand) -> tuple[MixPlan, Mapping[Signature, int]]:
        classes = {piece: number for number, piece in enumerate(demand)}
        wanted = [*demand.values()]
        packed = super().plan(host, demand) or {}
        start = [self._column(host, mix, classes) for mix in (*packed, *((piece,) for piece in demand))]
        pricing = self.pricing(host, demand, MOST_MIXES)
        if pricing is not None:
            limit, finished = self.time_limit_s, pricing.finished
            return cover(wanted, start, pricing, complete=finished, premise=_PREMISE, time_limit_s=limit), packed
        cuts = self.cutting(host).alternatives
        every = {option: count for piece, count in demand.items() for option in cuts.get(piece, (piece,))}
        mixes, complete = enumerate_mixes(self.oracle, host, every)
        start += [self._column(host, mix, classes) for mix in mixes]
        return cover(wanted, start, complete=complete, premise=_PREMISE, time_limit_s=self.time_limit_s), packed

    def _item(self, piece: int, klass: int) -> Item:
        cut = self.pieces[piece]
        return Item(piece, klass, len(cut.workloads), sum(cut.ways))

    def _column(self, host: Host, mix: Signature, classes: Mapping[int, int]) -> Column:
        serves = [0] * len(classes)
        for piece in mix:
            serves[classes[self.cutting(host).primary.get(piece, piece)]] += 1
        return Column(mix, tuple(serves))
