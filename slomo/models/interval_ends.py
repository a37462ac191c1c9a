"""Compute the ends of intervals from predictions and known errors, for arrays or for one prediction."""

import numpy as np

from slomo.models.base import Floats
from slomo.models.error_shape import ErrorShape

#: Least distance of a bound from the prediction, as a share of solo throughput: the median scatter of repeated runs.
LEAST = 5e-4


def predicted_loss(predicted_mpps: Floats, solo_mpps: float | Floats) -> Floats:
    """Return the predicted loss of each prediction, as a share of solo throughput, at least 0."""
    return np.maximum(1.0 - np.asarray(predicted_mpps, dtype=float) / solo_mpps, 0.0)


def ends_mpps(
    predicted_mpps: Floats, solo_mpps: float | Floats, away: tuple[Floats | float, Floats | float]
) -> tuple[Floats, Floats]:
    """Return both ends of intervals [Mpps], given how far they are from the prediction as shares of solo.

    An interval never has width 0 and never goes below 0; with unknown errors it is 0 to solo throughput.
    """
    predicted = np.asarray(predicted_mpps, dtype=float)
    low, high = np.maximum(away[0], -1.0), np.asarray(away[1])
    high = np.where(high >= 1.0, predicted_loss(predicted, solo_mpps), high)
    below, above = solo_mpps * np.minimum(low, -LEAST), solo_mpps * np.maximum(high, LEAST)
    return np.maximum(predicted + below, 0.0), predicted + above


def interval_of_one(
    predicted_mpps: float, solo_mpps: float, shape: ErrorShape, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return both ends of one prediction's interval [Mpps]; the bits equal those of :func:`ends_mpps`."""
    middle, size = shape.at_one(max(1.0 - predicted_mpps / solo_mpps, 0.0))
    low, reach = min(max(middle + size * bounds[0], -1.0), -LEAST), middle + size * bounds[1]
    high = max(reach if reach < 1.0 else max(1.0 - predicted_mpps / solo_mpps, 0.0), LEAST)
    return max(predicted_mpps + solo_mpps * low, 0.0), predicted_mpps + solo_mpps * high


def stretched(
    mpps: Floats, ends: tuple[Floats, Floats], factor: Floats, solo_mpps: float | Floats
) -> tuple[Floats, Floats]:
    """Return both ends of intervals [Mpps], `factor` times as far from the prediction, 1 or more.

    The lower end is at least 0; the upper end is raised at most to solo throughput.

    >>> low, high = stretched(np.array(4.0), (np.array(3.0), np.array(4.5)), np.array(3.0), 5.0)
    >>> float(low), float(high)
    (1.0, 5.0)
    """
    low, high = ends
    below = np.maximum(mpps - factor * (mpps - low), 0.0)
    above = np.maximum(high, np.minimum(mpps + factor * (high - mpps), solo_mpps))
    return np.where(factor > 1.0, below, low), np.where(factor > 1.0, above, high)


def at_most(
    mpps: Floats, ends: tuple[Floats, Floats], offered_mpps: Floats | float
) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return throughput and interval [Mpps] at an offered load, NaN where saturated; none gets width 0.

    >>> mpps, (low, high) = at_most(np.array(4.0), (np.array(3.0), np.array(5.0)), 2.0)
    >>> float(mpps), float(low), float(high)
    (2.0, 1.999, 2.001)
    """
    served, low, high = (np.fmin(each, offered_mpps) for each in (mpps, *ends))
    return served, (
        np.where(low < served, low, (1.0 - LEAST) * served),
        np.where(high > served, high, (1.0 + LEAST) * served),
    )
