"""Divide a server's cache among on-demand network functions, max-min fair, isolating only those that need it.

ResQ (NSDI'18) section 5.3.2: all start in one class. While SLOs are violated, a violator with a high miss ratio and
less than a fair share gets a class of about that share. A function that keeps its SLO, or violates it without missing,
and holds less than a fair share gets a class of its present size. The others share the remaining ways.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError
from slomo.placement.problem.way_profiles import InstanceProfile

#: Share of LLC references that miss, above which more cache helps.
HIGH_MISS_RATIO = 0.1


@dataclass(frozen=True)
class Observed:
    """Measurements of one network function."""

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
    """The division of the cache, and the functions whose SLOs remain violated; those go to the central scheduler."""

    classes: tuple[CacheClass, ...]
    unmet: tuple[str, ...]


def share_out(
    names: Sequence[str], ways: int, observe: Callable[[Sequence[CacheClass]], Mapping[str, Observed]]
) -> Shares:
    """Share `ways` out.

    Raises InvalidValueError for no ways.

    `observe` applies classes, waits, and returns what each network function does.

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
    """Return the classes to separate from the shared one; none if nothing more can be separated."""
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
    """Demand and profile of an on-demand network function."""

    #: Throughput over cache ways, latency over load.
    profile: InstanceProfile
    #: Target throughput [Mpps]; 0 for none.
    needed_mpps: float = 0.0
    #: Latencies aimed at [us].
    p95_us: float | None = None
    p99_us: float | None = None

    @property
    def demand_ways(self) -> int:
        """Ways it would use alone; more ways gain less than 1 %."""
        best = self.profile.ways[-1]
        return next(ways for ways in range(self.profile.ways[0][0], best[0] + 1) if self.mpps(ways) >= 0.99 * best[1])

    def mpps(self, ways: float) -> float:
        """Return the throughput with `ways` ways [Mpps], at least the fewest ways of the profile."""
        return self.profile.mpps(max(ways, self.profile.ways[0][0]))

    def misses(self, mpps: float) -> bool:
        """Return whether a throughput misses its target."""
        load = self.profile.load_for(self.p95_us, self.p99_us, mpps / self.profile.solo_mpps)
        late = (self.p95_us is not None or self.p99_us is not None) and load is None
        return late or mpps < self.needed_mpps


def foreseen(wants: Mapping[str, Want]) -> Callable[[Sequence[CacheClass]], dict[str, Observed]]:
    """Return an `observe` for :func:`share_out` that predicts, from profiles, what an agent would measure.

    Members of a class hold their demand or, if the class is too small, parts in proportion to demand. The share of
    throughput lost for lack of cache replaces the miss ratio.
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
    """Return every member's way mask, classes side by side from `first_way` upwards.

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
