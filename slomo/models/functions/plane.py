"""A trained linear function of the columns, the simplest model of an imported table; it needs numpy alone."""

from dataclasses import dataclass

import numpy as np

from slomo.models.base import Floats, StoredSensitivity, require


@dataclass(frozen=True, eq=False)
class PlaneSensitivity(StoredSensitivity, kind="plane"):
    """Throughput ``start + slopes . vector``, at least 0.

    >>> model = PlaneSensitivity("linear", ("IPC", "READ"), "pressure", 4.0, np.array([0.5, -1.0]))
    >>> model.predict_mpps(np.array([[1.0, 2.0], [0.0, 9.0]])).tolist()
    [2.5, 0.0]
    """

    #: Throughput with every column at 0 [Mpps].
    start_mpps: float
    #: Change of throughput per unit of each column [Mpps], shape (features,).
    slopes: Floats

    def __post_init__(self) -> None:
        require(
            self.slopes.shape == (len(self.feature_names),),
            f"model '{self.name}' is no plane: {self.slopes.size} slopes for {len(self.feature_names)} columns",
        )

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        mpps = np.full(len(vectors), self.start_mpps)
        for column, slope in enumerate(self.slopes.tolist()):  # one by one: the same bits in one row and in many
            mpps = mpps + vectors[:, column] * slope
        answer: Floats = np.where(mpps < 0.0, 0.0, mpps)
        return answer
