"""Fit where errors lie and how far they reach, per NF and kind of neighbourhood, from few mixes.

Every cell is drawn towards what its NF and its neighbourhood say together, and these towards all rows (a hierarchical
mean in the manner of James and Stein, 1961), so that a cell of three rows is no cell of its own. The scores that remain
are of rows whose run was left out of that, and are pooled over all NFs of a machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.intervals import FLOOR, ConformalCalibration, error_scale
from slomo.models.neighbourhood import NEIGHBOURHOODS, UNKNOWN
from slomo.training.cross_validation import folds

#: What a cell is drawn towards counts as much as this many rows of its own. Chosen on calibration mixes.
PRIOR_ROWS = 8.0
#: Least spread, as a share of that over all rows: an NF that never was off is not sure to be never.
LEAST_SPREAD = 0.05
#: Folds in which runs are left out.
_FOLDS = 10


@dataclass(frozen=True, eq=False)
class HeldOutMixes:
    """Predictions of mixes that nothing was fitted to.

    Attributes
    ----------
    measured_mpps, predicted_mpps, solo_mpps : ndarray, shape (n,)
        Throughput of each row; NaN where there is no prediction.
    owner : ndarray of int, shape (n,)
        Which NF each row is of.
    kind : ndarray of int, shape (n,)
        Kind of its neighbourhood.
    run : ndarray of int, shape (n,)
        Rows of one run, or of equal runs, share a number.
    """

    measured_mpps: Floats
    predicted_mpps: Floats
    solo_mpps: Floats
    owner: NDArray[np.int64]
    kind: NDArray[np.int64]
    run: NDArray[np.int64]

    def predicted(self) -> "HeldOutMixes":
        """Return the rows with a prediction."""
        rows = np.isfinite(self.measured_mpps) & np.isfinite(self.predicted_mpps)
        return HeldOutMixes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def fit_calibrations(mixes: HeldOutMixes, owners: int, source: str = "mixes") -> list[ConformalCalibration]:
    """Return the calibration of each of `owners` NFs.

    Examples
    --------
    >>> from slomo.models.neighbourhood import NEIGHBOURHOODS
    >>> error = np.tile([-0.1, 0.1], 40)
    >>> rows = np.arange(80)
    >>> mixes = HeldOutMixes(9 + error, np.full(80, 9.0), np.full(80, 10.0), rows % 2, rows % 7, rows)
    >>> one, other = fit_calibrations(mixes, 2)
    >>> one.count, bool(one.centre.mean() < 0 < other.centre.mean())
    (80, True)
    """
    mixes = mixes.predicted()
    errors = (mixes.measured_mpps - mixes.predicted_mpps) / error_scale(mixes.predicted_mpps, mixes.solo_mpps, FLOOR)
    fold = folds(mixes.run, 0, _FOLDS)
    scores = np.zeros(len(errors))
    for number in np.unique(fold):
        out = fold == number
        seen = ~out if not out.all() else out
        centre, spread = _tables(errors[seen], mixes.owner[seen], mixes.kind[seen], owners)
        at = mixes.owner[out], mixes.kind[out]
        scores[out] = (errors[out] - centre[at]) / spread[at]
    centre, spread = _tables(errors, mixes.owner, mixes.kind, owners)
    order = np.argsort(scores, kind="stable")
    ascending, kinds = scores[order], mixes.kind[order]
    return [ConformalCalibration(ascending, source, FLOOR, centre[i], spread[i], kinds) for i in range(owners)]


def _tables(errors: Floats, owner: NDArray[np.int64], kind: NDArray[np.int64], owners: int) -> tuple[Floats, Floats]:
    """Return centre and spread of errors, shape (owners, neighbourhoods), each drawn towards what it belongs to."""
    centre = _drawn(errors, owner, kind, owners, multiply=False)
    away = np.abs(errors - centre[owner, kind])
    spread = _drawn(away, owner, kind, owners, multiply=True)
    return centre, np.maximum(spread, max(LEAST_SPREAD * float(away.mean()), 1e-9))


def _drawn(values: Floats, owner: NDArray[np.int64], kind: NDArray[np.int64], owners: int, *, multiply: bool) -> Floats:
    """Return hierarchical means by owner and kind; effects of both add up, or multiply."""
    whole = float(values.mean()) if len(values) else 0.0
    by_owner = _means(values, [owner], (owners,), np.full(owners, whole))
    by_kind = _means(values, [kind], (len(NEIGHBOURHOODS),), np.full(len(NEIGHBOURHOODS), whole))
    by_kind[UNKNOWN] = whole
    if multiply:
        expected = by_owner[:, None] * by_kind[None, :] / max(whole, 1e-12)
    else:
        expected = by_owner[:, None] + by_kind[None, :] - whole
    means = _means(values, [owner, kind], expected.shape, expected)
    means[:, UNKNOWN] = by_owner
    return means


def _means(values: Floats, keys: Sequence[NDArray[np.int64]], shape: tuple[int, ...], prior: Floats) -> Floats:
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, tuple(keys), values)
    np.add.at(count, tuple(keys), 1.0)
    drawn: Floats = (total + PRIOR_ROWS * prior) / (count + PRIOR_ROWS)
    return drawn
