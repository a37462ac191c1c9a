"""Share a server's cache among on-demand network functions, max-min fair, isolating only those that must be.

ResQ (NSDI'18) section 5.3.2: all begin in one class. While SLOs break, the violators that miss much though they hold
less than a fair share get a class of their own of about that share; those that keep their SLO, or break it without
missing, and hold less than a fair share get a class the size of what they hold; the rest go on in what is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.placement.problem.way_profiles import InstanceProfile

#: Above this share of LLC references missed, more cache would help.
HIGH_MISS_RATIO = 0.1


@dataclass(frozen=True)
class Observed:
    """What was measured of one network function."""

    #: Whether its SLO is broken.
    violated: bool
    #: LLC it holds, in ways.
    occupancy_ways: float
    #: Share of its LLC references that miss, 0 to 1.
    miss_ratio: float


@dataclass(frozen=True)
class CacheClass:
    """Network functions that share some cache ways."""

    members: tuple[str, ...]
    ways: int


@dataclass(frozen=True)
class Shares:
    """How the cache is shared out, and whose SLO is still broken; those go to the central scheduler."""

    classes: tuple[CacheClass, ...]
    unmet: tuple[str, ...]


def share_out(
    names: Sequence[str], ways: int, observe: Callable[[Sequence[CacheClass]], Mapping[str, Observed]]
) -> Shares:
    """Share `ways` out.

    Raises InvalidValueError for no ways.

    Parameters
    ----------
    names : sequence of str
        On-demand network functions of one server.
    ways : int
        Ways leased to them.
    observe : callable
        Applies classes, waits, and returns what each network function does.

    Examples
    --------
    >>> calm = Observed(False, 2.0, 0.0)
    >>> share_out(["a", "b"], 10, lambda classes: {"a": calm, "b": calm}).classes
    (CacheClass(members=('a', 'b'), ways=10),)
    """
    if ways < 1:
        raise InvalidValueError(f"{ways} cache ways to share out, needed 1 or more")
    fixed: list[CacheClass] = []
    shared, left = tuple(names), ways
    while True:
        classes = [*fixed, *([CacheClass(shared, left)] if shared else [])]
        seen = observe(classes) if classes else {}
        broken = tuple(name for name in shared if seen[name].violated)
        if not broken:
            break
        split = _split(shared, left, seen)
        if not split:
            break
        fixed += split
        left -= sum(item.ways for item in split)
        gone = {name for item in split for name in item.members}
        shared = tuple(name for name in shared if name not in gone)
    return Shares(tuple(classes), tuple(name for name in names if seen[name].violated))


def _split(shared: Sequence[str], ways: int, seen: Mapping[str, Observed]) -> list[CacheClass]:
    """Return the classes to set apart from the shared one, or none where nothing more can be."""
    fair = ways / len(shared)
    modest = [name for name in shared if seen[name].occupancy_ways < fair]
    starved = [name for name in modest if seen[name].violated and seen[name].miss_ratio > HIGH_MISS_RATIO]
    content = [name for name in modest if name not in starved]
    classes = [CacheClass((name,), max(int(fair), 1)) for name in starved]
    if content and len(content) < len(shared):
        held = sum(seen[name].occupancy_ways for name in content)
        classes.append(CacheClass(tuple(content), max(round(held), 1)))
    taken = sum(item.ways for item in classes)
    others = len(shared) - sum(len(item.members) for item in classes)
    return classes if classes and taken + (others > 0) <= ways else []


@dataclass(frozen=True)
class Want:
    """What an on-demand network function would like, and what is known of it."""

    #: Throughput over cache ways, latency over load.
    profile: InstanceProfile
    #: Throughput aimed at [Mpps]; 0 for none.
    needed_mpps: float = 0.0
    #: Latencies aimed at [us].
    p95_us: float | None = None
    p99_us: float | None = None

    @property
    def demand_ways(self) -> int:
        """Ways it would hold if nobody else were there: beyond them it gains less than 1 %."""
        best = self.profile.ways[-1]
        return next(ways for ways in range(self.profile.ways[0][0], best[0] + 1) if self.mpps(ways) >= 0.99 * best[1])

    def mpps(self, ways: float) -> float:
        """Return the throughput with so many ways [Mpps]; never fewer than the profile begins with."""
        return self.profile.mpps(max(ways, self.profile.ways[0][0]))

    def misses(self, mpps: float) -> bool:
        """Say whether its target is missed at a throughput."""
        load = self.profile.load_for(self.p95_us, self.p99_us, mpps / self.profile.solo_mpps)
        late = (self.p95_us is not None or self.p99_us is not None) and load is None
        return late or mpps < self.needed_mpps


def foreseen(wants: Mapping[str, Want]) -> Callable[[Sequence[CacheClass]], dict[str, Observed]]:
    """Return an `observe` for :func:`share_out` that foresees from profiles what an agent would measure.

    Members of a class hold what they would like, or, where the class is too small, shares of it in proportion. The
    share of throughput lost for want of cache stands in for the miss ratio.
    """

    def observe(classes: Sequence[CacheClass]) -> dict[str, Observed]:
        seen = {}
        for item in classes:
            total = sum(wants[name].demand_ways for name in item.members)
            for name in item.members:
                want = wants[name]
                held = want.demand_ways * min(item.ways / total, 1.0)
                mpps = want.mpps(held)
                lost = 1.0 - mpps / want.profile.ways[-1][1]
                seen[name] = Observed(want.misses(mpps), held, lost)
        return seen

    return observe


def class_masks(classes: Sequence[CacheClass], first_way: int) -> dict[str, int]:
    """Return the way mask of every member, classes side by side from `first_way` upwards.

    Examples
    --------
    >>> class_masks([CacheClass(("a",), 2), CacheClass(("b", "c"), 3)], 4)
    {'a': 48, 'b': 448, 'c': 448}
    """
    masks: dict[str, int] = {}
    for item in classes:
        masks |= dict.fromkeys(item.members, ((1 << item.ways) - 1) << first_way)
        first_way += item.ways
    return masks
