"""Mixes of the toy's network functions in a parquet file, and the toy's models in a folder."""

import itertools
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slomo.records.dataset import ProfileDataset
from tests.conftest import profile_rows


@pytest.fixture(scope="session")
def small_profile() -> ProfileDataset:
    """Return a third of the toy's profile, without mixes: enough for every part of a model."""
    rows = [row for number, row in enumerate(profile_rows()) if row["plan"] == "solo" or number % 3 == 0]
    return ProfileDataset(pd.DataFrame(rows), {"testbed": "toy"})


@pytest.fixture(scope="session")
def toy_table() -> pa.Table:
    """Return 120 mixes of none to three competitors, with a column of one's own."""
    names = ["lpm", "nat", "ids"]
    mixes = [(t, list(c)) for k in range(4) for t in names for c in itertools.product(names, repeat=k)]
    target, competitors = zip(*mixes, strict=True)
    types = {"target": pa.string(), "competitors": pa.list_(pa.string()), "rack": pa.int64()}
    return pa.table([target, competitors, range(len(mixes))], schema=pa.schema(types))


@pytest.fixture
def mixes_file(toy_table, tmp_path) -> Path:
    """Return the same in a file of four row groups."""
    pq.write_table(toy_table, tmp_path / "mixes.parquet", row_group_size=32)
    return tmp_path / "mixes.parquet"


@pytest.fixture
def fleet_workers():
    """Return what starts a scheduler with a worker per host of a fleet, in threads of this process."""
    import distributed

    from slomo.fleet.measuring import own_resource

    with ExitStack() as stack:

        def start(fleet) -> str:
            options = {"nthreads": 1, "host": "127.0.0.1", "dashboard_address": None}
            resources = {host.name: {"testbed": 1, own_resource(host.name): 1} for host in fleet.hosts}
            named = {
                name: {"cls": distributed.Worker, "options": options | {"resources": owned}}
                for name, owned in resources.items()
            }
            places = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "port": 0}
            scheduler = {"cls": distributed.Scheduler, "options": places}
            cluster = stack.enter_context(distributed.SpecCluster(named, scheduler, silence_logs=50))
            return str(cluster.scheduler_address)

        yield start
