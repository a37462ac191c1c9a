"""Scale the inputs of smooth functions: clipped to the training range, nearly linear at first, logarithmic above."""

from dataclasses import dataclass

import numpy as np

from slomo.errors import ConfigurationError
from slomo.models.base import HINT, Floats, StoredSensitivity


def clipped(rows: Floats, low: Floats, high: Floats, typical: Floats) -> Floats:
    """Return rows clipped to `low` and `high`, in units of `typical`; NaN stays NaN.

    >>> clipped(np.array([[-3.0], [1.0], [99.0]]), np.zeros(1), np.full(1, 3.0), np.full(1, 2.0)).ravel().tolist()
    [0.0, 0.5, 1.5]
    """
    return np.minimum(np.maximum(np.asarray(rows, dtype=np.float64), low), high) / typical


@dataclass(frozen=True, eq=False)
class ScaledSensitivity(StoredSensitivity):
    """What all models have whose features are clipped and scaled."""

    #: Throughput without competitors [Mpps], the upper limit of predictions.
    solo_mpps: float
    #: Value at which a feature's scale turns from linear to logarithmic, shape (features,).
    typical: Floats
    #: Range of the training rows; features beyond it are clipped to it, as in trees, shape (features,).
    low: Floats
    high: Floats

    def require_per_feature(self, *fields: str) -> None:
        """Raise an error if arrays do not have one number per input, or a scale is not above 0."""
        inputs = (len(self.feature_names),)
        if any(getattr(self, field).shape != inputs for field in ("typical", "low", "high", *fields)):
            raise apart(self.name)
        if any((getattr(self, field) <= 0.0).any() for field in ("typical", "width")):
            raise ConfigurationError(f"model '{self.name}': a scale is not above 0", hint=HINT)


def apart(model: str) -> ConfigurationError:
    """Return the error for arrays of a model whose shapes do not match."""
    return ConfigurationError(f"model '{model}': its arrays do not belong together", hint=HINT)
