"""Every estimator keeps scikit-learn's contract."""

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from slomo.training.families.gaussian_process import SmoothRegression
from slomo.training.families.gradient_boosting import PublishedBoosting
from slomo.training.families.monotone_network import MonotoneNetwork
from slomo.training.families.single_metric import SingleMetricRegressor
from slomo.training.families.single_metric_curve import SingleMetricCurve
from slomo.training.families.xgb import MonotoneBoosting


@parametrize_with_checks(
    [
        PublishedBoosting(),
        MonotoneBoosting(n_estimators=60),
        SingleMetricRegressor(),
        SmoothRegression(),
        MonotoneNetwork(),
        SingleMetricCurve(),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    """One check of scikit-learn's contract holds for one estimator."""
    check(estimator)


@pytest.mark.parametrize("seed", [0, 1])
def test_more_pressure_never_speeds_up(seed: int) -> None:
    """A column declared rising never lowers the answer, however noisy the training rows."""
    random = np.random.default_rng(seed)
    rows = random.random((120, 3))
    model = MonotoneBoosting(monotone=(1, 0, 1), seed=seed).fit(
        rows, rows[:, 0] - rows[:, 2] + random.normal(0, 0.3, 120)
    )
    line = np.column_stack([np.linspace(-0.2, 1.2, 50), np.full(50, 0.5), np.full(50, 0.5)])
    assert (np.diff(model.predict(line)) >= 0).all()


def test_published_model_has_the_library_defaults() -> None:
    """The published model changes nothing of scikit-learn's but the seed."""
    from sklearn.ensemble import GradientBoostingRegressor

    fitted = PublishedBoosting(seed=3).fit(np.arange(20.0)[:, None], np.arange(20.0)).booster_
    assert fitted.get_params() == {**GradientBoostingRegressor().get_params(), "random_state": 3}
