"""From competitors to features: equilibrium, order, gaps, and the compiled path."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.equilibrium import competition, one_question, settling
from slomo.equilibrium.competition import competitor_vectors, features_of_one, mix_features
from slomo.errors import ConfigurationError
from slomo.models.contentiousness import constant_profile
from slomo.models.functions import compilation
from slomo.models.library import ModelLibrary
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

NAMES = ("L2MISS", "L3MISS", "L3OCC", "IPC")


@pytest.fixture(scope="module")
def models(toy_library: ModelLibrary) -> list:  # type: ignore[type-arg]
    return list(toy_library.values())


def _mixes(count: int, kinds: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, kinds, (count, 4))


def test_order_changes_no_bit(models: list) -> None:  # type: ignore[type-arg]
    """Neither the order of the competitors nor that of the models changes a bit of the features (law 2)."""
    members = _mixes(60, 3)
    base = mix_features(models, members, NAMES, capacities=models[0].capacities)
    np.testing.assert_array_equal(mix_features(models, members[:, ::-1], NAMES, capacities=models[0].capacities), base)
    turned = np.where(members >= 0, 2 - members, -1)
    np.testing.assert_array_equal(mix_features(models[::-1], turned, NAMES, capacities=models[0].capacities), base)


def test_compiled_path_agrees_with_numpy(models: list, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    """The numba loop for big batches gives numpy's numbers, to the last bit."""
    pytest.importorskip("numba")
    members = _mixes(500, 3)
    plain = mix_features(models, members, NAMES, capacities=models[0].capacities)
    monkeypatch.setattr(compilation._Spent, "servers", 10**6)
    np.testing.assert_array_equal(mix_features(models, members, NAMES, capacities=models[0].capacities), plain)


