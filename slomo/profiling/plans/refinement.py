"""Measure a curve of one variable with few points: only where it may still bend.

ResQ (NSDI'18) profiles throughput over LLC ways and latency over load this way: intervals are halved until a midpoint
agrees with interpolation. The known shape saves more runs: a concave curve lies above every chord and below its
neighbours' extensions, so an interval whose bounds differ by less than the tolerance needs no midpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from slomo.errors import InvalidValueError

TOLERANCE = 0.01
_SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)


class Shape(StrEnum):
    """How a curve bends: concave or convex; both never fall."""

    CONCAVE = "concave"  # throughput against LLC ways: each way gains less
    CONVEX = "convex"  # latency against load: each packet costs more
    UNKNOWN = "unknown"


@dataclass
class MidpointRefinement:
    """Chooses the points of one curve: `ask` for the next one, `tell` its value.

    `low`, `high`: ends of the curve, both measured first. `step`: smallest distance of two points; 1 for LLC ways, 0
    for no limit (then `budget` ends it at a jump). `tolerance`: largest error of interpolation, as a share of the
    value. `budget`: most points.

    Examples
    --------
    >>> ways = MidpointRefinement(1, 20, step=1, shape=Shape.CONCAVE)
    >>> while (asked := ways.ask()) is not None:
    ...     ways.tell(asked, 10.0 - 6.0 / asked)
    >>> len(ways.points), round(ways(13.0), 1)
    (10, 9.5)
    """

    low: float
    high: float
    step: float = 0.0
    shape: Shape = Shape.UNKNOWN
    tolerance: float = TOLERANCE
    budget: int = 64
    points: dict[float, float] = field(default_factory=dict)
    contradictions: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shape = Shape(self.shape)
        if not (self.low < self.high and self.step >= 0.0 and self.tolerance > 0.0 and self.budget >= 2):
            raise InvalidValueError(
                f"refinement from {self.low:g} to {self.high:g}, step {self.step:g}, tolerance {self.tolerance:g}, "
                f"budget {self.budget}: needed rising ends, a step of 0 or more, a tolerance above 0 and 2 points"
            )
        self._settled: set[float] = set()

    def ask(self) -> float | None:
        """Return the next point to measure; None once the curve is known, or the budget is spent."""
        for end in (self.low, self.high):
            if end not in self.points:
                return end
        if len(self.points) >= self.budget:
            return None
        open_ = [(gap, middle) for gap, middle in self._open() if gap > self.tolerance]
        return max(open_, key=lambda item: (item[0], -item[1]))[1] if open_ else None

    def tell(self, x: float, y: float) -> None:
        """Record the curve's value `y` at `x`.

        A value that contradicts the shape by more than the tolerance is kept and listed in :attr:`contradictions`, and
        the shape is no longer assumed.
        """
        if not (self.low <= x <= self.high and y > 0.0):
            raise InvalidValueError(f"curve from {self.low:g} to {self.high:g} got value {y:g} at {x:g}")
        if len(self.points) >= 2:
            foretold = self(x)
            if abs(foretold - y) <= self.tolerance * y:
                self._settled |= {self._middle(*ends) for ends in self._halves(x)}
            sign = {Shape.CONCAVE: 1.0, Shape.CONVEX: -1.0, Shape.UNKNOWN: 0.0}[self.shape]
            if sign * (foretold - y) > self.tolerance * y:
                self.contradictions.append(x)
                self.shape = Shape.UNKNOWN
        self.points[x] = y

    def __call__(self, x: float) -> float:
        """Return the curve at `x`, linearly interpolated."""
        left = max((point for point in self.points if point <= x), default=None)
        right = min((point for point in self.points if point >= x), default=None)
        if left is None or right is None:
            raise InvalidValueError(f"the curve has no value at {x:g}", hint="measure both ends first")
        if left == right:
            return self.points[left]
        share = (x - left) / (right - left)
        return self.points[left] + share * (self.points[right] - self.points[left])

    def _open(self) -> list[tuple[float, float]]:
        """Return the largest interpolation error of each interval that can be halved, with its midpoint."""
        measured_x = sorted(self.points)
        open_intervals = []
        for number in range(len(measured_x) - 1):
            left, right = measured_x[number], measured_x[number + 1]
            middle = self._middle(left, right)
            if left < middle < right and middle not in self._settled:
                open_intervals.append((self._doubt(measured_x, number, middle), middle))
        return open_intervals

    def _doubt(self, measured_x: list[float], number: int, middle: float) -> float:
        """Return the curve's largest possible relative distance from its chord in an interval; above 1 if unknown."""
        left, right = measured_x[number], measured_x[number + 1]
        if self.shape is Shape.UNKNOWN:
            return 1.0 + (right - left) / (self.high - self.low)  # every interval once, the widest first
        if self.shape is Shape.CONVEX and len(measured_x) == 2:
            return 2.0  # nothing bounds a convex curve from below yet
        inside = [left + share * (right - left) for share in _SHARES]
        return max(self._gap(measured_x, number, x) for x in [*inside, middle])

    def _gap(self, measured_x: list[float], number: int, x: float) -> float:
        """Return the curve's largest possible relative distance from its chord at `x`, right of point `number`."""
        left, right = measured_x[number], measured_x[number + 1]
        chord = self(x)
        bounds = []
        if number > 0:
            bounds.append(self._extended(measured_x[number - 1], left, x))
        if number + 2 < len(measured_x):
            bounds.append(self._extended(measured_x[number + 2], right, x))
        if self.shape is Shape.CONCAVE:
            bounds.append(max(self.points[left], self.points[right]))
            return max(min(bounds) - chord, 0.0) / chord
        return max(chord - max(bounds), 0.0) / chord

    def _extended(self, first: float, second: float, x: float) -> float:
        slope = (self.points[second] - self.points[first]) / (second - first)
        return self.points[second] + slope * (x - second)

    def _halves(self, x: float) -> list[tuple[float, float]]:
        left = max(point for point in self.points if point < x) if x > self.low else x
        right = min(point for point in self.points if point > x) if x < self.high else x
        return [(left, x), (x, right)]

    def _middle(self, left: float, right: float) -> float:
        middle = 0.5 * (left + right)
        return self.low + round((middle - self.low) / self.step) * self.step if self.step else middle


def refine(curve: Callable[[float], float], refinement: MidpointRefinement) -> MidpointRefinement:
    """Measure a curve until it is known within the tolerance."""
    while (x := refinement.ask()) is not None:
        refinement.tell(x, curve(x))
    return refinement
