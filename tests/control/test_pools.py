"""RMD's pools: its files read as they are, its rules, and a machine kept so."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slomo.control.pools.configuration import read_rmd_toml
from slomo.control.pools.foresight import PoolForesight, PoolOutlook
from slomo.control.pools.manager import PoolManager
from slomo.enforce.backends.buffers import BuffersBackend
from slomo.enforce.backends.pqos import PqosBackend
from slomo.enforce.backends.rdt_class import RdtClassBackend
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.backends.scheduler import SchedulerBackend
from slomo.enforce.change import Backend
from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.host.resctrl_tree import ResctrlTree
from slomo.models.library import ModelLibrary
from slomo.vocabulary.machine import load_machine
from tests.allocations import with_allocations
from tests.enforce import fake_pqos
from tests.fake_resctrl.files import everything, fake_tree
from tests.fake_resctrl.model import Flavour

RMD = """
title = "RMD Config"
[default]
address = "localhost"
[rdt]
mbaMode = "percentage"
[OSGroup]
cacheways = 1
cpuset = "0"
[InfraGroup]
cacheways = 19
cpuset = "2-3"
tasks = ["ovs*"]
[CachePool]
shrink = %s
max_allowed_shared = 2
guarantee = 10
besteffort = 7
shared = 2
"""
NOTHING_ENFORCED = {"cache": False, "why": "nothing is enforced here (slomo serve --enforce BACKEND)"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def manager(tmp_path: Path, *, shrink: bool = False, **more: Any) -> PoolManager:
    path = tmp_path / "rmd.toml"
    path.write_text(RMD % str(shrink).lower())
    more.setdefault("processes", lambda: {101: "nf", 102: "nf", 104: "ovs-vswitchd"})
    return PoolManager(read_rmd_toml(path), 20, **more)


def test_pools_of_the_talk_in_mebibytes(tmp_path: Path) -> None:
    """15, 7.5 and 7.5 of 55 MB are 5, 3 and 3 of 20 ways; the system has 9, the infrastructure lies over the pools."""
    path = tmp_path / "rmd.toml"
    path.write_text(
        "[CachePool]\ntotal = 55\nguaranteed = 15\nburstable = 7.5\nbesteffort = 7.5\n"
        "[OSGroup]\ncache = 25\n[InfraGroup]\ncache = 30\n"
    )
    pools = PoolManager(read_rmd_toml(path, way_mib=55 / 20), 20)

    assert [bin(m).count("1") for m in (pools.layout.guarantee, pools.layout.besteffort, pools.layout.shared)] == [
        5,
        3,
        3,
    ]
    assert pools.layout.system == 0x1FF
    assert pools.layout.infrastructure == 0xFFE00


def test_the_three_pools(tmp_path: Path) -> None:
    """Maximum = minimum is guaranteed, more is burstable, none is shared; guaranteed ways are nobody else's."""
    pools = manager(tmp_path)
    gold = pools.admit({"core_ids": ["4", "5"], "policy": "gold"})
    burst = pools.admit({"core_ids": ["6"], "rdt": {"cache": {"max": 4, "min": 1}, "mba": {"percentage": 70}}})
    bronze = pools.admit({"task_ids": ["101"], "max_cache": 0, "min_cache": 0})

    assert [w.pool for w in (gold, burst, bronze)] == ["guarantee", "besteffort", "shared"]
    assert [w.mask.bit_count() for w in (gold, burst, bronze)] == [2, 4, 2]
    assert not gold.mask & (burst.mask | bronze.mask)
    answer = gold.to_dict()
    assert (answer["id"], answer["cos_name"], answer["status"]) == ("1", "4_5-guarantee", "Successful")
    assert burst.to_dict()["rdt"] == {"cache": {"max": 4, "min": 1}, "mba": {"percentage": 70.0}}
    json.dumps([w.to_dict() for w in pools.workloads])


def test_a_full_pool_refuses(tmp_path: Path) -> None:
    """Ten guaranteed ways are five golds; the sixth is told."""
    pools = manager(tmp_path)
    for core in range(5):
        pools.admit({"core_ids": [str(10 + core)], "policy": "gold"})

    with pytest.raises(TestbedError, match="pool guarantee has no 2 adjacent ways left: 10 of 10"):
        pools.admit({"core_ids": ["20"], "policy": "gold"})
    assert pools.hospitality({"policy": "gold"})["score"] == {"l3": {"0": 0}}
    pools.remove("3")
    assert pools.admit({"core_ids": ["20"], "policy": "gold"}).mask.bit_count() == 2


