"""Constraints on where requests may run: affinity to requests, labels and taints of servers, spread, limited resources.

The terms are those of Kubernetes' scheduler. (Anti-)affinity holds whatever the order of arrival: constraints of placed
requests apply to new ones too. Each constraint is a :class:`PlaceRule`, which gives the reason for a rejected server
itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.feasibility.mixes import Piece
from slomo.placement.online.sockets import Socket
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import AffinityTerm, Request, is_must
from slomo.placement.problem.whereabouts import HOST, Neighbours, Spread, untolerated
from slomo.vocabulary.wire import wire_gbps

#: Effects that exclude a request, and the effect that is only a preference.
HARD, AVOIDED = ("NoSchedule", "NoExecute"), ("PreferNoSchedule",)
#: Name of the missing amount if cores are reserved for other requests.
RESERVED = "cores not reserved"


class Placed(Protocol):
    """The part of the cluster's state that constraints read."""

    servers: list[Server]
    tainted: set[int]

    def servers_of(self, request: str) -> set[int]:
        """Return the servers of a request; empty if the request is not placed."""
        ...

    def open_servers(self) -> Iterable[int]:
        """Yield the servers that are open to new requests."""
        ...


@dataclass(frozen=True)
class PlaceRule:
    """One constraint of a request, for the requests placed now."""

    #: Field of the request that states the constraint, for instance ``"selector"``.
    what: str
    #: The constraint in words, with its label.
    words: str
    #: Whether a server, by number, is acceptable for a number of instances.
    holds: Callable[[int, int], bool]
    #: Reason why a server is rejected.
    here: Callable[[int], str]
    #: What would have to change for the server to be accepted.
    give: str


