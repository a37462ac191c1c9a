"""Train: a profile dataset in, a library of models out, one per NF and machine.

SLOMO (SIGCOMM'20) section 4.1: offline, per NF, from runs beside the synthetic competitor only; no mix is ever fitted.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.errors import MissingMetricError, SlomoError
from slomo.models.applicability import Applicability, applicability
from slomo.models.base import TRAFFIC_PREFIX, Floats, ModelFamily, SensitivityModel
from slomo.models.intervals import ConformalCalibration, calibrate
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.training.accelerator_fit import with_uses
from slomo.training.calibration import calibrations, mix_rows, summary
from slomo.training.cross_validation import folds, held_out, relative_errors
from slomo.training.families.registry import make_families
from slomo.training.features import Subject, subjects
from slomo.training.latency_fit import with_latency
from slomo.training.response_fit import fit_profile
from slomo.training.server_response_fit import fit_server_response, widened
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.metrics import METRICS

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset

#: Fewer rows than this and a family that reads features is not fitted.
FEWEST_ROWS = 8


def train(
    dataset: "ProfileDataset",
    *,
    models: Sequence[str | ModelFamily] | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> ModelLibrary:
    """Train models of every NF in a dataset.

    Parameters
    ----------
    dataset : ProfileDataset
        Rows of plans ``solo``, ``pressure`` and ``imported`` are fitted; rows of plan ``mix`` only set the width of
        intervals. Runs that offered an NF less than it can serve train its latency model.
    models : sequence of str or ModelFamily, optional
        Families, by name or as instances of one's own; all of slomo's by default, except those that need a metric
        that was not measured (the manifest says which).
    targets : sequence of str, optional
        Workload keys or NF names; all by default.
    seed : int
        Seed of everything random.

    Returns
    -------
    ModelLibrary

    Raises
    ------
    MissingMetricError
        Where a model asked for by name needs a metric that the dataset lacks, or no rows can be fitted.
    UnknownNameError
        For a model or target that does not exist.

    References
    ----------
    SLOMO (SIGCOMM'20), sections 4.1 and 5.1.
    """
    families = make_families(models)
    facts = _facts(dataset, seed)
    fitted = [
        _fit_subject(subject, families, facts, strict=models is not None) for subject in subjects(dataset, targets)
    ]
    if not fitted:
        raise MissingMetricError(
            f"a dataset of {len(dataset)} rows has none to train on: no solo, pressure or imported rows",
            hint="profile NFs with `slomo profile`, or import a table with `slomo dataset import`",
        )
    return ModelLibrary(with_uses(dataset, with_latency(dataset, _with_intervals(dataset, fitted), seed)))


def _fit_subject(
    subject: Subject, families: Sequence[ModelFamily], facts: Mapping[str, Any], *, strict: bool
) -> NFModel:
    sensitivity: dict[str, SensitivityModel] = {}
    calibration: dict[str, ConformalCalibration] = {}
    errors: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for family in families:
        try:
            names, rows = _rows_for(family, subject)
        except MissingMetricError as reason:
            if strict:
                raise
            left_out[family.name] = reason.message
            continue
        vectors, mpps = subject.columns(names)[rows], subject.mpps[rows]
        guess = _held_out(family, subject, names, rows, facts["seed"])
        sensitivity[family.name] = family.fit(names, vectors, mpps, solo_mpps=subject.solo_mpps, seed=facts["seed"])
        calibration[family.name] = calibrate(mpps, guess, subject.solo_mpps, "cross-validation")
        errors[family.name] = relative_errors(mpps, guess, subject.solo_mpps)
    covered = _covered(subject)
    return NFModel(
        workload=subject.workload,
        machine=subject.machine,
        capacities=_capacities(subject.machine, facts["environment"]),
        solo_mpps=subject.solo_mpps,
        solo_vector=(profile := fit_profile(subject, facts["seed"])).solo,
        sensitivity=sensitivity,
        contentiousness=profile,
        calibration=calibration,
        applicability=covered,
        manifest=_manifest(subject, covered, facts, cross_validation=errors, left_out=left_out),
        traffic=subject.traffic,
        response=fit_server_response(subject, facts["seed"]),
    )


def _rows_for(family: ModelFamily, subject: Subject) -> tuple[tuple[str, ...], Any]:
    """Return the features a family reads and the mask of rows that have them all."""
    names = family.select_features(subject.names)
    rows = np.isfinite(subject.columns(names)).all(axis=1) & (subject.mpps > 0.0)
    if names and rows.sum() < FEWEST_ROWS:
        raise MissingMetricError(
            f"model '{family.name}' of '{subject.workload.key}' has {rows.sum()} rows "
            f"with {', '.join(names)}, needed at least {FEWEST_ROWS}",
            hint="profile more settings of the synthetic competitor",
        )
    return names, rows


def _held_out(family: ModelFamily, subject: Subject, names: tuple[str, ...], rows: Any, seed: int) -> Floats:
    vectors, mpps = subject.columns(names)[rows], subject.mpps[rows]

    def fit(seen: Any) -> Any:
        model = family.fit(names, vectors[seen], mpps[seen], solo_mpps=subject.solo_mpps, seed=seed)
        return lambda asked: model.predict_mpps(vectors[asked])

    return held_out(fit, folds(subject.groups[rows], seed))


def _covered(subject: Subject) -> Applicability:
    """Return the range of the pressures that add up (of whatever there is, in tables without any)."""
    names = tuple(name for name in subject.metric_names if METRICS[name].pressure) or subject.metric_names
    names = (*names, *(name for name in subject.names if name.startswith(TRAFFIC_PREFIX)))
    vectors = subject.columns(names)
    whole = np.isfinite(vectors).all(axis=1)
    return applicability(names, vectors[whole]) if names and whole.any() else applicability((), np.zeros((1, 0)))


def _with_intervals(dataset: "ProfileDataset", fitted: Sequence[NFModel]) -> list[NFModel]:
    """Replace cross-validated interval widths by those of mixes, where there are enough."""
    finished = []
    for machine in dict.fromkeys(model.machine for model in fitted):
        models = [model for model in fitted if model.machine == machine]
        mixes = mix_rows(dataset, models, machine)
        found = calibrations(models, mixes)
        models = widened(models, mixes)
        for number, model in enumerate(models):
            calibration = {**model.calibration, **found[number]}
            manifest = {**model.manifest, "intervals": summary(calibration)}
            finished.append(replace(model, calibration=calibration, manifest=manifest))
    return finished


def _capacities(machine: str, environment: Mapping[str, Any]) -> Capacities | None:
    """Return what the machine has: as the dataset says, or as its shipped description says."""
    described = environment.get("machines")
    try:
        if isinstance(described, Mapping) and isinstance(described.get(machine), Mapping):
            return Machine.from_dict(described[machine]).capacities()
        return load_machine(machine).capacities()
    except SlomoError:
        return None  # a measured table of a machine without a description: nothing is capped


def _facts(dataset: "ProfileDataset", seed: int) -> dict[str, Any]:
    return {"environment": dataset.environment, "seed": seed, "versions": _versions()}


def _versions() -> dict[str, str]:

    found = {"python": platform.python_version()}
    for package in ("slomo", "numpy", "scikit-learn", "xgboost"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _manifest(
    subject: Subject, covered: Applicability, facts: Mapping[str, Any], **results: Mapping[str, Any]
) -> dict[str, Any]:
    ranges = {
        name: {"unit": METRICS[name].unit if name in METRICS else "", "low": low, "high": high}
        for name, low, high in zip(covered.feature_names, covered.low.tolist(), covered.high.tolist(), strict=True)
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": subject.workload.key,
        "machine": subject.machine,
        "solo_mpps": subject.solo_mpps,
        "solo_source": subject.solo_source,
        "rows": {
            "fitted": len(subject.mpps),
            "solo": int((subject.counts == 0).sum()),
            "settings": len(np.unique(subject.groups)),
        },
        "features": list(subject.names),
        "units": {name: METRICS[name].unit for name in subject.metric_names} | {"throughput": "Mpps"},
        "ranges": ranges,
        **results,
        "versions": facts["versions"],
        "seed": facts["seed"],
        "environment": facts["environment"],
    }
