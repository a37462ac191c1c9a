"""Held-out errors of one NF where its neighbours press as in a question.

The size of errors by predicted loss and kind of neighbourhood (`slomo.models.error_shape`, `neighbourhood`) pools mixes
that press differently: a function loses 5 % beside others that fill the cache, or beside others that fill the memory
channel, and models may know one of the two well and the other badly. The mixes nearest in pressure tell them apart
(nearest neighbours as a measure of how hard a question is: Papadopoulos et al., J. Artificial Intelligence Research 40,
2011).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from slomo.files.stored import Stored
from slomo.models.base import Floats, require

#: Number of nearest mixes whose errors count. With 5 and 9, supported answers of `benchmarks/three_sources.py` (seeds
#: 433 and 461, five machines) were as seldom far off.
NEAREST = 7


@dataclass(frozen=True, eq=False)
class LocalErrors(Stored):
    """Pressures of held-out mixes on one NF, and how far their predictions were off."""

    #: Pressure in every mix, as predicted, shape (n, pressures).
    pressures: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    #: Absolute errors, as shares of solo throughput, shape (n,).
    sizes: Floats = field(default_factory=lambda: np.zeros(0))
    #: Range of each pressure in the NF's profile, the unit of distances, shape (pressures,).
    span: Floats = field(default_factory=lambda: np.zeros(0))
    #: Whether mixes on other NFs are among them, each with an error in proportion to the losses predicted of both NFs.
    of_all: bool = False

    @property
    def suffice(self) -> bool:
        """Whether there are as many errors as :meth:`near` reads."""
        return len(self.sizes) >= NEAREST

    def near(self, pressure: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the largest error of the mixes nearest to each pressure, as shares of solo throughput.

        `pressure` has shape ``(pressures,)`` or ``(rows, pressures)``. The bits of a row do not depend on the others.
        Mixes as far away as the last of the nearest count, too.
        """
        away = self.row[1:, 1:] - (pressure / self.span)[..., np.newaxis]
        away *= away
        distances = np.add.reduce(away, axis=-2)
        counts = distances <= np.partition(distances, NEAREST - 1)[..., NEAREST - 1 : NEAREST]
        sizes = counts * self.row[0, 1:]
        mean: Floats = np.add.accumulate(sizes, axis=-1)[..., -1] / np.add.reduce(counts, axis=-1)
        return mean, np.maximum.reduce(sizes, axis=-1)

    @cached_property
    def row(self) -> Floats:
        """All numbers for compiled code: errors, then pressures in units of the span, which is the first column."""
        scaled = np.vstack([self.sizes, (self.pressures / self.span).T])
        return np.column_stack([np.append(0.0, self.span), scaled])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LocalErrors":
        """Return the object that :meth:`to_dict` described; ConfigurationError for tables that do not fit."""
        made = super().from_dict(data)
        if not len(made.sizes):
            return cls()
        fits = made.pressures.shape == (len(made.sizes), len(made.span))
        positive = (made.span > 0.0).all() and (made.sizes >= 0.0).all()
        require(fits and positive, "pressures of held-out mixes do not belong to their errors")
        return made
