"""Split a model's error into sources: measurement noise, the model itself, combining several competitors.

SLOMO (SIGCOMM'20) section 8 reports one total error. Here the error is split. The pressure of each mix's competitors
was measured too, so the model can predict from the measured pressure instead of the composed one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.files.stored import Stored
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.vocabulary.vector import Floats

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
