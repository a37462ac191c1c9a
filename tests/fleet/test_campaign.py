"""Campaigns over hosts: the dataset of one host, whoever dies; tokens, locks, and hosts that are not as they should."""

import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytest.importorskip("distributed", reason="needs the extra fleet")

import fleet_hosts

import slomo.fleet.measuring as measuring
from slomo.cli.main import main
from slomo.errors import SlomoError, StoreError, TestbedError
from slomo.fleet import asking, campaign
from slomo.fleet.campaign import profile_on_hosts
from slomo.fleet.hosts import Fleet, FleetHost, load_fleet
from slomo.fleet.measuring import FleetWork, claim_host, collect_runs, describe_host, measure_on
from slomo.fleet.room import PARTS, FinishedRun, Room
from slomo.host.locks import MachineLock
from slomo.profiling.campaign.run import _Work, attempt, run_campaign
from slomo.profiling.campaign.store import CampaignStore, StaleTokenError
from slomo.testing.builders import ToyTestbed, toy_plan
from tests.testbed_host.real_sshd import RealSshd


@pytest.fixture
def toy(monkeypatch):
    """Let hosts in this process measure on the toy."""
    monkeypatch.setattr(measuring, "_opened_testbed", lambda *_: ToyTestbed())


@pytest.fixture
def fleet(tmp_path):
    """Return three hosts with a state of their own each."""
    return Fleet([FleetHost(name, state=str(tmp_path / "state"), cost_per_h=36.0) for name in ("a", "b", "c")], "toy")


@pytest.fixture
def workers(toy, fleet, fleet_workers):
    """Return the address of a scheduler with a worker per host."""
    return fleet_workers(fleet)


def same(one, other):
    assert one.frame.equals(other.frame)
    assert one.environment == other.environment


PLAN = toy_plan(competitors=12, replicates=2)


def test_hosts_make_the_dataset_of_one(workers, fleet, tmp_path):
    """Runs are divided; a lost store is collected from the hosts again; an outlier takes no part."""
    expected = run_campaign(PLAN, ToyTestbed())
    done = profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    same(done.dataset, expected)
    assert sum(share.runs for share in done.shares) == 26
    assert done.collected == 0
    again = profile_on_hosts(PLAN, fleet, tmp_path / "other.sqlite", scheduler=workers)
    same(again.dataset, expected)
    assert (again.collected, sum(share.runs for share in again.shares)) == (26, 0)


def test_a_host_that_differs_is_named_before_it_measures(workers, fleet, tmp_path, monkeypatch):
    """One run on each; what is farther from the median than the plan allows is left out."""

    def slow(host, work, run, again=False):
        outcome = attempt(ToyTestbed(), run)
        tenant = outcome.record.beside.tenants[0]
        slower = replace(tenant, throughput_mpps=(0.8 if host.name == "b" else 1.0) * tenant.throughput_mpps)
        return replace(
            outcome, record=replace(outcome.record, beside=replace(outcome.record.beside, tenants=(slower,)))
        )

    monkeypatch.setattr(campaign, "compare_on", slow)
    done = profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    assert "-20.0 % from the median of 3 hosts" in done.left_out["b"]
    assert {share.name: share.runs for share in done.shares}["b"] == 0
    assert sum(share.runs for share in done.shares) == 26


def test_a_host_whose_disk_is_full_loses_no_run(workers, fleet, tmp_path, monkeypatch):
    """What hosts cannot keep the coordinator keeps; the failures are written down."""
    expected, whole = run_campaign(PLAN, ToyTestbed()), CampaignStore.add

    def full(store, *arguments):
        if store.path.parent.parent.name == "state":
            raise StoreError("cannot grow: the disk is full")
        return whole(store, *arguments)

    monkeypatch.setattr(CampaignStore, "add", full)
    done = profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    same(done.dataset, expected)
    assert sum(share.runs for share in done.shares) == 26
    with CampaignStore(tmp_path / "runs.sqlite") as store:
        assert len(store.failures()) == 26


