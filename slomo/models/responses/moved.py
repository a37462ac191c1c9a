"""Data that bypasses the shared cache and that the equilibrium does not model; and the largest amount in a profile.

It consists of lines that devices read and write (DDIO; ResQ, NSDI'18, section 4.2), and of writes to memory by cores,
and by devices whose buffers no longer fit into the cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from slomo.files.documents import convert
from slomo.models.applicability import SLACK
from slomo.models.base import Floats


@dataclass(frozen=True)
class Amount:
    """A kind of data that bypasses the cache: the metrics that add up to it, its unit, and its name."""

    metrics: tuple[str, ...]
    unit: str
    label: str


MOVED = (
    Amount(("WRITE",), "GB/s", "written to memory"),
    Amount(("PCIEHIT", "PCIEMISS"), "M lines/s", "moved by devices"),
)


def moved_in(names: Sequence[str], vectors: Floats) -> Floats:
    """Return the amounts of :data:`MOVED` in rows of counters; a missing counter adds nothing.

    >>> moved_in(("PCIEMISS", "WRITE", "PCIEHIT"), np.array([[1.0, 4.0, 2.0], [np.nan, 5.0, np.nan]])).tolist()
    [[4.0, 3.0], [5.0, 0.0]]
    """
    reported = np.nan_to_num(vectors)
    columns = [[names.index(name) for name in amount.metrics if name in names] for amount in MOVED]
    return np.stack([reported[..., each].sum(axis=-1) for each in columns], axis=-1)


@dataclass(frozen=True)
class MostMoved:
    """The most data that neighbours moved past the cache while an NF was profiled.

    >>> MostMoved((4.5, 136.0)).exceeded((9.0, 100.0))
    ('neighbours have 9 GB/s written to memory; the profile covers up to 4.5',)
    """

    #: Largest amount of each kind in :data:`MOVED`; infinite if it was not measured: it is then not judged.
    amounts: tuple[float, ...] = (np.inf,) * len(MOVED)

    @cached_property
    def limits(self) -> tuple[float, ...]:
        """Largest measured amount of each kind, plus the noise of a counter."""
        return tuple([(1.0 + SLACK) * amount for amount in self.amounts])

    def exceeded(self, moved: Sequence[float]) -> tuple[str, ...]:
        """Return which of the amounts `moved` are larger than any in the profile."""
        every = zip(MOVED, self.amounts, self.limits, moved, strict=True)
        return tuple(
            f"neighbours have {value:.4g} {amount.unit} {amount.label}; the profile covers up to {most:.4g}"
            for amount, most, limit, value in every
            if value > limit
        )

    def to_dict(self) -> dict[str, float]:
        """Return the measured amounts, by the metrics that add up to them."""
        stated = zip(MOVED, self.amounts, strict=True)
        return {"+".join(amount.metrics): value for amount, value in stated if np.isfinite(value)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "MostMoved":
        """Return the object that :meth:`to_dict` described."""
        amounts = convert(data, dict[str, float], "most moved")
        return cls(tuple(amounts.get("+".join(amount.metrics), np.inf) for amount in MOVED))


def most_moved(names: Sequence[str], beside: Floats) -> MostMoved:
    """Return the most data of each kind in :data:`MOVED` that neighbours moved past the cache in any run.

    `beside`: counters of the neighbours, one row per run; `names`: the metrics in its columns.

    >>> most_moved(("WRITE",), np.array([[1.0], [3.0]])).amounts
    (3.0, inf)
    """
    whole = moved_in(names, beside).max(axis=0).tolist()
    complete = [all(name in names for name in amount.metrics) for amount in MOVED]
    return MostMoved(tuple(value if measured else np.inf for value, measured in zip(whole, complete, strict=True)))
