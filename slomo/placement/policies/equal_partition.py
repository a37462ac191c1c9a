"""Equal partitions of the cache for every core: naive isolation (ResQ, NSDI'18, section 6.1).

As `first-fit`, but cache allocation gives each core the same share, whether its network function needs less or more.
"""

from collections.abc import Iterator

from slomo.placement.mixes import Host, Piece
from slomo.placement.policies.base import Policy
from slomo.placement.problem import Request


class EqualPartition(Policy):
    """Pack on the first server with free cores; every core owns an equal share of the cache ways."""

    name = "equal-partition"

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield `first-fit`'s cuts, with ways; more cores than ways cannot each have one and are left idle."""
        share = max(host.ways // host.cores, 1)
        for pieces in super().cuts(request, host, needed_mpps):
            yield tuple(Piece(piece.workloads, piece.needed_mpps, (share,) * len(piece.workloads)) for piece in pieces)
