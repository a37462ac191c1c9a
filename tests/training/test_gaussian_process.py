"""The smooth model learns from few rows, stays within what it saw, and is data."""

import json

import numpy as np
import pytest

from slomo.errors import ConfigurationError, MissingMetricError
from slomo.models.responses.sensitivity import sensitivity_from_dict
from slomo.training.families.gaussian_process import SmoothFamily, _likelihood
from slomo.training.families.xgb import XgbFamily

NAMES = ("L2MISS", "L3OCC", "traffic.flow_count")


def rows(count, seed=0):
    """Return vectors of a competition and the throughput of an NF that answers to them smoothly."""
    draw = np.random.default_rng(seed)
    vectors = np.column_stack([draw.lognormal(3, 1, count), draw.uniform(0, 20480, count), draw.uniform(1, 1e5, count)])
    loss = 0.3 * vectors[:, 0] / (vectors[:, 0] + 40) * vectors[:, 1] / 20480 + 0.05 * np.log1p(vectors[:, 2] / 1e4)
    return vectors, 4.0 / (1.0 + loss)


def fitted(family, count):
    """Fit a family to few rows."""
    vectors, mpps = rows(count)
    return family.fit(NAMES, vectors, mpps, solo_mpps=4.0, seed=0)


def test_it_learns_smooth_functions_from_fewer_rows_than_trees():
    """From 40 rows its error on new rows is less than half that of the trees."""
    vectors, mpps = rows(300, seed=1)
    smooth, trees = (
        np.abs(fitted(family, 40).predict_mpps(vectors) - mpps).mean() for family in (SmoothFamily(), XgbFamily())
    )
    assert smooth < 0.5 * trees


def test_it_never_leaves_the_range_of_its_rows():
    """Beyond the largest pressure it says what it says there; it never answers more than solo."""
    model = fitted(SmoothFamily(), 40)
    most = rows(40)[0].max(axis=0)
    assert model.predict_mpps(np.array([most * 10])) == pytest.approx(model.predict_mpps(np.array([most])))
    assert (model.predict_mpps(rows(300, seed=2)[0]) <= 4.0).all()


def test_the_gradient_of_the_likelihood_is_right():
    """The analytic gradient is that of finite differences."""
    draw = np.random.default_rng(0)
    points, values = draw.normal(size=(20, 2)), draw.normal(size=20)
    at = np.log([0.8, 1.3, 0.6, 0.05])
    _, gradient = _likelihood(at, points, values)
    for i in range(4):
        step = np.eye(4)[i] * 1e-5
        slope = (_likelihood(at + step, points, values)[0] - _likelihood(at - step, points, values)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-4)


def test_constant_columns_and_repeated_rows_are_harmless():
    """A column that never changes has no say, and equal rows with unequal answers are averaged."""
    vectors = np.column_stack([np.repeat([1.0, 2.0, 3.0], 4), np.full(12, 7.0)])
    response = np.repeat([3.0, 2.0, 1.0], 4) + np.tile([-0.1, 0.1], 6)
    model = SmoothFamily().fit(NAMES[:2], vectors, response, solo_mpps=4.0, seed=0)
    assert model.predict_mpps(np.array([[2.0, 7.0]]))[0] == pytest.approx(2.0, abs=0.1)


def test_a_damaged_file_is_refused():
    """Arrays that do not belong together, and scales of 0, are no model."""
    data = json.loads(json.dumps(fitted(SmoothFamily(), 20).to_dict()))
    assert sensitivity_from_dict(data).predict_mpps(rows(3)[0]).tolist() == pytest.approx(
        fitted(SmoothFamily(), 20).predict_mpps(rows(3)[0]).tolist()
    )
    with pytest.raises(ConfigurationError, match="do not belong together"):
        sensitivity_from_dict({**data, "weights": data["weights"][:-1]})
    with pytest.raises(ConfigurationError, match="do not belong together"):
        sensitivity_from_dict({**data, "typical": [1.0, 1.0]})
    with pytest.raises(ConfigurationError, match="a scale is not above 0"):
        sensitivity_from_dict({**data, "typical": [0.0, 1.0, 1.0]})


def test_without_a_pressure_there_is_no_model():
    """Features that press on nobody are not enough."""
    with pytest.raises(MissingMetricError, match="slomo-gp"):
        SmoothFamily().select_features(["IPC", "traffic.flow_count"])


@pytest.mark.parametrize(("file", "most"), [("sample_slomo_train.txt", 1.2), ("sample_yala_mem_train.txt", 4.5)])
def test_published_measurements_are_predicted_by_the_others(file, most, outside_data):
    """Left out one at a time, Yala's measured rows are predicted within 1.2 % and 4.5 % on average."""
    from pathlib import Path

    from slomo.records.importing.door import import_table
    from slomo.training.features import subjects

    path = outside_data / "yala-flowmon" / file
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    mapping = Path(__file__).resolve().parents[2] / "datasets" / "mappings" / "yala-flow-monitor.yaml"
    subject = next(subjects(import_table(path, mapping)))
    names = SmoothFamily().select_features(subject.names)
    vectors, mpps, error = subject.columns(names), subject.mpps, []
    for left in range(len(mpps)):
        seen = np.arange(len(mpps)) != left
        model = SmoothFamily().fit(names, vectors[seen], mpps[seen], solo_mpps=float(mpps[seen].max()), seed=0)
        error.append(abs(model.predict_mpps(vectors[[left]])[0] / mpps[left] - 1.0))
    assert 100.0 * np.mean(error) <= most
