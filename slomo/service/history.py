"""Keep the cluster's figures of the last day: shares of solo throughput, headroom above promises, decisions.

A point is stored every 15 s. Readers get a limited number of points. Each joins the stored points of an interval: it
has their least share and headroom, their largest number of broken promises, and the sum of their decisions.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from slomo.service.servers import RunningServer, promises
from slomo.service.state import journal
from slomo.service.state.store import Store

#: Time between two points [s], and number of points that are kept (one day).
EVERY_S, MOST_POINTS = 15.0, 5760
#: Largest number of points that a reader gets.
MOST_SHOWN = 240
Point = dict[str, Any]


def point(servers: Sequence[RunningServer], decisions: Mapping[str, float], at_s: float) -> Point:
    """Return the cluster's present figures; None for a figure without data."""
    tenants = [item for server in servers for item in server.tenants]
    shares = [item.predicted_mpps / item.solo_mpps for item in tenants if item.predicted_mpps and item.solo_mpps]
    headroom = min((server.headroom for server in servers), default=math.inf)
    return {
        "at_s": at_s,
        "servers_used": sum(bool(server.tenants) for server in servers),
        "running": len(tenants),
        **promises(servers),
        "least_share": round(min(shares), 4) if shares else None,
        "median_share": round(statistics.median(shares), 4) if shares else None,
        "least_headroom": round(headroom, 4) if math.isfinite(headroom) else None,
        "accepted": round(decisions.get("accepted", 0.0)),
        "refused": round(decisions.get("refused", 0.0)),
    }


class History:
    """Keeps the cluster's figures over time in `store`; `clock` returns the time [s since 1970]."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._decisions: dict[str, float] = {}

    def take(self, servers: Sequence[RunningServer], decisions: Mapping[tuple[str, ...], float]) -> Point:
        """Add the cluster's present figures; `decisions` has the numbers of decisions so far, by verdict."""
        totals = {verdict[0]: count for verdict, count in decisions.items()}
        since = {verdict: count - self._decisions.get(verdict, 0.0) for verdict, count in totals.items()}
        self._decisions = totals
        made = point(servers, since, self._clock())
        self._store.write(lambda connection: journal.add_point(connection, made["at_s"], made, MOST_POINTS)).result()
        return made

    def fitting(self, hours: Sequence[int]) -> int:
        """Return the shortest of several time windows that contains every point, else the longest [h]."""
        oldest_s = min((item["at_s"] for item in self._store.read(journal.points)), default=self._clock())
        return next((item for item in hours if self._clock() - oldest_s <= 3600.0 * item), hours[-1])

    def told(self, hours: float, most: int = MOST_SHOWN) -> dict[str, Any]:
        """Return at most `most` points of the last `hours`, oldest first; neighbouring points are joined."""
        end_s = self._clock()
        start_s, width_s = end_s - 3600.0 * hours, 3600.0 * hours / most
        points = [item for item in self._store.read(journal.points) if start_s <= item["at_s"] <= end_s]
        points.sort(key=lambda item: item["at_s"])  # the clock may have been set back
        shown = [
            joined(list(part)) for _, part in groupby(points, lambda item: int((item["at_s"] - start_s) / width_s))
        ]
        return {"start_s": start_s, "end_s": end_s, "every_s": max(width_s, EVERY_S), "points": shown[-most:]}


def joined(points: Sequence[Point]) -> Point:
    """Join several points into one, with the time of the last point and the worst values of all.

    >>> one = point([], {"accepted": 2.0}, 1.0)
    >>> joined([one, {**one, "broken": 3, "at_s": 2.0}])["broken"], joined([one, one])["accepted"]
    (3, 4)
    """
    made = dict(points[-1])
    for name, choose in (("least_share", min), ("median_share", min), ("least_headroom", min), ("kept", min),
                         ("broken", max), ("unjudged", max), ("accepted", sum), ("refused", sum)):  # fmt: skip
        values = [item[name] for item in points if item[name] is not None]
        made[name] = choose(values) if values else None
    return made
