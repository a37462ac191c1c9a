"""Noisy rows: their variance, their weights, the additive family, and a default never worse than the mean."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.training.families.additive import AdditiveFamily
from slomo.training.families.registry import make_family, model_names
from slomo.training.families.weighted import WeightedRows, fit_rows
from slomo.training.noise import MEAN, against_mean, noise_aware_defaults, row_variance, weights_of

_NAMES = ("FELTLLC", "FELTREAD", "FELTWRITE")


def _rows(noise: float, seed: int, count: int = 24, signal: float = 1.0):
    """Return vectors, true and measured throughput of a function that loses to the first two reporters only."""
    random = np.random.default_rng(seed)
    vectors = random.gamma(1.5, 0.25, (count, 3))
    truth = 4.0 / (1.0 + signal * (0.5 * vectors[:, 0] + 0.3 * vectors[:, 1]))
    return vectors, truth, truth * (1.0 + noise * random.standard_normal(count))


def test_slopes_are_found_and_never_negative() -> None:
    """Without noise the additive family finds what adds up; what does not press gets no slope."""
    vectors, truth, _ = _rows(0.0, 0, 60)
    model = AdditiveFamily().fit(_NAMES, vectors, truth, solo_mpps=4.0, seed=0)
    assert model.slopes == pytest.approx([0.5, 0.3, 0.0], abs=0.01)
    assert model.base == pytest.approx(0.0, abs=0.01)
    assert model.predict_mpps(np.zeros((1, 3))).tolist() == [4.0]
    rising = AdditiveFamily().fit(_NAMES, vectors, 4.0 + vectors[:, 0], solo_mpps=4.0, seed=0)
    assert (rising.slopes >= 0.0).all()


def test_nothing_but_noise_is_the_mean() -> None:
    """Rows that do not depend on pressure are answered with about their mean, whatever the pressure."""
    misses = []
    for seed in range(20):
        vectors, _, measured = _rows(0.08, seed, signal=0.0)
        model = AdditiveFamily().fit(_NAMES, vectors, 0.9 * measured, solo_mpps=4.0, seed=0)
        misses.append(np.abs(model.predict_mpps(vectors) - 3.6).mean() / 3.6)
    assert np.mean(misses) < 0.03, "the noise is 8 % per row, 1.6 % of the mean of 24"


def test_few_noisy_rows_beat_trees_and_the_mean() -> None:
    """With 24 rows of 6 % noise the additive family is closer to the truth than boosting, the process and the mean."""
    errors: dict[str, list[float]] = {}
    for seed in range(12):
        vectors, _, measured = _rows(0.06, seed)
        unseen, truth, _ = _rows(0.0, 100 + seed)
        for name in ("slomo-additive", "slomo-xgb", "slomo-gp", MEAN):
            model = make_family(name).fit(_NAMES, vectors, measured, solo_mpps=4.0, seed=0)
            errors.setdefault(name, []).append(float(np.abs(model.predict_mpps(unseen) / truth - 1.0).mean()))
    mean = {name: float(np.mean(values)) for name, values in errors.items()}
    assert mean["slomo-additive"] == min(mean.values())
    assert mean["slomo-additive"] < 0.5 * mean[MEAN]


@pytest.mark.parametrize("name", [n for n in model_names() if n != "none"])
def test_rows_of_little_weight_say_little(name: str) -> None:
    """A family that weighs its rows is moved less by rows that are known to be noisy."""
    vectors, truth, _ = _rows(0.0, 3, 40)
    wrong = truth.copy()
    wrong[::4] *= 0.5
    weights = np.where(np.arange(40) % 4 == 0, 0.05, 1.0)
    columns = make_family(name).select_features((*_NAMES, "FELTL3"))
    rows = vectors[:, [_NAMES.index(n) if n in _NAMES else 0 for n in columns]]
    fitted = [
        fit_rows(make_family(name), WeightedRows(columns, rows, wrong, 4.0, 0, given)) for given in (None, weights)
    ]
    alike, weighed = (float(np.abs(model.predict_mpps(rows) - truth)[weights == 1.0].mean()) for model in fitted)
    assert weighed < alike


def test_variance_is_pooled_and_shrunk() -> None:
    """A row whose two replicates agree by chance is not taken for certain; more replicates count for more."""
    variance = row_variance(np.array([0.001, 0.05, 0.05, 0.06]), np.array([2, 2, 4, 2]))
    assert variance is not None
    assert variance[0] > 0.5 * variance[1]
    assert variance[2] < variance[1]
    assert row_variance(np.array([0.0, np.nan]), np.array([2, 1])) is None
    assert row_variance(np.zeros(5), np.full(5, 2)) is None
    weights = weights_of(variance)
    assert weights is not None
    assert weights.mean() == pytest.approx(1.0)


def _told(model: NFModel, gains: dict[str, tuple[float, float]]) -> NFModel:
    stated = {name: {"gain": gain, "standard_error": error} for name, (gain, error) in gains.items()}
    return replace(model, manifest={**model.manifest, "against_mean": stated})


def test_the_default_is_never_worse_than_the_mean(toy_library: ModelLibrary) -> None:
    """A family that beats the mean by less than its error gives way: to one that surely does, or to the mean."""
    model: NFModel = next(iter(toy_library.values()))
    lucky, sure = [name for name in model.sensitivity if name not in (MEAN, "none")][:2]

    def default(gains: dict[str, tuple[float, float]], *baselines: str) -> str:
        return noise_aware_defaults([_told(model, gains)], ("none", *baselines))[0]

    assert default({lucky: (0.5, 0.6)}) == MEAN
    assert default({lucky: (0.7, 0.6)}) == lucky
    assert default({lucky: (0.5, 0.6), sure: (0.4, 0.1)}) == sure
    assert default({lucky: (0.5, 0.1), sure: (0.4, 0.1)}) == lucky
    assert default({lucky: (0.5, 0.1), sure: (0.4, 0.1)}, lucky) == sure
    assert default({}) == MEAN


def test_what_helps_all_functions_helps_one(toy_library: ModelLibrary) -> None:
    """A gain that its own rows leave unsure counts where the machine's others gain as much, not where they lose."""
    model: NFModel = next(iter(toy_library.values()))
    name = next(name for name in model.sensitivity if name not in (MEAN, "none"))
    unsure = _told(model, {name: (0.5, 0.6)})
    helped = noise_aware_defaults([unsure, *(_told(model, {name: (0.6, 0.2)}) for _ in range(5))], ())
    assert helped == [name] * 6
    hurt = noise_aware_defaults(
        [_told(model, {name: (0.7, 0.6)}), *(_told(model, {name: (-0.6, 0.2)}) for _ in range(5))], ()
    )
    assert hurt == [MEAN] * 6
    apart = [_told(model, {name: (gain, 0.1)}) for gain in (3.0, -3.0, 2.5, -2.0)]
    assert noise_aware_defaults(apart, ()) == [name, MEAN, name, MEAN]


def test_luck_is_told_from_skill() -> None:
    """On rows of pure noise a family seldom gains on the mean beyond one error; where pressure matters, it does."""
    from slomo.training.cross_validation import folds, held_out

    sure = {0.0: 0, 1.0: 0}
    for signal in sure:
        for seed in range(30):
            vectors, _, measured = _rows(0.06, seed, signal=signal)
            guesses = {}
            for name in ("slomo-additive", MEAN):
                family = make_family(name)
                names = family.select_features(_NAMES)
                data = vectors if names else np.zeros((len(vectors), 0))

                def fit(seen, family=family, names=names, data=data, measured=measured):
                    model = family.fit(names, data[seen], measured[seen], solo_mpps=4.0, seed=0)
                    return lambda left_out: model.predict_mpps(data[left_out])

                guesses[name] = held_out(fit, folds(np.arange(len(vectors)), 0))
            gain = against_mean(measured, guesses, 4.0, None)["slomo-additive"]
            sure[signal] += gain["gain"] > gain["standard_error"]
    assert sure[0.0] <= 8, "one standard error: one in six by luck"
    assert sure[1.0] >= 25
