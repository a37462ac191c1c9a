"""Models of NFs measured together but without counters: a hidden pressure and a hidden sensitivity for each.

Without counters a competition has no measured vector. But throughputs beside named others have low rank: the logarithm
of the kept share is about the product of the target's sensitivity and the sum of its competitors' pressures. These are
the two halves of SLOMO's model (SIGCOMM'20, section 4.1) and Bubble-Up's (MICRO'11), fitted in `slomo.training.pairs`.
Measured competitions are identified by a number each, so that their answers equal the measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.applicability import Applicability
from slomo.models.base import CompositionKind, Floats, SensitivityModel, require

#: Name of the family, and of the calibration from co-locations that were measured more than once.
PAIRS, REPEATS = "pairs", "repeats"
#: Feature that identifies competitions: the sum of their members' numbers, exact below 2**53.
IDENTITY = "pairs.identity"
#: Limit of functions' numbers: each is smaller.
MOST_IDENTITY = 2**45


class _HasSensitivity(Protocol):
    @property
    def sensitivity(self) -> Mapping[str, SensitivityModel]: ...


@dataclass(frozen=True, eq=False)
class LatentSensitivity(Stored, kind="latent"):
    """Throughput as a share of solo: ``exp(-(sensitivity . pressure + residual))``, at most 1.

    >>> known = np.array([7.0]), np.array([0.1])
    >>> model = LatentSensitivity("pairs", 5.0, np.array([1.0]), np.array([0.2]), 3, *known, 1)
    >>> model.predict_mpps(np.array([[0.0, 0.0], [0.4, 9.0], [0.4, 7.0]])).round(3).tolist()
    [5.0, 3.352, 3.033]
    """

    #: Family.
    name: str
    #: Throughput without competitors [Mpps].
    solo_mpps: float
    #: Sensitivity to each unobserved kind of pressure, shape (rank,).
    weights: Floats
    #: The function's pressure on others; empty if it was never measured beside a function with known throughput, shape
    #: (rank,).
    pressure: Floats
    #: Number of the function, by which competitions are identified.
    identity: int
    #: Identifiers of its measured competitions, in ascending order, shape (n,).
    known: Floats
    #: Measured minus fitted logarithm of the loss in each of these, shape (n,).
    residuals: Floats
    #: Largest number of competitors in its measurements.
    most: int
    composition: CompositionKind = "latent"
    #: Range of the fitted pressures, if the function was also profiled, whose model has another range.
    covered: Applicability | None = None

    def __post_init__(self) -> None:
        fits = self.weights.ndim == 1 and self.pressure.shape in (self.weights.shape, (0,))
        known = self.known.shape == self.residuals.shape and (np.diff(self.known) > 0).all()
        require(
            fits and known and 0 < self.identity < MOST_IDENTITY and self.solo_mpps > 0.0,
            f"model '{self.name}' is no latent model: {self.weights.size} weights, {self.pressure.size} pressures, "
            f"{self.known.size} competitions with {self.residuals.size} residuals",
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The hidden pressures, followed by the identifier of the competition."""
        return (*(f"pairs.pressure_{number + 1}" for number in range(len(self.weights))), IDENTITY)

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        loss = np.zeros(len(vectors))
        for column, weight in enumerate(self.weights.tolist()):  # one by one: the same bits in one row and in many
            loss = loss + vectors[:, column] * weight
        if len(self.known):
            place = np.minimum(np.searchsorted(self.known, vectors[:, -1]), len(self.known) - 1)
            loss = loss + np.where(self.known[place] == vectors[:, -1], self.residuals[place], 0.0)
        return self.solo_mpps * np.exp(-np.where(loss < 0.0, 0.0, loss))

    def stretch(self, competitors: NDArray[np.int64] | int) -> Floats:
        """Return the factor by which intervals beside so many competitors are wider than those of held-out runs.

        The pressures add up, and so do their errors if more competitors run than in any measurement.
        """
        return np.maximum(np.asarray(competitors) / max(self.most, 1), 1.0)

    def were_measured(self, vectors: Floats) -> NDArray[np.bool_]:
        """Return which competitions were measured themselves."""
        return np.isin(vectors[:, -1], self.known)


def latent_rows(models: Sequence[_HasSensitivity], width: int) -> Floats:
    """Return each function's hidden pressure on others, shape ``(models, width)``; NaN if unknown."""
    rows = np.full((len(models), width), np.nan)
    for row, model in zip(rows, models, strict=True):
        latent = model.sensitivity.get(PAIRS)
        if isinstance(latent, LatentSensitivity) and len(latent.pressure) == width - 1:
            row[:-1], row[-1] = latent.pressure, latent.identity
    return rows
