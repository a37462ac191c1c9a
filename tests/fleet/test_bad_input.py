"""What goes wrong with a campaign over hosts, by the command line: exit code, the words, and that nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the extra fleet")

import slomo.fleet.campaign as fleet_campaign
import slomo.fleet.measuring as measuring
from slomo.cli.main import main
from slomo.fleet.campaign import HostProgress
from slomo.fleet.hosts import Fleet, FleetHost
from slomo.fleet.measuring import FleetWork, claim_host
from slomo.host.locks import MachineLock
from slomo.profiling.campaign.progress import Silent
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload

PLAN, MACHINE, LPM = toy_plan(competitors=3), "e5-2620v4", Workload("lpm")


@pytest.fixture
def files(tmp_path):
    """Return the words of the command, for two hosts with a state of their own each."""
    entries = [{"name": name, "state": str(tmp_path / "state")} for name in ("a", "b")]
    (tmp_path / "hosts.yaml").write_text(json.dumps({"testbed": "simulated", "hosts": entries}))
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_dict()))
    words = ["fleet", "profile", str(tmp_path / "plan.json"), "--hosts", str(tmp_path / "hosts.yaml")]
    return [*words, "--out", str(tmp_path / "out.parquet")]


@pytest.fixture
def fleet(tmp_path):
    """Return the same two hosts."""
    return Fleet([FleetHost(name, state=str(tmp_path / "state")) for name in ("a", "b")], "simulated")


@pytest.fixture
def command(files, fleet, fleet_workers, monkeypatch):
    """Return the words with a scheduler whose workers measure on the toy."""
    monkeypatch.setattr(measuring, "_opened_testbed", lambda *_: ToyTestbed())
    yield [*files, "--scheduler", fleet_workers(fleet)]
    for host in fleet.hosts:
        measuring._machine_lock(measuring._state(host)).release()
    measuring._machine_lock.cache_clear()


def told(words, capsys):
    """Return exit code and what was said."""
    capsys.readouterr()
    return main(words), capsys.readouterr().err


def spoilt(monkeypatch, **other):
    """Let host b describe itself otherwise."""

    def describe(host, work, plan):
        described = measuring.describe_host(host, work, plan)
        return replace(described, **other) if host.name == "b" else replace(described, kernel="1")

    monkeypatch.setattr(fleet_campaign, "describe_host", describe)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"versions": {"slomo": "0.0.9"}}, "host 'b' has slomo 0.0.9"),
        ({"fingerprint": "b" * 16}, "host 'b' is not the machine 'toy'"),
        ({"kernel": "1"}, "hosts 'a' and 'b' are the same machine"),
        ({"environment": {"testbed": "other"}}, "do not measure alike"),
    ],
)
def test_hosts_that_do_not_fit_are_named(other, words, command, monkeypatch, capsys, tmp_path):
    """Another version, another machine than it claims, one machine twice, other settings: nothing is measured."""
    spoilt(monkeypatch, **other)
    code, said = told(command, capsys)
    assert (code, words in said, "hint:" in said) == (3, True, True), said
    assert not list((tmp_path / "state").glob("*/*.sqlite"))


def test_a_host_in_use_two_coordinators_and_a_stale_token(command, fleet, capsys, tmp_path, monkeypatch):
    """Exit code 3 each, with who it is; the runs that were made stay, and the next call ends with the dataset."""
    folder = tmp_path / "state" / "b"
    folder.mkdir(parents=True)
    with MachineLock("somebody", folder / "lock"):
        code, said = told(command, capsys)
    assert (code, f"process {os.getpid()}" in said) == (3, True), said
    with CampaignStore(tmp_path / "out.parquet.runs.sqlite"):
        code, said = told(command, capsys)
    assert (code, "in use" in said) == (3, True), said

    def overtaken(host, work, run, again=False):
        claim_host(host, FleetWork(work.plan, "toy", "toy", token=work.token + 1, coordinator="another"))
        return measuring.measure_on(host, work, run, again)

    with monkeypatch.context() as patch:
        patch.setattr(fleet_campaign, "measure_on", overtaken)
        code, said = told(command, capsys)
    assert (code, "serves a coordinator with token 2, this one has 1" in said) == (3, True), said
    assert told(command, capsys)[0] == 0
    made = ProfileDataset.read_parquet(tmp_path / "out.parquet")
    assert made.frame.equals(run_campaign(PLAN, ToyTestbed()).frame)


def test_files_that_are_no_plan_store_or_hosts(command, capsys, tmp_path):
    """An empty plan, a plan for another store, a store that is none or a folder: 2, 3 or 4, with the file's name."""
    plan, store = tmp_path / "plan.json", tmp_path / "out.parquet.runs.sqlite"
    for text in ("", "[]", "{}", json.dumps({**PLAN.to_dict(), "colocations": []})):
        plan.write_text(text)
        code, said = told(command, capsys)
        assert code in (2, 4), said
        assert "plan" in said
    plan.write_text(json.dumps(PLAN.to_dict()))
    store.mkdir()
    assert told(command, capsys)[0] in (2, 3)
    store.rmdir()
    store.write_text("no store")
    code, said = told(command, capsys)
    assert (code, store.name in said) == (3, True), said
    store.unlink()
    assert told(command, capsys)[0] == 0
    plan.write_text(json.dumps(toy_plan(competitors=5).to_dict()))
    assert told(command, capsys)[0] == 4


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"python": "/nowhere/python"}, "'a': '/nowhere/python' cannot be started: No such file"),
        ({"python": sys.executable, "state": "/proc/state"}, "host 'a': folder /proc/state/a cannot be made: No such"),
    ],
)
def test_a_worker_that_cannot_start_is_named_with_its_host(entry, words, files, capsys, tmp_path):
    """No such program, a folder that cannot be written: exit code 3, as for a host that cannot be reached."""
    (tmp_path / "hosts.yaml").write_text(json.dumps({"testbed": "simulated", "hosts": [{"name": "a", **entry}]}))
    code, said = told(files, capsys)
    assert (code, words in said) == (3, True), said


