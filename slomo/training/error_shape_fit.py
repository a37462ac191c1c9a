"""Fit where errors lie and how far they reach over the predicted loss, per NF, from few mixes.

Losses are counted in shares of the worst that was predicted for the NF, so that all NFs have their knots where their
throughput is flat or steep. Where errors lie is learned of each NF alone, drawn towards nowhere; how far they reach is
drawn towards what this NF and all NFs at this share of their worst loss say together (a hierarchical mean, as in
`slomo.training.conformal_fit`). Chosen by the pinball loss of bounds at 0.6, 2.5, 5, 95 and 97.5 % on the shipped
calibration mixes, runs left out in six folds, over other floors and powers of the loss, other knots and priors.
"""

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.error_shape import ErrorShape

#: Shares of the worst predicted loss between which shapes are linear.
KNOTS = np.array([0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
#: What is drawn towards counts as much as this many rows of its own.
PRIOR_ROWS = 4.0
#: Least size of errors, and least worst loss, as shares of solo throughput.
LEAST_SIZE, LEAST_WORST = 2e-4, 5e-3


def fit_shapes(errors: Floats, loss: Floats, owner: NDArray[np.int64], owners: int) -> list[ErrorShape]:
    """Return the shape of the errors of each of `owners` NFs.

    Parameters
    ----------
    errors, loss : ndarray, shape (n,)
        Measured less predicted throughput, and predicted loss, as shares of solo throughput.
    owner : ndarray of int, shape (n,)
        Which NF each row is of.

    Examples
    --------
    >>> loss = np.tile(np.linspace(0.0, 0.4, 9), 20)
    >>> errors = 0.1 * loss * (0.4 - loss) * np.where(np.arange(180) % 2, 1.0, -1.0)
    >>> (shape,) = fit_shapes(errors, loss, np.zeros(180, dtype=np.int64), 1)
    >>> bool(shape.at_one(0.0)[1] < shape.at_one(0.2)[1] > shape.at_one(0.4)[1])
    True
    """
    worst = np.full(owners, LEAST_WORST)
    np.maximum.at(worst, owner, loss)
    hats = _hats(loss / worst[owner])
    middle = _drawn(errors, hats, owner, np.zeros((owners, len(KNOTS))))
    size = _sizes(np.abs(errors - (hats * middle[owner]).sum(axis=1)), hats, owner, owners)
    return [_shape(KNOTS * worst[number], middle[number], size[number]) for number in range(owners)]


def _hats(share: Floats) -> Floats:
    """Return what each row counts at each knot: linear between the two beside it, 1 in all, shape ``(n, knots)``."""
    weights = [np.interp(share, KNOTS, one) for one in np.eye(len(KNOTS))]
    return np.column_stack(weights)


def _sizes(away: Floats, hats: Floats, owner: NDArray[np.int64], owners: int) -> Floats:
    """Return mean sizes, shape (owners, knots): an NF's own, drawn towards its mean times everybody's curve."""
    whole = float(away.mean()) if len(away) else 0.0
    count = np.bincount(owner, minlength=owners)
    of_owner = (np.bincount(owner, away, owners) + PRIOR_ROWS * whole) / (count + PRIOR_ROWS)
    relative = away / np.maximum(of_owner[owner], LEAST_SIZE)
    curve = (hats.T @ relative + PRIOR_ROWS) / (hats.sum(axis=0) + PRIOR_ROWS)
    return np.maximum(_drawn(away, hats, owner, of_owner[:, None] * curve), LEAST_SIZE)


def _drawn(values: Floats, hats: Floats, owner: NDArray[np.int64], prior: Floats) -> Floats:
    total, count = np.zeros(prior.shape), np.zeros(prior.shape)
    np.add.at(total, owner, hats * values[:, None])
    np.add.at(count, owner, hats)
    drawn: Floats = (total + PRIOR_ROWS * prior) / (count + PRIOR_ROWS)
    return drawn


def _shape(loss: Floats, middle: Floats, size: Floats) -> ErrorShape:
    """Return a shape whose sizes grow beyond the worst loss that was seen, as far as they reach for each as much."""
    if loss[-1] >= 1.0:
        return ErrorShape(loss, middle, size)
    beyond = size[-1] + (1.0 / loss[-1] - 1.0) * size.max()
    return ErrorShape(np.append(loss, 1.0), np.append(middle, middle[-1]), np.append(size, beyond))
