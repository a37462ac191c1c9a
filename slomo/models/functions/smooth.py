"""A trained smooth function of pressure, made of kernels around its training rows; it needs numpy alone.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25 and 4.17 (Matern 3/2).
"""

from dataclasses import dataclass

import numpy as np

from slomo.models.base import Floats
from slomo.models.functions.scaling import ScaledSensitivity, apart, clipped

#: Number of rows per pass: the kernels of these rows fit in the L2 cache.
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class SmoothSensitivity(ScaledSensitivity, kind="smooth"):
    """Throughput as a share of solo, a smooth function of pressures and traffic."""

    #: Centre and length scale of each feature, shape (features,).
    center: Floats
    width: Floats
    #: Training rows in scaled units, shape (rows, features).
    points: Floats
    #: Weight of each row's kernel, shape (rows,).
    weights: Floats
    #: Throughput far from all training rows, as a share of solo throughput.
    mean: float

    def __post_init__(self) -> None:
        self.require_per_feature("center", "width")
        if self.weights.ndim != 1 or self.points.shape != (len(self.weights), len(self.feature_names)):
            raise apart(self.name)

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        shares = clipped(vectors, np.maximum(self.low, 0.0), np.maximum(self.high, 0.0), self.typical)
        rows = (np.log1p(shares) - self.center) / self.width
        chunks = [rows[i : i + _CHUNK] for i in range(0, len(rows), _CHUNK)]
        # the last bits of a matrix product depend on the number of rows
        parts = [(matern(chunk, self.points) * self.weights).sum(axis=1) for chunk in chunks]
        raw = self.mean + np.concatenate(parts) if parts else np.zeros(0)
        return self.solo_mpps * np.minimum(np.maximum(raw, 0.0), 1.0)


def matern(one: Floats, other: Floats) -> Floats:
    """Return the Matern 3/2 kernel between rows that were divided by the length scale; NaN if a row lacks a value.

    >>> matern(np.array([[0.0], [9.0]]), np.array([[0.0]])).round(4).tolist()
    [[1.0], [0.0]]
    """
    squares = np.zeros((len(one), len(other)))
    for column, values in zip(one.T, other.T, strict=True):
        squares += (column[:, None] - values[None, :]) ** 2
    root = np.sqrt(3.0 * squares)
    return (1.0 + root) * np.exp(-root)
