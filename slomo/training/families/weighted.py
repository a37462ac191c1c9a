"""Base class of families that are fitted to weighted rows; by default all weights are equal."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from slomo.models.base import Floats, ModelFamily, SensitivityModel
from slomo.training.features import pressures_and_traffic

Fitted = TypeVar("Fitted", bound=SensitivityModel)


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows to fit a family to, with optional weights."""

    #: Columns of the vectors.
    names: tuple[str, ...]
    vectors: Floats
    #: Throughput of each row, and alone.
    mpps: Floats
    solo_mpps: float
    seed: int
    #: Weight of each row; None for equal ones.
    weights: Floats | None = None


class WeightedFamily(Generic[Fitted]):
    """Implements `ModelFamily` for families that fit weighted rows."""

    name: str

    def fit(self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int) -> Fitted:
        """Fit one NF; see `ModelFamily.fit`."""
        return self.fit_weighted(WeightedRows(names, vectors, mpps, solo_mpps, seed))

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the pressures that add up, and all traffic attributes."""
        return pressures_and_traffic(self.name, available)

    @abstractmethod
    def fit_weighted(self, rows: WeightedRows) -> Fitted:
        """Fit one NF to rows with weights."""


def fit_rows(family: ModelFamily, rows: WeightedRows) -> SensitivityModel:
    """Fit a family to rows; families that do not support weights ignore them."""
    if isinstance(family, WeightedFamily):
        model: SensitivityModel = family.fit_weighted(rows)
        return model
    return family.fit(rows.names, rows.vectors, rows.mpps, solo_mpps=rows.solo_mpps, seed=rows.seed)
