"""The function over record batches, called as engines call it."""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slomo.errors import UsageError
from slomo.fleet.batches import PREDICTED, BulkQuestion, predict_batches
from slomo.fleet.bulk import predict_file
from slomo.fleet.engine import on_engine
from slomo.profiling.campaign.run import run_campaign
from slomo.testing.builders import ToyTestbed, toy_plan

MACHINE = "e5-2620v4"


@pytest.fixture
def cluster():
    """Return a Dask scheduler with one worker, in threads of this process."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1,
            processes=False,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            protocol="tcp",
            host="127.0.0.1",
        ) as made,
    ):
        yield made


def test_dask_calls_it(cluster, toy_models, toy_table, mixes_file, tmp_path):
    """Batches sent to workers, and a whole file predicted by them: the bytes of this machine."""
    expected = pa.Table.from_batches(predict_batches(toy_table.to_batches(), str(toy_models), MACHINE))
    with cluster.get_client() as client:

        def predict(batch: pa.RecordBatch) -> pa.RecordBatch:
            return next(predict_batches([batch], str(toy_models), MACHINE))

        made = client.gather(client.map(predict, toy_table.to_batches(max_chunksize=50)))
    assert pa.Table.from_batches(made).equals(expected)
    places = [tmp_path / "here.parquet", tmp_path / "there.parquet"]
    for place, scheduler in zip(places, (None, cluster.scheduler_address), strict=True):
        predict_file(mixes_file, place, BulkQuestion(str(toy_models), MACHINE), jobs=1, scheduler=scheduler)
    assert places[0].read_bytes() == places[1].read_bytes()


def test_duckdb_streams_into_it(toy_models, toy_table, mixes_file):
    """A query's record batches are predicted as they come."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is an example of the docs, not a dependency")
    query = duckdb.connect().sql(f"SELECT target, competitors FROM '{mixes_file}' WHERE rack < 40")
    made = pa.Table.from_batches(predict_batches(query.to_arrow_reader(16), str(toy_models), MACHINE))
    expected = pa.Table.from_batches(predict_batches(toy_table.slice(0, 40).to_batches(), str(toy_models), MACHINE))
    for name in PREDICTED:
        np.testing.assert_array_equal(made[name], expected[name])


def test_spark_and_ray_hand_over_what_it_takes(toy_models, toy_table):
    """`mapInArrow` gives an iterator of record batches to a function of it; codes instead of texts are taken too."""
    coded = pa.table(
        {"target": toy_table["target"].dictionary_encode(), "competitors": toy_table["competitors"].combine_chunks()}
    )
    made = list(predict_batches(iter(coded.to_batches(max_chunksize=40)), str(toy_models), MACHINE))
    plain = list(predict_batches(toy_table.to_batches(max_chunksize=40), str(toy_models), MACHINE))
    assert len(made) == len(plain) > 1
    for one, other in zip(made, plain, strict=True):
        np.testing.assert_array_equal(one["throughput_mpps"], other["throughput_mpps"])


@pytest.fixture
def elsewhere(monkeypatch):
    """Let an engine's own processes find what this one imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.mark.filterwarnings("ignore")
def test_ray_calls_it(toy_models, toy_table, elsewhere):
    """`map_batches` with tables in and out, in Ray's own processes: the answers of this one."""
    ray = pytest.importorskip("ray", reason="Ray is an example of the docs, not a dependency")
    predict = partial(predict_batches, models=str(toy_models), machine=MACHINE)
    expected = pa.Table.from_batches(predict(toy_table.to_batches()))
    options = {"include_dashboard": False, "object_store_memory": 100 * 2**20, "logging_level": "ERROR"}
    ray.init(num_cpus=1, **options)
    try:

        def whole(table):
            return pa.Table.from_batches(predict(table.to_batches()))

        rows = ray.data.from_arrow(toy_table).map_batches(whole, batch_format="pyarrow", batch_size=50)
        made = pa.concat_tables(ray.get(rows.to_arrow_refs()))
    finally:
        ray.shutdown()
    assert made.sort_by("rack").equals(expected)


@pytest.mark.filterwarnings("ignore")
def test_spark_calls_it(toy_models, toy_table, mixes_file, elsewhere):
    """`mapInArrow` with an iterator of batches in and out, in Spark's own processes: the answers of this one."""
    pyspark = pytest.importorskip("pyspark.sql", reason="Spark is an example of the docs, not a dependency")
    predict = partial(predict_batches, models=str(toy_models), machine=MACHINE)
    expected = pa.Table.from_batches(predict(toy_table.to_batches()))
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    building = pyspark.SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        building = building.config(name, value)
    session = building.getOrCreate()
    try:
        columns = "target string, competitors array<string>, rack long, " + ", ".join(f"{n} double" for n in PREDICTED)
        rows = session.read.parquet(str(mixes_file)).mapInArrow(lambda batches: predict(batches), columns).collect()
    finally:
        session.stop()
    for row in rows:
        told = expected.slice(row["rack"], 1).to_pylist()[0]
        assert row.asDict() == told
    assert len(rows) == len(expected)


def test_a_testbed_on_an_engine_makes_the_same_runs(cluster):
    """Made by a scheduler's workers, or here: the same dataset; one machine cannot be moved."""
    with on_engine(ToyTestbed(), cluster.scheduler_address) as there:
        assert there.workers == 2
        assert run_campaign(toy_plan(), there) == run_campaign(toy_plan(), ToyTestbed())
    exclusive = ToyTestbed()
    exclusive.exclusive = True
    with pytest.raises(UsageError, match="one machine") as told, on_engine(exclusive, cluster.scheduler_address):
        pass
    assert told.value.exit_code == 2
