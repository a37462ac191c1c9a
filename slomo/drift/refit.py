"""Correct a model by a few new runs, where a new profile would take hundreds.

A new version, clock speed or memory configuration mostly changes an NF by scale factors: of solo throughput, of its
loss to pressure, and of its own pressure. These few factors are fitted and, while runs are few, shrunk towards 1 as in
ridge regression (Hoerl and Kennard, 1970). The shape of the model's curves, whose training takes hundreds of runs, is
kept.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError
from slomo.models.base import Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile
from slomo.models.functions.monotone import MonotoneSensitivity
from slomo.models.functions.smooth import SmoothSensitivity
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import UNKNOWN
from slomo.models.nf_model import NFModel
from slomo.models.responses.sensitivity import (
    AVERAGED,
    AdditiveSensitivity,
    AveragedSensitivity,
    ConstantSensitivity,
    CurveSensitivity,
    LinearSensitivity,
    PlaneSensitivity,
    TreeSensitivity,
)
from slomo.records.dataset import ProfileDataset
from slomo.training.features import Subject, subjects
from slomo.training.response_fit import solo_vector
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.vector import MetricVector

#: Weight of the old model, in new runs of mean slowdown.
PRIOR_RUNS = 1.0
#: Weight of the old contentiousness, in new runs.
PRIOR_VECTORS = 2.0
#: Standard errors by which a refit must be better; relative difference between repeated solo runs.
SURE, SOLO_NOISE = 2.0, 0.01


def refit(model: NFModel, dataset: ProfileDataset) -> NFModel:
    """Return the model corrected by new runs of its NF, or the old model if that is not better.

    `dataset`: new runs of the same workload, alone and a few beside the synthetic competitor. Sensitivity and
    contentiousness are scaled, and intervals widened where the new runs call for it; the manifest says by how much,
    under ``refit``. The old model stays unless runs that were left out (competitor settings, one by one) are predicted
    better from the other runs, by more than twice the standard error of that gain.

    Raises InvalidValueError for a family that cannot be scaled; UnknownNameError without runs of the workload;
    MissingMetricError if none of them was alone, since everything else is relative to solo throughput.
    """
    if fixed := [name for name, sensitivity in model.sensitivity.items() if not isinstance(sensitivity, _SCALABLE)]:
        raise InvalidValueError(
            f"models of '{model.workload.key}' on {model.machine} of family {', '.join(fixed)} cannot be corrected by "
            "a few runs",
            hint="train them again on all runs: slomo train DATASET",
        )
    subject = next(subjects(dataset, [model.workload.key]))
    gain, standard_error = _gain(model, subject)
    if not gain > SURE * standard_error:
        return model
    updated = _scaled_to(model, subject)
    summary = {**updated.manifest["refit"], "gain_of_solo": gain, "standard_error": standard_error}
    return replace(updated, manifest={**updated.manifest, "refit": summary})


def _gain(model: NFModel, subject: Subject) -> tuple[float, float]:
    """Return by how much the correction reduces the held-out error, and the standard error."""
    name, beside = model.named(DEFAULT_MODEL), np.flatnonzero(subject.counts > 0)
    gains: list[float] = []
    for group in np.unique(subject.groups[beside]).tolist():
        out = (subject.groups == group) & (subject.counts > 0)
        seen = _scaled_to(model, _rows(subject, ~out)) if (subject.counts[~out] > 0).any() else None
        before, after = (
            np.abs(each.sensitivity[name].predict_mpps(_features(each.sensitivity[name], subject, model.traffic)[out])
                   - subject.mpps[out])
            for each in (model, seen or model)
        )  # fmt: skip
        gains += ((before - after) / subject.solo_mpps).tolist()
    known = np.array([gain for gain in gains if np.isfinite(gain)])
    if len(known) < 2:  # one run alone: no setting can be left out
        return abs(subject.solo_mpps / model.solo_mpps - 1.0), SOLO_NOISE
    return float(known.mean()), max(float(known.std(ddof=1)) / math.sqrt(len(known)), 1e-9)


def _rows(subject: Subject, chosen: NDArray[np.bool_]) -> Subject:
    """Return one NF's training data with the chosen rows only."""
    names = ("vectors", "mpps", "groups", "own", "beside", "counts")
    parts = {name: getattr(subject, name)[chosen] for name in names}
    return replace(subject, **parts, variance=None if subject.variance is None else subject.variance[chosen])


