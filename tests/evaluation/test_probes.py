"""Prediction from probes alone: the hull of what phases leave open, its middle, and published pairs as a yardstick."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.evaluation.probes import ProbeModel, hull_slice, likeliest
from slomo.models.applicability import Verdict
from slomo.models.functions.regression import rising
from slomo.models.intervals import calibrate
from slomo.records.importing.probe_tables import ProbeTables, read_probe_tables

LEVELS = np.array([0.0, 8.0, 16.0, 24.0])
MAPPING = {
    "kind": "probes",
    "machine": "m",
    "reporter": {"file": "reporter.csv"},
    "beside": {"file": "beside.csv"},
    "sensitivity": {"file": "{name}.csv"},
}


def model(times: list[float], felt: float) -> ProbeModel:
    """Return a model of one application with these run times, which the reporter feels as `felt`."""
    reporter = np.array([10.0, 12.0, 16.0, 20.0])
    return ProbeModel(ProbeTables("m", LEVELS, reporter, {"app": felt}, {"app": (LEVELS, np.array(times))}))


def test_a_competitor_that_nobody_feels_costs_nothing() -> None:
    """Where the reporter runs as fast as alone, so does every target."""
    prediction = model([40.0, 50.0, 60.0, 70.0], 10.0).predict("app", "app")
    assert (prediction.low, prediction.performance, prediction.high, prediction.level) == (1.0, 1.0, 1.0, 0.0)


def test_a_target_like_the_reporter_has_no_doubt() -> None:
    """A curve that is the reporter's own leaves phases nothing open."""
    prediction = model([20.0, 24.0, 32.0, 40.0], 14.0).predict("app", "app")
    assert prediction.low == pytest.approx(prediction.high)
    assert prediction.performance == pytest.approx(10.0 / 14.0)


def test_a_curve_that_bends_leaves_phases_open() -> None:
    """A target that suffers only at the highest level may do well or badly beside a competitor of middling mean."""
    prediction = model([10.0, 10.0, 10.0, 40.0], 16.0).predict("app", "app")
    assert prediction.high == 1.0
    assert prediction.low == pytest.approx(10.0 / 28.0)
    assert prediction.low < prediction.performance < prediction.high


def test_more_than_the_dial_is_said_to_be_extrapolated() -> None:
    """A competitor that presses harder than the dial ever did is taken for its end, and the verdict says so."""
    asked = model([10.0, 12.0, 16.0, 20.0], 30.0)
    asked = replace(asked, calibration=calibrate(np.linspace(0.8, 1.0, 9), np.full(9, 0.9), 1.0, "pairs"))
    prediction = asked.predict("app", "app")
    assert prediction.verdict is Verdict.EXTRAPOLATED
    assert "harder than the dial" in prediction.reason
    assert prediction.performance == pytest.approx(0.5)


def test_measured_pairs_set_the_width() -> None:
    """Eight pairs tell no interval of 90 %; with more, it is as wide as the errors, at least as wide as noise."""
    probed, pair = model([10.0, 10.0, 10.0, 40.0], 10.0), ("app", "app")
    few = ProbeModel(probed.tables, calibrate(np.full(8, 1.0), np.full(8, 1.0), 1.0, "pairs")).predict(*pair)
    assert (few.interval, few.verdict, few.reason) == (
        (0.0, pytest.approx(1.0, abs=1e-3)),
        Verdict.UNKNOWN,
        "8 measured pairs tell its error, needed 9",
    )
    names = tuple(f"app{number}" for number in range(5))
    curve = (LEVELS, np.array([20.0, 24.0, 32.0, 40.0]))
    many = ProbeModel(
        replace(probed.tables, beside=dict.fromkeys(names, 14.0), sensitivity=dict.fromkeys(names, curve))
    )
    draw = np.random.default_rng(3)
    shares = {pair: 10.0 / 14.0 + draw.normal(0.0, 0.02) for pair in itertools.product(names, repeat=2)}
    told = many.calibrated({**shares, ("app0", "other"): 0.1}).predict("app0", "app1")
    assert told.verdict is Verdict.SUPPORTED
    assert 0.02 < told.interval[1] - told.interval[0] < 0.12
    assert told.low == pytest.approx(told.high)


def test_unknown_applications_are_named() -> None:
    """Asking for an application that was not probed names the nearest."""
    with pytest.raises(UnknownNameError, match="'ap'"):
        model([10.0, 12.0, 16.0, 20.0], 12.0).predict("ap", "app")


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12))
def test_rising_never_falls_and_keeps_the_mean(values: list[float]) -> None:
    """The closest rising sequence never falls, and its mean is that of the values."""
    sequence = rising(np.array(values))
    assert (np.diff(sequence) >= 0.0).all()
    assert sequence.mean() == pytest.approx(np.mean(values))


