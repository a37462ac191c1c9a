"""Common part of families whose rows may have weights; by default all weights are equal."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from slomo.models.base import Floats, SensitivityModel
from slomo.training.features import pressures_and_traffic

Fitted = TypeVar("Fitted", bound=SensitivityModel)


class WeightedFamily(Generic[Fitted]):
    """A `ModelFamily` implemented once, for rows with weights."""

    name: str

    def fit(self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int) -> Fitted:
        """Fit one NF; see `ModelFamily.fit`."""
        return self.fit_weighted(names, vectors, mpps, solo_mpps=solo_mpps, seed=seed, weights=None)

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the pressures that add up, and all traffic attributes."""
        return pressures_and_traffic(self.name, available)

    @abstractmethod
    def fit_weighted(
        self,
        names: tuple[str, ...],
        vectors: Floats,
        mpps: Floats,
        *,
        solo_mpps: float,
        seed: int,
        weights: Floats | None,
    ) -> Fitted:
        """Fit one NF to rows with weights."""
