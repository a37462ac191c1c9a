"""Mixes of the toy's network functions in a parquet file, and the toy's models in a folder."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="session")
def toy_models(toy_library, tmp_path_factory) -> Path:
    """Return the folder of the toy's models."""
    return toy_library.save(tmp_path_factory.mktemp("fleet") / "models")


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
