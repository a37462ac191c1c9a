"""Interface of sensitivity models: from the counters of the competition to the target's throughput.

SLOMO (SIGCOMM'20) section 4.1: the sensitivity of an NF is a model M with P = M(V). A *family* fits such models to
measured rows; a fitted model is a value that is stored as data and evaluated with numpy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from slomo.errors import ConfigurationError
from slomo.files.stored import Stored
from slomo.vocabulary.vector import Floats as Floats

#: Kind of the competitors' contentiousness from which a model's input is composed: vectors under mutual pressure, solo
#: vectors, none, or latent pressures, which are not measured (`slomo.models.responses.latent`).
CompositionKind = Literal["pressure", "solo", "none", "latent"]

#: What to do about a model file that cannot be read.
HINT = "the file was damaged or not written by slomo; train the model again"
#: Largest number in a model file, which stands for an unknown (infinite) width.
MOST = 1e300
#: Prefix of features that describe the target's traffic instead of a competitor's pressure.
TRAFFIC_PREFIX = "traffic."


def require(holds: object, problem: str) -> None:
    """Raise ConfigurationError for a part of a model that cannot be, unless `holds`."""
    if not holds:
        raise ConfigurationError(problem, hint="train the model again")


@runtime_checkable
class SensitivityModel(Protocol):
    """A trained function from the competition's counters to the throughput of one NF on one machine."""

    @property
    def name(self) -> str:
        """Name of the family it belongs to."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Metrics (or ``traffic.*`` attributes) in the order of the columns it reads."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """Kind of the competitors' vectors of which the input is composed; ``"none"`` reads nothing."""
        ...

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps], shape ``(n,)``, for vectors of shape ``(n, len(feature_names))``.

        A row with a missing value (NaN) gives NaN: unknown is not zero.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping with the key ``kind``."""
        ...


@dataclass(frozen=True, eq=False)
class StoredSensitivity(Stored):
    """The first fields of a stored :class:`SensitivityModel`."""

    name: str
    feature_names: tuple[str, ...]
    composition: CompositionKind


class ModelFamily(Protocol):
    """A method of training sensitivity models; the registry finds it by name."""

    @property
    def name(self) -> str:
        """Name of the family, a key of `slomo.training.families.registry`."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """As in :class:`SensitivityModel`."""
        ...

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Choose input columns among the measured ones; MissingMetricError if a required one was not measured."""
        ...

    def fit(
        self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int
    ) -> SensitivityModel:
        """Train on `vectors`, shape ``(n, len(names))`` without NaN, and throughputs `mpps`, shape ``(n,)``."""
        ...
