"""Choose the profiles between which a workload is interpolated.

The choice is between profiles along one coordinate, or along two if all four corners were profiled. Solo runs between
the two profiles, which are cheap, show at which coordinate an NF slows down. Beyond a single profile, only flow counts
are extrapolated, as far as SLOMO (SIGCOMM'20) goes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations

import numpy as np

from slomo.adaptation.interpolation import InterpolationPath

FLOWS, SIZE, ZIPF = "flow_count", "packet_size_b", "zipf_exponent"
#: SLOMO's limit of extrapolation: relative distance of a flow count from the profiled one.
REACH = 0.20
#: Relative difference of solo times below which they do not show where an NF slows down.
_FLAT = 0.02


@dataclass(frozen=True)
class Position:
    """The numbers (packet size, settings, ...) that describe a workload of an NF."""

    #: Properties that must be equal: the NF, the distribution of flows, and non-numeric settings.
    fixed: tuple[object, ...]
    #: Numbers that may be interpolated, by name.
    numbers: Mapping[str, float]

    def comparable(self, other: "Position") -> bool:
        """Return whether the two differ in numbers only."""
        return self.fixed == other.fixed and self.numbers.keys() == other.numbers.keys()

    def differs_in(self, other: "Position") -> tuple[str, ...]:
        """Return the names of the numbers that differ."""
        return tuple(name for name, value in self.numbers.items() if other.numbers[name] != value)

    def at(self, name: str, value: float) -> "Position":
        """Return the same description of a workload with one number replaced."""
        return Position(self.fixed, {**self.numbers, name: value})


@dataclass(frozen=True, eq=False)
class ProfiledPoint:
    """A profile, described by packet size, flow count and settings as numbers."""

    #: Its number, for looking it up.
    number: int
    #: Where it lies.
    position: Position
    #: Throughput alone [Mpps].
    solo_mpps: float
    #: Whether it was profiled under pressure; others only show where on the way an NF slows down.
    knows_pressure: bool

    way, reasons = "profiled", ()


@dataclass(frozen=True, eq=False)
class PointBetween:
    """A workload between profiled ones, from which it is interpolated."""

    #: Along one coordinate, in the order of `path`.
    ends: "tuple[Point, ...]"
    #: Interpolation from them.
    path: InterpolationPath
    #: What is done, in words.
    reasons: tuple[str, ...]

    way = "interpolated"

    @property
    def solo_mpps(self) -> float:
        """Throughput of the NF alone, for the interpolated workload [Mpps]."""
        return 1.0 / self.path.alone_us


@dataclass(frozen=True, eq=False)
class PointBeyond:
    """A workload slightly beyond a single profile, from which it is extrapolated."""

    #: The profile.
    end: ProfiledPoint
    #: What is done, in words.
    reasons: tuple[str, ...]


#: A profile, or a point between profiles.
Point = ProfiledPoint | PointBetween


def route_to(position: Position, profiles: Sequence[ProfiledPoint]) -> Point | PointBeyond | None:
    """Return how to reach a workload from profiles: one itself, between some along one or two numbers, beyond one."""
    same = next((each for each in profiles if each.knows_pressure and not each.position.differs_in(position)), None)
    if same is not None:
        return same
    names = [name for name in position.numbers if any(name in each.position.differs_in(position) for each in profiles)]
    along = (_along(profiles, position, name) for name in names)
    across = (_across(profiles, position, pair) for pair in permutations(names, 2))
    return next((point for point in chain(along, across) if point is not None), None) or _beyond(profiles, position)


def _along(profiles: Sequence[ProfiledPoint], position: Position, name: str) -> Point | None:
    """Interpolate between the nearest profiles below and above along one number."""
    line = [each for each in profiles if set(each.position.differs_in(position)) <= {name}]
    able = [each for each in line if each.knows_pressure] if any(each.knows_pressure for each in profiles) else line
    value = position.numbers[name]
    numbers = [each.position.numbers[name] for each in able]
    if value in numbers:
        return able[numbers.index(value)]
    if not numbers or not min(numbers) < value < max(numbers):
        return None
    able.sort(key=lambda each: each.position.numbers[name])
    path = _path(line, able, name, value)
    low, high = (able[end].position.numbers[name] for end in (path.below, path.below + 1))
    return PointBetween(tuple(able), path, (_reason(name, value, low, high),))


def _path(line: Sequence[ProfiledPoint], able: Sequence[ProfiledPoint], name: str, value: float) -> InterpolationPath:
    """Return the interpolation to a value along one number."""
    alone = sorted((each.position.numbers[name], 1.0 / each.solo_mpps) for each in line)
    *at, there = scaled(name, [*(number for number, _ in alone), value])
    times = [time for _, time in alone]
    numbers = [number for number, _ in alone]
    places = [numbers.index(each.position.numbers[name]) for each in able]
    path = InterpolationPath(
        tuple(at[place] for place in places),
        tuple(times[place] for place in places),
        there,
        float(np.interp(there, at, times)),
        0.0,
        curved=by_logarithm(name, [*numbers, value]),
    )
    low, high = places[path.below], places[path.below + 1]
    share = (there - at[low]) / (at[high] - at[low])
    if high - low > 1 and abs(times[high] - times[low]) > _FLAT * times[low]:
        share = min(max((path.alone_us - times[low]) / (times[high] - times[low]), 0.0), 1.0)
    return replace(path, share=share)


def _across(profiles: Sequence[ProfiledPoint], position: Position, names: tuple[str, str]) -> PointBetween | None:
    """Interpolate along two numbers, one after the other."""
    first, second = names
    value = position.numbers[second]
    levels = sorted({each.position.numbers[second] for each in profiles})
    sides: list[tuple[float, Point]] = []
    for near in ([level for level in reversed(levels) if level < value], [level for level in levels if level > value]):
        places = ((level, _along(profiles, position.at(second, level), first)) for level in near)
        side = next(((level, place) for level, place in places if place is not None), None)
        if side is None:
            return None
        sides.append(side)
    (low, below), (high, above) = sides
    solo = (1.0 / below.solo_mpps, 1.0 / above.solo_mpps)
    share = _share_across(profiles, position, names, (low, high))
    at, curved = scaled(second, [low, high, value]), by_logarithm(second, [low, high])
    alone = (1.0 - share) * solo[0] + share * solo[1]
    path = InterpolationPath((at[0], at[1]), solo, at[2], alone, share, curved=curved)
    reasons = [reason for place in (below, above) if isinstance(place, PointBetween) for reason in place.reasons]
    return PointBetween((below, above), path, tuple(dict.fromkeys([*reasons, _reason(second, value, low, high)])))


def _share_across(
    profiles: Sequence[ProfiledPoint], position: Position, names: tuple[str, str], sides: tuple[float, float]
) -> float:
    """Return where a workload lies between its neighbours along the second number."""
    first, second = names
    shares = []
    for level in sorted({each.position.numbers[first] for each in profiles}):
        edge = position.at(first, level)
        line = [each for each in profiles if set(each.position.differs_in(edge)) <= {second}]
        ends = [each for each in line if each.knows_pressure and each.position.numbers[second] in sides]
        if len(ends) == 2:
            ends.sort(key=lambda each: each.position.numbers[second])
            here, there = scaled(first, [level, position.numbers[first]])
            shares.append((abs(here - there), _path(line, ends, second, position.numbers[second]).share))
    nearest = sorted(shares)[:2]
    if not nearest:  # the two sides were profiled at different values of the first coordinate
        there, below, above = scaled(second, [position.numbers[second], *sides])
        return (there - below) / (above - below)
    total = sum(distance for distance, _ in nearest)
    if len(nearest) < 2 or total <= 0.0:
        return nearest[0][1]
    return sum(share * (total - distance) for distance, share in nearest) / total


def _reason(name: str, value: float, low: float, high: float) -> str:
    return f"{name} {value:g} interpolated between profiles at {low:g} and {high:g}"


def _beyond(profiles: Sequence[ProfiledPoint], position: Position) -> PointBeyond | None:
    """Extrapolate like SLOMO if a profile's flow count is near enough."""
    fitting = [each for each in profiles if each.knows_pressure and set(each.position.differs_in(position)) <= {FLOWS}]
    if not fitting:
        return None
    flows = position.numbers[FLOWS]
    nearest = min(fitting, key=lambda each: abs(each.position.numbers[FLOWS] / flows - 1.0))
    base = nearest.position.numbers[FLOWS]
    away = flows / base - 1.0
    if abs(away) > REACH + 1e-9:
        return None
    reason = (
        f"flow_count {flows:.0f} extrapolated from a profile at {base:.0f}, {100 * away:+.0f} % away "
        f"(reach {100 * REACH:g} %)"
    )
    return PointBeyond(nearest, (reason,))


def scaled(name: str, values: Sequence[float]) -> list[float]:
    """Return values on a scale on which time per packet is about linear between two profiles.

    Packet sizes and shares (a match density) are used as they are: lines moved and matches made are proportional to
    them. Flow counts, rule sets and other sizes are used by logarithm, like cache misses and tree depths.

    >>> scaled("packet_size_b", [64.0, 1500.0]), scaled("match_density", [0.0, 0.5])
    ([64.0, 1500.0], [0.0, 0.5])
    >>> round(scaled("rules", [1000.0])[0], 2)
    6.91
    """
    logarithms = by_logarithm(name, values)
    return [math.log(value) if logarithms else value for value in values]


def by_logarithm(name: str, values: Sequence[float]) -> bool:
    """Return whether an attribute is used by its logarithm: sizes are, packet bytes and shares are not."""
    return name not in (SIZE, ZIPF) and min(values) > 0.0 and max(values) > 1.0
