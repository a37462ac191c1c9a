"""Average the families of an imported table, each weighted by how surely it is the best.

A family's weight is the share of bootstrap resamples of the table in which its held-out error is the smallest
(Buckland, Burnham and Augustin, Biometrics 53, 1997). If one family is surely the best, it alone predicts. With 50
rows several may be, and their mean is more accurate than the one that a single sample of rows favours.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats

#: Number of resamples: weights are then known to 1.6 % (standard deviation).
RESAMPLES = 1000
#: Largest number of groups that are resampled; more are joined, to bound time and memory.
MOST_GROUPS = 1000


def weights_by_resampling(away: Floats, groups: NDArray[np.int64], seed: int) -> Floats:
    """Return each family's weight from its held-out errors `away`, shape ``(rows, families)``.

    Rows of one group are resampled together.

    >>> away = np.array([[0.1, 0.2], [0.3, 0.1], [0.1, 0.2], [0.1, 0.2]])
    >>> weights_by_resampling(away, np.arange(4), seed=0).round(1).tolist()
    [0.7, 0.3]
    """
    places = np.unique(groups, return_inverse=True)[1]
    sums = np.zeros((min(int(places.max()) + 1, MOST_GROUPS), away.shape[1]))
    np.add.at(sums, places % MOST_GROUPS, away)
    count = len(sums)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), RESAMPLES)
    return np.bincount((drawn @ sums).argmin(axis=1), minlength=away.shape[1]) / RESAMPLES


def averaged(
    guesses: Mapping[str, Floats], mpps: Floats, groups: NDArray[np.int64], fold: NDArray[np.int64], seed: int
) -> tuple[dict[str, float], Floats]:
    """Return the weights of families above 0, and the held-out predictions of their mean.

    `guesses`: held-out predictions of all rows by family. `groups`, `fold`: group and cross-validation fold of each
    row. The weights with which a row is predicted come from the other folds.
    """
    predicted = np.column_stack(list(guesses.values()))
    away, guess = np.abs(predicted - mpps[:, np.newaxis]), np.empty(len(mpps))
    for number in np.unique(fold):
        out = fold == number
        guess[out] = predicted[out] @ weights_by_resampling(away[~out], groups[~out], seed)
    weights = zip(guesses, weights_by_resampling(away, groups, seed).tolist(), strict=True)
    return {name: weight for name, weight in sorted(weights) if weight > 0.0}, guess  # in a file's order: the same bits