def test_burstable_workloads_shrink_to_their_minimum(tmp_path: Path) -> None:
    """With shrink, a second one takes what the first has above its minimum; without, it gets what is left."""
    wish = {"rdt": {"cache": {"max": 6, "min": 1}}}
    kept, shrunk = manager(tmp_path), manager(tmp_path, shrink=True)
    for pools in (kept, shrunk):
        pools.admit({"core_ids": ["4"], **wish})
        pools.admit({"core_ids": ["5"], **wish})

    assert [w.mask.bit_count() for w in kept.workloads] == [6, 1]
    assert [w.mask.bit_count() for w in shrunk.workloads] == [4, 3]
    assert kept.hospitality({"max_cache": 2, "min_cache": 1})["score"] == {"l3": {"0": 0}}


def test_only_so_many_share(tmp_path: Path) -> None:
    """max_allowed_shared is kept."""
    pools = manager(tmp_path)
    for core in ("4", "5"):
        pools.admit({"core_ids": [core], "policy": "bronze"})

    with pytest.raises(TestbedError, match="at most 2 may"):
        pools.admit({"core_ids": ["6"], "policy": "bronze"})


def test_the_machine_is_kept_so_and_given_back(tmp_path: Path) -> None:
    """Masks stand in resctrl after each change; close leaves the tree as found."""
    tree = fake_tree(tmp_path, Flavour(cpus=8, ways=20))
    before = everything(tree)
    pools = manager(tmp_path, backend=ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    gold = pools.admit({"core_ids": ["4"], "policy": "gold"})
    pools.admit({"task_ids": ["101"], "policy": "silver"})
    assert tree.control_group_of(4) == "slomo-1"
    assert f"L3:0={gold.mask:x}" in tree.read("slomo-1/schemata")
    assert tree.control_group_of(2) == "slomo-infrastructure"
    pools.change("1", {"policy": "bronze"})
    assert f"L3:0={pools.layout.shared:x}" in tree.read("slomo-1/schemata")
    pools.remove("2")
    assert 101 in tree.tasks("")
    pools.close()

    assert everything(tree) == before


def test_workloads_whose_tasks_ended_are_let_go(tmp_path: Path) -> None:
    """Liveness is checked; cores do not die."""
    alive = {101: "nf", 102: "nf"}
    pools = manager(tmp_path, processes=lambda: alive)
    pools.admit({"task_ids": ["101"], "policy": "gold"})
    pools.admit({"task_ids": ["102"], "policy": "gold"})
    pools.admit({"core_ids": ["4"], "policy": "gold"})
    del alive[101]

    assert [w.identifier for w in pools.validate()] == ["1"]
    assert [w.identifier for w in pools.workloads] == ["2", "3"]


def test_hospitality_is_answered_from_predictions(tmp_path: Path) -> None:
    """100 x predicted over solo, and 0 where a promise would break; RMD's clients read the score alone."""
    outlook = PoolOutlook({"1": 0.95, "newcomer": 0.83}, {"1": 0.91, "newcomer": 0.79})
    pools = manager(tmp_path, estimator=lambda plan, requests: outlook)
    pools.admit({"core_ids": ["4"], "policy": "gold", "nf": "lpm", "slo_share": 0.9})

    answer = pools.hospitality({"policy": "gold", "nf": "stats"})
    assert answer == {
        "score": {"l3": {"0": 83}},
        "basis": "predictions",
        "expected_share": 0.83,
        "least_share": 0.79,
        "breaks": [],
        "enforced": NOTHING_ENFORCED,
    }
    assert pools.caches_report()["Caches"]["0"]["enforced"] == NOTHING_ENFORCED
    assert pools.hospitality({"policy": "gold", "nf": "stats", "slo_share": 0.8})["breaks"] == ["newcomer"]
    outlook = PoolOutlook({"1": 0.93, "newcomer": 0.83}, {"1": 0.89, "newcomer": 0.79})
    assert pools.hospitality({"policy": "gold", "nf": "stats"})["score"]["l3"]["0"] == 0
    outlook = PoolOutlook(why="nobody knows")
    answer = pools.hospitality({"task_ids": ["101"], "policy": "gold"})
    assert answer.pop("enforced") == NOTHING_ENFORCED
    assert answer == {"score": {"l3": {"0": 100}}, "basis": "free ways", "why": "nobody knows"}


def test_a_library_says_what_pools_give(tmp_path: Path, toy_library: ModelLibrary) -> None:
    """Own ways keep more than shared ones; what is not known, or throttled, is said instead."""
    library = with_allocations(toy_library)
    foresight = PoolForesight(lambda: library, load_machine("e5-2620v4"))
    pools = manager(tmp_path, estimator=foresight)
    pools.admit({"core_ids": ["4", "5"], "policy": "bronze", "nf": "nat"})
    own, shared = (
        pools.hospitality({"core_ids": ["6"], "nf": "lpm", **wish})
        for wish in ({"max_cache": 6, "min_cache": 6}, {"policy": "bronze"})
    )
    assert (own["basis"], shared["basis"]) == ("predictions", "predictions")
    assert own["expected_share"] > shared["expected_share"]
    for wish, why in (({}, "does not say"), ({"nf": "none"}, "none")):
        answer = pools.hospitality({"core_ids": ["6"], "policy": "gold", **wish})
        assert answer["basis"] == "free ways"
        assert why in answer["why"]
    pools = manager(tmp_path, estimator=PoolForesight(lambda: toy_library, load_machine("e5-2620v4")))
    answer = pools.hospitality({"core_ids": ["6"], "policy": "gold", "nf": "lpm"})
    assert "was not profiled over partitions" in answer["why"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"core_ids": ["1"], "task_ids": ["101"]},
        {"core_ids": ["x"]},
        {"core_ids": ["1", "1"]},
        {"core_ids": ["1"], "max_cache": 1, "min_cache": 2},
        {"core_ids": ["1"], "max_cache": 2, "min_cache": 0},
        {"core_ids": ["1"], "what": 3},
        {"core_ids": ["1"], "max_cache": 10**9, "min_cache": 1},
        {"core_ids": ["1"], "rdt": {"mba": {"mbps": 3000}}},
        {"core_ids": ["1"], "rdt": {"mba": {"percentage": 500}}},
        {"core_ids": ["1"], "policy": "gold", "cache_id": "1"},
        {"core_ids": ["1"], "slo_share": 3, "policy": "gold"},
    ],
)
def test_bodies_that_make_no_sense_are_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    """Every one with a message."""
    with pytest.raises((ConfigurationError, InvalidValueError)):
        manager(tmp_path).admit(body)


