"""The null model: nobody slows anybody down; what every predictor must beat.

What a placement that packs by solo throughput assumes (E2, SOSP'15, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from slomo.models.base import CompositionKind, Floats
from slomo.models.responses.sensitivity import ConstantSensitivity


class ConstantRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Answer with one number, whatever the vector.

    Parameters
    ----------
    value : float or None
        The answer; None learns the mean.

    Attributes
    ----------
    value_ : float
        The answer used.

    Examples
    --------
    >>> ConstantRegressor(5.0).fit([[1.0], [2.0]], [4.0, 3.0]).predict([[9.0]]).tolist()
    [5.0]
    """

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def fit(self, X: Any, y: Any) -> "ConstantRegressor":
        """Learn the mean of `y` unless a value was given."""
        X, y = validate_data(self, X, y, y_numeric=True)
        self.value_ = float(np.mean(y)) if self.value is None else float(self.value)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it ignores columns by intent
        return tags

    def predict(self, X: Any) -> Any:
        """Return the value for each row of `X`."""
        check_is_fitted(self)
        return np.full(len(validate_data(self, X, reset=False)), self.value_)


@dataclass(frozen=True)
class _ConstantFamily:
    """What families share that look at no column."""

    name: str = ""
    composition: CompositionKind = "none"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return no columns."""
        return ()


@dataclass(frozen=True)
class NoInterferenceFamily(_ConstantFamily):
    """The registry's ``none``."""

    name: str = "none"

    def fit(  # the signature is the contract's
        self,
        names: tuple[str, ...],  # noqa: ARG002
        vectors: Floats,  # noqa: ARG002
        mpps: Floats,  # noqa: ARG002
        *,
        solo_mpps: float,
        seed: int,  # noqa: ARG002
    ) -> ConstantSensitivity:
        """Answer with solo throughput; see `ModelFamily.fit`."""
        return ConstantSensitivity(self.name, solo_mpps)


@dataclass(frozen=True)
class MeanFamily(_ConstantFamily):
    """The registry's ``mean``: the mean of everything measured beside others; what a model must beat that has runs."""

    name: str = "mean"

    def fit(  # the signature is the contract's
        self,
        names: tuple[str, ...],  # noqa: ARG002
        vectors: Floats,  # noqa: ARG002
        mpps: Floats,
        *,
        solo_mpps: float,
        seed: int,  # noqa: ARG002
    ) -> ConstantSensitivity:
        """Answer with the mean of the rows; see `ModelFamily.fit`."""
        return ConstantSensitivity(self.name, float(np.mean(mpps)) if len(mpps) else solo_mpps)

    def fit_weighted(
        self,
        names: tuple[str, ...],  # noqa: ARG002
        vectors: Floats,  # noqa: ARG002
        mpps: Floats,
        *,
        solo_mpps: float,
        seed: int,  # noqa: ARG002
        weights: Floats,
    ) -> ConstantSensitivity:
        """Answer with the mean of rows that count by their weights."""
        return ConstantSensitivity(self.name, float(weights @ mpps / weights.sum()) if len(mpps) else solo_mpps)
