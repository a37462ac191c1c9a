"""Policies of published papers and of today's schedulers, each in a few lines.

ResQ (NSDI'18) sections 6.1 and 6.2 compares with all of them.
"""

from collections.abc import Iterator

from slomo.placement.feasibility.mixes import Host, Piece
from slomo.placement.policies.base import Policy
from slomo.placement.problem.request import Request


class FirstFit(Policy):
    """Put each piece (instances placed together) on the first server with enough free cores.

    First fit without regard to contention, as current schedulers do (ResQ, NSDI'18, section 6.1, Figure 8); throughput
    is that of a server alone.
    """

    name = "first-fit"


class EqualPartition(Policy):
    """Take the first server with enough free cores; every core has an equal share of the cache ways.

    Equal cache partitions, whatever a network function needs: naive isolation (ResQ, NSDI'18, section 6.1).
    """

    name = "equal-partition"

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield `first-fit`'s ways to split a request, with cache ways for each core."""
        share = max(host.ways // host.cores, 1)
        for pieces in super().cuts(request, host, needed_mpps):
            yield tuple(Piece(piece.workloads, piece.needed_mpps, (share,) * len(piece.workloads)) for piece in pieces)


class DynamicScaling(Policy):
    """Take the first server with free cores; then add instances to requests whose throughput is too low.

    E2 (Palkar et al., SOSP'15) as ResQ (NSDI'18) section 6.2 describes it: unmet demand adds an instance, and traffic
    is split evenly. It cannot promise latency, and an SLO is broken until the request's instances are up.
    """

    name = "e2"
    scales = True


class DobrescuFirstFit(Policy):
    """Take the first socket where no SLO breaks, as predicted from the sum of solo cache access rates.

    First fit with Dobrescu et al.'s predictor (NSDI'12), as ResQ (NSDI'18) section 6.2 describes it: if an instance
    breaks no existing SLO but falls short itself, a second one is packed (and more, up to the request's limit).
    Throughput is linear in the competitors' summed solo cache accesses.
    """

    name = "dobrescu"
    predicts = True
    in_turn = True
    model = "dobrescu"
