"""Train models from a dataset of measurements, one per NF and machine.

As in SLOMO (SIGCOMM'20, section 4.1), models are trained offline, per NF, from runs beside the synthetic competitor
only. Responses to running neighbours also learn from calibration mixes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from slomo.errors import MissingMetricError, SlomoError
from slomo.models.applicability import Applicability, applicability
from slomo.models.base import TRAFFIC_PREFIX, Floats, ModelFamily, SensitivityModel
from slomo.models.error_shape import EVEN
from slomo.models.evidence import DOUBTS
from slomo.models.intervals import ConformalCalibration, calibrate, symmetric
from slomo.models.library import ModelLibrary
from slomo.models.neighbourhood import UNKNOWN
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.models.responses.sensitivity import AVERAGED, AveragedSensitivity
from slomo.records.dataset import ProfileDataset
from slomo.records.provenance import versions
from slomo.training.accelerator_fit import with_uses
from slomo.training.averaging import averaged
from slomo.training.calibration import calibrations, mix_rows, summary
from slomo.training.choice import BASELINES, FORCED, with_choice
from slomo.training.conformal_fit import HeldOutMixes, fit_calibrations
from slomo.training.cross_validation import FOLDS, folds, held_out, relative_errors
from slomo.training.families.registry import make_families, table_model_names
from slomo.training.families.weighted import WeightedRows, fit_rows
from slomo.training.features import Subject, subjects
from slomo.training.latency_fit import with_latency
from slomo.training.mixes_fit import learned_from_mixes, with_measured
from slomo.training.noise import against_mean, weights_of
from slomo.training.pairs import FEWEST, with_pairs
from slomo.training.plausibility import plausible_rows
from slomo.training.response_fit import fit_profile
from slomo.training.server_response_fit import contradictions, fit_server_response, widened
from slomo.training.waiting import full_channel_ns
from slomo.units import plural
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.identity import stated_fingerprint
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.metrics import METRICS

#: Least number of rows for families with features.
FEWEST_ROWS = 8
#: Number of rows of a table from which the shape of its errors is learned.
_MANY_ROWS = 200
#: Folds of a table's cross-validation: with few rows, models of four fifths of them err visibly more than those of all.
_FOLDS_OF_TABLES = 10
#: Packages whose versions are stored with a model.
_PACKAGES = ("slomo", "numpy", "scikit-learn", "xgboost")


def train(
    dataset: ProfileDataset,
    *,
    models: Sequence[str | ModelFamily] | None = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
    each: Callable[[Callable[[Subject], NFModel], Iterable[Subject]], Iterable[NFModel]] = map,
) -> ModelLibrary:
    """Train models of every NF in a dataset.

    Raises MissingMetricError if a model requested by name needs a metric that the dataset lacks, or no rows can be
    fitted; UnknownNameError for a model or target that does not exist. SLOMO (SIGCOMM'20), sections 4.1 and 5.1.

    `dataset`: rows of plans ``solo``, ``pressure`` and ``imported`` are fitted; rows of plan ``mix`` set the width of
    intervals, and teach responses to running neighbours (`slomo.training.mixes_fit`). Runs that offered an NF less than
    it can serve train its latency model. `models`: families, by name or as your own instances; all of slomo's by
    default, except those that need a metric that was not measured (the manifest says which). `targets`: workload keys
    or NF names. `each`: function that applies the fit to every NF: `map`, or one that does so elsewhere
    (`slomo.fleet.spread`); the models do not depend on it.
    """
    dataset = dataset.converged()
    families = make_families(models)
    for_tables = (*families, *make_families(table_model_names())) if models is None else families
    dataset = plausible_rows(dataset)
    capacities = {machine: _capacities(machine, dataset.environment) for machine in dataset.machines}
    channels = {}
    for machine, rows in dataset.frame.groupby("machine"):
        limits = capacities[str(machine)]
        most = np.inf if limits is None else limits.limit(METRICS["LMB"])
        channels[str(machine)] = full_channel_ns(rows, limits), most
    facts = {
        "environment": dataset.environment,
        "seed": seed,
        "versions": versions(_PACKAGES),
        "capacities": capacities,
        "channels": channels,
    }
    fit = partial(_fit_subject, families=families, for_tables=for_tables, facts=facts, strict=models is not None)
    listed = list(subjects(dataset, targets))
    fitted = list(each(fit, listed))
    finished = with_pairs(dataset, _with_mixes(dataset, listed, fitted, facts), everything=targets is None)
    if not finished:
        raise MissingMetricError(
            f"a dataset of {plural(len(dataset), 'row')} has none to train on: no solo, pressure or imported rows, "
            f"nor {FEWEST} rates of two or more functions in two or more mixes",
            hint="profile NFs with `slomo profile`, or import a table with `slomo dataset import`",
        )
    return ModelLibrary(with_measured(dataset, with_uses(dataset, with_latency(dataset, finished, seed))))


def _fit_subject(
    subject: Subject,
    families: Sequence[ModelFamily],
    for_tables: Sequence[ModelFamily],
    facts: Mapping[str, Any],
    *,
    strict: bool,
) -> NFModel:
    families = for_tables if subject.imported else families
    sensitivity: dict[str, SensitivityModel] = {}
    calibration: dict[str, ConformalCalibration] = {}
    errors: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    guesses: dict[str, Floats] = {}
    weights = weights_of(subject.variance)
    for family in families:
        try:
            names, rows = _rows_for(family, subject)
        except MissingMetricError as reason:
            if strict:
                raise
            left_out[family.name] = reason.message
            continue
        vectors, own = subject.columns(names)[rows], None if weights is None else weights[rows]
        weighted = WeightedRows(names, vectors, subject.mpps[rows], subject.solo_mpps, facts["seed"], own)
        guess = _held_out(family, subject, rows, weighted)
        guesses[family.name] = np.full(len(subject.mpps), np.nan)
        guesses[family.name][rows] = guess
        sensitivity[family.name] = fit_rows(family, weighted)
        calibration[family.name] = _calibration(subject, weighted.mpps, guess)
        errors[family.name] = relative_errors(weighted.mpps, guess, subject.solo_mpps)
    weights_of_families, guess = _averaged(subject, guesses, facts["seed"])
    if len(weights_of_families) > 1:
        members = {name: sensitivity[name] for name in weights_of_families}
        sensitivity[AVERAGED] = AveragedSensitivity(members, weights_of_families)
        guesses[AVERAGED], calibration[AVERAGED] = guess, _calibration(subject, subject.mpps, guess)
        errors[AVERAGED] = relative_errors(subject.mpps, guess, subject.solo_mpps)
    beside = {name: np.where(subject.counts > 0, guess, np.nan) for name, guess in guesses.items()}
    covered = _covered(subject)
    return NFModel(
        workload=subject.workload,
        machine=subject.machine,
        capacities=facts["capacities"][subject.machine],
        solo_mpps=subject.solo_mpps,
        solo_vector=(profile := fit_profile(subject, facts["seed"])).solo,
        sensitivity=sensitivity,
        contentiousness=profile,
        calibration=calibration,
        applicability=covered,
        manifest=_manifest(
            subject,
            covered,
            facts,
            cross_validation=errors,
            left_out=left_out,
            table={"columns_left_out": dict(subject.left_out)} if subject.imported else {},
            noise=_noise(subject),
            against_mean=against_mean(subject.mpps, beside, subject.solo_mpps, weights),
        ),
        traffic=subject.traffic,
        response=fit_server_response(subject, facts["seed"], facts["channels"][subject.machine]),
    )


def _averaged(subject: Subject, guesses: Mapping[str, Floats], seed: int) -> tuple[dict[str, float], Floats]:
    """Return weights and held-out predictions of a table's average of those families that predict all rows."""
    free = {
        name: guess
        for name, guess in guesses.items()
        if subject.imported and name not in (*FORCED, *BASELINES) and np.isfinite(guess).all()
    }
    if len(free) < 2:
        return {}, np.zeros(0)
    return averaged(free, subject.mpps, subject.groups, folds(subject.groups, seed, _FOLDS_OF_TABLES), seed)


def _calibration(subject: Subject, mpps: Floats, guess: Floats) -> ConformalCalibration:
    """Return the known errors of a model, from held-out runs.

    On a table, errors need not grow with the loss: intervals have constant width (split conformal), or a shape learned
    from many rows, whichever is narrower on average. Its rows are what is asked about, so ranks are not moved outwards.
    """
    known = np.isfinite(guess)
    if not subject.imported or not known.any():
        return calibrate(mpps, guess, subject.solo_mpps, "cross-validation")
    mpps, guess = mpps[known], guess[known]
    even = replace(symmetric(np.abs(mpps - guess) / subject.solo_mpps, "cross-validation", EVEN), scatter=0.0)
    if len(mpps) < _MANY_ROWS:
        return even
    row, solo = np.arange(len(mpps)), np.full(len(mpps), subject.solo_mpps)
    owner, kind = np.zeros(len(mpps), dtype=np.int64), np.full(len(mpps), UNKNOWN, dtype=np.int64)
    shaped = fit_calibrations(HeldOutMixes(mpps, guess, solo, owner, kind, row), 1, "cross-validation")[0]
    shaped = replace(shaped, scatter=0.0)
    return min((even, shaped), key=lambda each: float(np.subtract(*each.interval_mpps(guess, solo, 0.9)[::-1]).mean()))


def _rows_for(family: ModelFamily, subject: Subject) -> tuple[tuple[str, ...], Any]:
    """Return the columns that are a family's inputs, and which rows have values in all of them."""
    names = family.select_features(subject.names)
    rows = np.isfinite(subject.columns(names)).all(axis=1) & (subject.mpps > 0.0)
    if names and rows.sum() < FEWEST_ROWS:
        raise MissingMetricError(
            f"model '{family.name}' of '{subject.workload.key}' has {plural(rows.sum(), 'row')} "
            f"with {', '.join(names)}, needed at least {FEWEST_ROWS}",
            hint="profile more settings of the synthetic competitor",
        )
    return names, rows


def _held_out(family: ModelFamily, subject: Subject, rows: Any, weighted: WeightedRows) -> Floats:
    def fit(seen: Any) -> Any:
        weights = None if weighted.weights is None else weighted.weights[seen]
        part = replace(weighted, vectors=weighted.vectors[seen], mpps=weighted.mpps[seen], weights=weights)
        model = fit_rows(family, part)
        return lambda left_out: model.predict_mpps(weighted.vectors[left_out])

    return held_out(fit, folds(subject.groups[rows], weighted.seed, _FOLDS_OF_TABLES if subject.imported else FOLDS))


def _noise(subject: Subject) -> dict[str, float]:
    """Return the relative noise of a row's mean and of a single measurement; empty if unknown."""
    if subject.variance is None:
        return {}
    row = float(np.sqrt(np.median(subject.variance)))
    return {"row": round(row, 5), "next_measurement": round(row * float(np.sqrt(subject.replicates)), 5)}


def _covered(subject: Subject) -> Applicability:
    """Return the ranges of pressures in the training rows."""
    names = tuple(name for name in subject.metric_names if METRICS[name].pressure) or subject.metric_names
    names = (*names, *(name for name in subject.names if name.startswith(TRAFFIC_PREFIX)))
    vectors = subject.columns(names)
    whole = np.isfinite(vectors).all(axis=1)
    return applicability(names, vectors[whole]) if names and whole.any() else applicability((), np.zeros((1, 0)))


def _with_mixes(
    dataset: ProfileDataset, listed: Sequence[Subject], fitted: Sequence[NFModel], facts: Mapping[str, Any]
) -> list[NFModel]:
    """Train server responses on mixes, too; if there are enough mixes, set interval widths by their errors."""
    finished = []
    for machine in dict.fromkeys(model.machine for model in fitted):
        models = [model for model in fitted if model.machine == machine]
        mixes = mix_rows(dataset, models, machine)
        by_model, doubts = calibrations(models, mixes), contradictions(models, mixes)
        of_models = {subject.workload.key: subject for subject in listed if subject.machine == machine}
        learn = partial(with_responses, models, channel=facts["channels"][machine], seed=facts["seed"])
        learned, held_out = learned_from_mixes(dataset, of_models, models, mixes, learn, facts["seed"])
        models = with_choice(widened(learned, mixes, held_out), mixes)
        for number, model in enumerate(models):
            calibration = {**model.calibration, **by_model[number]}
            manifest = {**model.manifest, "intervals": summary(calibration), DOUBTS: doubts[number]}
            finished.append(replace(model, calibration=calibration, manifest=manifest))
    return finished


def with_responses(
    models: Sequence[NFModel], subjects: Mapping[str, Subject], channel: tuple[float, float], seed: int
) -> dict[str, NFModel]:
    """Return the models, by key, with newly fitted responses to running neighbours."""
    return {
        model.workload.key: replace(
            model, response=fit_server_response(subjects[model.workload.key], seed, channel, model.response)
        )
        for model in models
        if model.workload.key in subjects
    }


def _capacities(machine: str, environment: Mapping[str, Any]) -> Capacities | None:
    """Return the machine's capacities, from the dataset or else from the shipped machine file."""
    described = environment.get("machines")
    try:
        if isinstance(described, Mapping) and isinstance(described.get(machine), Mapping):
            capacities = Machine.from_dict(described[machine]).capacities()
            full = environment.get("settings", {}).get("reporters", {}).get("full")
            return capacities if full is None else replace(capacities, llc_reporter=float(full))
        return load_machine(machine).capacities()
    except SlomoError:
        return None  # a table of a machine without a description: no sums are limited


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
            "throughputs": len(np.unique(subject.mpps)),
        },
        "features": list(subject.names),
        "units": {name: METRICS[name].unit for name in subject.metric_names},
        "ranges": ranges,
        **results,
        "versions": facts["versions"],
        "seed": facts["seed"],
        "machine_fingerprint": stated_fingerprint(facts["environment"], subject.machine),
        "environment": facts["environment"],
    }
