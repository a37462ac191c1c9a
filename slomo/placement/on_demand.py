"""Share a server's cache among on-demand network functions, max-min fair, isolating only those that must be.

ResQ (NSDI'18) section 5.3.2: all begin in one class. While SLOs break, the violators that miss much though they hold
less than a fair share get a class of their own of about that share; those that keep their SLO, or break it without
missing, and hold less than a fair share get a class the size of what they hold; the rest go on in what is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError

#: Above this share of LLC references missed, more cache would help.
HIGH_MISS_RATIO = 0.1


@dataclass(frozen=True)
class Observed:
    """What was measured of one network function.

    Attributes
    ----------
    violated : bool
        Whether its SLO is broken.
    occupancy_ways : float
        LLC it holds, in ways.
    miss_ratio : float
        Share of its LLC references that miss, 0 to 1.
    """

    violated: bool
    occupancy_ways: float
    miss_ratio: float


@dataclass(frozen=True)
class CacheClass:
    """Network functions that share some cache ways.

    Attributes
    ----------
    members : tuple of str
        Names.
    ways : int
        Ways of the class.
    """

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

    Parameters
    ----------
    names : sequence of str
        On-demand network functions of one server.
    ways : int
        Ways leased to them.
    observe : callable
        Applies classes, waits, and returns what each network function does.

    Raises
    ------
    InvalidValueError
        For no ways.

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
    found = [CacheClass((name,), max(int(fair), 1)) for name in starved]
    if content and len(content) < len(shared):
        held = sum(seen[name].occupancy_ways for name in content)
        found.append(CacheClass(tuple(content), max(round(held), 1)))
    taken = sum(item.ways for item in found)
    others = len(shared) - sum(len(item.members) for item in found)
    return found if found and taken + (others > 0) <= ways else []