def _scaled_to(model: NFModel, subject: Subject) -> NFModel:
    """Return the model scaled to new runs, whether better or not."""
    solo = subject.solo_mpps
    factors = {name: _loss_factor(model, name, subject, solo) for name in model.sensitivity if name != AVERAGED}
    sensitivity = {
        name: _scaled(model.sensitivity[name], factor, model.solo_mpps, solo) for name, factor in factors.items()
    }
    if isinstance(mean := model.sensitivity.get(AVERAGED), AveragedSensitivity):
        sensitivity[AVERAGED] = replace(mean, models={name: sensitivity[name] for name in mean.weights})
    profile, gains = _profile(model, subject)
    updated = replace(
        model,
        solo_mpps=solo,
        solo_vector=profile.solo,
        sensitivity=sensitivity,
        contentiousness=profile,
        manifest={
            **model.manifest,
            "solo_mpps": solo,
            "refit": {
                "rows": len(subject.mpps),
                "solo_ratio": solo / model.solo_mpps,
                "loss_factors": factors,
                "pressure_factors": gains,
            },
        },
    )
    return replace(updated, calibration=_calibration(updated, subject))


def _features(item: SensitivityModel, subject: Subject, traffic: Mapping[str, float]) -> Floats:
    """Return the columns that a model reads, NaN for those that the new runs lack."""
    columns = [
        subject.columns([name])[:, 0]
        if name in subject.names
        else np.full(len(subject.mpps), traffic.get(name, np.nan))
        for name in item.feature_names
    ]
    return np.column_stack(columns) if columns else np.zeros((len(subject.mpps), 0))


def _loss_factor(model: NFModel, name: str, subject: Subject, solo_mpps: float) -> float:
    """Return by which factor predicted losses change, near 1 with few runs."""
    item = model.sensitivity[name]
    foretold = 1.0 - item.predict_mpps(_features(item, subject, model.traffic)) / model.solo_mpps
    measured = 1.0 - subject.mpps / solo_mpps
    comparable = np.isfinite(foretold) & (subject.counts > 0)
    return max(_shrunken_ratio(foretold[comparable], measured[comparable], PRIOR_RUNS), 0.0)


def _shrunken_ratio(foretold: Floats, measured: Floats, prior_runs: float) -> float:
    """Return the ratio of measured to predicted values by ridge regression, with `prior_runs` added runs of ratio 1."""
    if not len(foretold):
        return 1.0
    prior = prior_runs * float(np.mean(foretold**2))
    weight = float(foretold @ foretold) + prior
    return float((foretold @ measured + prior) / weight) if weight > 0.0 else 1.0


def _scaled(item: SensitivityModel, factor: float, old_mpps: float, new_mpps: float) -> SensitivityModel:
    """Return a model with losses multiplied by `factor`, relative to the new solo throughput."""
    return next(scale for kind, scale in _SCALES.items() if isinstance(item, kind))(item, factor, old_mpps, new_mpps)


def _scaled_trees(item: TreeSensitivity, factor: float, old_mpps: float, new_mpps: float) -> TreeSensitivity:
    relative = item.response == "relative throughput"
    gain = factor if relative else factor * new_mpps / old_mpps
    shift = (1.0 - factor) * (1.0 if relative else new_mpps)
    trees = item.ensemble
    leaf = trees.leaf.astype(np.float64) * gain  # the type that plain trees are saved with
    ensemble = replace(trees, leaf=leaf, start=trees.start * gain + shift)
    return replace(item, ensemble=ensemble, solo_mpps=new_mpps, source=None)


