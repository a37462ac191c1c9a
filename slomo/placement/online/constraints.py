"""Where a request may go: affinity both ways, labels and taints, spread, and what a server has a limited amount of.

The words are those of Kubernetes' scheduler; (anti-)affinity holds whatever the order of arrival, as who is placed
already keeps what it asked for.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from slomo.errors import UnknownNameError
from slomo.placement.feasibility.mixes import Piece
from slomo.placement.problem.cluster import Server
from slomo.placement.problem.request import Request


class Placed(Protocol):
    """What constraints ask of the state."""

    servers: list[Server]
    tainted: set[int]

    def servers_of(self, request: str) -> set[int]:
        """Return the servers a request runs on; none for one that is not placed."""
        ...


#: Whether a server, by number, will do.
Test = Callable[[int], bool]


class Constraints:
    """What is taken of each server's amounts, and who wants whom near or away."""

    def __init__(self) -> None:
        self.used: dict[int, dict[str, float]] = {}
        self._near: dict[str, set[str]] = {}
        self._away: dict[str, set[str]] = {}

    def copy(self) -> "Constraints":
        """Return the same, to go on with apart."""
        other = Constraints()
        other.used = {number: dict(held) for number, held in self.used.items()}
        other._near = {name: set(who) for name, who in self._near.items()}
        other._away = {name: set(who) for name, who in self._away.items()}
        return other

    def enter(self, request: Request) -> None:
        """Note whom a request that is placed wants near, and whom away."""
        for wanted, names in ((self._near, request.affinity), (self._away, request.anti_affinity)):
            for name in names:
                wanted.setdefault(name, set()).add(request.id)

    def leave(self, request: Request) -> None:
        """Forget a request."""
        for wanted, names in ((self._near, request.affinity), (self._away, request.anti_affinity)):
            for name in names:
                wanted.get(name, set()).discard(request.id)
                if not wanted.get(name):
                    wanted.pop(name, None)

    def is_named(self, name: str) -> bool:
        """Say whether somebody placed wants a request near or away."""
        return name in self._near or name in self._away

    def take(self, number: int, server: Server, request: Request, piece: Piece, sign: int = 1) -> None:
        """Count what a piece takes of a server; with sign -1, what it gives back."""
        if not server.resources:
            return
        held = self.used.setdefault(number, {})
        for name, amount in amounts_of(request, piece).items():
            held[name] = held.get(name, 0.0) + sign * amount

    def short_of(self, number: int, server: Server, request: Request, piece: Piece) -> str | None:
        """Return what a server has too little of for a piece, or None."""
        needed = amounts_of(request, piece) if server.resources else {}
        held = self.used.get(number, {})
        return next(
            (name for name, most in server.resources if needed.get(name, 0.0) > most - held.get(name, 0.0) + 1e-9), None
        )

    def allowed(self, request: Request, own: Sequence[int], state: Placed) -> Test | None:
        """Return which servers a request may go on that has `own` already, or None where any will do.

        Amounts are not looked at: they depend on the piece.
        """
        tests = [*self._by_neighbours(request, own, state), *self._by_servers(request, own, state)]
        if not tests:
            return None
        return lambda number: all(test(number) for test in tests)

    def _by_neighbours(self, request: Request, own: Sequence[int], state: Placed) -> list[Test]:
        near = {*request.affinity, *self._near.get(request.id, ())} - {request.id}
        groups = [here for name in near if (here := state.servers_of(name))]
        foes = {*request.anti_affinity, *self._away.get(request.id, ())} - {request.id}
        away = set[int]().union(*(state.servers_of(name) for name in foes))
        away |= set(own) if request.id in request.anti_affinity else set()
        tests: list[Test] = [] if not groups else [lambda number: all(number in group for group in groups)]
        return tests if not away and not request.anti_affinity else [*tests, lambda number: number not in away]

    def _by_servers(self, request: Request, own: Sequence[int], state: Placed) -> list[Test]:
        servers, tests = state.servers, list[Test]()
        if state.tainted:
            bad = {number for number in state.tainted if set(servers[number].taints) - set(request.tolerations)}
            tests.append(lambda number: number not in bad)
        if request.selector:
            wanted = set(request.selector)
            tests.append(lambda number: wanted <= set(servers[number].labels))
        if request.spread is not None:
            label = request.spread
            values = {dict(servers[number].labels).get(label) for number in own}
            tests.append(lambda number: dict(servers[number].labels).get(label) not in {None, *values})
        if request.max_per_host is not None:
            most = request.max_per_host
            tests.append(lambda number: own.count(number) < most)
        return tests


def amounts_of(request: Request, piece: Piece) -> dict[str, float]:
    """Return what a piece takes of a server's amounts.

    Examples
    --------
    >>> amounts_of(Request("a", "lpm", resources={"memory_gib": 2}), Piece(("lpm", "lpm"), 1.0, instances=2))
    {'memory_gib': 4.0, 'nic_gbps': 1.344}
    """
    amounts = {name: float(amount) * piece.instances for name, amount in request.resources}
    traffic = request.chain[0].traffic
    mpps = piece.needed_mpps or traffic.offered_mpps or 0.0
    if mpps:
        amounts["nic_gbps"] = round(mpps * piece.instances * 8e-3 * (traffic.packet_size_b + 20), 9)
    if piece.ways:
        amounts["closids"] = float(len(piece.ways))
    return amounts


def check_neighbours(requests: Sequence[Request], placed: Collection[str]) -> None:
    """Refuse affinity with a name that is neither placed nor asked for.

    Raises
    ------
    UnknownNameError
        With the nearest name.
    """
    names = {*placed, *(request.id for request in requests)}
    for request in requests:
        for name in (*request.affinity, *request.anti_affinity):
            if name not in names:
                raise UnknownNameError(f"request in the affinity of '{request.id}'", name, sorted(names)[:50])
