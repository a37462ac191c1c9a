"""Policy `predicted`: put each piece (unit of placement) on the fullest socket on which all SLOs are kept.

SLOMO (SIGCOMM'20) section 2 proposes this use: predict every tenant's loss before placing. A socket's mix is judged as
a whole, each tenant by its own model beside all others, at the requested confidence. A request with replicas may be
split into several instances on one socket; each needs less and tolerates more slowdown. A batch is packed twice: kind
by kind, each piece on the fullest socket where it fits; and socket by socket, each with the best mix of the remaining
demand, which finds good combinations. The better plan is taken.

Best fit with servers grouped by state: a hundred thousand instances are of few kinds, and so are the sockets they fill.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from slomo.errors import MissingExtraError
from slomo.extras import need
from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import Oracle
from slomo.placement.planning.columns import Column, Pricing
from slomo.placement.planning.rounding import fill_by_value
from slomo.placement.planning.shared_pricing import Demanded, SharedPricing, classes_of
from slomo.placement.policies.base import Demand, Policy
from slomo.placement.problem.request import Request

#: Mixes predicted ahead per request of a batch, at most.
_MIXES_PER_REQUEST = 300
#: Number of passes over a batch, each with values corrected by the previous one.
_PASSES = 6
#: With more request classes than this, plan in one pass, and by best fit only unless all useful mixes are known.
_FEW_CLASSES = 60


class PredictedBestFit(Policy):
    """Puts each piece (instances placed together) on the fullest socket on which every SLO is kept."""

    name = "predicted"
    picks = "best"
    predicts = True
    sorts = True

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield ways to split a request, smallest share of a socket first; then one instance per part."""
        apart = request.most_together == 1
        options = [] if apart and request.replicas > 1 else self.together(request, host, needed_mpps)
        yield from ((self.pieces[number],) for number in options)
        yield from (pieces for pieces in super().cuts(request, host, needed_mpps) if not options or len(pieces) > 1)

    def together(self, request: Request, host: Host, needed_mpps: float) -> tuple[int, ...]:
        """Return pieces with all instances on one socket, smallest share of a socket first."""
        workloads = self.estimates.keys(host.machine, request)
        most = min(request.most_together, host.cores // len(workloads))
        needs = {count: self.each(request, host, needed_mpps, count) for count in range(1, most + 1)}
        every = {
            count: self.pieces.number(Piece(workloads * count, each, instances=count, replicas=request.replicas))
            for count, each in needs.items()
            if each is not None
        }
        shares: list[tuple[float, int]] = []
        for number in every.values():
            if (
                self.can_alone(host, workloads, self.pieces[number].needed_mpps)
                and self.oracle.verdict(host, (number,)).ok
            ):
                share = self.weight(host, number)
                if all(share < other for other, _ in shares):
                    shares.append((share, number))
            if shares and shares[-1][0] <= len(workloads) * len(shares) / host.cores:
                break  # it fills the socket already; more instances only take more cores
        options = tuple(number for _, number in sorted(shares))
        if options:
            cutting = self.cutting(host)
            cutting.alternatives[options[0]], cutting.splits[options[0]] = options, every
            cutting.primary |= dict.fromkeys(every.values(), options[0])
        return options

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Plan a batch in two ways (kind by kind; socket by socket) and return the better plan."""
        pricing = self.pricing(host, demand, _MIXES_PER_REQUEST * sum(demand.values()))
        if pricing is None:
            return self.packed(host, demand)
        shares = np.array([self.weight(host, piece) for piece in demand])
        many = len(demand) > _FEW_CLASSES
        passes = 1 if many else _PASSES
        filled = fill_by_value(np.array([*demand.values()], dtype=np.int64), shares, pricing, passes=passes).best
        if many and pricing.finished:  # best fit would ask about every mix there is for every class
            return filled
        packed = self.packed(host, demand)
        return filled if sum(filled.values()) < sum(packed.values()) else packed

    def columns(self, host: Host, demand: Demand) -> tuple[list[Column], Pricing | None] | None:
        """Return the mixes of a first plan, and mixes with a single tenant; pricing finds more mixes.

        None without scipy, whose linear programs choose among the kinds: the batch is then planned kind by kind.
        """
        try:
            need("scipy")
        except MissingExtraError as error:
            what = "batches are planned for one kind of server after the other, which takes more servers"
            self.remarks = (f"{what}: a plan over all needs scipy, which is not installed; {error.hint}",)
            return None
        start = self.starting_columns(host, demand, self.packed(host, demand))
        return start, self.pricing(host, demand, _MIXES_PER_REQUEST * max(sum(demand.values()), 50))

    def starting_columns(self, host: Host, demand: Demand, packed: Iterable[Signature]) -> list[Column]:
        """Return the mixes of a given plan, and every piece (instances placed together) alone."""
        return [self.column(host, mix, demand) for mix in (*packed, *((piece,) for piece in demand))]

    def column(self, host: Host, mix: Signature, demand: Demand) -> Column:
        """Return a mix with the number of requests of each class that it serves."""
        primary = self.cutting(host).primary
        served = Counter(primary.get(piece, piece) for piece in mix)
        return Column(mix, tuple(served[piece] for piece in demand))

    def pricing(self, host: Host, demand: Demand, most: int) -> SharedPricing | None:
        """Return what finds valuable mixes of a batch, among at most `most`; None if the batch has chains."""
        return self._priced(host, classes_of(self.pieces, self.cutting(host).splits, demand), most)

    def refilling(self, host: Host, demand: Demand) -> SharedPricing | None:
        """Return what finds valuable mixes of running and new requests."""
        stay = classes_of(self.pieces, {}, demand) or []
        come = [replace(each, klass=each.klass + len(stay)) for each in stay]
        return self._priced(host, [*stay, *come], _MIXES_PER_REQUEST * max(sum(demand.values()), 50))

    def _priced(self, host: Host, classes: list[Demanded] | None, most: int) -> SharedPricing | None:
        if not classes:
            return None
        floors: dict[str, float] = {}
        for item in classes:
            least = min(need for _, need in item.pieces.values())
            floors[item.workload] = min(least, floors.get(item.workload, least))
        return SharedPricing(host, self.oracle.table(host, floors, most), classes)

    def packed(self, host: Host, demand: Demand) -> dict[Signature, int]:
        """Return the best of several plans: most demanding requests first or last, splits small or large."""
        order = sorted(demand, key=lambda piece: (-self.weight(host, piece), piece))
        small = self.cutting(host).alternatives
        large = {piece: options[::-1] for piece, options in small.items()}
        tried = [
            pack(self.oracle, host, demand, sequence, cuts)
            for sequence in (order, order[::-1])
            for cuts in ((small, large) if small != large else (small,))
        ]
        served = [sum(len(mix) * count for mix, count in sockets.items()) for sockets in tried]
        return min(
            (t for t, done in zip(tried, served, strict=True) if done == max(served)), key=lambda t: sum(t.values())
        )


def pack(
    oracle: Oracle,
    host: Host,
    demand: Mapping[int, int],
    order: Sequence[int],
    alternatives: Mapping[int, Sequence[int]],
) -> dict[Signature, int]:
    """Put each piece (unit of placement) on the fullest socket where all promises are kept, else on an empty one.

    `order` is that in which pieces are packed. `alternatives` are pieces that serve the same request, the preferred
    first; a socket in use goes before a new one. Pieces that fit on no empty socket are left out.
    """
    sockets: Counter[Signature] = Counter()
    for piece in order:
        left = demand[piece]
        while left > 0:
            chosen, option = fullest(oracle, host, sockets, alternatives.get(piece, (piece,)))
            if chosen == () and not oracle.verdict(host, (option,)).ok:
                break
            moved = min(left, sockets[chosen]) if chosen else left
            left -= _fill(oracle, host, sockets, chosen, option, moved, left)
    return {signature: count for signature, count in sockets.items() if count}


def fullest(oracle: Oracle, host: Host, sockets: Counter[Signature], options: Sequence[int]) -> tuple[Signature, int]:
    """Return the fullest mix to which one of the options can be added, or an empty socket.

    Fullest means more cores in use, then less headroom.
    """
    open_ = [signature for signature, count in sockets.items() if count]
    for option in options:
        grown = [oracle.pieces.grown(signature, option) for signature in open_]
        holds = [
            (oracle.pieces.cores(mix), -verdict.headroom, mix, signature)
            for signature, mix, verdict in zip(open_, grown, oracle.verdicts(host, grown), strict=True)
            if verdict.ok
        ]
        if holds:
            return max(holds)[-1], option
    return (), options[0]


def _fill(
    oracle: Oracle, host: Host, sockets: Counter[Signature], base: Signature, piece: int, available: int, left: int
) -> int:
    """Add copies of one group of instances, as many as fit, to sockets that have the same mix; return their number."""
    depth, mix = 0, base
    while depth < left:
        grown = oracle.pieces.grown(mix, piece)
        if not oracle.verdict(host, grown).ok:
            break
        mix, depth = grown, depth + 1
    full = min(left // depth, available)
    rest = left - full * depth if full < available else 0
    _move(sockets, base, mix, full)
    if rest:
        part = base
        for _ in range(rest):
            part = oracle.pieces.grown(part, piece)
        _move(sockets, base, part, 1)
    return full * depth + rest


def _move(sockets: Counter[Signature], source: Signature, target: Signature, count: int) -> None:
    if source != ():
        sockets[source] -= count
    sockets[target] += count
