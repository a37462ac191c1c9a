"""Learn the size of prediction errors from few mixes, by NF, predicted loss and kind of neighbourhood.

Errors are first divided by the usual error at the predicted loss. Losses are relative to the NF's largest predicted
loss, so that every NF's knots lie where its throughput is flat or steep. Bias is learned for each NF alone, without a
prior; size is shrunk towards the joint estimate of this NF and of all NFs at this relative loss. Knots and prior were
chosen by the pinball loss of bounds at 0.6, 2.5, 5, 95 and 97.5 % on the shipped calibration mixes in six folds of
held-out runs, among other floors and powers of the loss.

Every cell of NF and neighbourhood is then shrunk towards their joint estimate, and that towards all rows (a
hierarchical mean in the manner of James and Stein, 1961), so that a cell of three rows does not stand alone. The
calibration scores come from rows whose run was held out from all these fits, and are pooled over all NFs of a machine.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.error_shape import ErrorShape, shapes_at
from slomo.models.interval_ends import predicted_loss
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import NEIGHBOURHOODS, UNKNOWN
from slomo.training.cross_validation import folds

#: Weight of a cell's prior, expressed as a number of its own rows; chosen on calibration mixes.
PRIOR_ROWS = 8.0
#: Least spread of a cell's errors, as a share of that over all rows, since an NF without errors so far may have some
#: later.
LEAST_SPREAD = 0.05
#: Knots of the piecewise linear shapes, as relative losses.
KNOTS = np.array([0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
#: Weight of the shape's prior, expressed as a number of rows.
SHAPE_PRIOR_ROWS = 4.0
#: Least size of errors, and least worst loss, as shares of solo throughput.
LEAST_SIZE, LEAST_WORST = 2e-4, 5e-3
#: Risk at which broken servers are counted, and least number of servers for that. A quarter of some 150 is enough to
#: count; the result for a tenth and a twentieth is as accurate as from other shares (mixes of both shipped datasets,
#: parts left out).
ASKED, FEWEST_SERVERS = 0.25, 20
#: Limits of the correction of tenants' risks.
POWERS = (0.5, 2.0)
#: Number of folds for holding out runs.
_FOLDS = 10


@dataclass(frozen=True, eq=False)
class HeldOutMixes:
    """Predictions of mixes by models that did not learn from these mixes."""

    #: Measured, predicted and solo throughput of each row; NaN without a prediction, shape (n,).
    measured_mpps: Floats
    predicted_mpps: Floats
    solo_mpps: Floats
    #: Index of each row's NF, shape (n,).
    owner: NDArray[np.int64]
    #: Kind of the NF's neighbourhood, shape (n,).
    kind: NDArray[np.int64]
    #: Group number of each row; rows of one run, or of equal runs, share a number, shape (n,).
    run: NDArray[np.int64]
    #: Whether the mix was drawn as placement fills servers; none by default, shape (n,).
    packed: NDArray[np.bool_] | None = None

    def rows(self, chosen: NDArray[np.bool_]) -> "HeldOutMixes":
        """Return a selection of the mixes, by row number."""
        return replace(self, **{name: each[chosen] for name, each in vars(self).items() if each is not None})

    @property
    def errors(self) -> Floats:
        """Measured minus predicted throughput, as a share of solo throughput."""
        return (self.measured_mpps - self.predicted_mpps) / self.solo_mpps

    @property
    def loss(self) -> Floats:
        """Predicted loss, as a share of solo throughput."""
        return predicted_loss(self.predicted_mpps, self.solo_mpps)


def fit_calibrations(mixes: HeldOutMixes, owners: int, source: str = "mixes") -> list[ConformalCalibration]:
    """Return the known errors of each NF, in the order of the numbers 0 to `owners` - 1."""
    mixes = mixes.rows(np.isfinite(mixes.measured_mpps) & np.isfinite(mixes.predicted_mpps))
    fold = folds(mixes.run, 0, _FOLDS)
    scores = np.zeros(len(fold))
    for number in np.unique(fold):
        out = fold == number
        usual = _usual(mixes.rows(~out if not out.all() else out), owners)
        scores[out] = usual.scores(mixes.rows(out))
    usual, order = _usual(mixes, owners), np.argsort(scores, kind="stable")
    pooled = ConformalCalibration(scores[order], source, kinds=mixes.kind[order])
    together = _together(pooled.risks(scores, mixes.kind), mixes)
    tables = zip(usual.shapes, usual.centre, usual.spread, strict=True)
    average = float(np.abs(mixes.errors).mean()) if len(order) else 0.0
    return [ConformalCalibration(scores[order], source, *table, pooled.kinds, together, average) for table in tables]


def _together(risks: Floats, mixes: HeldOutMixes) -> float:
    """Return `together`, the exponent from the tenants' risks to the share of servers that break a bound.

    A server breaks if its worst tenant does. `risks` gives the risk at which each tenant's bound breaks. If tenants err
    independently and bounds break as often as set, a quarter of the servers breaks at a setting of a quarter. Servers
    that placement filled may break more often, as it prefers mixes whose predictions are too high: their share counts,
    shrunk towards that of all servers, which weighs as much as :data:`FEWEST_SERVERS` of them.
    """
    runs, first = np.unique(mixes.run, return_index=True)
    if len(runs) < FEWEST_SERVERS:
        return 1.0
    worst = []
    for run in runs:
        here = mixes.run == run
        worst.append(1.0 - (1.0 - risks[here].min()) ** len(np.unique(mixes.owner[here])))
    is_broken = np.array(worst) <= ASKED
    broken = (is_broken.sum() + 1.0) / (len(runs) + 1.0)
    if mixes.packed is not None and (packed := mixes.packed[first]).any():
        broken = (is_broken[packed].sum() + FEWEST_SERVERS * broken) / (packed.sum() + FEWEST_SERVERS)
    return float(np.clip(np.log(broken) / np.log(ASKED), *POWERS))


@dataclass(frozen=True, eq=False)
class _Usual:
    """Usual errors of each NF: their size over predicted loss, their centre and spread."""

    shapes: list[ErrorShape]
    centre: Floats
    spread: Floats

    def scores(self, mixes: HeldOutMixes) -> Floats:
        """Return the errors of mixes in units of the usual error."""
        at = mixes.owner, mixes.kind
        return (_sized(mixes, self.shapes) - self.centre[at]) / self.spread[at]


def _usual(mixes: HeldOutMixes, owners: int) -> _Usual:
    """Return the usual errors; centre and spread by NF and kind of neighbourhood are each shrunk towards the mean."""
    shapes = fit_shapes(mixes.errors, mixes.loss, mixes.owner, owners)
    sized = _sized(mixes, shapes)
    centre = _drawn(sized, mixes, owners, multiply=False)
    away = np.abs(sized - centre[mixes.owner, mixes.kind])
    spread = np.maximum(_drawn(away, mixes, owners, multiply=True), max(LEAST_SPREAD * float(away.mean()), 1e-9))
    return _Usual(shapes, centre, spread)


def _sized(mixes: HeldOutMixes, shapes: list[ErrorShape]) -> Floats:
    """Return errors minus their centre, divided by their scale, at each mix's predicted loss."""
    middle, size = shapes_at(shapes, mixes.owner, mixes.loss)
    return (mixes.errors - middle) / size


