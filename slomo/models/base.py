"""What a sensitivity model is: something that reads a competition's vector and answers with the target's throughput.

SLOMO (SIGCOMM'20) section 4.1: the sensitivity of an NF is a model M with P = M(V). A *family* makes such models from
rows of measurements; a fitted model is a value that can be saved as data and evaluated with numpy alone.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from slomo.vocabulary.vector import Floats as Floats

#: Which contentiousness of the competitors a model's input is composed of.
CompositionKind = Literal["pressure", "solo", "none", "latent"]

#: Prefix of features that describe the target's traffic instead of a competitor's pressure.
TRAFFIC_PREFIX = "traffic."


@runtime_checkable
class SensitivityModel(Protocol):
    """A fitted model of one NF on one machine.

    Attributes
    ----------
    name : str
        Name of the family it belongs to.
    feature_names : tuple of str
        Metrics (or ``traffic.*`` attributes) in the order of the columns it reads.
    composition : {"pressure", "solo", "none", "latent"}
        Whether the input is composed of vectors under mutual pressure, of solo vectors, or of pressures that nobody
        measured (`slomo.models.responses.latent`); ``"none"`` reads nothing.
    """

    @property
    def name(self) -> str:
        """Name of the family."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns read, in order."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """What the input is composed of."""
        ...

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps], shape ``(n,)``, for vectors of shape ``(n, len(feature_names))``.

        A row that lacks a value (NaN) is answered with NaN: unknown is not zero.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping with the key ``kind``."""
        ...


class ModelFamily(Protocol):
    """A way of making sensitivity models; what the registry resolves a name to.

    Attributes
    ----------
    name : str
        Name of the family, a key of `slomo.training.families.registry`.
    composition : {"pressure", "solo", "none"}
        As in :class:`SensitivityModel`.
    """

    @property
    def name(self) -> str:
        """Name of the family."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """What the input of its models is composed of."""
        ...

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Choose the columns to read among those measured.

        Raises MissingMetricError where a column it cannot do without was not measured.
        """
        ...

    def fit(
        self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int
    ) -> SensitivityModel:
        """Fit one NF: `vectors` of shape ``(n, len(names))`` without NaN, `mpps` of shape ``(n,)`` [Mpps]."""
        ...
