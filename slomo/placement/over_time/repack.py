"""Plan a part of the cluster anew, so that a limited number of moves saves most servers.

Ropke and Pisinger (Transportation Science 40, 2006) call it destroy and repair: the least filled servers are emptied
and their requests placed again. The number of emptied servers is tried from two to all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slomo.errors import InvalidValueError
from slomo.placement.online.admission import Admission
from slomo.placement.online.state import ClusterState


@dataclass(frozen=True)
class MoveBudget:
    """How many moves are allowed, and what a move costs.

    Raises InvalidValueError for a negative number, or a share above 1.

    >>> budget = MoveBudget(max_moves=10, cost_per_move=0.1)
    >>> round(budget.worth(2, 5), 2), budget.worth(2, 11)
    (1.5, None)
    """

    #: Pieces that may move; any number where None.
    max_moves: int | None = None
    #: What a move costs, in servers, 0 or more: at 0.1, saving a server is worth nine moves and not ten.
    cost_per_move: float = 0.0
    #: Time for which a moved piece serves nothing [s]; charged to what is served over time.
    outage_s: float = 0.0
    #: Share of all pieces that may move where `max_moves` is None, 0 to 1; one piece at the least.
    max_share: float = 0.05
    #: Share of all pieces that may move in an hour, over time; any number where None. Unused budget is kept for an
    #: hour.
    share_per_hour: float | None = None

    def __post_init__(self) -> None:
        if self.max_moves is not None and self.max_moves < 0:
            raise InvalidValueError(f"max_moves is {self.max_moves}, needed 0 or more")
        if not 0.0 < self.max_share <= 1.0:
            raise InvalidValueError(
                f"max_share is {self.max_share}, needed above 0 and at most 1",
                hint="0.05: one piece in twenty may move",
            )
        if self.share_per_hour is not None and not 0.0 < self.share_per_hour < float("inf"):
            raise InvalidValueError(f"share_per_hour is {self.share_per_hour}, needed a number above 0")
        for name in ("cost_per_move", "outage_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise InvalidValueError(f"{name} is {getattr(self, name)}, needed a number from 0")

    @property
    def limited(self) -> bool:
        """Whether the number of moves is limited."""
        return self.max_moves is not None or self.cost_per_move > 0.0

    def most(self, pieces: int, left: float | None = None) -> int | None:
        """Return how many of `pieces` units of placement may move now; None if all may."""
        most = self.max_moves
        if most is None and self.max_share < 1.0:
            most = max(int(self.max_share * pieces), 1)
        return most if left is None else min(int(left), pieces if most is None else most)

    def worth(self, saved: int, moves: int) -> float | None:
        """Return the number of saved servers minus the cost of the moves; None if the moves exceed the limit."""
        if self.max_moves is not None and moves > self.max_moves:
            return None
        return saved - self.cost_per_move * moves


def steps(servers: int) -> Iterator[int]:
    """Yield numbers of servers to try to empty: each a third larger than the one before, up to all.

    >>> list(steps(10))
    [2, 3, 4, 5, 6, 8, 10]
    """
    count = 2
    while count < servers:
        yield count
        count += max(count // 3, 1)
    if servers:
        yield servers


def emptiest(core: Admission) -> list[int]:
    """Return the servers in use, least filled first."""
    fill: dict[int, float] = {}
    for place in core.state.sockets:
        if place.signature:
            share = sum(core.policy.weight(place.host, piece) for piece in place.signature)
            fill[place.server] = fill.get(place.server, 0.0) + share
    return sorted(fill, key=lambda server: (fill[server], server))


def repacked(core: Admission, state: ClusterState, servers: list[int], *, fills_gaps: bool) -> Admission | None:
    """Return a placer in which the requests of some servers run elsewhere; None if one of them does not fit.

    The state is copied. With `fills_gaps`, requests are placed one by one, into servers in use first; else as a
    batch.
    """
    made = core.with_state(state.copy())
    names = dict.fromkeys(name for server in servers for name in made.state.tenants_of(server))
    batch = [made.state.requests[name] for name in names]
    for name in names:
        made.state.forget(name)
    if not fills_gaps:
        return None if made.place(batch) else made
    for request in sorted(batch, key=lambda item: -made.weight(item)):
        if not made.admit(request).accepted:
            return None
    return made


def pieces_on(state: ClusterState, servers: list[int]) -> int:
    """Return the largest number of moves that emptying some servers can need."""
    names: dict[str, Any] = dict.fromkeys(name for server in servers for name in state.tenants_of(server))
    return sum(len(state.spots[name]) for name in names)