def test_one_mix_is_composed_alike_by_compiled_code(models: list, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    """Compiled code gives a single mix numpy's bits, also where capacities bind or a metric is not reported."""
    pytest.importorskip("numba")
    poor = replace(models[0], contentiousness=constant_profile(MetricVector({"L2MISS": 4.0}, scope=Scope.CORE)))
    names = ("L2MISS", "READ", "L3OCC", "EXEC", "WRITE", "L3MISS")
    mixes = [[models[i] for i in row if i >= 0] for row in _mixes(40, 3).tolist()]
    mixes = [sorted(mix, key=lambda model: model.workload.key) for mix in [*mixes, [poor], [poor, models[1]]] if mix]
    narrow = Capacities(cores=8, llc_kib=9000.0, memory_gb_s=0.5)
    asked = [(mix, capacities) for mix in mixes for capacities in (None, models[0].capacities, narrow)]

    def answers() -> list[tuple[list[float], list[float]]]:
        every = [features_of_one(mix, names, capacities=capacities) for mix, capacities in asked]
        return [(features, vectors[:, : len(names)].ravel().tolist()) for features, vectors in every]

    monkeypatch.setattr(competition, "loop_for", lambda *_: None)
    plain = answers()
    monkeypatch.undo()
    monkeypatch.setattr(compilation._Spent, "servers", 10**6)
    swift = answers()
    assert compilation._Spent.loops[one_question.compose_one,] is not None
    np.testing.assert_equal(swift, plain)
    capped = [plain[i + 2][0][1] < plain[i][0][1] for i in range(0, len(plain), 3)]
    assert any(capped)


def test_one_mix_alone_equals_the_same_mix_in_a_batch(models: list) -> None:  # type: ignore[type-arg]
    """A mix's features do not depend on what else is asked, to the last bit."""
    members = _mixes(100, 3)
    batch = mix_features(models, members, NAMES)
    np.testing.assert_array_equal(mix_features(models, members[9:10], NAMES), batch[9:10])


def test_how_many_metrics_are_asked_for_changes_no_bit(models: list) -> None:  # type: ignore[type-arg]
    """A metric is the same alone as among others."""
    members = _mixes(100, 3)
    every = mix_features(models, members, NAMES)
    for column, name in enumerate(NAMES):
        np.testing.assert_array_equal(mix_features(models, members, [name])[:, 0], every[:, column])


def test_competitions_composed_once_change_no_bit(models: list, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    """A big batch composes each distinct competition once, with the bits of composing every one, by table or sort."""
    members = _mixes(1500, 3)
    for rule in ({}, {"compat": "published"}, {"composition": "solo"}):
        once = mix_features(models, members, NAMES, capacities=models[0].capacities, **rule)
        with monkeypatch.context() as patch:
            patch.setattr(settling, "_TABLE", 0)
            np.testing.assert_array_equal(
                mix_features(models, members, NAMES, capacities=models[0].capacities, **rule), once
            )
            patch.setattr(settling, "_REPEATING", 10**9)
            np.testing.assert_array_equal(
                mix_features(models, members, NAMES, capacities=models[0].capacities, **rule), once
            )


def test_equilibrium_is_a_fixed_point(models: list) -> None:  # type: ignore[type-arg]
    """Each competitor's vector is its contentiousness under what the others put on it, within half a per cent."""
    members = np.sort(_mixes(50, 3, seed=3), axis=1)[:, ::-1].copy()
    names = models[0].contentiousness.pressure_names
    vectors = competitor_vectors(models, members, names)
    for row, mix in zip(vectors, members, strict=True):
        for slot, who in enumerate(mix):
            others = row.sum(axis=0) - row[slot]
            if who >= 0 and (mix >= 0).sum() > 1:
                columns = [models[who].contentiousness.metric_names.index(name) for name in names]
                own = models[who].contentiousness.under(others[None, :])[0, columns]
                np.testing.assert_allclose(row[slot], own, rtol=0.02, atol=0.005 * own.max())


def test_nobody_puts_no_pressure(models: list) -> None:  # type: ignore[type-arg]
    """A mix without competitors has 0 of whatever adds up, and no ratio (law 1)."""
    features = mix_features(models, np.full((1, 3), -1), NAMES)[0]
    assert features[:3].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(features[3])


def test_solo_composition_adds_solo_vectors(models: list) -> None:  # type: ignore[type-arg]
    """The baselines' input is the sum of the competitors' solo values."""
    features = mix_features(models, np.array([[0, 1, -1]]), ("L2MISS",), composition="solo")
    assert features[0, 0] == pytest.approx(models[0].solo_vector["L2MISS"] + models[1].solo_vector["L2MISS"])


def test_published_composition_uses_medians_by_count(models: list) -> None:  # type: ignore[type-arg]
    """compat="published" adds each competitor's published median for the number of competitors."""
    features = mix_features(models, np.array([[0, 1, -1]]), ("L2MISS",), compat="published")
    expected = sum(model.contentiousness.at_count(2)["L2MISS"] for model in models[:2])
    assert features[0, 0] == pytest.approx(expected)


def test_under_pressure_less_is_put_on_others(models: list) -> None:  # type: ignore[type-arg]
    """Two competitors put less on the target than the sum of what they do solo."""
    together = mix_features(models, np.array([[0, 1]]), ("L2MISS",))
    solo = mix_features(models, np.array([[0, 1]]), ("L2MISS",), composition="solo")
    assert together[0, 0] < solo[0, 0]


def test_what_a_competitor_does_not_report_stays_unknown(models: list) -> None:  # type: ignore[type-arg]
    """A metric that one competitor lacks is NaN for the mix, not less (law 5)."""
    vector = MetricVector({"L2MISS": 5.0}, scope=Scope.CORE)
    poor = replace(models[0], solo_vector=vector, contentiousness=constant_profile(vector))
    features = mix_features([poor, models[1]], np.array([[0, 1], [1, 1]]), ("L2MISS", "L3OCC"))
    assert np.isnan(features[0, 1])
    assert np.isfinite(features[[0, 1, 1], [0, 0, 1]]).all()


def test_models_of_different_pressures_are_not_mixed(models: list) -> None:  # type: ignore[type-arg]
    """NFs profiled with different pressure metrics cannot be solved together."""
    profile = models[0].contentiousness
    renamed = replace(profile, pressure_names=("RMB", *profile.pressure_names[1:]))
    with pytest.raises(ConfigurationError, match="different pressure metrics"):
        mix_features([replace(models[0], contentiousness=renamed), models[1]], np.array([[0, 1]]), NAMES)
