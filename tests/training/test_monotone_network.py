"""The smooth monotone model: it falls along every pressure, is data, and learns slopes from few rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slomo.drift.refit import _SCALES
from slomo.errors import ConfigurationError
from slomo.models.functions.monotone import MonotoneSensitivity, SideBySide
from slomo.models.responses.sensitivity import CurveSensitivity, sensitivity_from_dict
from slomo.training.families import monotone_network
from slomo.training.families.monotone_network import MonotoneFamily
from slomo.training.families.single_metric import falling_curve
from slomo.training.families.xgb import XgbFamily

NAMES = ("L2MISS", "L3OCC", "traffic.flow_count")


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of a competition and the throughput of an NF that answers to them smoothly, and rises by flows."""
    draw = np.random.default_rng(seed)
    vectors = np.column_stack([draw.lognormal(3, 1, count), draw.uniform(0, 20480, count), draw.uniform(1, 1e5, count)])
    loss = 0.3 * vectors[:, 0] / (vectors[:, 0] + 40) * vectors[:, 1] / 20480 + 0.1 / (1.0 + vectors[:, 2] / 1e4)
    return vectors, 4.0 / (1.0 + loss)


def learned(count: int) -> MonotoneSensitivity:
    """Return a model of so many rows with the noise of a bad counter."""
    vectors, mpps = rows(count)
    noisy = mpps * (1.0 + np.random.default_rng(1).normal(0.0, 0.03, len(mpps)))
    return MonotoneFamily().fit(NAMES, vectors, noisy, solo_mpps=4.0, seed=0)


@pytest.fixture(scope="module")
def model() -> MonotoneSensitivity:
    """A model of sixty rows."""
    return learned(60)


@given(st.lists(st.floats(0.0, 1e6), min_size=3, max_size=3), st.integers(0, 1), st.floats(0.0, 1e6))
@settings(max_examples=200, deadline=None)
def test_more_pressure_never_predicts_more_throughput(model, vector: list[float], column: int, more: float) -> None:
    """Whatever the rows were, adding to any pressure adds nothing to the throughput predicted."""
    above = list(vector)
    above[column] += more
    here, there = model.predict_mpps(np.array([vector, above]))
    assert 0.0 <= there <= here <= 4.0


def test_rows_alone_and_together_have_the_same_bits() -> None:
    """Also of ten features, eight or more of which numpy adds in another order where it may."""
    draw = np.random.default_rng(0)
    ends = np.zeros(10), np.full(10, 9.0), np.full(10, 3.0), np.zeros(10), np.ones(10)
    names = tuple(f"FELT{number}" for number in range(10))
    low, high, typical, start, width = ends
    network = MonotoneSensitivity(
        "wide", names, "pressure", 4.0, typical, low, high, start, width,
        draw.uniform(0, 1, (32, 10)), draw.normal(-5, 2, 32), draw.uniform(0, 0.05, 32), 1.0,
    )  # fmt: skip
    many = draw.uniform(0, 9, (300, 10))
    assert network.predict_mpps(many).tolist() == [network.predict_mpps(row[np.newaxis])[0] for row in many]


def test_traffic_may_speed_up() -> None:
    """Attributes of the target's own traffic are not pressure: here more flows are served faster, and it says so."""
    # of 200 rows 20 are on the slope: 7 to 9 % are learned of 9, whichever minimum the processor's arithmetic ends in
    few, many = learned(200).predict_mpps(np.array([[20.0, 5000.0, 10.0], [20.0, 5000.0, 9e4]]))
    assert many > few * 1.03


def test_it_learns_slopes_from_fewer_rows_than_trees() -> None:
    """From 60 rows its error on new rows is less than half that of the trees."""
    vectors, mpps = rows(300, seed=1)
    smooth, trees = (
        np.abs(family.fit(NAMES, *rows(60), solo_mpps=4.0, seed=0).predict_mpps(vectors) - mpps).mean()
        for family in (MonotoneFamily(), XgbFamily())
    )
    assert smooth < 0.5 * trees


