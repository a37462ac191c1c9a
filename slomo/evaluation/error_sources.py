"""Split a model's error into sources: measurement noise, the model itself, combining several competitors.

SLOMO (SIGCOMM'20) section 8 reports one total error. Here the error is split. The pressure of each mix's competitors
was measured too, so the model can predict from the measured pressure instead of the composed one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.evaluation.evaluate import Evaluation, evaluate, judged_mixes, predictor_of
from slomo.files.stored import Stored
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.training.choice import ORDER
from slomo.training.training import train
from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL, EQUILIBRIUM, PUBLISHED_MODEL, Compat
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload_text import parse_workload

#: Model composed by the published rule; runs, grid and contentiousness by pressure are slomo's.
PUBLISHED = "slomo-gbr, published rule"
#: What a learning curve compares.
COMPARED = (
    DEFAULT_MODEL,
    "slomo-xgb",
    "slomo-smooth",
    "slomo-gp",
    "slomo-additive",
    PUBLISHED_MODEL,
    PUBLISHED,
    "bubbleup",
    "bubbleup-curve",
    "dobrescu",
    "dobrescu-curve",
    "mean",
    "none",
)
#: Nominal coverages of a reliability diagram.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class ErrorSources(Stored):
    """Mean absolute errors of one model, by source, relative to the measured throughput [%]."""

    #: Name of the model.
    model: str
    #: Rows whose competition was measured alone.
    predictions: int
    #: Measured throughput against the simulator's truth, or the spread of replicates; None where neither is known.
    noise: float | None
    #: Prediction from the measured vector of the competition against the measured throughput (noise included).
    sensitivity: float
    #: Prediction from the composed vector against prediction from the measured one.
    composition: float
    #: Prediction from the composed vector against the measured throughput; at most the sum of the two before.
    total: float


def error_sources(predictor: Predictor, mixes: ProfileDataset) -> ErrorSources:
    """Split the error of a model on mixes into its sources, by the rows whose competition was also measured alone.

    Raises MissingMetricError where no row reports every metric that the model reads; InvalidValueError where the model
    reads no measured competition.
    """
    frame, model, direct, rows = mixes.frame, predictor.model, [], []
    targets, competitors = mixes.tenants
    composed = predictor.predict_batch(targets, competitors).throughput_mpps
    for row, target in enumerate(targets):
        fitted = predictor.library.find(target, predictor.machine).model(model)
        if fitted.composition != "pressure":
            raise InvalidValueError(
                f"model '{model}' does not read the measured competition, so its error has no such parts",
                hint="ask for 'slomo-gbr' or 'slomo-xgb'",
            )
        vector = frame[[f"competition.{name}" for name in fitted.feature_names]].iloc[row].to_numpy(dtype=float)
        if not np.isnan([*vector, composed[row]]).any():
            direct.append(fitted.predict_mpps(vector[np.newaxis])[0])
            rows.append(row)
    if not rows:
        raise MissingMetricError(
            f"no mix reports every metric that model '{model}' reads of the competition alone",
            hint="run mixes whose competition is measured before the target starts",
        )
    actual, sensitivity, whole = mixes.throughput[rows], np.array(direct), composed[rows]
    return ErrorSources(
        model=model,
        predictions=len(rows),
        noise=_noise(mixes, rows),
        sensitivity=_percent(sensitivity - actual, actual),
        composition=_percent(whole - sensitivity, actual),
        total=_percent(whole - actual, actual),
    )


def _noise(mixes: ProfileDataset, rows: list[int]) -> float | None:
    frame = mixes.frame.iloc[rows]
    true_mpps = frame["truth_mpps"].to_numpy(dtype=float)
    if np.isfinite(true_mpps).all():
        return _percent(mixes.throughput[rows] - true_mpps, true_mpps)
    spread = frame.loc[frame["replicates"] > 1, "throughput_cv"].to_numpy(dtype=float)
    return float(100.0 * spread.mean()) if len(spread) else None


def _percent(difference: Floats, reference: Floats) -> float:
    return float(100.0 * np.mean(np.abs(difference) / reference))


def reliability(predictor: Predictor, mixes: ProfileDataset, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Return how many measurements lie inside intervals of each stated coverage; none of them calibrated intervals."""
    (targets, competitors), measured_mpps, shares = mixes.tenants, mixes.throughput, {}
    for level in levels:
        batch = predictor.predict_batch(targets, competitors, level)
        inside = (batch.low_mpps <= measured_mpps) & (measured_mpps <= batch.high_mpps)
        shares[level] = float(inside[np.isfinite(batch.throughput_mpps)].mean())
    return shares


def explained(library: ModelLibrary, dataset: ProfileDataset, evaluation: Evaluation) -> Evaluation:
    """Return the evaluation with the sources of errors added."""
    sources, curves = {}, {}
    mixes = judged_mixes(library, dataset)
    first = library.find(mixes.workload(mixes.targets[0]), evaluation.machine)
    for name in evaluation.models:
        predictor = predictor_of(library, evaluation.machine, name)
        curves[name] = reliability(predictor, mixes)
        if name not in (EQUILIBRIUM, COMPOSED, DEFAULT_MODEL) and first.model(name).composition == "pressure":
            try:
                sources[name] = error_sources(predictor, mixes).to_dict()
            except MissingMetricError:
                continue  # imported mixes: the competition was not measured alone
    return replace(evaluation, sources=sources, reliability=curves)


def learning_curves(
    profile: ProfileDataset,
    mixes: ProfileDataset,
    runs: Sequence[int],
    models: Sequence[str] = COMPARED,
    *,
    seed: int = 0,
) -> Mapping[str, dict[int, float]]:
    """Return the mean absolute error on mixes [%] after training each model on growing numbers of the same runs per NF.

    `runs`: pressure runs per NF at full and at part load; smaller budgets are part of larger ones, and solo rows are
    always kept.
    """
    frame = profile.frame
    pressure = frame[frame["plan"] == "pressure"]
    at_full_load = {key: parse_workload(key).saturated.key for key in pressure["target"].unique()}
    pressure = pressure.assign(target=pressure["target"].map(at_full_load))  # runs at part load count, too
    counts = pressure.groupby("target").size()
    most = int(counts.min()) if len(counts) else 0
    if not runs or min(runs) < 12 or max(runs) > most:
        raise InvalidValueError(
            f"learning curve over {list(runs)} runs per NF, needed between 12 and the {most} that were measured",
            hint="give budgets inside that range",
        )
    order = pressure.sample(frac=1.0, random_state=seed).groupby("target").cumcount()
    curves: dict[str, dict[int, float]] = {name: {} for name in models}
    chosen_of = (DEFAULT_MODEL, COMPOSED, EQUILIBRIUM)
    families = [each for name in models for each in (ORDER if name in chosen_of else [_family(name)])]
    for budget in sorted(runs):
        chosen = frame.loc[sorted([*order.index[order < budget], *frame.index[frame["plan"] == "solo"]])]
        part = type(profile)(chosen.reset_index(drop=True), profile.environment)
        library = train(part, models=list(dict.fromkeys(families)), seed=seed)
        for name in models:
            compat: Compat | None = "published" if name == PUBLISHED else None
            curves[name][budget] = evaluate(library, mixes, [_family(name)], compat=compat).models[_family(name)].mape
    return curves


def _family(name: str) -> str:
    return PUBLISHED_MODEL if name == PUBLISHED else name
