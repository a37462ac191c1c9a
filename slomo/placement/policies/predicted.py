"""`slomo`: best fit on predictions; packs a socket until the first SLO would break.

SLOMO (SIGCOMM'20) section 2 gives the use: ask what everybody would lose before placing. A socket's mix is judged as a
whole, each tenant by its own model beside all others, at the risk asked for. A request that allows replicas may be cut
into several instances on one socket, each of which needs less and so suffers its neighbours more gladly.
"""

from collections.abc import Iterator, Mapping

from slomo.placement.mixes import Host, Piece, Signature
from slomo.placement.packing import pack
from slomo.placement.policies.base import Demand, Policy, in_order
from slomo.placement.problem import Request


class PredictedBestFit(Policy):
    """Take the fullest socket on which every SLO still holds; among these the one with the least headroom."""

    name = "slomo"
    picks = "best"
    predicts = True
    sorts = True

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield pieces of 1, 2, ... instances on one socket, the least share of it first; then instances apart."""
        spread = request.id in request.anti_affinity
        options = [] if spread else self.together(request, host, needed_mpps)
        if options:
            numbers = [self.pieces.number(piece) for piece in options]
            self.alternatives[numbers[0]] = tuple(numbers)
            self.primary |= dict.fromkeys(numbers, numbers[0])
            yield from ((piece,) for piece in options)
        yield from (pieces for pieces in super().cuts(request, host, needed_mpps) if spread or len(pieces) > 1)

    def together(self, request: Request, host: Host, needed_mpps: float) -> list[Piece]:
        """Return the pieces of all instances on one socket that are worth considering, the least share first."""
        workloads = tuple(workload.key for workload in request.chain)
        shares: list[tuple[float, Piece]] = []
        for count in range(1, min(request.replicas, host.cores // len(workloads)) + 1):
            piece = Piece(workloads * count, needed_mpps / count)
            number = self.pieces.number(piece)
            if self.can_alone(host, workloads, needed_mpps / count) and self.oracle.verdict(host, (number,)).ok:
                share = self.weight(host, number)
                if all(share < other for other, _ in shares):
                    shares.append((share, piece))
            if shares and shares[-1][0] <= len(workloads) * len(shares) / host.cores:
                break  # it fills the socket already; more instances only take more cores
        return [piece for _, piece in sorted(shares, key=lambda pair: pair[0])]

    def plan(self, host: Host, demand: Demand) -> Mapping[Signature, int] | None:
        """Pack the batch by counts."""
        return self.packed(host, demand)

    def packed(self, host: Host, demand: Demand) -> dict[Signature, int]:
        """Pack the most demanding pieces first and last, cut small and large; return what takes fewest sockets."""
        order = in_order(self, host, demand)
        large = {piece: options[::-1] for piece, options in self.alternatives.items()}
        tried = [
            pack(self.oracle, host, demand, sequence, cuts)
            for sequence in (order, order[::-1])
            for cuts in (self.alternatives, large)
        ]
        served = [sum(len(mix) * count for mix, count in sockets.items()) for sockets in tried]
        return min(
            (t for t, done in zip(tried, served, strict=True) if done == max(served)), key=lambda t: sum(t.values())
        )
