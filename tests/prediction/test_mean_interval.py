"""The noise of the next measurement and the uncertainty of the mean, told apart; where nothing tells, they are one."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.cli.verbs.predict import _text
from slomo.models.intervals import calibrate
from slomo.models.library import ModelLibrary
from slomo.models.noise import MeasurementNoise
from slomo.prediction.predictor import Predictor
from slomo.prediction.result import Prediction
from slomo.training.cross_validation import folds, held_out
from slomo.training.families.additive import AdditiveFamily

_NAMES = ("FELTLLC", "FELTREAD", "FELTWRITE")


def _noisy(toy_library: ModelLibrary) -> ModelLibrary:
    noise = {"row": 0.05, "next_measurement": 0.07}
    models = [replace(model, manifest={**model.manifest, "noise": noise}) for model in toy_library.values()]
    return ModelLibrary(models)


@pytest.mark.parametrize("method", ["composed", "equilibrium", "auto"])
def test_every_way_tells_the_noise(toy_library: ModelLibrary, method: str) -> None:
    """The interval stays that of the next measurement; the mean's lies inside, in Python, JSON and text."""
    machine = toy_library.machines[0]
    mix = [workload.key for workload in Predictor(toy_library, machine).workloads[:2]]
    if method == "equilibrium" and None in [model.response for model in toy_library.values()]:
        pytest.skip("these models know no equilibrium")
    plain, noisy = (
        Predictor(library, machine, method=method).predict(mix[0], [mix[1]])
        for library in (toy_library, _noisy(toy_library))
    )
    assert plain.noise is None
    assert plain.mean_interval == plain.interval == noisy.interval
    assert "measurement" not in _text(plain)  # one interval, for both
    (low, high), (mean_low, mean_high) = noisy.interval, noisy.mean_interval
    assert low < mean_low < noisy.throughput_mpps < mean_high < high
    assert "of the next measurement, a median of 2 runs)" in _text(noisy)
    assert "one scatters by 7.0 %" in _text(noisy)
    assert noisy.to_dict()["mean_interval"] == [mean_low, mean_high]
    assert Prediction.from_dict(noisy.to_dict()).mean_interval == noisy.mean_interval
    assert "of the mean" in noisy._repr_html_()
    predictor = Predictor(_noisy(toy_library), machine, method=method)
    alone, batch = predictor.predict(mix[0], []), predictor.predict_batch([mix[0]], [[]])
    assert alone.interval == (batch.low_mpps[0], batch.high_mpps[0])
    assert alone.interval == pytest.approx((alone.solo_mpps * 0.918, alone.solo_mpps * 1.082), rel=1e-3)


def test_bounds_of_the_mean_interval() -> None:
    """It has a width even where the noise explains everything, and never leaves the interval it comes from."""
    noise = MeasurementNoise(0.1, 0.1, 25)
    low, high = noise.of_mean(5.0, 10.0, (4.9, 5.6), 0.9)
    assert 4.9 == low < 5.0 < high <= 5.6
    assert high - 5.0 == pytest.approx(1.645 * 0.1 * 5.0 / 5.0, rel=1e-3)


def test_intervals_of_both_kinds_hold() -> None:
    """Of new rows 90 % lie in the interval of the next measurement, of the truths behind them as many in the mean's."""
    inside, mean_inside, widths = [], [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        vectors, unseen = random.gamma(1.5, 0.25, (2, 30, 3))
        truth, new = (4.0 / (1.0 + rows @ [0.5, 0.3, 0.0]) for rows in (vectors, unseen))
        measured, later = (mpps * (1.0 + 0.05 * random.standard_normal(30)) for mpps in (truth, new))
        family = AdditiveFamily()

        def fit(seen, vectors=vectors, measured=measured, family=family):
            model = family.fit(_NAMES, vectors[seen], measured[seen], solo_mpps=4.0, seed=0)
            return lambda left_out: model.predict_mpps(vectors[left_out])

        calibration = calibrate(measured, held_out(fit, folds(np.arange(30), 0)), 4.0, "cross-validation")
        predicted = family.fit(_NAMES, vectors, measured, solo_mpps=4.0, seed=0).predict_mpps(unseen)
        ends = np.transpose(calibration.interval_mpps(predicted, 4.0, 0.9)).tolist()
        noise = MeasurementNoise(0.05, 0.05, 30)
        means = [noise.of_mean(mpps, 4.0, tuple(end), 0.9) for mpps, end in zip(predicted.tolist(), ends, strict=True)]
        inside += [low <= value <= high for (low, high), value in zip(ends, later, strict=True)]
        mean_inside += [low <= value <= high for (low, high), value in zip(means, new, strict=True)]
        widths += [(b - a) / (d - c) for (a, b), (c, d) in zip(means, ends, strict=True)]
    assert 0.86 < np.mean(inside) < 0.99
    assert np.mean(mean_inside) > 0.86
    assert np.median(widths) < 0.9
