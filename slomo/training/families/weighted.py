"""Base class of model families that can weigh training rows differently."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from slomo.errors import MissingMetricError
from slomo.models.base import TRAFFIC_PREFIX, CompositionKind, Floats, ModelFamily, SensitivityModel
from slomo.vocabulary.metrics import METRICS

Fitted = TypeVar("Fitted", bound=SensitivityModel)


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Training rows of one NF, with optional weights."""

    #: Columns of the vectors.
    names: tuple[str, ...]
    vectors: Floats
    #: Throughput of each row, and solo throughput.
    mpps: Floats
    solo_mpps: float
    seed: int
    #: Weight of each row; None for equal weights.
    weights: Floats | None = None


class WeightedFamily(Generic[Fitted]):
    """Base class of families whose training rows may have weights."""

    name: str
    composition: CompositionKind = "pressure"

    def fit(self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int) -> Fitted:
        """Train a model of one NF; see `ModelFamily.fit`."""
        return self.fit_weighted(WeightedRows(names, vectors, mpps, solo_mpps, seed))

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the pressures that are sums over competitors, and all traffic attributes.

        Raises MissingMetricError if no pressure was measured.
        """
        names = tuple(name for name in available if name.startswith(TRAFFIC_PREFIX) or METRICS[name].pressure)
        if not any(name in METRICS for name in names):
            pressures = ", ".join(name for name, definition in METRICS.items() if definition.pressure)
            raise MissingMetricError(
                f"model '{self.name}' needs at least one pressure metric of the competition: {pressures}",
                hint="measure one of them, or train 'slomo-gbr', which takes whatever was reported",
            )
        return names

    @abstractmethod
    def fit_weighted(self, rows: WeightedRows) -> Fitted:
        """Fit one NF to rows with weights."""


def fit_rows(family: ModelFamily, rows: WeightedRows) -> SensitivityModel:
    """Train a family on rows; families that cannot weigh rows ignore the weights."""
    if isinstance(family, WeightedFamily):
        model: SensitivityModel = family.fit_weighted(rows)
        return model
    return family.fit(rows.names, rows.vectors, rows.mpps, solo_mpps=rows.solo_mpps, seed=rows.seed)
