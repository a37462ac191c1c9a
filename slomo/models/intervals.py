"""Split-conformal prediction intervals: a width that holds the stated share of new mixes, whatever the model.

Vovk et al., Algorithmic Learning in a Random World (2005); normalised scores as in Papadopoulos et al. (2008). With n
calibration scores exchangeable with the new one, coverage is at least `coverage` and at most coverage + 1/(n + 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.base import Floats
from slomo.models.checked_json import array, finite, text

#: Smallest error scale, as a share of solo throughput: even an NF that nobody slows down is measured with some noise.
FLOOR = 0.02


@dataclass(frozen=True, eq=False)
class ConformalCalibration:
    """Sorted scores of held-out predictions, from which the width for any coverage follows.

    Parameters
    ----------
    scores : ndarray, shape (n,)
        ``|measured - predicted| / scale`` in ascending order, where scale = solo x (floor + predicted slowdown).
    source : str
        ``"mixes"`` where the scores come from whole composed predictions, ``"cross-validation"`` where they come from
        the sensitivity model alone (then composition's share of the error is not in the width), ``"none"`` without any.
    floor : float
        Share of solo throughput that the scale never goes below.

    Examples
    --------
    >>> calibration = ConformalCalibration(np.arange(1, 100) / 100, "mixes")
    >>> calibration.half_width_mpps(np.array([9.0]), 10.0, coverage=0.9).round(4).tolist()
    [1.08]
    """

    scores: Floats
    source: str
    floor: float = FLOOR

    @property
    def count(self) -> int:
        """Number of calibration scores."""
        return len(self.scores)

    def half_width_mpps(self, predicted_mpps: Floats, solo_mpps: float, coverage: float) -> Floats:
        """Return the half width [Mpps] of the interval around each prediction.

        With too few scores for the coverage asked, the interval is everything an NF can do: its solo throughput wide.

        Raises
        ------
        InvalidValueError
            For a coverage outside 0 to 1.
        """
        width: Floats = np.minimum(self.score(coverage) * error_scale(predicted_mpps, solo_mpps, self.floor), solo_mpps)
        return width

    def score(self, coverage: float) -> float:
        """Return the score that new mixes stay below with probability `coverage`; infinite with too few scores.

        Raises
        ------
        InvalidValueError
            For a coverage outside 0 to 1.
        """
        if not 0.0 < coverage < 1.0:
            raise InvalidValueError(f"coverage is {coverage}, needed between 0 and 1", hint="0.9 is usual")
        rank = math.ceil((self.count + 1) * coverage - 1e-9)
        return math.inf if rank > self.count else float(self.scores[rank - 1])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {"scores": self.scores.tolist(), "source": self.source, "floor": self.floor}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ConformalCalibration":
        """Rebuild from :meth:`to_dict`'s mapping.

        Raises
        ------
        ConfigurationError
            For scores that are negative or not in ascending order.
        """
        scores, floor = array(data, "scores", 1), finite(data, "floor")
        if (np.diff(scores) < 0).any() or (scores < 0).any() or floor <= 0:
            raise ConfigurationError(
                "conformal scores must be positive and in ascending order", hint="train the model again"
            )
        return cls(scores, text(data, "source"), floor)


def error_scale(predicted_mpps: Floats, solo_mpps: float, floor: float = FLOOR) -> Floats:
    """Return the scale of errors [Mpps]: a floor plus the predicted loss, as errors grow with the slowdown.

    Examples
    --------
    >>> error_scale(np.array([10.0, 5.0]), 10.0).tolist()
    [0.2, 5.2]
    """
    loss: Floats = np.maximum(1.0 - np.asarray(predicted_mpps) / solo_mpps, 0.0)
    return solo_mpps * (floor + loss)


def calibrate(
    measured_mpps: Floats, predicted_mpps: Floats, solo_mpps: float | Floats, source: str
) -> ConformalCalibration:
    """Return the calibration that held-out measurements and their predictions give.

    Parameters
    ----------
    measured_mpps, predicted_mpps : ndarray, shape (n,)
        Throughput [Mpps]; rows without a prediction (NaN) are left out.
    solo_mpps : float or ndarray
        Solo throughput of each row's NF [Mpps]: scores are free of units and can be pooled over NFs.
    source : str
        Where the rows come from.

    Examples
    --------
    >>> calibrate(np.array([9.0]), np.array([10.0]), 10.0, "mixes").scores.tolist()
    [5.0]
    """
    measured, predicted, solo = np.broadcast_arrays(measured_mpps, predicted_mpps, solo_mpps)
    known = np.isfinite(predicted) & np.isfinite(measured)
    scale = np.array(solo[known]) * (FLOOR + np.maximum(1.0 - predicted[known] / solo[known], 0.0))
    return ConformalCalibration(np.sort(np.abs(measured[known] - predicted[known]) / scale), source)
