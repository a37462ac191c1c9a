"""Settings shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine must not fail a test: no deadlines, no complaint about slow data generation.
settings.register_profile("slomo", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("slomo"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "slomo")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def outside_data() -> Path:
    """Return the folder of measured data from outside, or skip where it is missing."""
    folder = Path(os.environ.get("SLOMO_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"measured data from outside are not at {folder}; set SLOMO_DATA to their folder")
    return folder


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that run network functions for real in one worker: they count what runs on this machine."""
    for item in items:
        if {"testbed_host", "testbed_host_counters", "synthetic_nf"} & set(item.path.parts):
            item.add_marker(pytest.mark.xdist_group("host"))
