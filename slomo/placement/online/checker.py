"""Check whether a placement meets every constraint, independently of the code that made it.

The checker shares no bookkeeping with the search: it computes the use of servers and domains anew. Every placement is
checked before it takes effect, whether made by a built-in policy, a plug-in, a lifecycle verb or a re-optimisation.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slomo.placement.online.constraints import (
    HARD,
    eligible_domains,
    limits_of,
    means,
    taken_of,
)
from slomo.placement.online.sockets import Spot
from slomo.placement.problem.decision import Refusal
from slomo.placement.problem.request import AffinityTerm, Request, is_must
from slomo.placement.problem.whereabouts import HOST, untolerated

if TYPE_CHECKING:
    from slomo.placement.online.decisions import DecisionWriter
    from slomo.placement.online.state import ClusterState
    from slomo.placement.policies.base import Policy

#: Share of a need by which rounding may leave the instances short in sum.
_ROUNDING = 1e-6
Spots = Mapping[str, tuple[Spot, ...]]
#: Fields of a request that restrict where it runs.
_WHEREABOUTS = (
    "selector", "tolerations", "spread", "max_per_host", "survives", "affinity", "anti_affinity", "labels",
)  # fmt: skip


class Deciding(Protocol):
    """What the check reads: the cluster's state, the policy, and each request's required throughput."""

    state: "ClusterState"
    policy: "Policy"
    writer: "DecisionWriter"


@dataclass(frozen=True)
class BrokenConstraint:
    """A constraint that a placement violates."""

    #: Id of the request with the constraint.
    request: str
    #: Field of the request that states the constraint, for instance ``"spread"``.
    constraint: str
    #: What is wrong, in words.
    problem: str
    #: Whether it also applies while a request runs, and not only at placement: neighbours leave, taints and racks are
    #: added.
    lasts: bool = False

    def refusal(self, request: Request, policy: str) -> Refusal:
        """Return a refusal of a policy's decision, with the violated constraint as its reason."""
        machine = "any machine"
        why = f"policy '{policy}' put it where {self.problem}"
        return Refusal(self.request, request.label, machine, self.constraint, constraint=self.constraint, here=why)


@dataclass(frozen=True)
class Before:
    """Where requests ran before a change; requests that did not change are not checked again."""

    requests: Mapping[str, Request]
    spots: Spots

    def stayed(self, state: "ClusterState", request: Request) -> Collection[int] | None:
        """Return the servers on which a request stayed; None if neither its servers nor its constraints changed."""
        was = self.requests.get(request.id)
        if was is None or any(getattr(was, field) != getattr(request, field) for field in _WHEREABOUTS):
            return ()
        then = Counter(state.homes(self.spots.get(request.id, ())))
        now = Counter(state.homes(state.spots[request.id]))
        return None if then == now else {number for number, count in now.items() if count <= then[number]}


def broken_constraints(
    core: "Deciding", names: Iterable[str] | None = None, before: Before | None = None
) -> list[BrokenConstraint]:
    """Return the constraints that the placement of some requests (by default of all) violates.

    `names` are requests whose place is new. Labels, taints and neighbours count when something is put on a server,
    not while it runs, hence `before`.
    """
    state = core.state
    chosen = [name for name in (state.spots if names is None else names) if name in state.spots]
    broken: list[BrokenConstraint] = []
    for name in chosen:
        request = state.requests[name]
        stayed = () if before is None else before.stayed(state, request)
        if stayed is not None:
            broken += _of_whereabouts(state, request, stayed)
        broken += _of_instances(core, request, state.homes(state.spots[name]))
    servers = dict.fromkeys(server for name in chosen for server in state.servers_of(name))
    for number in servers:
        broken += _of_server(state, number)
    sockets = dict.fromkeys(number for name in chosen for number, _ in state.spots[name])
    for number in sockets:
        place = state.sockets[number]
        breach = core.policy.oracle.verdict(place.host, place.signature).breach
        if breach is not None:
            owners = [owner for owner, at, _ in place.cores.values() if state.pieces[at] == breach.piece]
            problem = f"{breach.what} of {breach.workload} is {breach.possible:.4g}, needed {breach.needed:.4g}"
            broken.append(BrokenConstraint(owners[0] if owners else "", breach.what, problem))
    return broken


def _of_whereabouts(state: "ClusterState", request: Request, stayed: Collection[int]) -> Iterator[BrokenConstraint]:
    homes = state.homes(state.spots[request.id])
    if request.selector or state.tainted:
        for number in dict.fromkeys(home for home in homes if home not in stayed):
            server = state.servers[number]
            if not set(request.selector) <= set(server.labels):
                yield BrokenConstraint(request.id, "selector", f"{server.name} carries {dict(server.labels)}", True)
            bad = untolerated(server.taints, request.tolerations, HARD)
            if bad:
                yield BrokenConstraint(request.id, "taints", f"{server.name} has taint {bad[0]}")
    yield from _of_spread(state, request, homes)
    yield from _of_neighbours(state, request, homes)


