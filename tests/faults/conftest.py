"""A small library for whatever is read and written here."""

import pandas as pd
import pytest

from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from tests.conftest import profile_rows


@pytest.fixture(scope="session")
def toy_library() -> ModelLibrary:
    """Return models of the toy, of one small family."""
    from slomo.training.training import train

    return train(ProfileDataset(pd.DataFrame(profile_rows()), {"testbed": "toy"}), models=["dobrescu"])