class Constraints:
    """Index of the affinities and labels of placed requests."""

    def __init__(self) -> None:
        self._near: dict[AffinityTerm, set[str]] = {}
        self._away: dict[AffinityTerm, set[str]] = {}
        self._labelled: dict[tuple[str, str], set[str]] = {}

    def copy(self) -> "Constraints":
        """Return an independent copy of the index."""
        other = Constraints()
        other._near = {name: set(who) for name, who in self._near.items()}
        other._away = {name: set(who) for name, who in self._away.items()}
        other._labelled = {pair: set(who) for pair, who in self._labelled.items()}
        return other

    def enter(self, request: Request) -> None:
        """Record the affinity and anti-affinity terms of a placed request."""
        for table, key in self._entries(request):
            table.setdefault(key, set()).add(request.id)

    def leave(self, request: Request) -> None:
        """Remove a request's affinities and labels from the index."""
        for table, key in self._entries(request):
            table.get(key, set()).discard(request.id)
            if not table.get(key):
                table.pop(key, None)

    def _entries(self, request: Request) -> Iterator[tuple[dict, object]]:  # type: ignore[type-arg]
        for table, terms in ((self._near, request.affinity), (self._away, request.anti_affinity)):
            yield from ((table, item) for item in terms if is_must(item))
        yield from ((self._labelled, pair) for pair in request.labels)

    def _wanting(self, table: Mapping[AffinityTerm, set[str]], request: Request) -> list[tuple[AffinityTerm, set[str]]]:
        """Return the other requests that name this request in their affinity."""
        by_id = [(request.id, table[request.id])] if request.id in table else []
        by_label: list[tuple[AffinityTerm, set[str]]] = [
            (item, who)
            for item, who in (table.items() if request.labels else ())
            if isinstance(item, Neighbours) and item.names(request.labels)
        ]
        return [(item, others) for item, who in (*by_id, *by_label) if (others := who - {request.id})]

    def carrying(self, term: AffinityTerm) -> set[str]:
        """Return the placed requests that an id or labels match."""
        if isinstance(term, str):
            return {term}
        return set.intersection(*(self._labelled.get(pair, set()) for pair in term.labels))

    def rules(self, request: Request, own: Sequence[int], state: Placed) -> list[PlaceRule]:
        """Return the constraints that exclude some servers for a request that already has servers `own`."""
        return [
            *self._near_rules(request, own, state),
            *self._away_rules(request, own, state),
            *_server_rules(request, state),
            *_spread_rules(request, own, state),
        ]

    def _near_rules(self, request: Request, own: Sequence[int], state: Placed) -> Iterator[PlaceRule]:
        for term in filter(is_must, request.affinity):
            on, here = _on(term), self._domains(term, request, state)
            here |= _domains(own, on, state) if means(term, request) else set()
            if here:
                yield _near_rule(on, here, state, f"affinity with {_words_of(term)}")
        for term, who in self._wanting(self._near, request):
            on, covered = _on(term), _domains(own, _on(term), state)
            if isinstance(term, Neighbours):
                covered |= self._domains(term, request, state)
            for name in sorted(who):
                left = _domains(state.servers_of(name), on, state) - covered
                if left or isinstance(term, str):
                    homes = _domains(state.servers_of(name), on, state) if isinstance(term, str) else left
                    yield _near_rule(on, homes, state, f"affinity of '{name}', which wants it near")

    def _away_rules(self, request: Request, own: Sequence[int], state: Placed) -> Iterator[PlaceRule]:
        for term in filter(is_must, request.anti_affinity):
            on, here = _on(term), self._domains(term, request, state)
            mine = means(term, request)
            here |= _domains(own, on, state) if mine else set()
            if here or mine:
                yield _away_rule(on, here, state, f"anti-affinity with {_words_of(term)}", alone=mine)
        for term, who in self._wanting(self._away, request):
            for name in sorted(who):
                on = _on(term)
                here = _domains(state.servers_of(name), on, state)
                yield _away_rule(on, here, state, f"anti-affinity of '{name}', which wants it away")

    def _domains(self, term: AffinityTerm, request: Request, state: Placed) -> set[str]:
        """Return the domains (racks, ...) of the requests near which this request wants to be."""
        others = self.carrying(term) - {request.id}
        return set[str]().union(*(_domains(state.servers_of(name), _on(term), state) for name in others))

    def score(self, request: Request, own: Sequence[int], state: Placed) -> Callable[[Socket], float] | None:
        """Return how much a request prefers a socket over one that meets no preference; None if it has no preferences.

        Weights of preferences add up; avoided taints have weight 1 each.
        """
        merits: list[tuple[str, Mapping[str | None, float]]] = []
        for spread in request.spread:
            if spread.weight is not None:
                count = Counter(state.servers[number].domain(spread.label) for number in own)
                merits.append((spread.label, {value: -spread.weight * many for value, many in count.items()}))
        for sign, items in ((1.0, request.affinity), (-1.0, request.anti_affinity)):
            for term in items:
                if not isinstance(term, str) and term.weight is not None:
                    here = self._domains(term, request, state)
                    here |= _domains(own, term.within, state) if means(term, request) else set()
                    merits.append((term.within, dict.fromkeys(here, sign * term.weight)))
        avoided = any(untolerated(state.servers[n].taints, request.tolerations, AVOIDED) for n in state.tainted)
        if not (merits or avoided or request.prefer):
            return None

        def score(place: Socket) -> float:
            server = state.servers[place.server]
            total = sum(merit.get(server.domain(label), 0.0) for label, merit in merits)
            total += sum(item.weight for item in request.prefer if set(item.selector) <= set(server.labels))
            return total - len(untolerated(server.taints, request.tolerations, AVOIDED))

        return score


def means(term: AffinityTerm, request: Request) -> bool:
    """Return whether an id or labels in an affinity select this request."""
    return term == request.id if isinstance(term, str) else term.names(request.labels)


def _on(term: AffinityTerm) -> str:
    return HOST if isinstance(term, str) else term.within


def _words_of(term: AffinityTerm) -> str:
    return f"'{term}'" if isinstance(term, str) else f"{term.words} within one {term.within}"


def _domains(numbers: Iterable[int], label: str, state: Placed) -> set[str]:
    values = (state.servers[number].domain(label) for number in numbers)
    return {value for value in values if value is not None}


