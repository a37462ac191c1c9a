"""Accelerator time per packet as a line over match density, from runs of the accelerator alone.

Yala (ASPLOS'25): the time a regex accelerator takes for a packet is linear in its match-to-byte ratio, and users of one
accelerator take turns, so that their times add up: T = 1 / (own + sum of the others').
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from slomo.files.stored import Stored
from slomo.models.base import Floats

#: Column of an imported row: matches per megabyte, or another count of its author; only ratios matter.
DENSITY = "match_density"


@dataclass(frozen=True)
class ServiceTime(Stored):
    """Time per packet at an accelerator, a linear function of match density."""

    #: Name of the accelerator.
    accelerator: str
    #: Time per packet at match density 0 [us].
    base_us: float
    #: Time per packet added by one unit of match density [us].
    slope_us: float
    #: Smallest and largest measured density.
    low: float
    high: float
    #: Relative standard deviation of its runs around the line; 0 if there are only as many runs as parameters.
    error: float = 0.0

    def time_us(self, density: ArrayLike) -> Floats:
        """Return the time per packet at the accelerator [us].

        It is at least 1 % of the time at density :attr:`low`: a line with a negative intercept would fall to 0 or below
        at low densities, and the accelerator's work would be free.
        """
        least = 0.01 * max(self.base_us + self.slope_us * self.low, 1e-6)
        return np.maximum(self.base_us + self.slope_us * np.asarray(density, dtype=np.float64), least)

    def shared_mpps(self, density: ArrayLike, others_us: ArrayLike = 0.0) -> Floats:
        """Return the throughput of an NF that takes turns with others [Mpps].

        `density`: of the NF's own packets. `others_us`: summed time of one request of every other NF that keeps its
        queue full [us].
        """
        return np.asarray(1.0 / (self.time_us(density) + np.asarray(others_us, dtype=np.float64)))
