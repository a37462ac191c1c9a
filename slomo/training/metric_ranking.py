"""Rank metrics by how much each lowers the prediction error, alone and added to others.

SLOMO (SIGCOMM'20) section 5.1 starts from 16 candidates of Intel PCM and keeps those that explain throughput. Each set
of metrics is judged by the held-out error of a ridge regression over 1, u and u u' (u = p / (p + median), as in
`slomo.models.contentiousness`). Forward selection shows how much the error falls when a metric is added; leaving one
metric out shows how much it rises without that metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.errors import IncompatibleMeasurementsError, MissingMetricError
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.functions.regression import ridge
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import placed
from slomo.training.cross_validation import folds, held_out
from slomo.training.features import Subject, subjects, typical_values
from slomo.vocabulary.metrics import METRICS

#: Strength of the ridge; with all candidates the basis has some 150 columns.
_STRENGTH = 1e-3
#: Number of metrics selected one by one; each further metric is rated as if it were the next.
_STEPS = 7
#: Least number of rows for a ranking.
_FEWEST_ROWS = 24


@dataclass(frozen=True)
class RankedMetric:
    """Rating of one metric: mean held-out errors of models with this input [% of solo throughput]."""

    #: Metric of the competitors.
    name: str
    #: Error with this metric only.
    alone: float
    #: Position in forward selection, from 1.
    place: int
    #: Error with this metric and all selected before it.
    error: float
    #: Reduction of the error when it was selected; below 0 if it added noise.
    gain: float
    #: Error with all candidates except this metric.
    without: float


def rank_metrics(
    dataset: ProfileDataset, targets: Sequence[str] | None = None, *, seed: int = 0
) -> tuple[RankedMetric, ...]:
    """Rank the metrics measured for all network functions of a dataset, in the order in which they are selected.

    Rows of plans ``solo``, ``pressure`` and ``imported`` are read. The seed draws which settings are left out together.
    Metrics that no core has for itself, the link's use and the latency of misses, are among the candidates. Raises
    MissingMetricError where no metric was reported for all of them, or there are too few rows;
    IncompatibleMeasurementsError where some rows have tenants or memory on another socket and others do not.
    """
    elsewhere = placed(dataset.frame)
    if elsewhere.any() and not elsewhere.all():
        raise IncompatibleMeasurementsError(
            f"{int(elsewhere.sum())} of {len(elsewhere)} rows have tenants or memory on another socket",
            hint="rank each kind in a dataset of its own: solo throughput differs",
        )
    measured = list(subjects(dataset, targets, as_measured=True))
    names = [name for name in (measured[0].metric_names if measured else ()) if _everywhere(name, measured)]
    fewest = min((int((subject.counts > 0).sum()) for subject in measured), default=0)
    if not names or fewest < _FEWEST_ROWS:
        raise MissingMetricError(
            f"{len(names)} metrics are reported beside competitors for all of {len(measured)} network functions, in "
            f"{fewest} rows at the least; needed 1 metric and {_FEWEST_ROWS} rows",
            hint="profile under pressure first, or name targets with more rows",
        )
    parts = [(subject, folds(subject.groups[subject.counts > 0], seed)) for subject in measured]

    def error(names: Sequence[str]) -> float:
        """Return the mean error of models that read these metrics, for held-out settings, over solo [%]."""
        return 100.0 * float(np.mean([_left_out(subject, tuple(names), fold) for subject, fold in parts]))

    alone = {name: error([name]) for name in names}
    taken: list[str] = []
    steps: dict[str, tuple[int, float, float]] = {}
    before = error([])
    while len(taken) < len(names):
        errors = {name: error([*taken, name]) for name in names if name not in taken}
        order = sorted(errors, key=lambda name: errors[name])
        for name in order if len(taken) >= _STEPS else order[:1]:
            taken.append(name)
            steps[name] = (len(taken), errors[name], before - errors[name])
        before = errors[order[0]]
    without = {name: error([other for other in names if other != name]) for name in names}
    return tuple(RankedMetric(name, alone[name], *steps[name], without[name]) for name in taken)


def unranked_metrics(dataset: ProfileDataset, ranked: Sequence[RankedMetric]) -> dict[str, str]:
    """Return why some measured metrics of the competition have no rank."""
    rows = dataset.frame[dataset.frame["plan"].isin(["pressure", "imported"])]
    placed, why = {item.name for item in ranked}, {}
    for name in METRICS:
        column = f"competition.{name}"
        if name in placed or column not in rows or not (share := float(rows[column].notna().mean())):
            continue
        missing = f"reported in {100 * share:.0f} % of the rows, needed in all beside competitors"
        why[name] = missing if share < 1.0 else f"{rows[column].iloc[0]:g} in every row"
    return why


def _everywhere(name: str, measured: Sequence[Subject]) -> bool:
    """Return whether a metric has values in all rows with competitors and these values differ."""
    if any(name not in subject.metric_names for subject in measured):
        return False
    values = np.concatenate([subject.columns([name])[subject.counts > 0] for subject in measured])
    return bool(np.isfinite(values).all() and np.ptp(values) > 0.0)


def _left_out(subject: Subject, names: tuple[str, ...], fold: NDArray[np.int64]) -> float:
    beside = subject.counts > 0  # without competitors, ratios are unknown
    share = subject.mpps[beside] / subject.solo_mpps
    if names:
        pressure = subject.columns(names)[beside]
        basis = pressure_basis(pressure, typical_values(pressure), pressure.max(axis=0))
    else:
        basis = np.ones((len(share), 1))

    def fit(seen: NDArray[np.bool_]):  # type: ignore[no-untyped-def]
        if not names:
            return lambda left_out: np.full(int(left_out.sum()), share[seen].mean())
        weights = ridge(basis[seen], share[seen][:, np.newaxis], _STRENGTH)[:, 0]
        return lambda left_out: basis[left_out] @ weights

    guess: Floats = np.clip(held_out(fit, fold), 0.0, 1.0)
    return float(np.nanmean(np.abs(guess - share)))