def _near_rule(on: str, here: set[str], state: Placed, words: str) -> PlaceRule:
    there = ", ".join(sorted(here)[:3])
    return PlaceRule(
        "affinity", words, lambda number, _: state.servers[number].domain(on) in here,
        lambda number: f"{on} {state.servers[number].domain(on) or 'unnamed'}, wanted {there}",
        f"the affinity, or room on {on} {there}",
    )  # fmt: skip


def _away_rule(on: str, here: set[str], state: Placed, words: str, *, alone: bool = False) -> PlaceRule:
    return PlaceRule(
        "anti_affinity", words,
        lambda number, count: state.servers[number].domain(on) not in here and not (alone and count > 1),
        lambda number: f"{on} {state.servers[number].domain(on)} has it already",
        f"the anti-affinity, or another {on}",
    )  # fmt: skip


def _server_rules(request: Request, state: Placed) -> Iterator[PlaceRule]:
    servers = state.servers
    if state.tainted:
        bad = {n: left for n in state.tainted if (left := untolerated(servers[n].taints, request.tolerations, HARD))}
        if bad:
            first = next(iter(bad.values()))[0]
            yield PlaceRule(
                "taints", f"taint {first}", lambda number, _: number not in bad,
                lambda number: f"taint {bad[number][0]}",
                f"a toleration of {first}, or the taint",
            )  # fmt: skip
    if request.selector:
        labels = set(request.selector)
        words = ", ".join(f"{name}={value}" for name, value in request.selector)
        yield PlaceRule(
            "selector", f"selector {words}", lambda number, _: labels <= set(servers[number].labels),
            lambda number: ", ".join(f"{k} is {servers[number].domain(k) or 'not set'}" for k, _ in request.selector),
            "the selector, or the labels of a server",
        )  # fmt: skip


def _spread_rules(request: Request, own: Sequence[int], state: Placed) -> Iterator[PlaceRule]:
    servers = state.servers
    musts = [item for item in request.spread if item.weight is None]
    strict = [("spread", item.label) for item in musts if item.max_skew is None]
    for field, label in [*strict, *([("survives", request.survives)] if request.survives else [])]:
        yield _strict_rule(field, label, _domains(own, label, state), servers)
    for spread in musts:
        if spread.max_skew is not None:
            counts = Counter(dict.fromkeys(eligible_domains(request, spread.label, state), 0))
            counts.update(value for n in own if (value := servers[n].domain(spread.label)) is not None)
            yield _skew_rule(spread, spread.max_skew, counts, servers)
    if request.max_per_host is not None:
        most = request.max_per_host
        yield PlaceRule(
            "max_per_host", f"max_per_host {most}", lambda number, count: own.count(number) + count <= most,
            lambda number: f"{own.count(number)} are there already", "max_per_host, or another server",
        )  # fmt: skip


def _strict_rule(field: str, label: str, taken: set[str], servers: Sequence[Server]) -> PlaceRule:
    return PlaceRule(
        field, f"{field} {label}" if field == "survives" else f"spread over {label}",
        lambda number, count: count == 1 and servers[number].domain(label) not in {None, *taken},
        lambda number: f"{label} {servers[number].domain(label) or 'unnamed'}",
        f"the {field}, or a server of another {label}",
    )  # fmt: skip


def _skew_rule(spread: Spread, most: int, counts: Counter[str], servers: Sequence[Server]) -> PlaceRule:
    label = spread.label
    return PlaceRule(
        "spread", spread.text, lambda number, more: _skew(counts, servers[number].domain(label), more) <= most,
        lambda number: f"{label} {servers[number].domain(label) or 'unnamed'} has the most already",
        f"max_skew, or room on an emptier {label}",
    )  # fmt: skip


def eligible_domains(request: Request, label: str, state: Placed) -> set[str]:
    """Return the domains of a label that a request could use: open, with its labels, taints tolerated."""
    numbers = [
        number
        for number in state.open_servers()
        if set(request.selector) <= set(state.servers[number].labels)
        and not untolerated(state.servers[number].taints, request.tolerations, HARD)
    ]
    return _domains(numbers, label, state)


