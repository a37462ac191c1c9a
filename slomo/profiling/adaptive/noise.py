"""Estimate from repeated runs how noisy a run is, and which model error can be measured at all.

Pooled variance of replicates, as pyperf and npf estimate noise between runs; SLOMO (SIGCOMM'20, section 4.1) takes
medians.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Mean absolute deviation of a normal variable of standard deviation 1.
_MEAN_ABSOLUTE = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Noise:
    """How noisy single runs are.

    >>> noise = estimate_noise([[1.0, 1.1], [2.0], [3.0, 3.0]])
    >>> round(noise.relative, 4), noise.degrees, round(noise.floor, 4)
    (0.0476, 2, 0.038)
    """

    #: Relative standard deviation of one run, pooled over all repeated settings.
    relative: float
    #: Degrees of freedom of that estimate; 0 without repeats.
    degrees: int

    @property
    def floor(self) -> float:
        """Mean absolute error that noise alone causes, as a share of measured throughput."""
        return _MEAN_ABSOLUTE * self.relative

    def doubt(self, throughputs_mpps: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Return the standard error of each setting's mean throughput, as a share of the largest mean, which is solo.

        A setting's own variance and the pooled one are weighted by their degrees of freedom.
        """
        most = max((float(np.mean(values)) for values in throughputs_mpps.values()), default=0.0)
        uncertainties = {}
        for key, values in throughputs_mpps.items():
            mean, own = float(np.mean(values)), len(values) - 1
            variance = self.degrees * (self.relative * mean) ** 2
            variance += own * float(np.var(values, ddof=1)) if own else 0.0
            deviation = math.sqrt(variance / (self.degrees + own)) if self.degrees + own else 0.0
            uncertainties[key] = deviation / math.sqrt(len(values)) / most if most > 0.0 else 0.0
        return uncertainties


def estimate_noise(throughputs_mpps: Iterable[Sequence[float]]) -> Noise:
    """Return the pooled noise of settings, each given by its replicates' throughput [Mpps]."""
    total, degrees = 0.0, 0
    for values in throughputs_mpps:
        mean = float(np.mean(values)) if len(values) else 0.0
        if len(values) > 1 and mean > 0.0:
            total += float(np.sum((np.asarray(values) / mean - 1.0) ** 2))
            degrees += len(values) - 1
    return Noise(math.sqrt(total / degrees) if degrees else 0.0, degrees)
