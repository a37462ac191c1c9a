"""Notice a change in a sequence of numbers by a cumulative sum, with a chosen rate of false alarms.

Page's CUSUM (Biometrika, 1954) over normal scores; the alarm threshold for an average run length is computed with the
Markov chain of Brook and Evans (Biometrika, 1972). A simulation in the tests confirms the result.
"""

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from slomo.errors import InvalidValueError
from slomo.models.base import Floats
from slomo.models.intervals import outwards

#: Half of the shift, in standard deviations, that is detected fastest: errors grown by one standard deviation.
REFERENCE = 0.5
_STATES = 100
#: Fewer calibration errors are few.
MANY = 30
_NORMAL = NormalDist()


def average_run_length(threshold: float, shift: float = 0.0) -> float:
    """Return the mean number of observations until an alarm.

    `threshold`: sum at which an alarm is raised, above 0 [standard deviations]. `shift`: mean of the scores: 0
    gives the run length between false alarms, more gives the delay of a true one.
    """
    width = 2.0 * threshold / (2 * _STATES - 1)
    steps = np.arange(_STATES)
    # from state i to state j > 0; values up to half a cell above 0 count as state 0
    ends = (np.arange(-_STATES, _STATES + 1) + 0.5) * width + REFERENCE - shift
    below = np.array([_NORMAL.cdf(end) for end in ends.tolist()])
    difference = steps[None, :] - steps[:, None]
    moves = below[difference + _STATES] - below[difference + _STATES - 1]
    moves[:, 0] = below[-steps + _STATES]
    lengths = np.linalg.solve(np.eye(_STATES) - moves, np.ones(_STATES))
    return float(lengths[0])


@functools.cache
def alarm_threshold(run_length: float) -> float:
    """Return the threshold with `run_length` observations between false alarms on average.

    Raises InvalidValueError for a run length below 5 or above ten million.
    """
    if not 5.0 <= run_length <= 1e7:
        raise InvalidValueError(f"average run length is {run_length:g} observations, needed 5 to 10 million")
    low, high = 1e-3, 40.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if average_run_length(middle) < run_length else (low, middle)
    return 0.5 * (low + high)


@dataclass
class Cusum:
    """One-sided cumulative sum of normal scores.

    `threshold`: where an alarm is raised.
    """

    threshold: float
    #: Evidence so far, and its maximum; back to 0 whenever the scores are as expected.
    sum: float = 0.0
    #: Observations so far, and how many of them when the sum last left 0: the best estimate of the time of change.
    count: int = 0
    since: int = 0
    peak: float = 0.0
    alarmed: bool = False

    def add(self, score: float) -> bool:
        """Add one score; return whether there is, or was, an alarm."""
        if self.sum <= 0.0:
            self.since = self.count
        self.count += 1
        self.sum = max(0.0, self.sum + score - REFERENCE)
        self.peak = max(self.peak, self.sum)
        self.alarmed = self.peak > self.threshold
        return self.alarmed


def conformal_score(value: float, calibration: Floats, generator: np.random.Generator) -> float:
    """Return the normal score of an error among calibration errors: standard normal if it has their distribution.

    Ties, and the rank among the calibration errors, are drawn at random, which makes the score exact for any
    distribution of errors (Vovk et al., Algorithmic Learning in a Random World, 2005, section 2.3). That holds on
    average over draws of calibration errors. A single small draw may understate them, so with fewer than :data:`MANY`
    errors the rank is moved outwards.

    `value`: the new error. `calibration`, shape (n,): errors where all was well, in ascending order.
    """
    greater = len(calibration) - int(np.searchsorted(calibration, value, side="right"))
    equal = len(calibration) - greater - int(np.searchsorted(calibration, value, side="left"))
    share = (greater + float(generator.random()) * (equal + 1)) / (len(calibration) + 1)
    few = outwards(len(calibration), share) / len(calibration) if len(calibration) < MANY else 0.0
    return normal_score(share + few)


def normal_score(tail: float) -> float:
    """Return the standard normal quantile that is exceeded with probability `tail`."""
    return -_NORMAL.inv_cdf(min(max(tail, 1e-12), 1.0 - 1e-12))


@dataclass
class RecursiveResiduals:
    """Deviations from the mean of earlier values: independent normal scores while nothing changes.

    Brown, Durbin and Evans (JRSS B, 1975), for a constant mean and a known noise.
    """

    #: Standard deviation of one value.
    noise: float
    count: int = 0
    mean: float = 0.0

    def add(self, value: float) -> float | None:
        """Return the value's standardised deviation; None for the first."""
        deviation = None
        if self.count:
            deviation = (value - self.mean) / (self.noise * math.sqrt(1.0 + 1.0 / self.count))
        self.count += 1
        self.mean += (value - self.mean) / self.count
        return deviation
