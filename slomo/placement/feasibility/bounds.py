"""What is to be counted on: the one-sided lower bound of every tenant of a mix at the confidence its promise asks for.

A promise is broken on one side only. The n promises of a socket share the risk 1 - c (union bound), so that each is
asked at 1 - (1 - c) / n, as far as the calibration scores of its kind of neighbourhood reach.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.models.error_shape import shapes_at
from slomo.models.interval_ends import ends_mpps, predicted_loss
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import within

Floats = NDArray[np.float64]


def level_of(confidence: float, promises: int) -> float:
    """Return the confidence of each of several promises that all hold with a confidence.

    Examples
    --------
    >>> round(level_of(0.95, 5), 3)
    0.99
    """
    return 1.0 - (1.0 - confidence) / max(promises, 1)


def lower_mpps(
    calibrations: Sequence[ConformalCalibration],
    solo_mpps: Floats,
    members: NDArray[np.int64],
    mpps: Floats,
    level: float,
) -> Floats:
    """Return the lower bound of every tenant [Mpps].

    Parameters
    ----------
    calibrations : sequence of ConformalCalibration
        One per model.
    solo_mpps : ndarray, shape (models,)
        Solo throughput.
    members : ndarray of int, shape (mixes, places)
        Which model runs, -1 for nobody.
    mpps : ndarray, shape (mixes, places)
        Predicted throughput at full load.
    level : float
        Confidence of each bound, above 0 and below 1.
    """
    scores = np.array([calibration.lower_scores(level) for calibration in calibrations])
    nobody = members < 0
    who = np.where(nobody, 0, members)
    solo = solo_mpps[who]
    middle, size = shapes_at([each.shape for each in calibrations], who, predicted_loss(mpps, solo))
    bound_mpps, _ = ends_mpps(mpps, solo, (middle + size * scores[who, within(members)], np.inf))
    return np.where(nobody, 0.0, bound_mpps)
