"""A small library for whatever is read and written here."""

import pandas as pd
import pytest

from slomo.models.functions import compilation
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from tests.conftest import Once, few_steps, profile_rows


@pytest.fixture(scope="session")
def toy_library(once: Once) -> ModelLibrary:
    """Return models of the toy, of one small family."""
    from slomo.training.training import train

    dataset = ProfileDataset(pd.DataFrame(profile_rows()), {"testbed": "toy"})
    with few_steps():
        return ModelLibrary.load(once("one-family", lambda folder: train(dataset, models=["dobrescu"]).save(folder)))


@pytest.fixture(scope="session", autouse=True)
def compiled_once(toy_library: ModelLibrary) -> None:
    """Compile what predictions use, so that no time measured for a file contains the compiler's."""
    compilation._Spent.servers = compilation.LOADING_SERVERS
    Predictor(toy_library).predict("lpm", ["nat"])
