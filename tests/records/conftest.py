"""Runs and datasets made by hand for the tests of records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slomo.records.dataset import ProfileDataset
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

RunFactory = Callable[..., RunRecord]


@pytest.fixture(scope="session")
def pcm_files() -> Path:
    """Return the folder of hand-made PCM files."""
    return Path(__file__).resolve().parents[1] / "data" / "pcm"


@pytest.fixture(scope="session")
def environment() -> dict[str, Any]:
    """Return an environment as a simulated campaign states it."""
    return {"testbed": "simulated", "machines": {"silver-4110": {"llc_kib": 11264}}, "seed": 1}


@pytest.fixture(scope="session")
def make_run() -> RunFactory:
    """Return a function that makes a run on a Silver 4110 in which the i-th tenant serves base + i/4 Mpps."""

    def make(target: Workload, *competitors: Workload, seed: int = 0, base_mpps: float = 3.0) -> RunRecord:
        tenants = tuple(_sample(base_mpps + slot / 4) for slot in range(1 + len(competitors)))
        alone = (
            Phase(tenants[1:], MetricVector({"L2MISS": 11.0 * len(competitors), "IPC": 1.1})) if competitors else None
        )
        beside = Phase(
            tenants, MetricVector({"L2MISS": 10.5 * len(tenants), "L3OCC": 512.0 * len(tenants), "IPC": 1.2})
        )
        return RunRecord(Colocation("silver-4110", target, competitors), seed, alone, beside, {"seed": seed})

    return make


@pytest.fixture(scope="session")
def dataset(make_run: RunFactory, environment: dict[str, Any]) -> ProfileDataset:
    """Return a dataset of solo, pressure and mix rows of two NFs."""
    lpm, nat, synthetic = Workload("lpm"), Workload("nat"), Workload("synthetic", {"data_size_mib": 8.0})
    runs = [
        make_run(lpm),
        make_run(nat),
        make_run(lpm, synthetic, synthetic),
        make_run(nat, synthetic),
        make_run(lpm, nat, Workload("stats")),
    ]
    return ProfileDataset.from_records(runs, environment)


def _sample(throughput_mpps: float) -> TenantSample:
    return TenantSample(throughput_mpps, MetricVector({"L2MISS": 10.0, "L3OCC": 512.0}, Scope.CORE))
