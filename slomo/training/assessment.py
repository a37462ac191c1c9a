"""Estimate the accuracy of a model if profiling stopped now: held-out error, its uncertainty, interval width.

Every competitor configuration is predicted by a model of the final family that never saw it
(`slomo.training.cross_validation`), so that profiling can stop as soon as the model is good enough.
"""

import math
from dataclasses import dataclass

import numpy as np

from slomo.errors import MissingMetricError
from slomo.files.stored import Stored
from slomo.models.intervals import calibrate
from slomo.records.dataset import ProfileDataset
from slomo.training.cross_validation import folds, held_out
from slomo.training.families.registry import make_family
from slomo.training.features import subjects
from slomo.units import plural


@dataclass(frozen=True)
class Assessment(Stored):
    """Held-out accuracy of one NF's model; all errors are shares of solo throughput, 0.02 for 2 %."""

    #: Number of settings predicted.
    rows: int
    #: Mean absolute held-out error.
    error: float
    #: Standard error of that mean.
    uncertainty: float
    #: Median half width of the intervals.
    half_width: float
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float


def assess(
    dataset: ProfileDataset,
    target: str,
    *,
    coverage: float = 0.9,
    seed: int = 0,
) -> Assessment:
    """Return how well family `slomo-xgb`, trained on `dataset`, predicts settings of `target` it did not see."""
    family = make_family("slomo-xgb")
    subject = next(subjects(dataset, [target]))
    names = family.select_features(subject.names)
    rows = np.isfinite(subject.columns(names)).all(axis=1) & (subject.counts > 0)
    if rows.sum() < 2:
        raise MissingMetricError(
            f"'{target}' has {plural(rows.sum(), 'row')} with {', '.join(names)}, needed 2 or more to judge"
        )
    vectors, mpps, solo = subject.columns(names)[rows], subject.mpps[rows], subject.solo_mpps

    def fit(seen: np.typing.NDArray[np.bool_]) -> object:
        fitted = family.fit(names, vectors[seen], mpps[seen], solo_mpps=solo, seed=seed)
        return lambda left_out: fitted.predict_mpps(vectors[left_out])

    guess = held_out(fit, folds(subject.groups[rows], seed))  # type: ignore[arg-type]
    errors = np.abs(guess - mpps) / solo
    low, high = calibrate(mpps, guess, solo, "cross-validation").interval_mpps(guess, solo, coverage)
    return Assessment(
        rows=len(mpps),
        error=float(errors.mean()),
        uncertainty=float(errors.std(ddof=1) / math.sqrt(len(errors))),
        half_width=float(np.median(high - low) / 2.0 / solo),
        coverage=coverage,
    )
