"""Policy `resq-greedy`: give each instance own cache ways, as many as its profile of throughput over ways requires.

ResQ (NSDI'18) section 5.3.1: 1. Take as many instances as the target needs at a fair share of the cache; 2. add ways to
one instance after the other until their throughput meets the target; 3. first fit decreasing.
"""

from collections.abc import Iterable, Iterator, Sequence

from slomo.models.responses.partition import PartitionResponse
from slomo.placement.feasibility.latency import promises_latency
from slomo.placement.feasibility.mixes import Host, Piece
from slomo.placement.policies.base import Asked, Policy, Seats
from slomo.placement.problem.request import Request


class ResqGreedy(Policy):
    """Gives every instance own cache ways; first socket with room, largest pieces (instances placed together) first."""

    name = "resq-greedy"
    sorts = True
    needs_profiles = reads_profiles = True

    def cuts(self, request: Request, host: Host, needed_mpps: float) -> Iterator[tuple[Piece, ...]]:
        """Yield the split into instances that ResQ's greedy algorithm makes."""
        profiles = self.estimates.profiles_of(host.machine, request)
        if profiles is None:
            return
        fair = max(host.ways // host.cores, 1)
        workloads = self.estimates.keys(host.machine, request)
        rate = min(profile.promise_mpps(max(fair, profile.curve[0][0])) for profile in profiles)
        needs = {count: self.each(request, host, needed_mpps, count) for count in range(1, request.replicas + 1)}
        quick = [count for count, each in needs.items() if each is not None]
        quick = [count for count in quick if count >= request.min_replicas]
        count = next((n for n in quick if (needs[n] or 0.0) <= rate * (1 + 1e-9)), max(quick, default=0))
        least = [max(profile.curve[0][0], 1) for profile in profiles]
        if promises_latency(request) and count:
            each = needs[count] or 0.0
            least = [profile.ways_for(each) or host.ways + 1 for profile in profiles]
        if not count or max(least) > host.ways:
            return
        ways = [[step] * count for step in least]
        together = (request.capacity_for(needed_mpps, count) or 0.0) * count  # more than needed where one may fail
        pieces = _grown(profiles, ways, together, host)
        if pieces is not None:
            yield tuple(Piece(workloads, mpps, steps) for mpps, steps in pieces)

    def weight(self, host: Host, piece: int) -> float:
        """Return the share of the cache that a piece (instances placed together) uses."""
        return sum(self.pieces[piece].ways) / host.ways


def _grown(
    profiles: list[PartitionResponse], ways: list[list[int]], needed_mpps: float, host: Host
) -> list[tuple[float, tuple[int, ...]]] | None:
    """Give ways to instances in turn until every stage meets its target; return throughput and ways, or None."""
    for profile, steps in zip(profiles, ways, strict=True):
        turn = 0
        while sum(profile.promise_mpps(step) for step in steps) < needed_mpps * (1 - 1e-9):
            if steps[turn % len(steps)] >= min(host.ways, profile.curve[-1][0]):
                return None
            steps[turn % len(steps)] += 1
            turn += 1
    stages = list(zip(profiles, ways, strict=True))
    rates = [min(profile.promise_mpps(steps[i]) for profile, steps in stages) for i in range(len(ways[0]))]
    total = sum(rates)
    share = min(needed_mpps / total, 1.0)
    return [(rate * share, tuple(steps[i] for steps in ways)) for i, rate in enumerate(rates)]


def first_fit_decreasing(policy: Policy, host: Host, batch: Sequence[Asked]) -> Seats:
    """Return ResQ's greedy plan of a batch on empty sockets: largest first, each on the first that has room."""
    pieces = [
        (item.request.id, piece)
        for item in batch
        for piece in next(policy.cuts(item.request, host, item.needed_mpps), ())
    ]
    pieces.sort(key=lambda pair: (-sum(pair[1].ways), pair[0]))
    seats: Seats = {}
    places = first_fit(host, [(len(piece.workloads), sum(piece.ways)) for _, piece in pieces])
    for (name, piece), place in zip(pieces, places, strict=True):
        seats.setdefault(name, []).append((place, piece))
    return seats


def first_fit(host: Host, sizes: Iterable[tuple[int, int]]) -> list[int]:
    """Return, for some cores and ways in order, the number of the first socket that still has them."""
    free: list[tuple[int, int]] = []
    places = []
    for cores, ways in sizes:
        place = next((i for i, (c, w) in enumerate(free) if cores <= c and ways <= w), len(free))
        if place == len(free):
            free.append((host.cores, host.ways))
        free[place] = (free[place][0] - cores, free[place][1] - ways)
        places.append(place)
    return places
