"""Predict every row by a model that was not trained on its competitor setting.

Leaving out whole configurations corresponds to predicting an unknown mix. Leaving out single rows gives too small an
error, since the training rows then include the same competitor with one more instance.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats

#: Folds of the cross-validation; fewer if there are fewer groups.
FOLDS = 5


def folds(groups: NDArray[np.int64], seed: int, count: int = FOLDS) -> NDArray[np.int64]:
    """Return the cross-validation fold of each row; rows of one group share a fold."""
    labels, index = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    return (order % max(min(count, len(labels)), 1))[index]


def held_out(
    fit: Callable[[NDArray[np.bool_]], Callable[[NDArray[np.bool_]], Floats]], fold: NDArray[np.int64]
) -> Floats:
    """Return each row's prediction by a model that was fitted to the other folds.

    `fit` takes the mask of rows to fit on and returns a callable that predicts the rows of a mask.
    """
    answer = np.full(len(fold), np.nan)
    for number in np.unique(fold):
        left_out = fold == number
        if not left_out.all():
            answer[left_out] = fit(~left_out)(left_out)
    return answer


def relative_errors(measured: Floats, predicted: Floats, solo_mpps: float) -> dict[str, float]:
    """Return the mean and 95th percentile of the relative error, its bias, and the mean error relative to solo [%].

    The last one is more robust if some settings starve an NF: a relative error is then unbounded.

    >>> relative_errors(np.array([1.0, 2.0]), np.array([1.1, 2.0]), 2.0)["mape_percent"]
    5.0
    """
    comparable = np.isfinite(predicted) & (measured > 0)
    if not comparable.any():
        return {}
    error = 100.0 * (predicted[comparable] - measured[comparable]) / measured[comparable]
    return {
        "mape_percent": round(float(np.abs(error).mean()), 4),
        "p95_percent": round(float(np.quantile(np.abs(error), 0.95)), 4),
        "bias_percent": round(float(error.mean()), 4),
        "mean_percent_of_solo": round(float(100.0 * np.abs(predicted - measured)[comparable].mean() / solo_mpps), 4),
    }
