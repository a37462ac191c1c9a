"""From a reporter's slowdown to a metric: one power law per reporter, fitted on the synthetic competitor.

Strictly growing and zero at zero, so nothing a reporter tells two competitions apart by is lost, and beyond the
calibrated range the order stays right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

_NOISE = 0.01  # extra time below this share says nothing
_EXPONENTS = (0.25, 4.0)
_FEWEST_POINTS = 3


@dataclass(frozen=True)
class Response:
    """metric = scale * extra ** exponent.

    Attributes
    ----------
    scale, exponent : float
        Of the law; `scale` in the metric's unit.
    points : int
        Settings it was fitted on.
    error : float
        Median relative error on them.

    Examples
    --------
    >>> Response(10.0, 1.0, 5, 0.0).metric(0.5)
    10.0
    """

    scale: float
    exponent: float
    points: int
    error: float

    def metric(self, ratio: float) -> float:
        """Return the metric at a ratio of the reporter's throughput beside the competition to that without."""
        return float(self.scale * extra_time(ratio) ** self.exponent)

    def to_dict(self) -> Mapping[str, Any]:
        """Return a JSON-ready mapping."""
        return asdict(self)


def extra_time(ratio: float) -> float:
    """Return the extra time per unit of a reporter's work, relative to its time without competition; never negative.

    Examples
    --------
    >>> extra_time(0.5), extra_time(1.02)
    (1.0, 0.0)
    """
    return max(0.0, 1.0 / max(ratio, 1e-3) - 1.0)


def fit_response(ratios: Sequence[float], values: Sequence[float]) -> Response | None:
    """Fit the law to calibrated points; None where there are too few that say anything.

    Parameters
    ----------
    ratios : sequence of float
        The reporter's throughput ratios.
    values : sequence of float
        The metric at the same points, in its unit.

    Examples
    --------
    >>> law = fit_response([0.5, 0.25, 0.8], [10.0, 30.0, 2.5])
    >>> round(law.scale, 3), round(law.exponent, 3)
    (10.0, 1.0)
    """
    extra = np.array([extra_time(ratio) for ratio in ratios])
    known = np.asarray(values, dtype=np.float64)
    used = (extra > _NOISE) & (known > 0.0)
    if int(used.sum()) < _FEWEST_POINTS:
        return None
    x, y = np.log(extra[used]), np.log(known[used])
    spread = float(np.square(x - x.mean()).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0.0 else 1.0
    exponent = float(np.clip(slope, *_EXPONENTS))
    scale = float(np.exp(np.median(y - exponent * x)))
    error = float(np.median(np.abs(scale * extra[used] ** exponent / known[used] - 1.0)))
    return Response(scale, exponent, int(used.sum()), error)
