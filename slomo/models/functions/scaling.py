"""Scale the inputs of smooth functions: clipped to the training range, nearly linear at first, logarithmic above."""

from collections.abc import Sequence

import numpy as np

from slomo.errors import ConfigurationError
from slomo.models.base import HINT, Floats, SensitivityModel


def logarithms(rows: Floats, low: Floats, high: Floats, typical: Floats) -> Floats:
    """Return log(1 + x / typical) of rows clipped to `low` (at least 0) and `high`; NaN stays NaN.

    Examples
    --------
    >>> one = np.ones(1)
    >>> logarithms(np.array([[-3.0], [1.0], [99.0]]), 0 * one, 3 * one, one).round(3).ravel().tolist()
    [0.0, 0.693, 1.386]
    """
    answer: Floats = np.log1p(np.minimum(np.maximum(np.asarray(rows, dtype=np.float64), low), high) / typical)
    return answer


def require_per_feature(model: SensitivityModel, fields: Sequence[str]) -> None:
    """Raise an error if a model's arrays do not have one number per input, or a scale is not above 0."""
    if any(getattr(model, field).shape != (len(model.feature_names),) for field in fields):
        raise apart(model.name)
    if any((getattr(model, field) <= 0.0).any() for field in ("typical", "width")):
        raise ConfigurationError(f"model '{model.name}': a scale is not above 0", hint=HINT)


def apart(model: str) -> ConfigurationError:
    """Return the error for arrays of a model whose shapes do not match."""
    return ConfigurationError(f"model '{model}': its arrays do not belong together", hint=HINT)