def test_the_gradient_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The analytic gradient of what is minimised, rows weighed, is that of finite differences."""
    draw = np.random.default_rng(0)
    told = draw.random((20, 3)), draw.normal(size=20), draw.uniform(0.2, 2.0, 20)
    monkeypatch.setattr(monotone_network, "_UNITS", 4)
    monkeypatch.setattr(monotone_network, "_PENALTY", 1e-2)  # large, so that its own part of the gradient is seen
    problem = monotone_network._Problem(*told, np.array([False, True, False]))
    at = draw.normal(size=4 * 3 + 2 * 4 + 1)
    gradient = problem(at)[1]
    for i in range(len(at)):
        step = np.eye(len(at))[i] * 1e-6
        assert gradient[i] == pytest.approx((problem(at + step)[0] - problem(at - step)[0]) / 2e-6, rel=1e-4, abs=1e-7)


def test_what_is_answered_does_not_depend_on_who_else_is_asked_about(model) -> None:
    """One row, a few and thousands at once give the same bits."""
    many = rows(3000, seed=5)[0]
    whole = model.predict_mpps(many)
    assert whole[:7].tolist() == model.predict_mpps(many[:7]).tolist()
    assert whole[2999] == model.predict_mpps(many[2999:])[0]


def test_models_side_by_side_answer_as_each_of_them(model) -> None:
    """One pass over several models gives the bits of one pass each; models of other features are not laid out so."""
    other = learned(40)
    who = np.random.default_rng(5).integers(0, 2, 90)
    together, vectors = SideBySide.of([model, other]), rows(90, seed=7)[0]
    assert together is not None
    apart = [(model, other)[k].predict_mpps(row[np.newaxis])[0] for k, row in zip(who, vectors, strict=True)]
    np.testing.assert_array_equal(together.rows(who).predict_mpps(vectors), apart)
    assert SideBySide.of([model, replace(other, feature_names=("L2MISS", "L3OCC", "traffic.packet_size"))]) is None


def test_it_is_data(model) -> None:
    """Written and read it gives the same numbers; a weight of the wrong sign is refused, a gap stays one."""
    data = json.loads(json.dumps(model.to_dict()))
    vectors = rows(50, seed=3)[0]
    vectors[7, 1] = np.nan
    again = sensitivity_from_dict(data).predict_mpps(vectors)
    np.testing.assert_array_equal(again, model.predict_mpps(vectors))
    assert np.isnan(again).nonzero()[0].tolist() == [7]
    data["slope"][0][0] = -1.0
    with pytest.raises(ConfigurationError, match="wrong sign"):
        sensitivity_from_dict(data)


def test_scaled_losses_are_scaled(model) -> None:
    """Brought up to date, the model loses by the factor more of its new solo throughput."""
    vectors = np.array([[20.0, 5000.0, 1e4]])
    twice = _SCALES[MonotoneSensitivity](model, 2.0, 4.0, 8.0)
    lost = 1.0 - model.predict_mpps(vectors)[0] / 4.0
    assert 1.0 - twice.predict_mpps(vectors)[0] / 8.0 == pytest.approx(2.0 * lost)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 10)), min_size=2, max_size=30))
@example([(10.981732127038791, 2.0)] * 4 + [(10.981732127038793, 1.0)] * 3)  # means in the other order
def test_a_baselines_curve_falls(points: list[tuple[float, float]]) -> None:
    """The curve never rises, stays within what was measured, and is data."""
    x, y = np.array(points).T
    model = CurveSensitivity("dobrescu-curve", ("L2MISS",), "solo", *falling_curve(x, y))
    answers = model.predict_mpps(np.linspace(-10.0, 1100.0, 50)[:, None])
    assert (np.diff(answers) <= 1e-9).all()
    assert y.min() - 1e-9 <= answers.min() <= answers.max() <= y.max() + 1e-9
    again = sensitivity_from_dict(json.loads(json.dumps(model.to_dict())))
    assert again.predict_mpps(x[:, None]).tolist() == model.predict_mpps(x[:, None]).tolist()
