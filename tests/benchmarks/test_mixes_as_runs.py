"""benchmarks/mixes_as_runs.py: mixes that other families learn from."""

import sys
from pathlib import Path

from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from mixes_as_runs import mixes_as_runs


def test_mixes_become_runs_beside_composed_competition(toy_library: ModelLibrary, toy_profile: ProfileDataset) -> None:
    """Their competition is composed of solo vectors; everything measured stays, and no row is lost or doubled."""
    runs = mixes_as_runs(toy_library, toy_profile)
    mixes = toy_profile.select(plan="mix").frame

    assert len(runs) == len(toy_profile)
    assert set(runs.frame["plan"]) == {"solo", "pressure"}
    composed = runs.frame[runs.frame["run_key"].isin(mixes["run_key"])]
    assert composed["throughput_mpps"].tolist() == mixes["throughput_mpps"].tolist()
    measured = toy_profile.select(plan="pressure").frame.filter(like="competition.").dropna(axis="columns", how="all")
    assert len(measured.columns) > 5
    assert composed[measured.columns].notna().all(axis=None)