def _skew(counts: Counter[str], domain: str | None, more: int) -> float:
    """Return by how many instances a topology domain would exceed the emptiest one if `more` were added to it."""
    if domain is None:
        return float("inf")
    others = [count for name, count in counts.items() if name != domain]
    return counts[domain] + more - min([*others, counts[domain] + more])


def limits_of(server: Server) -> Iterator[tuple[str, float]]:
    """Yield a server's limited resources and their amounts."""
    yield from server.resources
    if server.reserved is not None:
        yield RESERVED, float(server.cores * len(server.nics) - server.reserved.cores)


def taken_of(server: Server, request: Request, piece: Piece) -> dict[str, float]:
    """Return the amounts of resources that a part of a request takes of a server, with reserved cores."""
    amounts = amounts_of(request, piece) if server.resources else {}
    if server.reserved is not None and not set(server.reserved.labels) <= set(request.labels):
        amounts[RESERVED] = float(len(piece.workloads))
    return amounts


def amounts_of(request: Request, piece: Piece) -> dict[str, float]:
    """Return the amounts of resources that a piece (instances placed together) takes of a server."""
    amounts = {name: float(amount) * piece.instances for name, amount in request.resources}
    traffic = request.chain[0].traffic
    mpps = piece.needed_mpps or traffic.offered_mpps or 0.0
    if mpps:
        amounts["nic_gbps"] = round(wire_gbps(traffic.packet_size_b, mpps * piece.instances), 9)
    if piece.ways:
        amounts["closids"] = float(len(piece.ways))
    return amounts


def check_neighbours(requests: Sequence[Request], placed: Collection[str]) -> None:
    """Raise an error for affinity with an unknown request, or with one that cannot be on the same server."""
    asked = {request.id: request for request in requests}
    names = {*placed, *asked}
    for request in requests:
        for name in (*request.affinity, *request.anti_affinity):
            if isinstance(name, str) and name not in names:
                raise UnknownNameError("request", name, sorted(names)[:50], where=f"in the affinity of '{request.id}'")
        for name in request.affinity:
            if isinstance(name, str) and (other := asked.get(name)) is not None:
                _check_together(request, other)


def _check_together(request: Request, other: Request) -> None:
    """Raise an error for affinity between two requests that cannot be on the same server."""
    why = ""
    if request.id in other.anti_affinity:
        why = f"'{other.id}' has anti_affinity to '{request.id}'"
    theirs = dict(other.selector)
    for label, value in request.selector:
        if theirs.get(label, value) != value:
            why = f"its selector is {label}={value}, that of '{other.id}' {label}={theirs[label]}"
    if why:
        raise InvalidValueError(
            f"request '{request.id}': affinity names '{other.id}', but {why}: no server can have both",
            hint="give one of them up",
        )


def check_possible(requests: Iterable[Request], cluster: Cluster) -> None:
    """Raise an error for constraints that no placement on this cluster can meet, before anything is placed."""
    values = cluster.label_values
    for request in requests:
        musts = [item for item in (*request.affinity, *request.anti_affinity) if isinstance(item, Neighbours)]
        fields = [("selector", name) for name, _ in request.selector]
        fields += [("prefer", name) for item in request.prefer for name, _ in item.selector]
        fields += [("spread", item.label) for item in request.spread]
        fields += [("affinity", item.within) for item in musts]
        fields += [("survives", request.survives)] if request.survives else []
        for field, name in fields:
            if name not in values:
                raise UnknownNameError("label", name, values, where=f"in {field} of request '{request.id}'")
        least = max(request.min_replicas, 2 if request.survives else 1)
        for label in request.apart:
            if least > len(values[label]):
                raise InvalidValueError(
                    f"request '{request.id}': min_replicas is {least}, with one instance per {label} and "
                    f"{len(values[label])} of those needed at most {len(values[label])}",
                    hint=f"fewer instances, or max_skew on {label}",
                )
        if request.max_per_host and least > request.max_per_host * len(cluster):
            raise InvalidValueError(
                f"request '{request.id}': min_replicas is {least}, needed at most "
                f"{request.max_per_host * len(cluster)}: max_per_host {request.max_per_host} on {len(cluster)} servers",
                hint="raise max_per_host, or ask for fewer instances",
            )
