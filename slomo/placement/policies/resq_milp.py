"""Policy `resq-milp`: ResQ's mixed-integer program for a batch (NSDI'18, appendix A, Listing 1), by HiGHS in scipy.

The program minimises active servers. Every instance has ways on its server, and its throughput is a concave
piecewise-linear function of them. Since the profile is concave, its pieces are upper bounds and need no binary
variables. The whole batch is tried first. If time runs out it is cut, as ResQ (section 5.3.1) does, into sets that are
solved separately, each half as large as the last. Two schedules are upper bounds and fallbacks: greedy's, and that of
the same program decomposed server by server (Dantzig and Wolfe, Operations Research 8(1), 1960). The latter is fast if
terms repeat, and makes the instances of a term on one server equal.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from slomo.extras import need
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.feasibility.latency import promises_latency
from slomo.placement.feasibility.mixes import Host, Piece
from slomo.placement.policies.base import Asked, Seats
from slomo.placement.policies.resq_greedy import ResqGreedy, first_fit, first_fit_decreasing
from slomo.placement.policies.search import MixSearch
from slomo.units import plural
from slomo.vocabulary.vector import Floats

#: Largest number of instances of a term that are distinguished.
_MOST_COUNTED = 32


@dataclass(frozen=True)
class Term:
    """One SLO in the program: profile, target [Mpps], and largest number of instances."""

    name: str
    profile: PartitionResponse
    needed_mpps: float
    instances: int


class ResqMilp(ResqGreedy):
    """Plans batches by ResQ's integer program; admits single requests as `resq-greedy` does."""

    name = "resq-milp"
    #: Smallest number of SLOs solved together if time requires cuts.
    set_size: ClassVar[int] = 12
    #: Time limit for the batch, and again for each size of sets [s].
    time_limit_s: ClassVar[float] = 20.0
    #: Servers of the latest plan, bound of the uncut program, and gap; empty before the first plan.
    last: str = ""
    #: Relative gap at which the solver may stop.
    gap: ClassVar[float] = 0.0

    def seats(self, host: Host, batch: Sequence[Asked]) -> Seats:
        """Return a place for each instance, from the program or, if that is no better, from the greedy schedule."""
        decomposed = self._decomposed(host, batch)
        best = min(decomposed, first_fit_decreasing(self, host, batch), key=_servers_or_all)
        single = {item.request.id: item for item in batch if len(item.request.chain) == 1}
        terms = [self._term(host, single[name]) for name in sorted(single, key=lambda n: (-single[n].needed_mpps, n))]
        solvable = [term for term in terms if term is not None]
        most = {name: min(item.request.replicas, _MOST_COUNTED) for name, item in single.items()}
        loose = [replace(term, instances=most[term.name]) for term in solvable]
        size, bound = len(solvable), least_servers(host, loose)
        while solvable and _servers(best) > bound:
            seats, lower, proven = self._in_sets(host, solvable, size)
            bound = max(bound, lower) if size == len(solvable) else bound
            if seats is not None and _servers(seats) < _servers(best):
                best = seats
            if proven or decomposed or size <= self.set_size:  # decomposed by server is cut better than into sets
                break
            size = max(-(-size // 2), self.set_size)
        count, least = _servers(best), max(int(np.ceil(bound - 1e-6)), 1)
        self.last = f"{plural(count, 'server')}, bound {least}, gap {100.0 * (count / least - 1.0):.1f} %"
        return best

    def _decomposed(self, host: Host, batch: Sequence[Asked]) -> Seats:
        """Return a plan made of mixes of single servers; empty if a request needs several servers."""
        search = MixSearch(self.estimates, self.pieces)
        search.time_limit_s, search.shares = min(self.time_limit_s, search.time_limit_s), False
        queues: dict[int, list[str]] = {}
        for item in batch:
            cut = next(search.cuts(item.request, host, item.needed_mpps), ())
            if len(cut) != 1 or not cut[0].ways:
                return {}
            queues.setdefault(self.pieces.number(cut[0]), []).append(item.request.id)
        plan = search.plan(host, {piece: len(queue) for piece, queue in queues.items()}) or {}
        primary = search.cutting(host).primary
        mixes = [signature for signature, count in sorted(plan.items()) for _ in range(count)]
        seats: Seats = {}
        for place, signature in enumerate(mixes):
            for piece in signature:
                waiting = queues[primary.get(piece, piece)]
                if waiting:
                    seats[waiting.pop()] = [(place, self.pieces[piece])]
        return {} if any(queues.values()) else seats

    def _in_sets(self, host: Host, terms: Sequence[Term], size: int) -> tuple[Seats | None, float, bool]:
        """Solve a batch in sets of equal size; return the plan, a bound for one set, and whether it is optimal."""
        count = -(-len(terms) // size)
        seats: Seats = {}
        offset, bound, proven = 0, 0.0, count == 1
        for start in range(count):
            solved = solve(host, terms[start::count], self.time_limit_s / count, self.gap)
            bound, proven = solved.bound, proven and solved.proven
            if solved.seats is None:
                return None, bound, False
            seats |= {name: [(offset + place, piece) for place, piece in at] for name, at in solved.seats.items()}
            offset += 1 + max((place for at in solved.seats.values() for place, _ in at), default=-1)
        return seats, bound, proven

    def _term(self, host: Host, item: Asked) -> Term | None:
        """Return a request as a term of the program; a latency SLO raises the required capacity."""
        request = item.request
        profile = self.estimates.profile(host.machine, request.chain[0].key)
        most = min(request.replicas, 3)
        needs = {n: self.each(request, host, item.needed_mpps, n) for n in range(1, most + 1)}
        totals = {n: n * each for n, each in needs.items() if each is not None}
        if profile is None or not totals:
            return None
        count = min(totals, key=lambda n: totals[n]) if promises_latency(request) else most
        return Term(request.id, profile, totals[count], count)


def _servers_or_all(seats: Seats) -> float:
    return _servers(seats) or float("inf")


def _servers(seats: Seats) -> int:
    return len({place for spots in seats.values() for place, _ in spots})


@dataclass(frozen=True)
class SolvedProgram:
    """Best plan found in time (or None), a lower bound on servers, and whether the plan meets the bound."""

    seats: Seats | None
    bound: float
    proven: bool


def solve(host: Host, terms: Sequence[Term], time_limit_s: float, gap: float) -> SolvedProgram:
    """Solve ResQ's mixed-integer program for one set of requests."""
    sizes = sorted((term.profile.ways_for(term.needed_mpps) or host.ways for term in terms), reverse=True)
    packed = max(first_fit(host, [(1, size) for size in sizes]), default=0) + 1  # with one instance per request
    servers = min(sum(term.instances for term in terms), packed)
    program = _Program(host, terms, servers)
    solution, bound = program.solved(time_limit_s, gap)
    seats = None if solution is None else _topped_up(host, terms, program.read(solution))
    return SolvedProgram(seats, bound, seats is not None and _servers(seats) <= bound + 1e-6)


def _topped_up(host: Host, terms: Sequence[Term], seats: Seats) -> Seats | None:
    """Add free ways if linear interpolation promised more than the profile itself; None if too few are free."""
    used: dict[int, int] = {}
    for spots in seats.values():
        for place, piece in spots:
            used[place] = used.get(place, 0) + piece.ways[0]
    topped: Seats = {}
    for term in terms:
        spots = list(seats.get(term.name, []))
        while sum(term.profile.promise_mpps(piece.ways[0]) for _, piece in spots) < term.needed_mpps * (1 - 1e-6):
            roomy = next((i for i, (place, _) in enumerate(spots) if used[place] < host.ways), None)
            if roomy is None:
                return None
            place, piece = spots[roomy]
            used[place] += 1
            spots[roomy] = (place, Piece(piece.workloads, 0.0, (piece.ways[0] + 1,)))
        rates = [term.profile.promise_mpps(piece.ways[0]) for _, piece in spots]
        share = min(term.needed_mpps / sum(rates), 1.0)
        topped[term.name] = [
            (place, Piece(piece.workloads, rate * share, piece.ways))
            for (place, piece), rate in zip(spots, rates, strict=True)
        ]
    return topped


def least_servers(host: Host, terms: Sequence[Term]) -> float:
    """Return a lower bound on servers: the terms' cores and cache ways must fit into those of the servers.

    With fewer instances a term takes more ways. Prices on both limits make each term choose its cheapest number of
    instances independently, which bounds all of them together (Lagrangian relaxation).
    """
    kinds = Counter((term.profile, term.needed_mpps, term.instances) for term in terms)
    needs = {kind: _least_ways(host, *kind) for kind in kinds}
    prices = np.linspace(0.0, 1.0, 101)
    totals = np.zeros_like(prices)
    for kind, count in kinds.items():
        costs = [prices * n / host.cores + (1.0 - prices) * ways / host.ways for n, ways in needs[kind]]
        totals += count * np.min(costs, axis=0) if costs else 0.0
    return float(np.ceil(totals.max() - 1e-6))


def _least_ways(host: Host, profile: PartitionResponse, needed_mpps: float, instances: int) -> list[tuple[int, int]]:
    """Return the possible numbers of instances of a term, and the least total ways for each."""
    one = np.array([
        profile.promise_mpps(ways) if ways >= profile.curve[0][0] else -np.inf for ways in range(host.ways + 1)
    ])  # fmt: skip
    together, choices = one, []
    for count in range(1, instances + 1):
        enough = np.flatnonzero(together >= needed_mpps * (1.0 - 1e-6))
        choices += [(count, int(enough[0]))] if len(enough) else []
        together = _one_more(together, one)
    if instances == _MOST_COUNTED:  # and more: no fewer cores, and no fewer ways than each takes
        choices.append((instances, instances * profile.curve[0][0]))
    return choices


def _one_more(together: Floats, one: Floats) -> Floats:
    """Return the highest throughput by total number of ways, if one more instance is added."""
    best = np.full(len(together) + len(one) - 1, -np.inf)
    for ways, mpps in enumerate(one.tolist()):
        part = best[ways : ways + len(together)]
        np.maximum(part, together + mpps, out=part)
    return best


class _Program:
    """ResQ's integer program.

    Variables: active servers; per instance and server x, then ways w; per instance its rate t.
    """

    def __init__(self, host: Host, terms: Sequence[Term], servers: int) -> None:
        self.host, self.servers = host, servers
        self.owners = [term for term in terms for _ in range(term.instances)]
        self.terms = terms
        self.rows: list[dict[int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.count = servers + 2 * len(self.owners) * servers + len(self.owners)
        self._constrain()

    def x(self, instance: int, server: int) -> int:
        return self.servers + instance * self.servers + server

    def w(self, instance: int, server: int) -> int:
        return self.servers + (len(self.owners) + instance) * self.servers + server

    def t(self, instance: int) -> int:
        return self.servers + 2 * len(self.owners) * self.servers + instance

    def _row(self, terms: Mapping[int, float], low: float, high: float) -> None:
        self.rows.append(dict(terms))
        self.low.append(low)
        self.high.append(high)

    def _constrain(self) -> None:
        everyone, places = range(len(self.owners)), range(self.servers)
        for s in places:
            self._row({**{self.x(i, s): 1.0 for i in everyone}, s: -float(self.host.cores)}, -np.inf, 0.0)
            self._row({**{self.w(i, s): 1.0 for i in everyone}, s: -float(self.host.ways)}, -np.inf, 0.0)
            if s:
                self._row({s: 1.0, s - 1: -1.0}, -np.inf, 0.0)  # servers alike: the lower ones first
        for i in everyone:
            self._row({self.x(i, s): 1.0 for s in places}, 0.0, 1.0)
            for s in places:
                self._row({self.w(i, s): 1.0, self.x(i, s): -float(self.host.ways)}, -np.inf, 0.0)
                self._row({self.w(i, s): 1.0, self.x(i, s): -float(self.owners[i].profile.curve[0][0])}, 0.0, np.inf)
            for slope, offset in _pieces(self.owners[i].profile, self.host.ways):
                bound = {self.w(i, s): -slope for s in places} | {self.x(i, s): -offset for s in places}
                self._row({**bound, self.t(i): 1.0}, -np.inf, 0.0)
        for term in self.terms:
            mine = [i for i in everyone if self.owners[i] is term]
            self._row({self.t(i): 1.0 for i in mine}, term.needed_mpps, np.inf)

    def solved(self, time_limit_s: float, gap: float) -> tuple[Floats | None, float]:
        """Run the solver; return the best solution, and the proven bound."""
        need("scipy")
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        entries = [(r, c, v) for r, row in enumerate(self.rows) for c, v in row.items()]
        rows, columns, values = zip(*entries, strict=True)
        matrix: Any = csr_array((values, (rows, columns)), shape=(len(self.rows), self.count))
        whole = np.ones(self.count)
        whole[self.t(0) :] = 0.0
        upper = np.concatenate([
            np.ones(self.t(0) - len(self.owners) * self.servers),
            np.full(len(self.owners) * self.servers, float(self.host.ways)),
            np.full(len(self.owners), np.inf),
        ])  # fmt: skip
        cost = np.zeros(self.count)
        cost[: self.servers] = 1.0
        solved = milp(
            cost,
            constraints=LinearConstraint(matrix, self.low, self.high),
            bounds=Bounds(0.0, upper),
            integrality=whole,
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        bound = 0.0 if solved.mip_dual_bound is None else float(np.ceil(solved.mip_dual_bound - 1e-6))
        return (None if solved.x is None else np.asarray(solved.x)), bound

    def read(self, solution: Floats) -> Seats:
        """Return the server and the piece (instances placed together) of every instance that the solution uses."""
        seats: Seats = {}
        for i, term in enumerate(self.owners):
            for s in range(self.servers):
                ways = round(float(solution[self.w(i, s)]))
                if solution[self.x(i, s)] > 0.5 and ways > 0:
                    seats.setdefault(term.name, []).append((s, Piece((term.profile.workload,), 0.0, (ways,))))
        return seats


def _pieces(profile: PartitionResponse, ways: int) -> list[tuple[float, float]]:
    """Return slope and offset of the lines whose minimum is the profile's concave hull."""
    points = [(float(way), profile.promise_mpps(way)) for way in range(profile.curve[0][0], ways + 1)]
    hull: list[tuple[float, float]] = []
    for point in points:
        while len(hull) > 1 and _below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    if len(hull) == 1:
        return [(0.0, hull[0][1])]
    lines = []
    for (x0, y0), (x1, y1) in itertools.pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        lines.append((slope, y0 - slope * x0))
    return lines


def _below(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Return whether point b lies on or below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])
