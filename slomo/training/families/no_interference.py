"""The two simplest models: no slowdown, and the mean of all measurements; every other model must beat them.

E2 (SOSP'15, section 4) places by solo throughput alone, that is, assumes no slowdown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.models.base import CompositionKind, Floats
from slomo.models.responses.sensitivity import ConstantSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows


@dataclass(frozen=True)
class NoInterferenceFamily:
    """Family ``none``: competitors cause no slowdown."""

    name: str = "none"
    composition: CompositionKind = "none"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return no columns, since the model reads no counters."""
        return ()

    def fit(  # the contract prescribes the signature
        self,
        names: tuple[str, ...],  # noqa: ARG002
        vectors: Floats,  # noqa: ARG002
        mpps: Floats,  # noqa: ARG002
        *,
        solo_mpps: float,
        seed: int,  # noqa: ARG002
    ) -> ConstantSensitivity:
        """Return a model that predicts solo throughput; see `ModelFamily.fit`."""
        return ConstantSensitivity(self.name, solo_mpps)


@dataclass(frozen=True)
class MeanFamily(WeightedFamily[ConstantSensitivity]):
    """Family ``mean``: the mean of all measurements beside others, which every fitted model must beat."""

    name: str = "mean"
    composition: CompositionKind = "none"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return no columns, since the model reads no counters."""
        return ()

    def fit_weighted(self, rows: WeightedRows) -> ConstantSensitivity:
        """Return a model that predicts the weighted mean of the rows."""
        if not len(rows.mpps):
            return ConstantSensitivity(self.name, rows.solo_mpps)
        weights = rows.weights
        mean = np.mean(rows.mpps) if weights is None else weights @ rows.mpps / weights.sum()
        return ConstantSensitivity(self.name, float(mean))
