"""A small profile and its models, made once: three network functions on a simulated machine at low fidelity."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.workflow.profile import profile
from tests.conftest import Once, few_steps

NETWORK_FUNCTIONS = ("lpm", "stats", "snort")
QUICK = {"accesses": 90_000, "scale": 64}  # tests of the front doors need plausible numbers, not good ones


@dataclass(frozen=True)
class Bench:
    """Files the commands work on."""

    dataset: Path
    mixes: Path
    models: Path


@pytest.fixture(scope="session")
def profiled(once: Once) -> ProfileDataset:
    """Return a profile of three network functions with calibration mixes, made once for all of pytest's workers."""

    def make(path: Path) -> None:
        testbed = SimulatedTestbed(**QUICK)
        with few_steps():  # of the models by which mixes are drawn
            profile(NETWORK_FUNCTIONS, design="sobol", runs=40, mixes=40, seed=1, testbed=testbed).to_parquet(path)

    return ProfileDataset.read_parquet(once("profiled.parquet", make))


@pytest.fixture(scope="session")
def bench(profiled: ProfileDataset, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a trained bench: dataset, unseen mixes and models on disk."""
    folder = tmp_path_factory.mktemp("bench")
    made = Bench(folder / "profile.parquet", folder / "mixes.parquet", folder / "models")
    profiled.to_parquet(made.dataset)
    mixes = profile(NETWORK_FUNCTIONS, plan="mixes", mixes=12, seed=2, testbed=SimulatedTestbed(**QUICK))
    mixes.to_parquet(made.mixes)
    with few_steps():
        assert main(["train", str(made.dataset), "--models", str(made.models)]) == 0
    return made
