"""Separate the noise of measurements from the uncertainty of the predicted mean.

Errors of held-out rows are model errors plus the noise of the row. Variances add, so subtracting the replicates' noise
from an interval of the next measurement gives the interval of the mean of many (a deconvolution of widths, exact for
normal errors).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from slomo.files.stored import Stored
from slomo.models.interval_ends import LEAST


@dataclass(frozen=True)
class MeasurementNoise(Stored):
    """Noise of an NF's measurements, computed from repeated runs."""

    #: Standard deviation of the mean of a row's replicates, as a share of the throughput. Rows have their median, which
    #: varies by up to a quarter more; intervals of the mean that subtract this, too, hold too seldom.
    row: float
    #: Standard deviation of one run's throughput, as a share of the throughput.
    next_measurement: float
    #: Number of rows that models were fitted to.
    rows: int

    @property
    def runs(self) -> int:
        """Number of runs whose median is a row."""
        return round((self.next_measurement / self.row) ** 2) if self.row else 1

    def reach(self, coverage: float) -> float:
        """Return how far from its mean a row's throughput stays with this probability, as a share of the mean."""
        return central_quantile(coverage) * self.row

    def of_mean(
        self, predicted_mpps: float, solo_mpps: float, interval: tuple[float, float], coverage: float
    ) -> tuple[float, float]:
        """Return the interval of the mean of many measurements [Mpps], given that of the next one.

        It is never narrower than the standard error over the fitted rows, and never wider than `interval`.
        """
        reach = self.reach(coverage) * predicted_mpps
        least = max(reach / math.sqrt(max(self.rows, 1)), LEAST * solo_mpps)
        sides = predicted_mpps - interval[0], interval[1] - predicted_mpps
        below, above = (max(math.sqrt(max(side**2 - reach**2, 0.0)), least) for side in sides)
        return max(predicted_mpps - below, interval[0]), min(predicted_mpps + above, interval[1])


@lru_cache(maxsize=64)
def central_quantile(coverage: float) -> float:
    """Return how many standard deviations from its mean a normal variable stays with this probability."""
    from statistics import NormalDist  # reads decimals and fractions; most profiles have no replicates

    return NormalDist().inv_cdf(0.5 + 0.5 * coverage)
