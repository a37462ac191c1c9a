"""A trained model in which each resource adds time per packet; it needs numpy alone.

Time per packet beside competitors is the solo time plus a term for each resource's pressure, as times of independent
stalls add up (Dobrescu et al., NSDI'12, section 5, for misses alone).
"""

from dataclasses import dataclass

import numpy as np

from slomo.errors import ConfigurationError
from slomo.models.base import Floats, StoredSensitivity


@dataclass(frozen=True, eq=False)
class AdditiveSensitivity(StoredSensitivity, kind="additive"):
    """Throughput ``solo / (1 + base + slopes . vector)``; without competitors it is solo throughput.

    >>> model = AdditiveSensitivity("slomo-additive", ("FELTLLC",), "pressure", 4.0, 0.0, np.array([0.5]))
    >>> model.predict_mpps(np.array([[0.0], [2.0]])).tolist()
    [4.0, 2.0]
    """

    #: Throughput without competitors [Mpps].
    solo_mpps: float
    #: Additional time per packet beside any competitor, as a share of the solo time; at least 0.
    base: float
    #: Additional time per packet for one unit of each feature, as a share of the solo time; at least 0, shape
    #: (features,).
    slopes: Floats

    def __post_init__(self) -> None:
        if (len(self.feature_names),) != self.slopes.shape or self.base < 0.0 or (self.slopes < 0.0).any():
            raise ConfigurationError(
                f"model '{self.name}' is no additive model: {self.slopes.size} slopes for {len(self.feature_names)} "
                "metrics, needed as many, none below 0"
            )

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        pressed = np.where((vectors > 0.0).any(axis=1), self.base, 0.0)
        extra = pressed + np.maximum(vectors, 0.0) @ self.slopes
        answer: Floats = self.solo_mpps / (1.0 + extra)
        return np.where(np.isnan(vectors).any(axis=1), np.nan, answer)