SLOW = """
import os
from slomo.testing.builders import ToyTestbed

class Slow(ToyTestbed):
    def run(self, colocation, *, seed=0):
        record = super().run(colocation, seed=seed)
        with open(os.environ["SLOW_LOG"], "a") as log:
            log.write(f"{colocation.key}-{seed}\\n")
        return record

def slow(machine, functions):
    return Slow(0.4)
"""


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(files, tmp_path):
    """The runs under way end and are kept; nothing is made twice; the dataset is that of a campaign left alone."""
    sizes = range(1, 17)
    pairs = (Colocation(MACHINE, LPM, (Workload("synthetic", {"data_size_mib": size}),)) for size in sizes)
    plan = ExperimentPlan("slow", (Colocation(MACHINE, LPM), *pairs))
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_dict()))
    described, log = tmp_path / "package" / "slow-1.0.dist-info", tmp_path / "log"
    described.mkdir(parents=True)
    (described.parent / "slow.py").write_text(SLOW)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[slomo.testbeds]\nslow = slow:slow\n")
    hosts = json.loads((tmp_path / "hosts.yaml").read_text())
    entries = [{**each, "python": sys.executable} for each in hosts["hosts"]]
    (tmp_path / "hosts.yaml").write_text(json.dumps({"testbed": "slow", "hosts": entries}))
    paths = os.pathsep.join((str(described.parent), str(Path(__file__).parents[2])))
    environment = {**os.environ, "PYTHONPATH": paths, "SLOW_LOG": str(log)}
    words, until = [sys.executable, "-m", "slomo", *files], time.monotonic() + 240.0
    running = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    while (not log.exists() or len(log.read_text().split()) < 3) and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    said = running.communicate()[1]
    assert running.returncode == 130, said
    assert "the same command again goes on" in said
    before = len(log.read_text().split())
    assert 3 <= before < 17
    again = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    made = log.read_text().split()
    assert len(made) == len(set(made)) == 17
    assert ProfileDataset.read_parquet(tmp_path / "out.parquet").frame.equals(run_campaign(plan, ToyTestbed()).frame)


def test_progress_says_what_each_host_did_and_what_the_rest_costs(tmp_path):
    """Of few hosts all, of many the one with the fewest runs and the one with the most."""
    said: list[str] = []
    fleet = Fleet([FleetHost(name, cost_per_h=3600.0) for name in ("a", "b")], "toy")

    class Listener(Silent):
        def remark(self, text):
            said.append(text)

    runs = PLAN.runs()
    with CampaignStore(tmp_path / "runs.sqlite") as store:
        progress = HostProgress(Listener(), store, fleet)
        progress.start(len(runs))
        for number, run in enumerate(runs[:3]):
            record = ToyTestbed().run(run.colocation, seed=run.seed)
            by = {"fleet": {"host": "ab"[number % 2], "token": 1}}
            store.add(run, replace(record, provenance={**record.provenance, **by}), 2.0)
            progress.advance(run)
        assert said[-1] == f"a:2 b:1, cost left {2.0 * (len(runs) - 3):.2f}"
        many = replace(fleet, hosts=[FleetHost(f"h{number}") for number in range(20)])
        progress = HostProgress(Listener(), store, many)
        progress.advance(runs[0])
        assert said[-1].count(":") == 2
