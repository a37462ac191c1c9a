"""Rows that cannot have been measured are named, and train nothing."""

import warnings

import numpy as np
import pandas as pd
import pytest

from slomo.records.dataset import ProfileDataset
from slomo.training.plausibility import plausible_rows
from tests.conftest import mix_rows_of, profile_rows


def test_sound_rows_are_all_kept() -> None:
    """Nothing of a sound dataset is implausible."""
    dataset = ProfileDataset(pd.DataFrame([*profile_rows(), *mix_rows_of(20, seed=2)]), {"testbed": "toy"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plausible_rows(dataset) is dataset


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [("throughput_mpps", 1e6, "any port"), ("throughput_mpps", 9.0, "solo"), ("competition", 0.0, "every counter")],
)
def test_planted_rows_are_named_and_left_out(column: str, value: float, reason: str) -> None:
    """A rate no port carries, more than solo allows, and counters that stood still are each named with their row."""
    rows = profile_rows()
    planted = np.random.default_rng(1).choice(np.arange(1, 90), 34, replace=False)
    for row in planted:
        for name in [name for name in rows[row] if str(name).split(".")[0] == column]:
            rows[row][name] = value
    dataset = ProfileDataset(pd.DataFrame(rows), {"testbed": "toy"})
    with pytest.warns(UserWarning, match=reason) as told:
        left = plausible_rows(dataset)
    assert f"{len(planted)} of {len(rows)} rows" in str(told[0].message)
    assert len(left) == len(rows) - len(planted)
