"""Interface of sensitivity models: from the counters of the competition to the target's throughput.

SLOMO (SIGCOMM'20) section 4.1: the sensitivity of an NF is a model M with P = M(V). A *family* fits such models to
measured rows; a fitted model is a value that is stored as data and evaluated with numpy alone.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from slomo.vocabulary.vector import Floats as Floats

#: Kind of the competitors' contentiousness from which a model's input is composed.
CompositionKind = Literal["pressure", "solo", "none", "latent"]

#: What to do about a model file that cannot be read.
HINT = "the file was damaged or not written by slomo; train the model again"
#: Largest number in a model file, which stands for an unknown (infinite) width.
MOST = 1e300
#: Prefix of features that describe the target's traffic instead of a competitor's pressure.
TRAFFIC_PREFIX = "traffic."


@runtime_checkable
class SensitivityModel(Protocol):
    """A trained function from the competition's counters to the throughput of one NF on one machine.

    Attributes
    ----------
    name : str
        Name of the family it belongs to.
    feature_names : tuple of str
        Metrics (or ``traffic.*`` attributes) in the order of the columns it reads.
    composition : {"pressure", "solo", "none", "latent"}
        Whether the input is composed of vectors under mutual pressure, of solo vectors, or of latent pressures, which
        are not measured (`slomo.models.responses.latent`); ``"none"`` reads nothing.
    """

    @property
    def name(self) -> str:
        """Name of the model family."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the input columns, in order."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """The rule by which the counters of several competitors are combined."""
        ...

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps], shape ``(n,)``, for vectors of shape ``(n, len(feature_names))``.

        A row with a missing value (NaN) gives NaN: unknown is not zero.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping with the key ``kind``."""
        ...


class ModelFamily(Protocol):
    """A method of training sensitivity models; the registry finds it by name.

    Attributes
    ----------
    name : str
        Name of the family, a key of `slomo.training.families.registry`.
    composition : {"pressure", "solo", "none"}
        As in :class:`SensitivityModel`.
    """

    @property
    def name(self) -> str:
        """Name of the model family."""
        ...

    @property
    def composition(self) -> CompositionKind:
        """The rule by which the counters of several competitors are combined."""
        ...

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Choose the input columns of the model among the measured ones.

        Raises MissingMetricError if a required column was not measured.
        """
        ...

    def fit(
        self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int
    ) -> SensitivityModel:
        """Train on `vectors`, shape ``(n, len(names))`` without NaN, and throughputs `mpps`, shape ``(n,)``."""
        ...
