"""The two simplest models: no slowdown, and the mean of all measurements; every other model must beat them.

E2 (SOSP'15, section 4) places by solo throughput alone, that is, assumes no slowdown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.models.base import CompositionKind
from slomo.models.responses.sensitivity import ConstantSensitivity
from slomo.training.families.weighted import WeightedFamily, WeightedRows


class _NoCounters(WeightedFamily[ConstantSensitivity]):
    """Base class of families that read no counters."""

    composition: CompositionKind = "none"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return no columns, since the model reads no counters."""
        return ()


@dataclass(frozen=True)
class NoInterferenceFamily(_NoCounters):
    """Family ``none``: competitors cause no slowdown."""

    name: str = "none"

    def fit_weighted(self, rows: WeightedRows) -> ConstantSensitivity:
        """Return a model that predicts solo throughput."""
        return ConstantSensitivity(self.name, rows.solo_mpps)


@dataclass(frozen=True)
class MeanFamily(_NoCounters):
    """Family ``mean``: the mean of all measurements beside others, which every fitted model must beat."""

    name: str = "mean"

    def fit_weighted(self, rows: WeightedRows) -> ConstantSensitivity:
        """Return a model that predicts the weighted mean of the rows."""
        if not len(rows.mpps):
            return ConstantSensitivity(self.name, rows.solo_mpps)
        weights = rows.weights
        mean = np.mean(rows.mpps) if weights is None else weights @ rows.mpps / weights.sum()
        return ConstantSensitivity(self.name, float(mean))