def test_cores_belong_to_one_workload(tmp_path: Path) -> None:
    """A core that is taken is refused, and so is a policy there is not."""
    pools = manager(tmp_path)
    pools.admit({"core_ids": ["4"], "policy": "gold"})

    with pytest.raises(InvalidValueError, match="belongs to workload 1"):
        pools.admit({"core_ids": ["4"], "policy": "gold"})
    with pytest.raises(UnknownNameError, match="platinum"):
        pools.admit({"core_ids": ["5"], "policy": "platinum"})


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", r"no section \[OSGroup\]"),
        ("[OSGroup]\n", r"no section \[CachePool\]"),
        ("x = [", "is not TOML"),
        ("[OSGroup]\ncacheways='a'\n[CachePool]\nguarantee=1\n", r"\[OSGroup\] cacheways: 'a'"),
        ("[OSGroup]\ncacheways=1\ncpuset='5-3'\n[CachePool]\n", r"\[OSGroup\] cpuset: '5-3'"),
        ("[OSGroup]\ncacheways=1\n[CachePool]\nguarantee=-1\n", r"\[CachePool\] guarantee: -1"),
    ],
)
def test_what_is_no_configuration_of_rmd_is_refused(tmp_path: Path, text: str, field: str) -> None:
    """With the names of file and field."""
    path = tmp_path / "rmd.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=rf"rmd\.toml: {field}"):
        read_rmd_toml(path)


def test_policies_are_read_from_a_file(tmp_path: Path) -> None:
    """policy.yaml of RMD, below an architecture or not."""
    (tmp_path / "rmd.toml").write_text(RMD % "false")
    (tmp_path / "policy.yaml").write_text("skylake:\n  gold:\n    cache: {max: 4, min: 4}\n    mba: {percentage: 90}\n")

    policies = read_rmd_toml(tmp_path / "rmd.toml", tmp_path / "policy.yaml").policies

    assert (policies["gold"].max_ways, policies["gold"].memory_bandwidth) == (4, 90.0)


