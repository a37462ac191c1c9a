"""Ridge and monotone regression, in numpy alone."""

from collections.abc import Sequence

import numpy as np

from slomo.models.base import Floats


def ridge(basis: Floats, response: Floats, strength: float) -> Floats:
    """Return ridge weights; column 0 of `basis` is 1 and is not penalised.

    >>> ridge(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[2.0], [5.0]]), 0.0).round(6).tolist()
    [[2.0], [3.0]]
    """
    mean, centre = basis[:, 1:].mean(axis=0), response.mean(axis=0)
    away = basis[:, 1:] - mean
    normal = away.T @ away + (strength * max(len(basis), 1) * 1e-2 + 1e-12) * np.eye(away.shape[1])
    slopes = np.linalg.solve(normal, away.T @ (response - centre))
    return np.vstack([centre - mean @ slopes, slopes])


def rising(values: Sequence[float] | Floats) -> Floats:
    """Return the non-decreasing sequence that is closest to `values` in least squares.

    Pool adjacent violators (Ayer et al., Annals of Mathematical Statistics 26, 1955).

    >>> rising([1.0, 3.0, 2.0, 4.0]).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            other, size = pools.pop()
            mean, count = (other * size + mean * count) / (size + count), size + count
        pools.append((mean, count))
    return np.array([mean for mean, count in pools for _ in range(count)])
