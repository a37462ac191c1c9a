"""Divide a server's cache among network functions on demand, max-min fairly; only those that need it get own ways.

ResQ (NSDI'18) section 5.3.2: all start in one class. While SLOs are violated, a violator that misses much gets a class
of about its fair share. Functions that keep their SLOs, or violate them without missing, share a class of their present
size. The division is used for placement, with what profiles foresee, and by controller `max_min`, with what is
observed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slomo.compose.ports import largest_part
from slomo.errors import InvalidValueError
from slomo.models.responses.partition import PartitionResponse
from slomo.vocabulary.way_masks import way_block

#: Share of throughput that misses cost, above which more cache helps.
HIGH_LOSS = 0.01


@dataclass(frozen=True)
class Observed:
    """Measured throughput and cache use of one network function."""

    #: Whether its SLO is broken.
    violated: bool
    #: LLC it holds, in ways.
    occupancy_ways: float
    #: Share of its throughput that LLC misses cost, 0 to 1.
    lost: float


@dataclass(frozen=True)
class CacheClass:
    """Network functions that share the same cache ways (one class of service)."""

    members: tuple[str, ...]
    ways: int


@dataclass(frozen=True)
class Division:
    """A division of the cache: exclusive ways of some functions, and ways that all others share."""

    own: Mapping[str, int]
    shared: int

    def classes(self, names: Sequence[str]) -> list[CacheClass]:
        """Return the cache classes (functions that share ways) of these functions; those of one function come first."""
        sharing = tuple(name for name in names if name not in self.own)
        own = [CacheClass((name,), ways) for name, ways in self.own.items()]
        return [*own, *([CacheClass(sharing, self.shared)] if sharing else [])]

    def fairer(self, ways: int, short: Sequence[str], held_ways: float | None) -> "Division":
        """Return the max-min fair division to try next, after some functions missed their targets.

        Functions that are short demand all `ways`, others with a class of their own what they have. The shared class
        counts as one function that demands what its members hold, and gives up at least one way; None if it has none.
        With more classes than ways nothing changes.

        >>> Division({}, 20).fairer(20, ["a"], 3.0)
        Division(own={'a': 17}, shared=3)
        """
        demands = {name: float(count) for name, count in self.own.items()} | dict.fromkeys(short, math.inf)
        if held_ways is not None:
            demands[""] = max(1.0, min(held_ways, self.shared - 1.0))
        if len(demands) > ways:
            return self
        most = largest_part([*demands.values()], ways)
        whole = _rounded({name: min(each, most) for name, each in demands.items()}, ways, demands)
        return Division({name: count for name, count in whole.items() if name}, whole.get("", 0))


def _rounded(shares: Mapping[str, float], ways: int, demands: Mapping[str, float]) -> dict[str, int]:
    """Round shares to whole ways, at least one each and at most all; remaining ways go to the largest demand."""
    whole = {name: max(1, int(part + 1e-9)) for name, part in shares.items()}
    order = sorted(whole, key=lambda name: (-(demands[name] == math.inf), -(shares[name] - int(shares[name]))))
    left = ways - sum(whole.values())
    hungry = [name for name in order if demands[name] > whole[name]]
    for number in range(max(0, left)):
        if hungry:
            whole[hungry[number % len(hungry)]] += 1
    while sum(whole.values()) > ways and max(whole.values()) > 1:
        whole[max(whole, key=lambda name: whole[name])] -= 1
    return whole


@dataclass(frozen=True)
class Shares:
    """The final division of the cache, and the functions that still miss their SLOs."""

    classes: tuple[CacheClass, ...]
    unmet: tuple[str, ...]


def share_out(
    names: Sequence[str], ways: int, observe: Callable[[Sequence[CacheClass]], Mapping[str, Observed]]
) -> Shares:
    """Divide `ways` among functions again and again, until none misses its target or no fairer division is left.

    `observe` applies classes, waits, and returns what each network function does. Raises InvalidValueError for no ways.
    """
    if ways < 1:
        raise InvalidValueError(f"{ways} cache ways to share out, needed 1 or more")
    division, tried = Division({}, ways), list[Division]()
    while True:
        classes = division.classes(names)
        seen = observe(classes) if classes else {}
        unmet = tuple(name for name in names if seen[name].violated)
        short = [name for name in unmet if name in division.own or seen[name].lost > HIGH_LOSS]
        held = [seen[name].occupancy_ways for name in names if name not in division.own and name not in short]
        tried.append(division)
        division = division.fairer(ways, short, sum(held) if held else None)
        if not short or division in tried:
            return Shares(tuple(classes), unmet)


@dataclass(frozen=True)
class Want:
    """Throughput target and profile of a network function that :func:`share_out` gives cache ways."""

    #: Throughput over cache ways, latency over load.
    profile: PartitionResponse
    #: Target throughput [Mpps]; 0 for none.
    needed_mpps: float = 0.0
    #: Latencies aimed at [us].
    p95_us: float | None = None
    p99_us: float | None = None

    @property
    def demand_ways(self) -> int:
        """Number of ways that the function would use alone; with more ways it gains less than 1 %."""
        best = self.profile.curve[-1]
        return next(ways for ways in range(self.profile.curve[0][0], best[0] + 1) if self.mpps(ways) >= 0.99 * best[1])

    def mpps(self, ways: float) -> float:
        """Return the throughput with `ways` cache ways [Mpps], but with no fewer ways than the profile has."""
        return self.profile.alone_mpps(max(ways, self.profile.curve[0][0]))

    def misses(self, mpps: float) -> bool:
        """Return whether a throughput is below the function's target."""
        load = self.profile.load_for(self.p95_us, self.p99_us, mpps / self.profile.solo_mpps)
        late = (self.p95_us is not None or self.p99_us is not None) and load is None
        return late or mpps < self.needed_mpps


def foreseen(wants: Mapping[str, Want]) -> Callable[[Sequence[CacheClass]], dict[str, Observed]]:
    """Return a function that predicts from profiles what :func:`share_out` would observe."""

    def observe(classes: Sequence[CacheClass]) -> dict[str, Observed]:
        seen = {}
        for item in classes:
            total = sum(wants[name].demand_ways for name in item.members)
            for name in item.members:
                want = wants[name]
                held = want.demand_ways * min(item.ways / total, 1.0)
                mpps = want.mpps(held)
                seen[name] = Observed(want.misses(mpps), held, 1.0 - mpps / want.profile.curve[-1][1])
        return seen

    return observe


def class_masks(classes: Sequence[CacheClass], first_way: int) -> dict[str, int]:
    """Return every member's way mask; classes are put side by side from `first_way` upwards."""
    masks: dict[str, int] = {}
    for item in classes:
        masks |= dict.fromkeys(item.members, way_block(item.ways, first_way))
        first_way += item.ways
    return masks
