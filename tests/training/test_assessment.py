"""Judging a model before it is trained on everything, and committees that say where to measure next."""

import numpy as np
import pytest

from slomo.errors import InvalidValueError, MissingMetricError, UnknownNameError
from slomo.records.dataset import ProfileDataset
from slomo.training.assessment import assess
from slomo.training.families.committee import fit_committee

LPM = "lpm@64B,100000f"


def test_more_settings_make_a_better_model(toy_profile: ProfileDataset) -> None:
    """The held-out error from all settings is less than that from a fifth of them, and less is left uncertain."""
    frame = toy_profile.frame
    rows = frame[(frame["target"] == LPM) & (frame["plan"] != "mix")]
    few = ProfileDataset(rows.iloc[::5].reset_index(drop=True), {})
    assessments = [assess(dataset, LPM) for dataset in (few, toy_profile)]
    assert assessments[1].error < assessments[0].error
    assert assessments[1].uncertainty < assessments[0].uncertainty
    assert assessments[0].rows < assessments[1].rows == 96


def test_intervals_widen_with_the_coverage_promised(toy_profile: ProfileDataset) -> None:
    """The median half width grows with the coverage that is promised."""
    narrow, wide = (assess(toy_profile, LPM, coverage=coverage).half_width for coverage in (0.5, 0.95))
    assert 0.0 < narrow < wide


def test_what_cannot_be_judged_is_said(toy_profile: ProfileDataset) -> None:
    """An unknown target and a target measured only alone are refused."""
    with pytest.raises(UnknownNameError):
        assess(toy_profile, "nobody")
    alone = ProfileDataset(toy_profile.frame[toy_profile.frame["plan"] == "solo"].reset_index(drop=True), {})
    with pytest.raises(MissingMetricError):
        assess(alone, LPM)


def test_members_disagree_where_nothing_was_measured() -> None:
    """A committee disagrees more in a steep gap between two measured settings than beside one of them."""
    settings = np.array([[0.0], [0.05], [0.1], [0.15], [0.85], [0.9], [0.95], [1.0]])
    committee = fit_committee(settings, (settings[:, 0] < 0.5).astype(float), seed=1)
    spread = committee.spread(np.array([[0.02], [0.5]]))
    assert spread[1] >= spread[0]
    assert committee.mean(np.array([[0.02]]))[0] > committee.mean(np.array([[0.98]]))[0]


def test_a_committee_is_the_same_for_the_same_seed() -> None:
    """The same settings and seed give the same committee; fewer than two rows are refused."""
    generator = np.random.default_rng(2)
    settings = generator.random((20, 3))
    first, second = (fit_committee(settings, 1.0 - settings.mean(axis=1), seed=3).spread(settings) for _ in range(2))
    assert (first == second).all()
    with pytest.raises(InvalidValueError, match="committee"):
        fit_committee(settings[:1], np.ones(1), seed=0)
