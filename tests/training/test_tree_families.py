"""Trees keep what their families promise: monotone ones never rise with pressure, published ones have the defaults."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

from slomo.training.families.gradient_boosting import PublishedFamily
from slomo.training.families.xgb import XgbFamily


@pytest.mark.parametrize("seed", [0, 1])
def test_more_pressure_never_speeds_up(seed: int) -> None:
    """Pressure never raises the answer, however noisy the training rows; traffic may."""
    random = np.random.default_rng(seed)
    rows = random.random((120, 3))
    mpps = 3.0 - rows[:, 0] + rows[:, 2] + random.normal(0, 0.3, 120)
    names = ("L2MISS", "traffic.flow_count", "L3OCC")
    model = XgbFamily().fit(names, rows, mpps, solo_mpps=4.0, seed=seed)
    line = np.column_stack([np.linspace(-0.2, 1.2, 50), np.full(50, 0.5), np.full(50, 0.5)])
    assert (np.diff(model.predict_mpps(line)) <= 0).all()
    assert (np.diff(model.predict_mpps(line[:, [1, 2, 0]])) <= 0).all()


def test_published_model_has_the_library_defaults() -> None:
    """The published model changes nothing of scikit-learn's but the seed."""
    rows, mpps = np.arange(40.0).reshape(20, 2), np.arange(20.0)
    fitted = PublishedFamily().fit(("IPC", "L3OCC"), rows, mpps, solo_mpps=20.0, seed=3)
    own = GradientBoostingRegressor(random_state=3).fit(rows, mpps)
    assert fitted.predict_mpps(rows).tolist() == own.predict(rows).tolist()