def _drawn(values: Floats, mixes: HeldOutMixes, owners: int, *, multiply: bool) -> Floats:
    """Return means by NF and kind of neighbourhood, shrunk towards the mean of the NF and the mean of the kind."""
    whole = float(values.mean()) if len(values) else 0.0
    by_owner = _means(values, 1.0, mixes.owner, np.full(owners, whole), PRIOR_ROWS)
    by_kind = _means(values, 1.0, mixes.kind, np.full(len(NEIGHBOURHOODS), whole), PRIOR_ROWS)
    by_kind[UNKNOWN] = whole
    if multiply:
        expected = by_owner[:, None] * by_kind[None, :] / max(whole, 1e-12)
    else:
        expected = by_owner[:, None] + by_kind[None, :] - whole
    means = _means(values, 1.0, (mixes.owner, mixes.kind), expected, PRIOR_ROWS)
    means[:, UNKNOWN] = by_owner
    return means


def _means(values: Floats, weights: Floats | float, cells: Any, prior: Floats, prior_rows: float) -> Floats:
    """Return the weighted mean of each cell, shrunk towards a prior of the weight `prior_rows`."""
    total, count = np.zeros(prior.shape), np.zeros(prior.shape)
    np.add.at(total, cells, weights * values)
    np.add.at(count, cells, weights)
    return (total + prior_rows * prior) / (count + prior_rows)


def fit_shapes(errors: Floats, loss: Floats, owner: NDArray[np.int64], owners: int) -> list[ErrorShape]:
    """Return for each NF the size of errors as a function of the predicted loss.

    Errors are measured less predicted throughput; they and the predicted loss are shares of solo throughput.
    `owner` is the number of each row's NF. All have shape ``(n,)``.
    """
    worst = np.full(owners, LEAST_WORST)
    np.maximum.at(worst, owner, loss)
    # each row's weights at the knots: linear between the two nearest
    hats = np.column_stack([np.interp(loss / worst[owner], KNOTS, one) for one in np.eye(len(KNOTS))])
    middle = _means(errors[:, None], hats, owner, np.zeros((owners, len(KNOTS))), SHAPE_PRIOR_ROWS)
    size = _sizes(np.abs(errors - (hats * middle[owner]).sum(axis=1)), hats, owner, owners)
    return [_shape(KNOTS * worst[number], middle[number], size[number]) for number in range(owners)]


def _sizes(away: Floats, hats: Floats, owner: NDArray[np.int64], owners: int) -> Floats:
    """Return mean error sizes at the knots, for each NF."""
    whole = float(away.mean()) if len(away) else 0.0
    count = np.bincount(owner, minlength=owners)
    of_owner = (np.bincount(owner, away, owners) + SHAPE_PRIOR_ROWS * whole) / (count + SHAPE_PRIOR_ROWS)
    relative = away / np.maximum(of_owner[owner], LEAST_SIZE)
    curve = (hats.T @ relative + SHAPE_PRIOR_ROWS) / (hats.sum(axis=0) + SHAPE_PRIOR_ROWS)
    return np.maximum(_means(away[:, None], hats, owner, of_owner[:, None] * curve, SHAPE_PRIOR_ROWS), LEAST_SIZE)


def _shape(loss: Floats, middle: Floats, size: Floats) -> ErrorShape:
    """Return a function of predicted loss from error sizes at the knots."""
    if loss[-1] >= 1.0:
        return ErrorShape(loss, middle, size)
    beyond = size[-1] + (1.0 / loss[-1] - 1.0) * size.max()
    return ErrorShape(np.append(loss, 1.0), np.append(middle, middle[-1]), np.append(size, beyond))