PLAIN = (
    "[OSGroup]\ncacheways = 1\ncpuset = '0'\n[CachePool]\nguarantee = 10\nbesteffort = 7\nshared = 2\nshrink = true\n"
)


def on_resctrl(tmp_path: Path, flavour: Flavour, text: str = PLAIN) -> tuple[PoolManager, ResctrlTree]:
    """Return pools on an emulated tree, and the tree."""
    (tmp_path / "rmd.toml").write_text(text)
    (tmp_path / "fake").mkdir()
    tree = fake_tree(tmp_path / "fake", flavour)
    backend = ResctrlBackend(tree, tmp_path)
    pools = PoolManager(
        read_rmd_toml(tmp_path / "rmd.toml", cache_ways=20), 20, backend=backend, receipts=tmp_path / "receipts",
        processes=lambda: {101: "nf", 104: "ovs-vswitchd"},
    )  # fmt: skip
    return pools, tree


def test_the_root_group_leaves_the_ways_that_workloads_have(tmp_path: Path) -> None:
    """As Intel's RMD writes it: the lowest run of ways that no workload has, the system's at least; undone."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16, domains=(0, 1)))
    before, written = everything(tree), []
    for body in (
        {"core_ids": ["4"], "max_cache": 2, "min_cache": 2},
        {"core_ids": ["5"], "max_cache": 3, "min_cache": 1},
        {"core_ids": ["6"], "max_cache": 0, "min_cache": 0},
    ):
        pools.admit(body)
        written.append(tree.read("schemata").split("L3:")[1])
    # ways 0 (system), 1-2 (shared), 3-9 (besteffort, of which 3-5 burst), 10-19 (guarantee)
    assert written == ["0=3ff;1=3ff", "0=7;1=7", "0=1;1=1"]
    for identifier, root in (("3", "0=7;1=7"), ("1", "0=7;1=7"), ("2", "0=fffff;1=fffff")):
        pools.remove(identifier)
        assert tree.read("schemata").split("L3:")[1] == root
    pools.close()

    assert everything(tree) == before


def test_guaranteed_ways_are_exclusive_where_the_kernel_has_it(tmp_path: Path) -> None:
    """A guaranteed class is exclusive: the kernel gives its ways to nobody else; burstable ones stay shareable."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16))
    gold = pools.admit({"core_ids": ["4"], "policy": "gold"})
    burst = pools.admit({"core_ids": ["5"], "policy": "silver"})
    modes = {name: tree.read(f"{name}/mode") for name in tree.control_groups() if name}
    assert sorted(modes.values()) == ["exclusive", "shareable"]
    assert pools.report(gold)["enforced"]["others_kept_off"] is True
    assert pools.report(burst)["enforced"]["others_kept_off"] is False
    with pytest.raises(TestbedError, match="Overlaps with exclusive group"):
        tree.write("schemata", "L3:0=fffff")
    pools.change("1", {"rdt": {"cache": {"max": 4, "min": 4}}, "policy": None})
    assert tree.read("schemata").endswith("0=7")

    pools.remove("1")
    assert tree.read("schemata").endswith("0=7")


@pytest.mark.parametrize(
    ("flavour", "text"),
    [
        (Flavour(ways=20, cpus=16, shareable=0xC0C00), PLAIN),
        (Flavour(ways=20, cpus=16), PLAIN + "[InfraGroup]\ncacheways = 19\ncpuset = '2-3'\n"),
    ],
)
def test_what_devices_or_the_infrastructure_fill_is_not_exclusive(tmp_path: Path, flavour: Flavour, text: str) -> None:
    """The kernel would refuse the mode, so the class stays shareable; over the infrastructure's ways that is told."""
    pools, tree = on_resctrl(tmp_path, flavour, text)
    gold = pools.admit({"core_ids": ["4"], "policy": "gold"})

    assert {tree.read(f"{name}/mode") for name in tree.control_groups()} == {"shareable"}
    assert tree.read("schemata").endswith("0=3ff")
    assert ("infrastructure" in pools.report(gold)["enforced"].get("why", "")) == ("InfraGroup" in text)


