"""Two Dask workers or none: the same datasets, models and judgements; a worker that dies costs its task."""

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import slomo
from slomo.fleet.engine import on_engine
from slomo.fleet.spread import spread
from slomo.profiling.campaign.run import run_campaign
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.training.training import train
from slomo.workflow.place import compare, make_judge

distributed = pytest.importorskip("distributed", reason="needs the extra fleet")

MACHINE = "e5-2620v4"
FAMILIES = ["slomo-xgb", "slomo-additive", "dobrescu"]


@pytest.fixture(scope="module")
def scheduler():
    """Return the address of a scheduler with two workers, processes of their own."""
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, **options) as made:
        yield made.scheduler_address


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json")}


def test_the_dataset_is_that_of_one_machine(scheduler, tmp_path):
    """Runs made by workers: the file has the same bytes."""
    plan, files = toy_plan(competitors=12, replicates=2), [tmp_path / "here.parquet", tmp_path / "there.parquet"]
    run_campaign(plan, ToyTestbed()).to_parquet(files[0])
    with on_engine(ToyTestbed(), scheduler) as there:
        run_campaign(plan, there, jobs=2).to_parquet(files[1])
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.fixture(scope="session")
def trained_here(small_profile, tmp_path_factory) -> dict[str, bytes]:
    """Return the files of models fitted without workers."""
    return content(train(small_profile, models=FAMILIES).save(tmp_path_factory.mktemp("here")))


def test_the_library_is_that_of_one_machine(scheduler, small_profile, trained_here, tmp_path):
    """Models fitted by workers: every file has the same bytes."""
    train(small_profile, models=FAMILIES, each=partial(spread, scheduler=scheduler)).save(tmp_path)
    assert len(trained_here) > 3
    assert content(tmp_path) == trained_here


def test_placements_are_judged_alike(scheduler, toy_library):
    """Mixes run by workers: the same judgement of every policy."""
    requests = [slomo.Request(f"{nf}{number}", nf) for nf in ("lpm", "nat") for number in range(3)]
    testbed = ToyTestbed()
    cluster, judged = slomo.Cluster.uniform(MACHINE, 3), []
    for judge in (make_judge(testbed), make_judge(testbed, scheduler=scheduler)):
        found = compare(cluster, requests, toy_library, ["e2", "dobrescu"], judge=judge)
        judged.append([replace(each, decision_ms=(0.0, 0.0), batch_s=0.0) for each in found])
    assert judged[0] == judged[1]
    assert judged[0][0].mixes_run > 0


def once_killed(folder: str, number: int) -> int:
    """Return a number; the worker that is asked for 3 first dies."""
    Path(folder, f"{number}-{os.getpid()}").touch()
    if number == 3 and len(list(Path(folder).glob("3-*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_dies_costs_its_task(scheduler, tmp_path):
    """The others' results are there, and what it was doing is done again."""
    assert list(spread(partial(once_killed, str(tmp_path)), range(8), scheduler=scheduler)) == list(range(8))
    assert len(list(tmp_path.glob("3-*"))) == 2
