"""A campaign is durable, resumable and repeatable, whatever happens to it."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from slomo.errors import (
    IncompatibleMeasurementsError,
    InvalidValueError,
    StoreError,
    TestbedError,
    UnknownNameError,
    UsageError,
)
from slomo.profiling.campaign.description import describe_campaign
from slomo.profiling.campaign.run import IncompleteCampaignError, run_campaign
from slomo.profiling.campaign.store import CampaignStore, stored_records
from slomo.profiling.plans.basic import mixes_plan
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.testing.builders import TOY_MACHINE, ToyTestbed, toy_plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload
from tests.faulty_testbeds import FailingTestbed, NoisyTestbed

#: A campaign in a process of its own, as a user would start it; the same command every time.
PROGRAM = """
import sys
from slomo.profiling.campaign.run import run_campaign
from tests.faulty_testbeds import NoisyTestbed
from slomo.testing.builders import ToyTestbed, toy_plan

store, out, delay = sys.argv[1], sys.argv[2], float(sys.argv[3])
try:
    testbed = NoisyTestbed(ToyTestbed(delay_s=delay), seed=2)
    dataset = run_campaign(toy_plan(competitors=39, seed=5), testbed, store, jobs=2)
except KeyboardInterrupt as interruption:
    print(interruption)
    sys.exit(130)
dataset.to_parquet(out)
"""


def start(store: Path, out: Path, delay_s: float) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(store), str(out), str(delay_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_runs(store: Path, count: int, process: subprocess.Popen) -> None:
    """Wait until the write-ahead log has grown as `count` runs make it grow."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if store.exists():
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
                try:
                    if connection.execute("SELECT count(*) FROM runs").fetchone()[0] >= count:
                        return
                except sqlite3.OperationalError:
                    pass  # not created yet
        time.sleep(0.02)
    pytest.fail(f"the campaign did not reach {count} runs: {process.communicate()}")


class Recorder:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def start(self, total: int) -> None:
        self.heard.append(f"start {total}")

    def advance(self, run) -> None:
        self.heard.append(run.label)

    def finish(self) -> None:
        self.heard.append("finish")


