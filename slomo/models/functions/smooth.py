"""A fitted smooth sensitivity model as a value that needs numpy alone: kernels around the rows it was trained on.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25 and 4.17 (Matern 3/2).
"""

from dataclasses import dataclass

import numpy as np

from slomo.files.stored import Stored
from slomo.models.base import CompositionKind, Floats
from slomo.models.functions.scaling import apart, logarithms, require_per_feature

#: Rows answered at a time: their kernels stay in the second-level cache.
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class SmoothSensitivity(Stored, kind="smooth"):
    """Throughput as a share of solo, smooth in pressures and traffic."""

    #: As in `slomo.models.base.SensitivityModel`.
    name: str
    feature_names: tuple[str, ...]
    composition: CompositionKind
    #: Throughput without competitors [Mpps], also the most that can be predicted.
    solo_mpps: float
    #: Value at which a feature's scale turns from linear to logarithmic, shape (features,).
    typical: Floats
    #: Range of the rows; beyond it a feature counts as at its end, as trees do, shape (features,).
    low: Floats
    high: Floats
    #: What brings the scaled features to the kernel's unit, shape (features,).
    center: Floats
    width: Floats
    #: Rows in that unit, shape (rows, features).
    points: Floats
    #: What their kernels are multiplied with, shape (rows,).
    weights: Floats
    #: Response far from all rows, a share of solo.
    mean: float

    def __post_init__(self) -> None:
        require_per_feature(self, ("typical", "low", "high", "center", "width"))
        if self.weights.ndim != 1 or self.points.shape != (len(self.weights), len(self.feature_names)):
            raise apart(self.name)

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN for a row with a gap."""
        rows = logarithms(vectors, np.maximum(self.low, 0.0), np.maximum(self.high, 0.0), self.typical)
        rows = (rows - self.center) / self.width
        chunks = [rows[i : i + _CHUNK] for i in range(0, len(rows), _CHUNK)]
        # a matrix product would give other last bits for other numbers of rows
        parts = [(matern(chunk, self.points) * self.weights).sum(axis=1) for chunk in chunks]
        raw = self.mean + np.concatenate(parts) if parts else np.zeros(0)
        answer: Floats = self.solo_mpps * np.minimum(np.maximum(raw, 0.0), 1.0)
        return answer


def matern(one: Floats, other: Floats) -> Floats:
    """Return the Matern 3/2 kernel between rows in units of its length scale; NaN where a row has a gap.

    Examples
    --------
    >>> matern(np.array([[0.0], [9.0]]), np.array([[0.0]])).round(4).tolist()
    [[1.0], [0.0]]
    """
    squares = np.zeros((len(one), len(other)))
    for column, values in zip(one.T, other.T, strict=True):
        squares += (column[:, None] - values[None, :]) ** 2
    root = np.sqrt(3.0 * squares)
    kernel: Floats = (1.0 + root) * np.exp(-root)
    return kernel