#: For each kind of model: the model with losses multiplied by `factor`, from the old solo throughput to the new one.
_SCALES: Mapping[type, Callable[..., SensitivityModel]] = {
    TreeSensitivity: _scaled_trees,
    SmoothSensitivity: lambda item, factor, _, new_mpps: replace(
        item, weights=factor * item.weights, mean=1.0 - factor * (1.0 - item.mean), solo_mpps=new_mpps
    ),
    # extra times are scaled by the factor of the losses: nearly equal for small ones, less for large ones, never above
    # solo
    AdditiveSensitivity: lambda item, factor, _, new_mpps: replace(
        item, base=factor * item.base, slopes=factor * item.slopes, solo_mpps=new_mpps
    ),
    MonotoneSensitivity: lambda item, factor, _, new_mpps: replace(
        item, height=factor * item.height, top=1.0 - factor * (1.0 - item.top), solo_mpps=new_mpps
    ),
    LinearSensitivity: lambda item, factor, old_mpps, new_mpps: replace(
        item,
        intercept_mpps=item.intercept_mpps * (factor * new_mpps / old_mpps) + (1.0 - factor) * new_mpps,
        slope=item.slope * (factor * new_mpps / old_mpps),
    ),
    PlaneSensitivity: lambda item, factor, old_mpps, new_mpps: replace(
        item,
        start_mpps=item.start_mpps * (factor * new_mpps / old_mpps) + (1.0 - factor) * new_mpps,
        slopes=item.slopes * (factor * new_mpps / old_mpps),
    ),
    CurveSensitivity: lambda item, factor, old_mpps, new_mpps: replace(
        item, mpps=item.mpps * factor * new_mpps / old_mpps + (1.0 - factor) * new_mpps
    ),
    ConstantSensitivity: lambda item, _factor, _old_mpps, new_mpps: replace(item, solo_mpps=new_mpps),
}
_SCALABLE = (*_SCALES, AveragedSensitivity)


def _profile(model: NFModel, subject: Subject) -> tuple[ContentiousnessProfile, dict[str, float]]:
    """Return the contentiousness scaled metric by metric, and the factors."""
    old = model.contentiousness
    gains = {name: _pressure_factor(old, name, subject) for name in old.metric_names}
    scaled, measured = old.scaled(gains, {}), solo_vector(subject)
    solo = {name: measured.get(name, value) for name, value in scaled.solo.items()}
    return replace(scaled, solo=MetricVector(solo, scope=old.solo.scope)), gains


def _pressure_factor(profile: ContentiousnessProfile, name: str, subject: Subject) -> float:
    """Return measured over predicted values of one metric, shrunk towards 1."""
    if name not in subject.own_names or any(part not in subject.names for part in profile.pressure_names):
        return 1.0
    foretold = profile.under(subject.columns(profile.pressure_names))[:, profile.metric_names.index(name)]
    measured = subject.own[:, subject.own_names.index(name)]
    comparable = np.isfinite(foretold) & np.isfinite(measured)
    return _shrunken_ratio(foretold[comparable], measured[comparable], PRIOR_VECTORS)


def _calibration(model: NFModel, subject: Subject) -> dict[str, ConformalCalibration]:
    """Return the old known errors, wider if the new runs scatter more."""
    calibrations = {}
    for name, old in model.calibration.items():
        item = model.sensitivity[name]
        predicted = item.predict_mpps(_features(item, subject, model.traffic))
        beside = subject.counts > 0
        seen = beside & np.isfinite(predicted) & np.isfinite(subject.mpps)
        if not seen.any() or not old.count:
            calibrations[name] = old
            continue
        new = old.standardised(subject.mpps[seen], predicted[seen], model.solo_mpps)
        now, usual = (np.median(np.abs(old.centre[UNKNOWN] + old.spread[UNKNOWN] * z)) for z in (new, old.scores))
        widened = max(1.0, float(now) / max(float(usual), 1e-12))
        calibrations[name] = replace(old, shape=replace(old.shape, size=old.shape.size * widened))
    return calibrations
