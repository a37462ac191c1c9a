"""Judging a model before it is trained on everything."""

import pytest

from slomo.errors import MissingMetricError, UnknownNameError
from slomo.records.dataset import ProfileDataset
from slomo.training.assessment import assess

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