@given(st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4), st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4))
def test_every_mixture_lies_in_the_slice(y: list[float], weights: list[float]) -> None:
    """Whatever mixture of levels a competitor makes, the target's mean lies in the slice at the reporter's mean."""
    x, share = np.array([1.0, 2.0, 4.0, 5.0]), np.array(weights) + 1e-3
    share /= share.sum()
    low, high = hull_slice(x, np.array(y), float(share @ x))
    assert low - 1e-9 <= float(share @ np.array(y)) <= high + 1e-9


@given(st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4), st.floats(1.0, 5.0))
def test_the_likeliest_mixture_lies_in_the_slice(y: list[float], at: float) -> None:
    """The mixture of most entropy has the mean of x asked for, and its mean of y lies in the slice there."""
    x = np.array([1.0, 2.0, 4.0, 5.0])
    low, high = hull_slice(x, np.array(y), at)
    assert low - 1e-6 <= likeliest(x, np.array(y), at) <= high + 1e-6
    assert likeliest(x, x, at) == pytest.approx(at)


def test_without_a_constraint_all_levels_are_as_likely() -> None:
    """Where the mean is that of all levels alike, the mixture of most entropy takes them alike."""
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 7.0, 2.0, 2.0])
    assert likeliest(x, y, 1.5) == pytest.approx(3.0)


def _written(folder: Path, **texts: str) -> Path:
    given_texts = {"reporter": " mean other\n0 10 9\n8 15 9\n", "beside": "app 12 9\n", "app": "level time\n0 4\n8 5\n"}
    for name, text in (given_texts | texts).items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_headers_may_be_whole_short_or_missing(tmp_path: Path) -> None:
    """Tables with a header, with one that leaves the first name out, and without any are read."""
    tables = read_probe_tables(_written(tmp_path), MAPPING)
    assert tables.reporter.tolist() == [10.0, 15.0]
    assert tables.beside == {"app": 12.0}
    assert tables.sensitivity["app"][1].tolist() == [4.0, 5.0]
    other = {**MAPPING, "reporter": {"file": "reporter.csv", "column": "other"}}
    assert read_probe_tables(tmp_path, other).reporter.tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"reporter": " mean\n4 10\n8 15\n"}, r"reporter.csv: has levels 4, 8, needed 0"),
        ({"reporter": " mean\n0 10\n8 x\n"}, r"reporter.csv, line 3: got 'x', needed a number"),
        ({"reporter": " mean\n0 10\n8 15 3 4\n9 1\n"}, r"line 3: 4 values, needed 2"),
        ({"app": "level time\n0 4\n0 5\n"}, r"app.csv, line 3: '0' occurs twice"),
        ({"app": "level time\n0 -4\n8 5\n"}, r"run time -4, needed above 0"),
        ({"app": ""}, r"app.csv: 0 rows"),
        ({"beside": "../app 12\n"}, r"'../app' is no application's name"),
        ({"beside": "lbm 12\n"}, r"lbm.csv"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, texts: dict[str, str], words: str) -> None:
    """A table that is wrong is named with its line and what was needed."""
    with pytest.raises(ConfigurationError, match=words):
        read_probe_tables(_written(tmp_path, **texts), MAPPING)


def test_a_wrong_mapping_names_the_field() -> None:
    """A mapping without the reporter's file is refused by field."""
    with pytest.raises(ConfigurationError, match="field 'reporter'"):
        read_probe_tables(".", {**MAPPING, "reporter": {}})


@pytest.mark.parametrize("setting", ["conservative", "test_results", "userspace"])
def test_measured_pairs_are_predicted_at_least_as_well_as_published(outside_data: Path, setting: str) -> None:
    """The mean error over all measured pairs is at most that of the predictions published with them."""
    folder = outside_data / "spec-pairs" / setting
    if not folder.is_dir():
        pytest.skip("the SPEC pairs are not there")
    mapping = Path(__file__).parents[2] / "datasets" / "mappings" / "spec-pairs.yaml"
    probed = ProbeModel(read_probe_tables(folder, mapping))
    rows = [line.split() for line in (folder / "validated.csv").read_text().splitlines()[1:]]
    ours, published = [], []
    for a, b, *numbers in rows:
        expected, measured = [float(x) for x in numbers[:2]], [float(x) for x in numbers[2:]]
        performances = [probed.predict(a, b).performance, probed.predict(b, a).performance]
        ours += [abs(x - y) for x, y in zip(performances, measured, strict=True)]
        published += [abs(x - y) for x, y in zip(expected, measured, strict=True)]
    assert np.mean(ours) <= np.mean(published)