def test_a_full_disk_and_a_coordinator_that_dies_lose_no_run(workers, fleet, tmp_path, monkeypatch):
    """What a host could not store and no coordinator heard of is in the room that it set aside: nothing is repeated."""
    expected, whole, made, kept = run_campaign(PLAN, ToyTestbed()), CampaignStore.add, [], []

    def full(store, run, *arguments):
        key = (run.colocation.key, run.replicate)
        if store.path.parent.parent.name == "state":
            if store.path.stem == PLAN.fingerprint:  # not one that hosts are compared by
                made.append(key)
            raise StoreError("cannot grow: the disk is full")
        if len(kept) == 8:
            kept.append(key)
            raise KeyboardInterrupt  # it dies before it has kept what it heard of
        kept.append(key)
        return whole(store, run, *arguments)

    monkeypatch.setattr(CampaignStore, "add", full)
    monkeypatch.setattr(_Work, "_keep_the_rest", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    with CampaignStore(tmp_path / "runs.sqlite") as store:
        assert len(store) == 8
    done = profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    same(done.dataset, expected)
    assert done.collected >= 1
    assert len(made) == len(set(made)) == 26


@pytest.fixture
def disk(tmp_path):
    """Return a file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_host_without_room_on_its_disk_goes_on(toy, disk):
    """Another coordinator takes it over, collects what is there, and has runs made that are kept until it collects."""
    host, runs = FleetHost("a", state=str(disk)), PLAN.runs()
    old = FleetWork(PLAN.fingerprint, "toy", "toy", token=1, coordinator="old")
    claim_host(host, old)
    assert measure_on(host, old, runs[0]).errors == ()
    with suppress(OSError), (disk / "filler").open("wb") as filler:
        while True:
            filler.write(bytes(4096))
            filler.flush()
    new = replace(old, token=2, coordinator="new")
    claim_host(host, new)
    with pytest.raises(StaleTokenError):
        measure_on(host, old, runs[1])
    everything = [(run.colocation.key, run.replicate) for run in runs]
    for number, run in enumerate(runs[1:8], 2):
        (error,) = measure_on(host, new, run).errors
        assert "the disk is full" in error.message
        assert measure_on(host, new, run).errors == ()  # it is found there
        assert len(collect_runs(host, new, everything)) == min(number, 1 + PARTS)
    measuring._machine_lock(measuring._state(host)).release()


def test_a_disk_that_is_full_from_the_start_is_told(toy, disk):
    """Before anything is measured there, with what to do."""
    (disk / "filler").write_bytes(bytes(240 * 1024))
    host, work = FleetHost("a", state=str(disk)), FleetWork(PLAN.fingerprint, "toy", "toy", token=1)
    with pytest.raises(StoreError, match="room: cannot be written: No space left") as told:
        claim_host(host, work)
    assert "free some space" in told.value.hint
    measuring._machine_lock(measuring._state(host)).release()


def test_what_was_cut_short_in_the_room_reads_as_empty(tmp_path):
    """Of four parts the others are read; what does not fit is told."""
    room = Room(tmp_path / "room")
    room.set_aside()
    runs = [FinishedRun(f"run {number}", 0, {"seed": number}, 1.0) for number in range(6)]
    for run in runs:
        room.keep("plan", run)
    assert sorted(room.runs("plan"), key=lambda run: run.colocation) == runs[-PARTS:]
    assert room.runs("other plan") == []
    content = bytearray(room.path.read_bytes())
    content[40] ^= 1
    room.path.write_bytes(content)
    assert len(room.runs("plan")) == PARTS - 1
    with pytest.raises(StoreError, match="does not fit"):
        room.keep("plan", FinishedRun("long", 0, {"text": random.Random(0).randbytes(30_000).hex()}, 1.0))
    (tmp_path / "room").write_bytes(b"")
    with pytest.raises(StoreError, match="has 0 B, needed 65536"):
        room.runs("plan")


def test_hosts_that_do_not_come_are_told(workers, fleet, tmp_path, monkeypatch):
    """By name, with exit code 3; left out where that was asked for."""
    monkeypatch.setattr(asking, "START_S", 0.3)
    more = replace(fleet, hosts=[*fleet.hosts, FleetHost("d", state=str(tmp_path))])
    with pytest.raises(TestbedError, match="1 of 4 hosts cannot be used; 'd': its worker did not come") as told:
        profile_on_hosts(PLAN, more, tmp_path / "runs.sqlite", scheduler=workers)
    assert told.value.exit_code == 3
    done = profile_on_hosts(PLAN, more, tmp_path / "runs.sqlite", scheduler=workers, skip_missing=True)
    assert "d" in done.left_out


def test_a_host_that_goes_before_it_measures_is_told(workers, fleet, tmp_path, monkeypatch):
    """Nobody waits for its answer for ever: exit code 3, or it is left out where that was asked for."""
    monkeypatch.setattr(asking, "START_S", 0.3)
    monkeypatch.setattr(asking, "_awaited", lambda *_: {})  # it came, and went
    more = replace(fleet, hosts=[*fleet.hosts, FleetHost("d", state=str(tmp_path))])
    with pytest.raises(TestbedError, match="host 'd' is gone") as told:
        profile_on_hosts(PLAN, more, tmp_path / "runs.sqlite", scheduler=workers)
    assert told.value.exit_code == 3
    done = profile_on_hosts(PLAN, more, tmp_path / "runs.sqlite", scheduler=workers, skip_missing=True)
    assert (len(done.dataset), [*done.left_out]) == (13, ["d"])


def test_a_second_coordinator_is_refused_or_takes_over(workers, fleet, tmp_path):
    """With the same store it is refused; a newer token on a host stops the older one, whose runs are kept."""
    with CampaignStore(tmp_path / "runs.sqlite"), pytest.raises(StoreError, match="in use"):
        profile_on_hosts(PLAN, fleet, tmp_path / "runs.sqlite", scheduler=workers)
    host = fleet.hosts[0]
    old = FleetWork(PLAN.fingerprint, "toy", "toy", token=1, coordinator="old")
    new = replace(old, token=2, coordinator="new")
    claim_host(host, old)
    runs = PLAN.runs()
    assert measure_on(host, old, runs[0]).record.provenance["fleet"] == {"host": "a", "token": 1}
    with pytest.raises(StaleTokenError, match="token 1"):
        claim_host(host, replace(old, coordinator="twin"))
    claim_host(host, new)
    for call in (lambda: measure_on(host, old, runs[1]), lambda: claim_host(host, old)):
        with pytest.raises(StaleTokenError, match="serves a coordinator with token 2, this one has 1") as told:
            call()
    assert told.value.exit_code == 3
    assert len(collect_runs(host, new, [(run.colocation.key, run.replicate) for run in runs])) == 1
    with CampaignStore(tmp_path / "state" / "a" / f"{PLAN.fingerprint}.sqlite") as store:
        outcome = attempt(ToyTestbed(), runs[1])
        with pytest.raises(StaleTokenError, match="runs of token 1 are not taken"):
            store.add(runs[1], outcome.record, 0.1, token=1)
        assert len(store) == 1
        with pytest.raises(StaleTokenError):
            store.fence(1)


def test_one_process_uses_a_host_at_a_time(toy, fleet):
    """Whoever holds the lock, stopped or not, keeps others out, who are told which process it is."""
    host, work = fleet.hosts[1], FleetWork(PLAN.fingerprint, "toy", "toy", token=1)
    measuring._machine_lock.cache_clear()
    folder = measuring._state(host)
    folder.mkdir(parents=True)
    with MachineLock("somebody", folder / "lock"):
        for call in (lambda: describe_host(host, work, PLAN), lambda: measure_on(host, work, PLAN.runs()[0])):
            with pytest.raises(TestbedError, match=str(os.getpid())):
                call()
    assert describe_host(host, work, PLAN).token == 0
    measuring._machine_lock(folder).release()


def test_hosts_that_are_not_alike_are_refused(toy, fleet):
    """Another version, another machine than it claims, other settings: exit code 3, before anything runs."""
    work = FleetWork(PLAN.fingerprint, "toy", "toy")
    one = describe_host(fleet.hosts[0], work, PLAN)
    others = {
        "has slomo 0.0.9": replace(one, versions={**one.versions, "slomo": "0.0.9"}),
        "is not the machine 'toy'": replace(one, fingerprint="b" * 16),
        "do not measure alike": replace(one, environment={**one.environment, "settings": {"formula": 2}}),
    }
    for words, other in others.items():
        with pytest.raises(TestbedError, match=words):
            campaign.require_alike({"a": one, "b": other}, PLAN, "")
    with pytest.raises(TestbedError, match="needed ffff") as told:
        campaign.require_alike({"a": one}, PLAN, "f" * 16)
    assert told.value.exit_code == 3
    measuring._machine_lock(measuring._state(fleet.hosts[0])).release()


def test_files_that_are_none_are_told(capsys, tmp_path):
    """Hosts and plans, with line and field; nothing is started."""
    for text, words in (
        ("hosts: []", "hosts"), ("hosts: [{name: 'a b'}]", "name"), ("hosts: [{name: a}, {name: a}]", "same name"),
        ("hosts: [{name: a, colour: red}]", "colour"), ("hosts: [{name: a, ssh: '-oProxy=x'}]", "no host for SSH"),
    ):  # fmt: skip
        (tmp_path / "hosts.yaml").write_text(text)
        with pytest.raises(SlomoError, match=words):
            load_fleet(tmp_path / "hosts.yaml")
    (tmp_path / "hosts.yaml").write_text("hosts: [{name: a, cost_per_h: 3600}]\ntestbed: simulated\n")
    plan, hosts = str(tmp_path / "plan.json"), str(tmp_path / "hosts.yaml")
    (tmp_path / "plan.json").write_text("{}")
    assert main(["fleet", "profile", plan, "--hosts", hosts, "--dry-run"]) in (2, 4)
    planning = ["--plan", "solo", "--machine", "silver-4110", "--save-plan", plan]
    assert main(["profile", "lpm", *planning]) == 2
    assert main(["profile", "lpm", *planning, "--dry-run"]) == 0
    assert main(["fleet", "profile", plan, "--hosts", hosts]) == 2
    capsys.readouterr()
    assert main(["fleet", "profile", plan, "--hosts", hosts, "--dry-run", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["runs"], described["hosts"]) == (1, 1)
    assert described["cost"] == pytest.approx(described["wall_s"])
    assert [(share["name"], share["runs"]) for share in described["shares"]] == [("a", 1)]
    assert main(["fleet", "profile", plan, "--hosts", hosts, "--dry-run"]) == 0
    assert "cost left" in capsys.readouterr().err


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    """Return a real sshd on the loop-back interface."""
    (tmp_path / "sshd").mkdir()
    daemon = RealSshd(tmp_path / "sshd")
    monkeypatch.setenv("PATH", f"{daemon.bin}{os.pathsep}{os.environ['PATH']}")
    yield daemon
    daemon.close()


def small_plan():
    from slomo.workflow.profile import plan_experiments

    return plan_experiments(["lpm"], machine="e5-2620v4", plan="pressure", design="sobol", runs=8)


def test_kills_over_ssh_cost_runs_under_way_alone(sshd, tmp_path):
    """A worker, what it is forked from, and a coordinator are killed, another worker stands still for three seconds.

    A host's clock is a day ahead, another's disk is full.
    """
    words = "--hosts 3 --functions 8 --runs 8 --delay 0.5 --kills 3 --coordinators 1 --stops 1 --long-stops 0"
    given = fleet_hosts.options().parse_args(words.split())
    given.full = 70_000
    played = fleet_hosts.play(tmp_path, given, sshd)
    assert (played.at_once, played.differs, played.calls) == (0, False, 2)


def test_a_host_that_lets_nobody_in_is_told(sshd, capsys, tmp_path):
    """A wrong key, and nobody listening: the host's name, what SSH says, exit code 3."""
    (tmp_path / "plan.json").write_text(json.dumps(small_plan().to_dict()))
    (tmp_path / "hosts.yaml").write_text("testbed: simulated\nhosts: [{name: far, ssh: gen1}]\n")
    words = ["fleet", "profile", str(tmp_path / "plan.json"), "--hosts", str(tmp_path / "hosts.yaml")]
    for spoil, said in ((lambda: sshd.identify("stranger"), "Permission denied"), (lambda: sshd.move(9), "refused")):
        spoil()
        assert main([*words, "--out", str(tmp_path / "out.parquet")]) == 3
        told = capsys.readouterr().err
        assert "'far'" in told
        assert said in told
