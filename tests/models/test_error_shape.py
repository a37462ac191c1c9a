"""Errors over the predicted loss: what a shape gives, and what training finds of one."""

import numpy as np
import pytest

from slomo.errors import ConfigurationError
from slomo.models.error_shape import ErrorShape, proportional, shapes_at
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import UNKNOWN
from slomo.training.conformal_fit import HeldOutMixes, fit_calibrations

SHAPE = ErrorShape(np.array([0.0, 0.1, 0.3, 1.0]), np.array([0.0, 0.02, 0.0, 0.0]), np.array([0.01, 0.1, 0.02, 0.2]))


def test_one_and_many_are_the_same_bits() -> None:
    """Between knots, at them and beyond them, beside shapes with fewer knots."""
    loss = np.concatenate([SHAPE.loss, np.random.default_rng(0).uniform(0.0, 1.3, 200)])
    shapes = (proportional(0.02), SHAPE)
    for number, shape in enumerate(shapes):
        many = np.column_stack(shapes_at(shapes, np.full(len(loss), number), loss))
        assert [shape.at_one(float(value)) for value in loss] == [tuple(row) for row in many.tolist()]


def test_a_shape_survives_its_file() -> None:
    """A calibration read back gives the bounds it gave, to the bit."""
    calibration = ConformalCalibration(np.linspace(-1.0, 1.0, 99), "mixes", SHAPE)
    again = ConformalCalibration.from_dict(calibration.to_dict())
    predicted = np.linspace(0.1, 10.0, 50)
    assert np.array_equal(again.interval_mpps(predicted, 10.0, 0.9), calibration.interval_mpps(predicted, 10.0, 0.9))


@pytest.mark.parametrize(
    ("part", "value"), [("loss", [0.0, 0.0]), ("loss", [0.0]), ("size", [0.1, 0.0]), ("middle", [0.0])]
)
def test_a_shape_that_is_none_is_refused(part: str, value: list[float]) -> None:
    """Knots ascend, tables are as long as each other, sizes are above 0."""
    with pytest.raises(ConfigurationError, match="error"):
        ErrorShape.from_dict({**proportional(0.02).to_dict(), part: value})


def test_bounds_follow_errors_over_the_loss() -> None:
    """Errors large in the middle of the curve and biased there: bounds are wide there alone, and hold everywhere."""
    random = np.random.default_rng(3)
    loss = random.uniform(0.0, 0.4, 4000)
    steep = loss * (0.4 - loss) / 0.04
    measured = 1.0 - loss + steep * random.normal(0.02, 0.02, 4000) + random.normal(0.0, 5e-4, 4000)
    rows = np.arange(4000)
    mixes = HeldOutMixes(measured, 1.0 - loss, np.ones(4000), rows % 2, np.full(4000, UNKNOWN), rows)
    (calibration, _) = fit_calibrations(mixes.rows(rows < 2000), 2)
    late = mixes.rows(rows >= 2000)
    low, high = calibration.interval_mpps(late.predicted_mpps, 1.0, 0.9)
    held, width = (low <= late.measured_mpps) & (late.measured_mpps <= high), high - low
    for begin, end in ((0.0, 0.05), (0.05, 0.15), (0.15, 0.25), (0.25, 0.4)):
        assert 0.85 < held[(late.loss >= begin) & (late.loss < end)].mean() < 0.97
    assert np.median(width[(late.loss > 0.15) & (late.loss < 0.25)]) > 2.0 * np.median(width[late.loss < 0.03])
