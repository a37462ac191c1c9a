"""Explain why a request was refused: for each kind of server, the limit that was missed by least."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slomo.placement.feasibility.mixes import Host, Piece, Signature
from slomo.placement.feasibility.oracle import Breach
from slomo.placement.online.constraints import PlaceRule
from slomo.placement.online.sockets import Socket
from slomo.placement.online.state import ClusterState
from slomo.placement.policies.base import Policy
from slomo.placement.problem.decision import Refusal
from slomo.placement.problem.request import Request

#: Largest number of kinds of servers with reported reasons, and of mixes examined for each.
_MOST_TOLD, _MOST_LOOKED_AT = 4, 64


def told(refusals: Sequence[Refusal]) -> tuple[str, ...]:
    """Return the first few reasons as text, and how many more kinds of servers there are.

    >>> told([Refusal("a", "lpm", f"m{kind}", "cores") for kind in range(6)] * 2)[-1]
    '... and 2 more kinds of servers'
    """
    lines = list(dict.fromkeys(item.text for item in refusals))
    more = len(lines) - _MOST_TOLD
    return (*lines[:_MOST_TOLD], f"... and {more} more kinds of servers") if more > 0 else tuple(lines)


class Binding:
    """Finds the limit that causes a refusal."""

    def __init__(self, state: ClusterState, policy: Policy) -> None:
        self._state, self._policy = state, policy

    def on(self, request: Request, host: Host, piece: Piece) -> Refusal:
        """Return the limit that a request misses by least on servers of one kind."""
        plain = Refusal(request.id, request.label, host.machine, "cores")
        kind = [p for p in self._state.sockets if p.host == host and p.server not in self._state.closed]
        rules = self._state.constraints.rules(request, (), self._state)
        allowed = self._state.allowed(request)
        open_ = kind if allowed is None else [place for place in kind if allowed(place, piece.instances)]
        if not open_:
            return self._bound(plain, rules, kind, piece.instances)
        number = self._state.pieces.number(piece)
        short = [(self._state.short_of(request, number, place), place) for place in open_]
        open_ = [place for lacking, place in short if lacking is None]
        if not open_ and (lacking := short[0][0]) is not None:
            server = self._state.servers[short[0][1].server].name
            return Refusal(request.id, request.label, host.machine, *lacking, server)
        choices = list(self._breaches(host, number, open_))
        if not choices:
            return self._bound(plain, rules, kind, piece.instances) if allowed is not None else plain
        _, breach, place = max(choices, key=lambda item: item[0])
        owners = [owner for owner, at, _ in place.cores.values() if self._state.pieces[at] == breach.piece]
        return Refusal(
            owners[0] if owners else request.id, breach.workload, host.machine, breach.what, breach.needed,
            breach.possible, self._state.servers[place.server].name,
        )  # fmt: skip

    def _bound(self, plain: Refusal, rules: Sequence[PlaceRule], kind: Sequence[Socket], instances: int) -> Refusal:
        """Return the constraint that refuses a request, taken from the server that violates the fewest constraints."""
        if not rules:
            return plain
        servers = dict.fromkeys(place.server for place in kind)
        failed = {number: [rule for rule in rules if not rule.holds(number, instances)] for number in servers}
        short = {number: broken for number, broken in failed.items() if broken}
        if not short:  # the first instance has room, a later one none
            rule = next((each for each in rules if each.what in ("spread", "survives", "max_per_host")), rules[-1])
            here = "the first instances have room, the next none on what the constraint leaves"
            return replace(plain, what=rule.what, constraint=rule.words, here=here, gives=rule.give)
        number, broken = min(short.items(), key=lambda item: (len(item[1]), item[0]))
        rule = broken[0]
        name = self._state.servers[number].name
        return replace(
            plain, what=rule.what, server=name, constraint=" and ".join(each.words for each in broken),
            here=", ".join(each.here(number) for each in broken), gives=rule.give,
        )  # fmt: skip

    def _breaches(self, host: Host, number: int, places: Sequence[Socket]) -> Iterator[tuple[float, Breach, Socket]]:
        """Yield, for each mix with this request added, what it lacks, and a socket that has the mix."""
        lowest: dict[Signature, Socket] = {}
        for place in places:
            lowest.setdefault(place.signature, place)
            if len(lowest) >= _MOST_LOOKED_AT:
                break
        for signature, place in lowest.items():
            breach = self._policy.oracle.verdict(host, self._state.pieces.grown(signature, number)).breach
            if breach is not None:
                yield breach.possible / breach.needed - 1.0 if breach.needed else -1.0, breach, place
