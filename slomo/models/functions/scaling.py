"""The scale of smooth functions: features held to the range of the rows, linear at first and logarithmic above."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slomo.errors import ConfigurationError
from slomo.models.base import Floats
from slomo.models.checked_json import HINT, array


def logarithms(rows: Floats, low: Floats, high: Floats, typical: Floats) -> Floats:
    """Return log(1 + x / typical) of rows held between `low`, nothing of which is below 0, and `high`; gaps stay.

    Examples
    --------
    >>> one = np.ones(1)
    >>> logarithms(np.array([[-3.0], [1.0], [99.0]]), 0 * one, 3 * one, one).round(3).ravel().tolist()
    [0.0, 0.693, 1.386]
    """
    answer: Floats = np.log1p(np.minimum(np.maximum(np.asarray(rows, dtype=np.float64), low), high) / typical)
    return answer


def per_feature(data: Mapping[str, Any], fields: Sequence[str], names: Sequence[str]) -> dict[str, Floats]:
    """Read arrays of one number per feature.

    Raises
    ------
    ConfigurationError
        For another number of them, or a scale (``typical``, ``width``) that is not above 0.
    """
    columns = {field: array(data, field, 1) for field in fields}
    if any(len(values) != len(names) for values in columns.values()):
        raise apart(data)
    if any((columns[field] <= 0.0).any() for field in ("typical", "width")):
        raise ConfigurationError(f"model '{data.get('name')}': a scale is not above 0", hint=HINT)
    return columns


def apart(data: Mapping[str, Any]) -> ConfigurationError:
    """Return the error for arrays of shapes that do not fit each other."""
    return ConfigurationError(f"model '{data.get('name')}': its arrays do not belong together", hint=HINT)
