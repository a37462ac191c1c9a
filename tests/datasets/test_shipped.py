"""The shipped datasets are what their script makes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.catalog import catalog
from slomo.records.storage import load_dataset
from slomo.testbed.registry import make_testbed

FOLDER = Path(__file__).resolve().parents[2] / "datasets"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Load datasets/make.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("make_datasets", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_machine_of_the_paper_has_its_dataset_and_card(maker: ModuleType) -> None:
    """The catalog lists one dataset per SLOMO machine, each with a summary from its card."""
    entries = {entry.name: entry for entry in catalog(FOLDER)}

    assert set(entries) >= {f"slomo-{machine}" for machine in maker.MACHINES}
    assert all(entry.summary for entry in entries.values())


@pytest.mark.parametrize("machine", ["e5-2620v4", "silver-4110"])
def test_a_sample_of_runs_made_again_is_the_same(maker: ModuleType, machine: str) -> None:
    """Runs of the dataset, run again from its script's plan, give its rows back, number for number."""
    shipped = load_dataset(FOLDER / f"slomo-{machine}").frame
    plan = maker.dataset_plan(machine)
    reduced = maker.reduced_plan(load_dataset(FOLDER / f"slomo-{machine}")).colocations
    chosen = (*plan.colocations[:: len(plan.colocations) // 5], *reduced[:2])
    sample = ExperimentPlan(plan.name, chosen, seed=plan.seed)

    again = run_campaign(sample, make_testbed("simulated", machine=machine)).frame

    keys = ["run_key", "tenant", "seed"]
    expected = shipped.merge(again[keys], on=keys)[again.columns.tolist()]
    assert len(again) >= 6
    pd.testing.assert_frame_equal(
        expected.sort_values(keys, ignore_index=True), again.sort_values(keys, ignore_index=True), check_exact=True
    )
