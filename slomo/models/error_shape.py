"""Bias and size of one NF's errors as functions of its predicted loss.

Errors of throughput are small near no loss and near the largest loss, where the throughput curve is flat. In between
the curve is steep, and a small error in the competition's counters causes the largest errors. A model may also be
biased in one part of the curve. Both functions are piecewise linear; training fits them to calibration mixes
(`slomo.training.conformal_fit`). Scores are errors standardised by them (normalised conformal scores: Papadopoulos et
al. 2008; Lei et al., JASA 113, 2018, section 5.2).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.base import Floats, require


@dataclass(frozen=True, eq=False)
class ErrorShape(Stored):
    """Bias and size of an NF's errors as piecewise linear functions of predicted loss; extrapolated beyond the knots.

    >>> shape = ErrorShape(np.array([0.0, 0.2, 1.0]), np.array([0.0, 0.01, 0.01]), np.array([0.01, 0.05, 0.05]))
    >>> shape.at_one(0.1)
    (0.005, 0.03)
    """

    #: Predicted losses as shares of solo throughput, ascending, shape (knots,).
    loss: Floats
    #: Bias at each of these losses, as a share of solo throughput; positive if measurements exceed predictions, shape
    #: (knots,).
    middle: Floats
    #: Size of an error with score 1 at each of these losses, as a share of solo throughput, above 0, shape (knots,).
    size: Floats

    def at_one(self, loss: float) -> tuple[float, float]:
        """Return bias and size of errors at one predicted loss; the bits equal those of :func:`shapes_at`."""
        inner, pieces = self.segments
        start, middle, middle_slope, size, size_slope = pieces[bisect_right(inner, loss)]
        away = loss - start
        return middle + away * middle_slope, size + away * size_slope

    def at(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return bias and size of errors at every predicted loss."""
        loss = np.asarray(loss, dtype=float)
        return shapes_at((self,), np.zeros(loss.shape, dtype=np.int64), loss)

    @cached_property
    def segments(self) -> tuple[list[float], list[list[float]]]:
        """The inner knots; and per line segment the loss at its start, and start value and slope of bias and size."""
        width = np.diff(self.loss)
        lines = [side for y in (self.middle, self.size) for side in (y[:-1], np.diff(y) / width)]
        return self.loss[1:-1].tolist(), np.column_stack([self.loss[:-1], *lines]).tolist()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ErrorShape":
        """Return the object that :meth:`to_dict` described."""
        made = super().from_dict(data)
        loss, middle, size = made.loss, made.middle, made.size
        require(
            loss.ndim == 1
            and len(loss) >= 2
            and loss.shape == middle.shape == size.shape
            and (np.diff(loss) > 0).all(),
            f"an error's shape of {loss.size} losses, {middle.size} middles and {size.size} sizes; needed as many "
            "of each, two or more, over ascending losses",
        )
        require((size > 0).all(), f"an error's size is {size.min()}, needed above 0")
        return made


def proportional(floor: float) -> ErrorShape:
    """Return a shape without bias whose errors are proportional to `floor` plus the predicted loss.

    It serves NFs with few calibration errors.
    """
    return ErrorShape(np.array([0.0, 1.0]), np.zeros(2), np.array([floor, 1.0 + floor]))


#: Errors independent of the loss; score 1 is solo throughput.
EVEN = ErrorShape(np.array([0.0, 1.0]), np.zeros(2), np.ones(2))
#: Shape for an NF that runs alone.
NO_ERRORS = proportional(1.0)


def shapes_at(shapes: Sequence[ErrorShape], who: NDArray[np.int64], loss: Floats) -> tuple[Floats, Floats]:
    """Return bias and size of errors for many predictions, each of which belongs to one of several NFs.

    `shapes`: one per NF. `who`: which NF each prediction is of. `loss`: predicted losses.
    """
    inner, pieces = _as_rows(tuple(shapes))
    start, middle, middle_slope, size, size_slope = pieces[:, who, (loss[..., None] >= inner[who]).sum(axis=-1)]
    away = loss - start
    return middle + away * middle_slope, size + away * size_slope


@lru_cache(maxsize=256)
def _as_rows(shapes: tuple[ErrorShape, ...]) -> tuple[Floats, Floats]:
    """Return the line segments of all shapes as tables, one row per shape; shapes with fewer knots are padded."""
    most = max(len(shape.loss) for shape in shapes) - 1
    inner, pieces = np.full((len(shapes), most - 1), np.inf), np.zeros((5, len(shapes), most))
    for number, shape in enumerate(shapes):
        own, lines = shape.segments
        inner[number, : len(own)], pieces[:, number, : len(lines)] = own, np.transpose(lines)
    return inner, pieces