def test_a_foreign_group_in_the_way_is_named(tmp_path: Path) -> None:
    """Ways that somebody else's group has are not guaranteed, and nothing changes; elsewhere it is left alone."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16))
    tree.make_group("theirs")
    tree.write("theirs/schemata", "L3:0=c00")
    before = everything(tree)
    with pytest.raises(TestbedError, match="group 'theirs', which slomo did not make, has ways 0xc00"):
        pools.admit({"core_ids": ["4"], "policy": "gold"})
    assert everything(tree) == before
    tree.write("theirs/schemata", "L3:0=80000")

    assert pools.admit({"core_ids": ["4"], "policy": "gold"}).pool == "guarantee"
    assert tree.read("theirs/schemata").endswith("0=80000")


def test_nothing_is_claimed_where_nobody_enforces(tmp_path: Path) -> None:
    """Without a backend a workload is counted, not enforced, and the answer says so; nor does the machine offer it."""
    pools = manager(tmp_path)
    told = pools.report(pools.admit({"core_ids": ["4"], "policy": "gold"}))

    assert told["status"] == "None"
    assert told["enforced"]["cache"] is False
    assert "--enforce" in told["enforced"]["why"]


@pytest.mark.parametrize("backend", [SchedulerBackend(), RdtClassBackend(Path("rdt")), BuffersBackend()])
def test_a_backend_that_does_not_divide_the_cache_keeps_no_pools(tmp_path: Path, backend: Backend) -> None:
    """It would accept every workload and set nothing; nor are pools kept of a cache that the machine does not have."""
    with pytest.raises(TestbedError, match=f"'{backend.name}' does not divide the cache"):
        manager(tmp_path, backend=backend)
    tree = fake_tree(tmp_path, Flavour(ways=12, cpus=8))
    with pytest.raises(ConfigurationError, match="pools of 20 cache ways, this machine has 12"):
        manager(tmp_path, backend=ResctrlBackend(tree, tmp_path))


def test_pqos_refuses_tasks(tmp_path: Path) -> None:
    """It sets the ways of cores; a workload of tasks would get none."""
    command = (sys.executable, fake_pqos.__file__, str(tmp_path / "classes.json"))
    pools = manager(tmp_path, backend=PqosBackend(command), receipts=tmp_path / "receipts")
    with pytest.raises(TestbedError, match="names no cores, and pqos sets the cache ways of cores"):
        pools.admit({"task_ids": ["101"], "policy": "gold"})


def test_what_the_machine_no_longer_has_is_not_claimed(tmp_path: Path) -> None:
    """A mask that another program wrote, ways that a new group takes, tasks that ended: that workload alone is off."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16))
    gold = pools.admit({"core_ids": ["4"], "policy": "gold"})
    other = pools.admit({"core_ids": ["5"], "max_cache": 3, "min_cache": 3})
    task = pools.admit({"task_ids": ["101"], "policy": "silver"})
    assert {pools.report(each)["status"] for each in pools.workloads} == {"Successful"}
    tree.write("slomo-1/mode", "shareable")
    tree.write("slomo-1/schemata", "L3:0=1")
    told = pools.report(gold)
    assert (told["status"], told["enforced"]["cache"]) == ("Invalid", False)
    assert "'schemata:slomo-1:L3:0' is 1, but c00 was set" in told["enforced"]["why"]
    assert pools.report(other)["status"] == "Successful"
    tree.write("slomo-2/mode", "shareable")
    tree.make_group("theirs")
    tree.write("theirs/schemata", "L3:0=1000")
    assert "group 'theirs'" in pools.report(other)["enforced"]["why"]
    pools._processes = lambda: {104: "ovs-vswitchd"}
    assert pools.report(task)["enforced"]["why"] == "all of its tasks have ended"


def test_workloads_that_ended_make_room(tmp_path: Path) -> None:
    """The next workload gets the ways of one whose tasks have ended."""
    alive = {101: "nf", 102: "nf"}
    pools = manager(tmp_path, processes=lambda: alive)
    pools.admit({"task_ids": ["101"], "max_cache": 10, "min_cache": 10})
    del alive[101]

    assert pools.admit({"task_ids": ["102"], "max_cache": 10, "min_cache": 10}).identifier == "2"
    assert [each.identifier for each in pools.workloads] == ["2"]


