"""The null model: no slowdown; every predictor must beat it.

Placement that packs by solo throughput assumes this (E2, SOSP'15, section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.models.base import CompositionKind, Floats
from slomo.models.responses.sensitivity import ConstantSensitivity


@dataclass(frozen=True)
class _ConstantFamily:
    """Common part of families that use no column."""

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
    """The registry's ``mean``: the mean of all measurements beside others, which every fitted model must beat."""

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
