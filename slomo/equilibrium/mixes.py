"""Measured mixes as arrays, and a model family's predictions of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.competition import features_for
from slomo.models.base import Floats
from slomo.models.nf_model import NFModel


@dataclass(frozen=True, eq=False)
class MixRows:
    """Mixes of one machine whose tenants all have models."""

    #: Index of the target's model, shape (n,).
    target: NDArray[np.int64]
    #: Indices of the competitors' models, -1 for an empty place, shape (n, places).
    members: NDArray[np.int64]
    #: Measured throughput, shape (n,).
    mpps: Floats
    #: Offered load of the target and of each competitor [Mpps], NaN for saturated NFs (default: all), shape (n, 1 +
    #: places).
    offered_mpps: Floats | None = None
    #: Whether each mix is a packed mix, drawn as placement fills servers (default: none), shape (n,).
    packed: NDArray[np.bool_] | None = None

    def saturated(self) -> "MixRows":
        """Return the mixes in which every NF is saturated."""
        if self.offered_mpps is None:
            return self
        rest = self.chosen(np.logical_and.reduce(np.isnan(self.offered_mpps), axis=1))
        return MixRows(rest.target, rest.members, rest.mpps, packed=rest.packed)

    def chosen(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> "MixRows":
        """Return the mixes selected by a mask of shape (n,), or by their numbers."""
        offered = None if self.offered_mpps is None else self.offered_mpps[mask]
        packed = None if self.packed is None else self.packed[mask]
        return MixRows(self.target[mask], self.members[mask], self.mpps[mask], offered, packed)


def predict_mixes(models: Sequence[NFModel], rows: MixRows, name: str) -> Floats:
    """Return the predictions of family `name` for each row [Mpps]; NaN if a target lacks that model."""
    predicted = np.full(len(rows.mpps), np.nan)
    for number in np.unique(rows.target):
        model, here = models[number], rows.target == number
        if (family := model.named(name)) in model.sensitivity:
            sensitivity = model.sensitivity[family]
            vectors = features_for(model, sensitivity, models, rows.members[here])
            predicted[here] = sensitivity.predict_mpps(vectors)
    return predicted
