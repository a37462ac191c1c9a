"""Intervals, applicability and contentiousness: how far a prediction can be trusted, and what it rests on."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.equilibrium.one_question import judge_one
from slomo.errors import InvalidValueError
from slomo.models.applicability import Verdict, applicability
from slomo.models.base import Floats
from slomo.models.intervals import SCATTER, ConformalCalibration, calibrate, symmetric
from slomo.models.library import ModelLibrary
from slomo.training.cross_validation import folds


def test_conformal_theory_holds() -> None:
    """Over many calibrations, coverage averages at least the nominal one, and more by a rank and what draws scatter."""
    random = np.random.default_rng(0)
    n, solo = 50, 100.0
    held = []
    for _ in range(2000):
        predicted = random.uniform(40, 90, n + 1)
        measured = predicted + random.normal(size=n + 1) * (102 - predicted) / 8
        calibration = calibrate(measured[:n], predicted[:n], solo, "mixes")
        low, high = calibration.interval_mpps(predicted[n:], solo, 0.9)
        held.append(low[0] <= measured[n] <= high[0])
    assert 0.9 - 0.02 < np.mean(held) < 0.9 + 2 / (n + 1) + 2 * SCATTER * (0.05 * 0.95 / n) ** 0.5 + 0.02


def test_most_draws_of_calibration_mixes_hold() -> None:
    """Of calibrations by 200 scores seven in ten hold what they promise; by the rank alone half of them break."""
    random, normal = np.random.default_rng(2), NormalDist()
    draws = [ConformalCalibration(np.sort(random.normal(size=200)), "mixes").bounds(0.9) for _ in range(400)]
    held = [normal.cdf(high[0]) - normal.cdf(low[0]) for low, high in draws]
    assert np.mean(np.array(held) >= 0.9) > 0.7
    assert np.mean(held) < 0.93


@pytest.mark.parametrize("bias", [-0.5, -0.2, 0.0])
def test_one_sided_bounds_hold_whatever_the_bias(bias: float) -> None:
    """A promise of 95 % holds about 95 %, where a model promises too much and where it does not."""
    random = np.random.default_rng(1)
    held = []
    for _ in range(1000):
        predicted = random.uniform(4, 9, 101)
        measured = predicted + bias + random.normal(0.0, 0.2, 101)
        calibration = calibrate(measured[:100], predicted[:100], 10.0, "mixes")
        held.append(measured[100] >= calibration.interval_mpps(predicted[100:], 10.0, 0.9)[0][0])
    assert 0.93 < np.mean(held) < 0.98


def test_no_interval_is_of_no_width() -> None:
    """Where no calibration mix was off at all, both bounds still keep the distance at which repeats differ."""
    calibration = symmetric(np.zeros(99), "mixes")
    low, high = calibration.interval_mpps(np.array([9.0, 0.0]), 10.0, 0.9)
    assert low[0] < 9.0 < high[0]
    assert low[1] == 0.0 < high[1]


def test_missing_scores_are_counted() -> None:
    """A calibration says how many scores more it needs, and with them the interval is finite."""
    calibration = symmetric(np.arange(2.0), "mixes")
    short = calibration.missing(0.9)
    more = ConformalCalibration(np.sort(np.append(calibration.scores, np.zeros(short))), "mixes")
    assert short == 5
    assert np.isfinite(more.bounds(0.9)).all()
    assert not np.isfinite(calibration.bounds(0.9)).any()


@given(st.floats(0.01, 0.98), st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_more_coverage_never_narrows(coverage: float, count: int) -> None:
    """A higher coverage never gives a narrower interval, but where scores are too few for it: that ends at solo."""
    calibration = ConformalCalibration(np.sort(np.random.default_rng(count).normal(0.5, 0.5, count)), "mixes")
    narrow, wide = (calibration.interval_mpps(np.array([4.0]), 5.0, c) for c in (coverage, coverage + 0.01))
    assert 0.0 <= wide[0][0] <= narrow[0][0] < 4.0 < min(narrow[1][0], 5.0) <= wide[1][0] <= 9.0


def test_too_few_scores_admit_it() -> None:
    """With fewer scores than the coverage needs, the interval is the whole range: 0 to solo."""
    for calibration in (ConformalCalibration(np.array([0.1, 0.2]), "mixes"), ConformalCalibration(np.zeros(0), "none")):
        low, high = calibration.interval_mpps(np.array([4.0]), 5.0, 0.9)
        assert (low.tolist(), high.tolist()) == ([0.0], [5.0])


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, 90.0, float("nan")])
def test_impossible_coverage_is_refused(coverage: float) -> None:
    """A coverage that is no share is refused."""
    with pytest.raises(InvalidValueError, match="needed between 0 and 1"):
        ConformalCalibration(np.array([0.1]), "mixes").interval_mpps(np.array([4.0]), 5.0, coverage)


def test_width_grows_with_the_slowdown() -> None:
    """A mix that slows the NF down more gets a wider interval."""
    low, high = symmetric(np.full(99, 0.1), "mixes").interval_mpps(np.array([5.0, 3.0]), 5.0, 0.9)
    assert high[0] - low[0] < high[1] - low[1]


def test_verdicts_and_their_reasons() -> None:
    """Inside is supported, a little outside extrapolated, far outside or unknown unsupported, with numbers."""
    measured = np.random.default_rng(0).uniform([0, 0], [100, 20], (200, 2))
    profiled = applicability(("L2MISS", "READ"), measured)
    verdicts, reasons = profiled.check(np.array([[50, 10.0], [130, 10], [400, 10], [np.nan, 10], [np.inf, 10]]))
    assert verdicts == [Verdict.SUPPORTED, Verdict.EXTRAPOLATED, *[Verdict.UNSUPPORTED] * 3]
    assert reasons[0] == ()
    assert "130" in reasons[1][0]
    assert "M/s" in reasons[1][0]
    assert "missing is not zero" in reasons[3][0]
    assert profiled.codes(np.array([[50, 10.0], [130, 10]])).tolist() == [0, 1]


@given(st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12), st.integers(0, 3), st.integers(-3, 3))
def test_one_row_and_many_are_covered_alike_at_the_edge(drawn: list[float], feature: int, ulps: int) -> None:
    """At the ends of the range and at the farthest distance, one row, arrays and the compiled loop agree to the bit."""
    names = ("L2MISS", "L3MISS", "LMB", "L3OCC")
    scales = np.array([1.0, 50.0, 2e4, 1e-3])
    random = np.random.default_rng(0)  # features that rise together: unlike combinations are within the range
    profiled = applicability(names, (0.9 * random.uniform(size=(40, 1)) + 0.1 * random.uniform(size=(40, 4))) * scales)
    low, high, centre = profiled.inside[:3, :-1]
    ends, towards = (low + np.reshape(drawn, (3, 4)) * (high - low)), np.reshape(drawn, (3, 4))[0] - 0.5
    ends[0, feature], ends[1, feature] = high[feature], low[feature]
    shares = towards / np.maximum(np.abs(towards), 1e-9).max()
    far = float(np.sqrt(profiled.inside[0, -1] / max(shares @ profiled.precision @ shares, 1e-9)))
    ends[2] = centre + far * shares * profiled.span
    step = np.where(ulps < 0, -np.inf, np.inf)
    for _ in range(abs(ulps)):
        ends = np.nextafter(ends, step)
    codes = profiled.codes(ends) == 0
    assert [bool(profiled.covers(row)) for row in ends.tolist()] == codes.tolist()
    assert [_covered_by_loop(row, profiled.inside) for row in ends] == codes.tolist()


def _covered_by_loop(row: Floats, inside: Floats) -> bool:
    """Return what the loop that is compiled for one question says of a pressure."""
    own, nothing = row[np.newaxis, np.newaxis], np.zeros((2, 1, 0))
    server = np.zeros((1, 1), int), own, np.ones(1), np.array([0, 0, -1, 0, -1, 0, 0]), nothing
    return bool(judge_one(0, 0, *server, inside, np.ones((1 + len(row), 2)), 1)[0])


def test_unusual_combination_is_noticed() -> None:
    """A combination unlike any profiled is extrapolated although each metric is within its range."""
    x = np.linspace(0, 100, 200)
    profiled = applicability(("L2MISS", "L3MISS"), np.column_stack([x, x / 2]))
    verdicts, reasons = profiled.check(np.array([[95.0, 2.0]]))
    assert verdicts == [Verdict.EXTRAPOLATED]
    assert "combination" in reasons[0][0]


def test_rows_that_were_profiled_are_supported(toy_library: ModelLibrary) -> None:
    """The profile supports its own corners."""
    model = toy_library.find("lpm")
    zero = np.zeros((1, len(model.applicability.feature_names)))
    assert model.applicability.check(zero)[0] == [Verdict.SUPPORTED]
    assert model.applicability.check(zero + 1e9)[0] == [Verdict.UNSUPPORTED]


def test_contentiousness_stays_within_what_was_measured(toy_library: ModelLibrary) -> None:
    """No pressure, however absurd, brings out a vector beyond the measured range."""
    profile = toy_library.find("nat").contentiousness
    vectors = profile.under(np.array([[0.0] * len(profile.pressure_names), [1e9] * len(profile.pressure_names)]))
    assert ((vectors >= profile.low - 1e-12) & (vectors <= profile.high + 1e-12)).all()


def test_contentiousness_falls_with_pressure(toy_library: ModelLibrary) -> None:
    """An NF under pressure accesses the cache less than it does solo, and solo is met within 3 %."""
    profile = toy_library.find("lpm").contentiousness
    car = profile.metric_names.index("L2MISS")
    solo, pressed = profile.under(np.vstack([np.zeros(len(profile.pressure_names)), profile.limit]))[:, car]
    assert solo == pytest.approx(profile.solo["L2MISS"], rel=0.03)
    assert pressed < 0.9 * solo


def test_published_medians_by_count(toy_library: ModelLibrary) -> None:
    """Contentiousness by number of competitors falls with it; counts never measured take the nearest."""
    profile = toy_library.find("lpm").contentiousness
    assert profile.at_count(0) == profile.solo
    assert profile.at_count(5)["L2MISS"] < profile.at_count(1)["L2MISS"]
    assert profile.at_count(99) == profile.at_count(5)


def test_folds_keep_groups_together() -> None:
    """Rows of one competitor configuration never stand on both sides of a fold."""
    groups = np.repeat(np.arange(17), 4)
    fold = folds(groups, seed=1)
    assert set(fold) == set(range(5))
    assert all(len(set(fold[groups == group])) == 1 for group in range(17))