def test_a_patch_changes_what_it_names(tmp_path: Path) -> None:
    """A limit ends the policy and leaves the other limits; memory bandwidth is told as the machine rounds it."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16), PLAIN + "[rdt]\nmbaMode = 'percentage'\n")
    pools.admit({"core_ids": ["4"], "policy": "gold"})
    for patch, limits in (
        ({"rdt": {"mba": {"percentage": 33}}}, (2, 2)),
        ({"max_cache": 4, "min_cache": 4}, (4, 4)),
        ({"rdt": {"cache": {"min": 3}}}, (4, 3)),
        ({"nf": "lpm"}, (4, 3)),
    ):
        request = pools.change("1", patch).request
        assert (request.max_ways, request.min_ways, request.policy, request.memory_bandwidth) == (*limits, None, 33.0)
    assert pools.report(pools.workload("1"))["enforced"]["memory_bandwidth"] == 40.0
    assert "MB:0= 40" in tree.read("slomo-1/schemata")
    request = pools.change("1", {"policy": "silver"}).request
    assert (request.max_ways, request.min_ways, request.memory_bandwidth) == (2, 1, None)


def test_hospitality_is_nothing_where_admission_would_be_refused(tmp_path: Path) -> None:
    """A core or task that is taken or missing, another's ways: score 0 and why; a cache there is not is refused."""
    pools, tree = on_resctrl(tmp_path, Flavour(ways=20, cpus=16, domains=(0, 1)))
    pools.admit({"core_ids": ["4"], "policy": "gold"})
    for members, why in (
        ({"core_ids": ["4"]}, "belongs to workload 1"),
        ({"core_ids": ["99"]}, "core 99"),
        ({"task_ids": ["9"]}, "task 9 is not running"),
    ):
        answer = pools.hospitality({"policy": "gold", **members})
        assert (answer["score"], why in answer["why"]) == ({"l3": {"0": 0, "1": 0}}, True)
    assert pools.hospitality({"policy": "gold", "cache_id": "1"})["score"] == {"l3": {"1": 100}}
    with pytest.raises(InvalidValueError, match="cache_id is 7, the caches are 0, 1"):
        pools.hospitality({"policy": "gold", "cache_id": "7"})
    tree.make_group("theirs")
    tree.write("theirs/schemata", "L3:0=f0000;1=f0000")
    assert pools.caches_report()["Caches"]["1"]["available_ways_pool"]["guarantee"] == "f000"
    tree.write("theirs/schemata", "L3:0=ff000;1=ff000")
    assert "group 'theirs'" in pools.hospitality({"policy": "gold"})["why"]


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (
            "gold: {cache: {max: 16, min: 16}}",
            r"policy.yaml: field 'gold.cache': max 16, but \[CachePool\] guarantee has 10",
        ),
        (
            "gold: {cache: {max: 8, min: 2}}",
            r"policy.yaml: field 'gold.cache': max 8, but \[CachePool\] besteffort has 7",
        ),
        ("gold: {cache: {max: 2, min: 9}}", "policy.yaml: field 'gold.cache': max 2 and min 9 are no pool"),
        ("pools: {gold: {mask: 0x3f}}", "policy.yaml: is no policy file of RMD"),
        ("gold: 1\ngold: 2", r"^\S+policy.yaml:2:1: field 'gold' occurs twice"),
    ],
)
def test_policies_that_no_pool_holds_are_told_with_file_and_field(tmp_path: Path, policy: str, told: str) -> None:
    """When they are read, not when the first workload asks for them."""
    (tmp_path / "rmd.toml").write_text(PLAIN)
    (tmp_path / "policy.yaml").write_text(policy)

    with pytest.raises(ConfigurationError, match=told):
        read_rmd_toml(tmp_path / "rmd.toml", tmp_path / "policy.yaml")


def test_pools_that_overlap_are_told_with_file_and_fields(tmp_path: Path) -> None:
    """More ways than the cache has: the file, the fields and the sum; an infrastructure larger than the cache too."""
    path = tmp_path / "rmd.toml"
    path.write_text(PLAIN.replace("guarantee = 10", "guarantee = 12"))
    with pytest.raises(
        ConfigurationError, match=r"rmd.toml: \[OSGroup\] cacheways 1 and \[CachePool\] guarantee 12.*22"
    ):
        read_rmd_toml(path, cache_ways=20)
    path.write_text(PLAIN + "[InfraGroup]\ncacheways = 21\n")

    with pytest.raises(ConfigurationError, match=r"rmd.toml: \[InfraGroup\] cacheways 21"):
        read_rmd_toml(path, cache_ways=20)
