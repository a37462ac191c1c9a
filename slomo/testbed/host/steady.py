"""Decide whether throughput is steady, and how precise the median of several windows is.

In real runs, throughput rises for up to half a minute and dips every few seconds. Comparing the medians of two
successive stretches of time detects the rise and ignores the dips. Dispersion is the scaled median absolute deviation,
which one bad window does not distort.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.vocabulary.host_section import Steadiness

_FEWEST = 2  # least number of rates in a stretch for a comparison of medians
_POLL_S = 0.02
_MAD_TO_SIGMA = 1.4826  # for a normal distribution
_MEDIAN_TO_MEAN = 1.2533  # standard error of a median over that of a mean


def is_steady(before: Sequence[float], after: Sequence[float], tolerance: float) -> bool:
    """Return whether the median throughputs of two successive stretches of time, two values or more each, agree.

    >>> is_steady([1, 2, 3], [4, 5, 6], 0.05), is_steady([5, 5, 5], [5, 1, 5], 0.05)
    (False, True)
    """
    if min(len(before), len(after)) < _FEWEST:
        return False
    was, now = statistics.median(before), statistics.median(after)
    return now > 0.0 and abs(now - was) <= tolerance * now


def wait_steady(readings: FunctionReadings, steadiness: Steadiness, check: Callable[[], None]) -> bool:
    """Wait until throughput is steady; False if the time limit passed. `check` raises an error if a process ended."""
    start_s = time.monotonic()
    stretch_s = steadiness.stretch_s
    while (now_s := time.monotonic()) < start_s + steadiness.limit_s:
        check()
        middle_s = now_s - stretch_s
        before = readings.rates_mpps(middle_s - stretch_s, middle_s)
        after = readings.rates_mpps(middle_s, now_s)
        if middle_s - stretch_s >= start_s and is_steady(before, after, steadiness.tolerance):
            return True
        time.sleep(_POLL_S)
    return False


@dataclass(frozen=True)
class Summary:
    """The median of measured values, their spread, and the median's standard error."""

    #: Median of the values.
    median: float
    #: Scaled median absolute deviation divided by the median.
    dispersion: float
    #: Relative standard error of the median; infinite for a single value.
    standard_error: float
    #: Number of values.
    count: int


def summarise(values: Sequence[float]) -> Summary:
    """Return the median of repeated values, their spread, and the standard error of the median."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    spread = _MAD_TO_SIGMA * deviation / middle if middle > 0.0 else math.inf
    error = _MEDIAN_TO_MEAN * spread / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Summary(middle, spread, error, len(values))
