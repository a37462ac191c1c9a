"""The policies that others published or that current schedulers follow, each a few lines.

ResQ (NSDI'18) sections 6.1 and 6.2 compares with all of them.
"""

from collections.abc import Iterator

from slomo.placement.feasibility.mixes import Host, Piece
from slomo.placement.policies.base import Policy
from slomo.placement.problem.request import Request


class FirstFit(Policy):
    """Pack on the first server with free cores.

    First fit that knows nothing of contention: what current schedulers do (ResQ, NSDI'18, section 6.1, Figure 8).

    Each network function runs on a dedicated server to learn its throughput; instances are packed on the first server
    with a free core.
    """

    name = "first-fit"


class EqualPartition(Policy):
    """Pack on the first server with free cores; every core owns an equal share of the cache ways.

    Equal partitions of the cache for every core: naive isolation (ResQ, NSDI'18, section 6.1).

    As `first-fit`, but cache allocation gives each core the same share, whether its network function needs less or
    more.
    """

    name = "equal-partition"

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield `first-fit`'s cuts, with ways; more cores than ways cannot each have one and are left idle."""
        share = max(host.ways // host.cores, 1)
        for pieces in super().cuts(request, host, needed_mpps):
            yield tuple(Piece(piece.workloads, piece.needed_mpps, (share,) * len(piece.workloads)) for piece in pieces)


class DynamicScaling(Policy):
    """First fit, then more instances for requests whose observed throughput falls short.

    `e2`: dynamic scaling; packs without regard to contention, and starts one more instance where an SLO is not met.

    E2 (Palkar et al., SOSP'15) as ResQ (NSDI'18) section 6.2 compares with it: demand that is not met adds an instance,
    the traffic is split evenly. It can promise no latency, and every SLO is broken until its instances are up.
    """

    name = "e2"
    scales = True


class DobrescuFirstFit(Policy):
    """Take the first socket on which nobody's SLO breaks by the predictor from solo cache access rates.

    First fit on Dobrescu et al.'s predictor (NSDI'12), as ResQ (NSDI'18) section 6.2 compares with it.

    An instance goes on the first server whose existing SLOs it does not break; where it would fall short there itself,
    a second one is packed (and more, as far as the request may be split). Throughput is a line in the competitors'
    summed solo cache accesses.
    """

    name = "dobrescu"
    predicts = True
    in_turn = True
    model = "dobrescu"