def test_killed_campaign_ends_with_the_same_dataset(tmp_path):
    """Killed twice by SIGKILL and resumed, a campaign ends with the bytes of one that was not killed."""
    store, out = tmp_path / "killed.sqlite", tmp_path / "killed.parquet"
    for runs in (3, 20):
        process = start(store, out, delay_s=0.05)
        wait_for_runs(store, runs, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    kept = len(stored_records(store))
    assert 20 <= kept < 40
    last = start(store, out, delay_s=0.0)
    assert last.communicate()[1] == ""
    whole = run_campaign(toy_plan(competitors=39, seed=5), NoisyTestbed(ToyTestbed(), seed=2))
    whole.to_parquet(tmp_path / "whole.parquet")

    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_campaign_between_runs(tmp_path, number):
    """Ctrl-C and SIGTERM keep what is finished, say how much it is, and the same command goes on."""
    store, out = tmp_path / "a.sqlite", tmp_path / "a.parquet"
    process = start(store, out, delay_s=0.1)
    wait_for_runs(store, 4, process)
    process.send_signal(number)
    text, trouble = process.communicate(timeout=60)
    kept = len(stored_records(store))

    assert process.returncode == 130, trouble
    assert f"{kept} of 40 runs are kept in '{store}'" in text
    assert 4 <= kept < 40
    assert not store.with_name("a.sqlite.lock").exists()


def test_dataset_does_not_depend_on_jobs_or_order(tmp_path):
    """One worker or four, in one go or two: the same bytes."""
    plan = toy_plan(competitors=9, seed=3, replicates=2)
    files = []
    for jobs in (1, 4):
        path = tmp_path / f"{jobs}.parquet"
        run_campaign(
            plan, NoisyTestbed(ToyTestbed(delay_s=0.001), seed=1), tmp_path / f"{jobs}.sqlite", jobs
        ).to_parquet(path)
        files.append(path.read_bytes())
    in_memory = run_campaign(plan, NoisyTestbed(ToyTestbed(), seed=1))
    in_memory.to_parquet(tmp_path / "memory.parquet")

    assert files[0] == files[1] == (tmp_path / "memory.parquet").read_bytes()


def test_seed_decides_the_simulated_dataset():
    """The same seed gives the same simulated dataset on one worker and two; another seed gives another."""
    testbed = SimulatedTestbed("silver-4110", accesses=20_000)
    plans = [mixes_plan(["lpm", "l2fwd", "stats"], "silver-4110", 4, (1, 2), seed=1)] * 2
    first, second = (run_campaign(plan, testbed, jobs=jobs) for plan, jobs in zip(plans, (1, 2), strict=True))
    other = ExperimentPlan(plans[0].name, plans[0].colocations, seed=2)

    assert first == second
    assert run_campaign(other, testbed) != first


def test_every_tenant_of_a_mix_is_a_target():
    """A mix of a target and two competitors gives three rows."""
    plan = ExperimentPlan("mixes", (Colocation(TOY_MACHINE, Workload("lpm"), (Workload("nat"), Workload("firewall"))),))
    dataset = run_campaign(plan, ToyTestbed())

    assert [key.split("@")[0] for key in dataset.frame["target"]] == ["lpm", "nat", "firewall"]
    assert set(dataset.frame["plan"]) == {"mix"}


def test_finished_runs_are_not_run_again(tmp_path):
    """A second start of a finished campaign runs nothing: a testbed that always fails is never asked."""
    first = run_campaign(toy_plan(), ToyTestbed(), tmp_path / "a.sqlite")
    recorder = Recorder()
    again = run_campaign(toy_plan(), FailingTestbed(ToyTestbed(), every=1), tmp_path / "a.sqlite", progress=recorder)

    assert again == first
    assert recorder.heard == []


def test_listener_hears_every_run(tmp_path):
    """Progress is told the number of open runs, each run, and the end."""
    recorder = Recorder()
    run_campaign(toy_plan(competitors=1), ToyTestbed(), jobs=1, progress=recorder)

    assert recorder.heard[0] == "start 2"
    assert recorder.heard[-1] == "finish"
    assert len(recorder.heard) == 4


def test_failed_run_is_tried_again():
    """A run that fails once is repeated, with the same seed, and leaves no trace in the dataset."""
    plan = toy_plan(competitors=5)
    flaky = run_campaign(plan, FailingTestbed(NoisyTestbed(ToyTestbed()), every=3), jobs=1)

    assert flaky == run_campaign(plan, NoisyTestbed(ToyTestbed()))


def test_failing_run_does_not_stop_the_others(tmp_path):
    """What fails twice is counted at the end; everything else is kept, and a mended testbed completes it."""
    plan, store = toy_plan(competitors=5), tmp_path / "a.sqlite"
    broken = FailingTestbed(ToyTestbed(), keys=[plan.colocations[2].key], error=OSError("cable"))
    with pytest.raises(
        IncompleteCampaignError, match=r"1 of 6 runs of plan 'toy' failed 2 times.*5 finished.*OSError: cable"
    ) as caught:
        run_campaign(plan, broken, store)

    assert isinstance(caught.value, TestbedError)
    assert len(caught.value.dataset) == 5
    with CampaignStore(store) as opened:
        assert [error for _, error, _ in opened.failures()] == ["OSError"] * 2
    assert "2 attempts failed so far, the last: " in str(describe_campaign(plan, ToyTestbed(), store))
    assert run_campaign(plan, ToyTestbed(), store) == run_campaign(plan, ToyTestbed())


def test_everything_failing_leaves_no_dataset():
    """If nothing could be measured the error has no dataset."""
    with pytest.raises(IncompleteCampaignError) as caught:
        run_campaign(toy_plan(), FailingTestbed(ToyTestbed(), every=1))
    assert caught.value.dataset is None


def test_nonsense_from_a_testbed_is_a_failed_run():
    """A throughput that is no number never enters a dataset."""

    class Broken(ToyTestbed):
        def run(self, colocation, *, seed=0):
            from dataclasses import replace

            record = super().run(colocation, seed=seed)
            tenants = (replace(record.beside.tenants[0], throughput_mpps=float("nan")), *record.beside.tenants[1:])
            return replace(record, beside=replace(record.beside, tenants=tenants))

    with pytest.raises(IncompleteCampaignError, match="throughput is nan Mpps"):
        run_campaign(toy_plan(), Broken())


def test_what_was_asked_for_wrongly_stops_at_once():
    """An unknown function is the user's fault, not a failing run; the simulator says so before the first run."""
    plan = ExperimentPlan("typo", (Colocation(TOY_MACHINE, Workload("lpn")),))
    with pytest.raises(UnknownNameError, match="did you mean 'lpm'"):
        run_campaign(plan, ToyTestbed())
    recorder = Recorder()
    colocations = (
        Colocation("e5-2620v4", Workload("lpm")),
        Colocation("e5-2620v4", Workload("lpm"), (Workload("lpn"),)),
    )
    with pytest.raises(UnknownNameError, match="unknown network function 'lpn'"):
        run_campaign(ExperimentPlan("typo", colocations), SimulatedTestbed(), progress=recorder)
    assert recorder.heard == []


def test_jobs_below_one_are_refused():
    """Nobody works with no worker."""
    with pytest.raises(UsageError, match="jobs is 0"):
        run_campaign(toy_plan(), ToyTestbed(), jobs=0)


def test_exclusive_testbed_runs_one_at_a_time():
    """On a real machine two runs would disturb each other."""

    class Rack(ToyTestbed):
        exclusive = True
        running = 0
        most = 0

        def run(self, colocation, *, seed=0):
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                return super().run(colocation, seed=seed)
            finally:
                self.running -= 1

    rack = Rack(delay_s=0.005)
    run_campaign(toy_plan(competitors=8), rack, jobs=4)

    assert rack.most == 1


def test_unstable_colocation_is_repeated_and_declared(tmp_path):
    """Dispersing throughput is measured up to the maximum, also on resumption; stable ones stay at the minimum."""
    colocations = toy_plan(competitors=2).colocations
    plan = ExperimentPlan("noisy", colocations, replicates=2, maximum_replicates=6, dispersion_limit=0.05)
    loud = NoisyTestbed(ToyTestbed(), throughput=0.5)
    dataset = run_campaign(plan, loud, tmp_path / "a.sqlite", jobs=2)

    assert set(dataset.frame["replicates"]) - {2}
    unstable = dataset.frame[dataset.frame["stability"] == "unstable"]
    assert set(unstable["replicates"]) == {6}
    assert run_campaign(plan, loud, tmp_path / "a.sqlite") == dataset
    assert set(run_campaign(plan, ToyTestbed()).frame["replicates"]) == {2}


def test_two_campaigns_on_one_store_are_refused(tmp_path):
    """The second campaign on a store fails at once, names the holder, and harms nothing."""
    store = tmp_path / "a.sqlite"
    slow = threading.Thread(
        target=run_campaign, args=(toy_plan(competitors=4), ToyTestbed(delay_s=0.15), store), kwargs={"jobs": 1}
    )
    slow.start()
    try:
        while not store.exists():
            time.sleep(0.005)
        with pytest.raises(StoreError, match=rf"is in use by another process \({os.getpid()}\)"):
            run_campaign(toy_plan(competitors=4), ToyTestbed(), store)
    finally:
        slow.join()
    assert len(stored_records(store)) == 5


def test_store_of_another_campaign_is_refused_with_a_difference(tmp_path):
    """Another seed, other co-locations or another testbed must not add to a store; what it holds stays."""
    store = tmp_path / "a.sqlite"
    run_campaign(toy_plan(seed=1), ToyTestbed(), store)
    with pytest.raises(IncompatibleMeasurementsError, match=r"plan.seed: 1 \| 2"):
        run_campaign(toy_plan(seed=2), ToyTestbed(), store)
    with pytest.raises(
        IncompatibleMeasurementsError, match=r"plan.colocations: 4 \| 6 \(only there 0, only asked for 2\)"
    ):
        run_campaign(toy_plan(competitors=5, seed=1), ToyTestbed(), store)
    with pytest.raises(IncompatibleMeasurementsError, match=r"testbed: toy \| noisy-toy"):
        run_campaign(toy_plan(seed=1), NoisyTestbed(ToyTestbed()), store)
    assert len(stored_records(store)) == 4


def test_dry_run_counts_without_running(tmp_path):
    """A description says what is planned, finished and left, and makes no file."""
    store, plan = tmp_path / "a.sqlite", toy_plan(competitors=5)
    before = describe_campaign(plan, FailingTestbed(ToyTestbed(delay_s=10), every=1), store, jobs=3)
    assert not store.exists()
    with pytest.raises(IncompleteCampaignError):
        run_campaign(plan, FailingTestbed(ToyTestbed(), keys=[plan.colocations[0].key]), store)
    after = describe_campaign(plan, ToyTestbed(delay_s=10), store, jobs=3)

    assert (before.runs, before.finished, before.pending, before.estimate_s) == (6, 0, 6, 20.0)
    assert (after.finished, after.pending, after.estimate_s) == (5, 1, 10.0)
    assert after.to_dict()["targets"] == {"lpm@64B,100000f": 6}


def test_dry_run_lets_a_testbed_measure_nothing():
    """A testbed that must calibrate before it can say what it is, is not asked: there is nothing to compare with."""

    class Calibrating(ToyTestbed):
        def environment(self):
            raise AssertionError("it would run for a minute")

    assert describe_campaign(toy_plan(), Calibrating()).pending == 4


def test_dry_run_finds_impossible_plans():
    """What the testbed cannot run is said before anything runs."""
    plan = ExperimentPlan("big", (Colocation("e5-2620v4", Workload("lpm"), (Workload("stats"),) * 9),))
    with pytest.raises(InvalidValueError, match="10 tenants"):
        describe_campaign(plan, SimulatedTestbed())
