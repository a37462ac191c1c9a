"""Interpolate numbers between profiles along one attribute.

Work per packet adds up in time (Yala, ASPLOS'25, section 4), so time, not throughput, is interpolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.models.base import Floats


@dataclass(frozen=True)
class InterpolationPath:
    """Interpolation along one attribute, from profiles to a value between two of them.

    >>> way = InterpolationPath((0.0, 1.0, 2.0), (1.0, 1.0, 2.0), 1.5, 1.5, 0.5, curved=True)
    >>> way.below, way.times_us(np.array([[1.0, 1.0, 4.0]])).tolist()
    (1, [2.125])
    """

    #: Positions of the profiles, ascending, on the attribute's scale.
    at: tuple[float, ...]
    #: Solo time per packet at each [us].
    solo_us: tuple[float, ...]
    #: Requested position, between the first and the last.
    destination: float
    #: Solo time per packet there [us].
    alone_us: float
    #: Relative position between the profile below and the one above, 0 to 1, for linear interpolation.
    share: float
    #: Whether the time that pressure adds is interpolated separately, by a monotone cubic over all profiles: under
    #: pressure, a working set outgrows the cache earlier than alone.
    curved: bool

    @property
    def below(self) -> int:
        """Index of the profile below the requested value."""
        return min(int(np.searchsorted(self.at, self.destination, side="right")) - 1, len(self.at) - 2)

    def between_mpps(self, mpps: Sequence[Floats]) -> Floats:
        """Return throughputs [Mpps] interpolated between profiles; 0 if one profile has 0."""
        times = np.column_stack([1.0 / np.maximum(values, 1e-9) for values in mpps])
        return 1.0 / self.times_us(times)

    def times_us(self, times_us: Floats) -> Floats:
        """Return times per packet [us], shape ``(n,)``, interpolated between those at the profiles."""
        if self.curved:
            extra = monotone_cubic(np.array(self.at), times_us - np.array(self.solo_us), self.destination)
            return np.maximum(self.alone_us + extra, 1e-9)
        low, high = times_us[:, self.below], times_us[:, self.below + 1]
        return (1.0 - self.share) * low + self.share * high


def monotone_cubic(at: Floats, values: Floats, destination: float) -> Floats:
    """Interpolate rows of `values`, shape ``(n, points)``, without overshoot (Fritsch and Carlson 1980).

    >>> monotone_cubic(np.array([0.0, 1.0, 2.0]), np.array([[0.0, 0.0, 1.0]]), 1.5).tolist()
    [0.3125]
    """
    steps = np.diff(at)
    rises = np.diff(values, axis=1) / steps
    i = min(max(int(np.searchsorted(at, destination, side="right")) - 1, 0), len(steps) - 1)
    left, right = _slope(steps, rises, i), _slope(steps, rises, i + 1)
    h, part = steps[i], (destination - at[i]) / steps[i]
    bow = part * (1.0 - part) * h * ((1.0 - part) * (left - rises[:, i]) - part * (right - rises[:, i]))
    result: Floats = values[:, i] + part * h * rises[:, i] + bow
    return result


def _slope(steps: Floats, rises: Floats, point: int) -> Floats:
    """Return the slope at a point: a weighted harmonic mean of both sides, 0 at an extremum."""
    last = rises.shape[1]
    if last == 1:
        return rises[:, 0]
    if 0 < point < last:
        before, after, h, g = rises[:, point - 1], rises[:, point], steps[point - 1], steps[point]
        same = before * after > 0.0
        one, other = np.where(same, before, 1.0), np.where(same, after, 1.0)
        mean = 3.0 * (h + g) / ((2.0 * g + h) / one + (g + 2.0 * h) / other)
        return np.where(same, mean, 0.0)
    near, next_ = (0, 1) if point == 0 else (last - 1, last - 2)
    h, g, first, second = steps[near], steps[next_], rises[:, near], rises[:, next_]
    slope = ((2.0 * h + g) * first - h * second) / (h + g)
    slope = np.where(slope * first <= 0.0, 0.0, slope)
    return np.where((first * second <= 0.0) & (np.abs(slope) > 3.0 * np.abs(first)), 3.0 * first, slope)
