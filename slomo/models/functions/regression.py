"""Ridge regression, in numpy alone."""

import numpy as np

from slomo.models.base import Floats


def ridge(basis: Floats, response: Floats, strength: float) -> Floats:
    """Return ridge weights; column 0 of `basis` is 1 and is not penalised.

    Examples
    --------
    >>> ridge(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[2.0], [5.0]]), 0.0).round(6).tolist()
    [[2.0], [3.0]]
    """
    mean, centre = basis[:, 1:].mean(axis=0), response.mean(axis=0)
    away = basis[:, 1:] - mean
    normal = away.T @ away + (strength * max(len(basis), 1) * 1e-2 + 1e-12) * np.eye(away.shape[1])
    slopes = np.linalg.solve(normal, away.T @ (response - centre))
    return np.vstack([centre - mean @ slopes, slopes])