def _of_spread(state: "ClusterState", request: Request, homes: list[int]) -> Iterator[BrokenConstraint]:
    most = max(Counter(homes).values(), default=0)
    if request.max_per_host is not None and most > request.max_per_host:
        yield BrokenConstraint(request.id, "max_per_host", f"{most} instances share a server", True)
    labels = [item.label for item in request.spread if item.weight is None and item.max_skew is None]
    for label in [*labels, *([request.survives] if request.survives else [])]:
        domains = [state.servers[number].domain(label) for number in homes]
        if None in domains or len(set(domains)) < len(domains):
            field = "spread" if label in labels else "survives"
            problem = f"{len(domains)} instances are on {len(set(domains))} {label}"
            yield BrokenConstraint(request.id, field, problem, lasts=True)
    for spread in request.spread:
        if spread.weight is None and spread.max_skew is not None:
            counts = Counter(state.servers[number].domain(spread.label) for number in homes)
            possible = {*eligible_domains(request, spread.label, state), *counts}
            fewest = min(counts[domain] for domain in possible)
            if None in counts or max(counts.values()) - fewest > spread.max_skew:
                yield BrokenConstraint(request.id, "spread", f"{spread.text} is {dict(counts)}")


def _of_neighbours(state: "ClusterState", request: Request, homes: list[int]) -> Iterator[BrokenConstraint]:
    if request.anti_affinity and request.id in request.anti_affinity and len(set(homes)) < len(homes):
        yield BrokenConstraint(request.id, "anti_affinity", "two instances share a server")
    for term in filter(is_must, request.affinity):
        others = state.constraints.carrying(term) - {request.id}
        there = _domains_of(state, term, [n for other in others for n in state.servers_of(other)])
        there |= _domains_of(state, term, homes) if means(term, request) else set()
        if there and not _domains_of(state, term, homes) <= there:
            yield BrokenConstraint(request.id, "affinity", f"{term} is on {sorted(map(str, there))[:3]}")
    for term in filter(is_must, request.anti_affinity):
        others = state.constraints.carrying(term) - {request.id}
        there = _domains_of(state, term, [n for other in others for n in state.servers_of(other)]) - {None}
        if there & _domains_of(state, term, homes):
            yield BrokenConstraint(request.id, "anti_affinity", f"{term} is on {sorted(map(str, there))[:3]}")


def _domains_of(state: "ClusterState", term: AffinityTerm, numbers: Iterable[int]) -> set[str | None]:
    label = HOST if isinstance(term, str) else term.within
    return {state.servers[number].domain(label) for number in numbers}


def _of_instances(core: "Deciding", request: Request, homes: list[int]) -> Iterator[BrokenConstraint]:
    if not request.min_replicas <= len(homes) <= request.replicas:
        problem = f"{len(homes)} instances run, {request.min_replicas} to {request.replicas} were asked for"
        yield BrokenConstraint(request.id, "min_replicas", problem)
    shares = [] if request.survives is None else _shares(core, request, core.state.spots[request.id]).values()
    if shares and sum(shares) - max(shares) < 1.0 - _ROUNDING:  # if any one failure domain fails
        yield BrokenConstraint(request.id, "survives", f"without one {request.survives} too little is left")


def keeps_promise(core: "Deciding", request: Request) -> bool:
    """Return whether a request's remaining instances can serve all of its promise."""
    return sum(_shares(core, request, core.state.spots[request.id]).values()) >= 1.0 - _ROUNDING


def _shares(core: "Deciding", request: Request, spots: Collection[Spot]) -> dict[str | None, float]:
    """Return how a request's throughput is spread over the domains (racks, ...) whose failure it must survive."""
    state, down = core.state, request.survives or HOST
    shares: dict[str | None, float] = {}
    for number, piece in spots:
        place, cut = state.sockets[number], state.pieces[piece]
        needed = core.writer.capacity_needed(request, place.host)
        share = cut.instances * (cut.needed_mpps / needed if needed else 1.0)
        domain = state.servers[place.server].domain(down)
        shares[domain] = shares.get(domain, 0.0) + share
    return shares


def _of_server(state: "ClusterState", number: int) -> Iterator[BrokenConstraint]:
    server = state.servers[number]
    if not server.resources and server.reserved is None:
        return
    taken: Counter[str] = Counter()
    here = state.sockets_of(number)
    for name in dict.fromkeys(owner for at in here for owner, _, _ in state.sockets[at].cores.values()):
        for at, piece in state.spots[name]:
            if state.sockets[at].server == number:
                taken.update(taken_of(server, state.requests[name], state.pieces[piece]))
    for what, most in limits_of(server):
        if taken[what] > most + 1e-6:
            problem = f"{taken[what]:g} of {most:g} {what} of {server.name} are taken"
            yield BrokenConstraint(server.name, what, problem, lasts=True)


def worsened(core: "Deciding", before: Before, owner: str | None = None) -> list[BrokenConstraint]:
    """Return what a change violates: constraints of moved requests, and limits on moving others' instances."""
    moved = [name for name, spots in core.state.spots.items() if before.spots.get(name) != spots]
    return [*broken_constraints(core, moved, before), *_over_budget(core.state, before, owner)]


def _over_budget(state: "ClusterState", before: Before, owner: str | None) -> Iterator[BrokenConstraint]:
    """Yield requests of which a change moves more instances than `max_disrupted` allows."""
    for name, spots in before.spots.items():
        most = before.requests[name].max_disrupted
        if most is None or name == owner or state.spots.get(name) == spots:
            continue
        gone = Counter(state.homes(spots)) - Counter(state.homes(state.spots.get(name, ())))
        if sum(gone.values()) > most:
            problem = f"{sum(gone.values())} of its instances would move, {most} may at once"
            yield BrokenConstraint(name, "max_disrupted", problem)
