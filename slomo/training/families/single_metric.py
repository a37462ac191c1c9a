"""Baselines ``dobrescu`` and ``bubbleup``: a straight line over one counter of the competitors.

SLOMO (SIGCOMM'20) section 7.2 fits Dobrescu's and Bubble-Up's predictors as linear regressions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slomo.errors import MissingMetricError
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows


def _line(x: Floats, y: Floats, weights: Floats | None) -> tuple[float, float]:
    """Return intercept and slope of the least squares line.

    Examples
    --------
    >>> import numpy as np
    >>> _line(np.array([0.0, 100.0]), np.array([5.0, 4.0]), None)
    (5.0, -0.01)
    """
    if weights is None:
        middle, mean = float(x.mean()), float(y.mean())
        away = x - middle
        spread, rise = float(away @ away), float(away @ (y - mean))
    else:
        share = weights / weights.sum()
        middle, mean = float(share @ x), float(share @ y)
        spread, rise = float(share @ (x - middle) ** 2), float(share @ ((x - middle) * (y - mean)))
    slope = rise / spread if spread > 0.0 else 0.0
    return mean - slope * middle, slope


@dataclass(frozen=True)
class SingleMetricFamily(WeightedFamily[SensitivityModel]):
    """A baseline that uses one metric of the competitors' solo runs, or that resource's reporter (probe program)."""

    name: str
    metric: str
    felt: str
    composition: CompositionKind = "solo"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the counter that the baseline reads, or the reporter (probe program) for this resource."""
        if self.metric not in available and self.felt in available:
            return (self.felt,)
        if self.metric not in available:
            raise MissingMetricError(
                f"model '{self.name}' reads {self.metric} or {self.felt} of the competition, neither was reported",
                hint="missing is not zero; measure it, or leave the model out with models=[...]",
            )
        return (self.metric,)

    def fit_weighted(self, rows: WeightedRows) -> SensitivityModel:
        """Train a model of one NF on rows, which weigh the same unless weights are given."""
        line = _line(rows.vectors[:, 0], rows.mpps, rows.weights)
        return LinearSensitivity(self.name, rows.names, self.composition, *line)


def dobrescu() -> SingleMetricFamily:
    """Return the baseline ``dobrescu``: throughput as a line over the competitors' cache access rate.

    Dobrescu's predictor: throughput as a function of the competitors' summed solo cache access rate alone.

    Dobrescu, Argyraki and Ratnasamy (NSDI'12) section 5: throughput depends on the competing references per second, and
    a competitor's references are those of its solo run. Linear, as SLOMO (SIGCOMM'20) section 7.2 evaluates it.

    Examples
    --------
    >>> dobrescu().select_features(["L2MISS", "L3OCC"])
    ('L2MISS',)
    """
    return SingleMetricFamily("dobrescu", "L2MISS", "FELTL3")


def bubbleup() -> SingleMetricFamily:
    """Return the baseline ``bubbleup``: throughput as a line over one counter, as SLOMO evaluated Bubble-Up.

    Bubble-Up's predictor: throughput as a function of the competitors' summed cache occupancy alone.

    Mars et al. (MICRO'11): a bubble with growing working set represents the competitors. Linear in L3OCC, as SLOMO
    (SIGCOMM'20) section 7.2 evaluates it.

    Examples
    --------
    >>> bubbleup().select_features(["L2MISS", "L3OCC"])
    ('L3OCC',)
    """
    return SingleMetricFamily("bubbleup", "L3OCC", "FELTLLC")
