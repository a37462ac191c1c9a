"""What callers may do to the host of a service: nothing unless it was started so; then plans, loops and RMD's pools."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slomo.control.pools.configuration import PoolPolicy, read_rmd_toml
from slomo.control.pools.manager import PoolManager
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.host.resctrl_tree import ResctrlTree
from slomo.models.library import ModelLibrary
from slomo.service.host.room import HostRoom
from slomo.service.kubernetes.wire import KubernetesNode, Metadata
from tests.allocations import with_allocations
from tests.fake_resctrl.files import everything, fake_tree
from tests.fake_resctrl.model import Flavour
from tests.service.conftest import Started

RMD = """
[OSGroup]
cacheways = 1
cpuset = "0"
[CachePool]
shrink = true
max_allowed_shared = 2
guarantee = 10
besteffort = 7
shared = 2
"""
PLAN = {"server": "localhost", "tenants": [{"tenant": "lpm", "cores": [3], "llc_way_mask": "0x3"}]}


@pytest.fixture
def tree(tmp_path: Path) -> ResctrlTree:
    """Return a resctrl of files."""
    (tmp_path / "fake").mkdir()
    return fake_tree(tmp_path / "fake", Flavour(ways=20, cpus=16))


@pytest.fixture
def host(start: Started, tmp_path: Path, tree: ResctrlTree) -> TestClient:
    """Return a client of a service that may act on a machine with resctrl, and keeps pools."""
    client = start(control=True, receipts=tmp_path / "receipts")
    (tmp_path / "rmd.toml").write_text(RMD)
    backend, folder = ResctrlBackend(tree, tmp_path), tmp_path / "receipts"
    pools = PoolManager(read_rmd_toml(tmp_path / "rmd.toml"), 20, backend=backend, receipts=folder)
    client.service.host = HostRoom(backend, folder, pools)  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/enforce", None),
        ("POST", "/v1/enforce", {"plan": PLAN}),
        ("POST", "/v1/enforce/x/undo", None),
        ("GET", "/v1/control", None),
        ("POST", "/v1/control", {"tenants": [{"workload": "lpm"}]}),
        ("GET", "/v1/cache", None),
        ("POST", "/v1/workloads", {"core_ids": ["4"], "policy": "gold"}),
        ("POST", "/v1/hospitality", {"max_cache": 2, "min_cache": 2}),
    ],
)
def test_nobody_acts_where_it_is_not_allowed(client: TestClient, method: str, path: str, body: Any) -> None:
    """Doors to the host are closed unless settings open them."""
    answer = client.request(method, path, json=body)

    assert answer.status_code == 403
    assert "slomo serve --" in answer.json()["hint"]


def test_a_plan_is_enforced_shown_and_undone(host: TestClient, tree: ResctrlTree) -> None:
    """What-if changes nothing; the plan changes the machine; the receipt takes it back to the byte."""
    before = everything(tree)
    told = host.post("/v1/enforce", json={"plan": PLAN, "what_if": True}).json()
    assert told["changes"]
    assert everything(tree) == before
    done = host.post("/v1/enforce", json={"plan": PLAN}, headers={"Idempotency-Key": "k"})
    again = host.post("/v1/enforce", json={"plan": PLAN}, headers={"Idempotency-Key": "k"})
    assert done.status_code == 200, done.text
    assert again.json() == done.json()
    assert everything(tree) != before
    shown = host.get("/v1/enforce").json()["receipts"]
    assert [(row["receipt"], row["state"]) for row in shown] == [(done.json()["receipt"], "applied")]
    assert host.post(f"/v1/enforce/{done.json()['receipt']}/undo").status_code == 200

    assert everything(tree) == before
    assert host.post("/v1/enforce/none/undo").status_code == 404
    assert host.post("/v1/enforce/..%2Fx/undo").status_code == 404


@pytest.mark.parametrize(
    "plan", [{"tenants": 3}, {"tenants": [3]}, {"tenants": [{"tenant": "a", "cores": "x"}]}, {"x": 1}]
)
def test_what_is_no_plan_is_refused(host: TestClient, plan: Any) -> None:
    """A document that is no plan changes nothing and is no fault."""
    assert host.post("/v1/enforce", json={"plan": plan}).status_code == 422


@pytest.mark.parametrize(
    "setting",
    [{"cores": [1], "llc_way_mask": 5}, {"cores": [4000], "llc_way_mask": 3}, {"llc_way_mask": 3},
     {"cores": [1], "memory_bandwidth": {"value": 7, "unit": "GB/s"}}, {"cores": [1], "cgroup": "a" * 300}],
    ids=["hole", "core", "nothing", "unit", "long"],
)  # fmt: skip
def test_values_that_the_machine_does_not_take_are_the_callers_fault(
    host: TestClient, tree: ResctrlTree, setting: Any
) -> None:
    """Status 422 with the reason; 503 would ask the caller to try again."""
    before = everything(tree)
    answer = host.post("/v1/enforce", json={"plan": {"tenants": [{"tenant": "a", **setting}]}})

    assert answer.status_code == 422, answer.text
    assert "a" in answer.json()["detail"]
    assert everything(tree) == before


def test_a_process_that_has_ended_is_no_fault_of_the_service(host: TestClient) -> None:
    """Status 409: the caller plans again."""
    answer = host.post(
        "/v1/enforce", json={"plan": {"tenants": [{"tenant": "a", "process_ids": [2**31 - 1], "llc_way_mask": 3}]}}
    )
    assert answer.status_code == 409, answer.text


def test_rmd_clients_find_what_they_know(host: TestClient, tree: ResctrlTree) -> None:
    """Caches, policies, a guaranteed and a burstable workload, hospitality, change and removal, as RMD answers."""
    before = everything(tree)
    assert host.get("/v1/cache").json() == {
        "rdt": True, "cqm": True, "cdp": False, "cdp_on": False, "cat": True, "cat_on": True,
        "caches": {"l3": {"number": 1, "cache_ids": ["0"]}},
    }  # fmt: skip
    assert int(host.get("/v1/cache/l3/0").json()["available_ways_pool"]["guarantee"], 16).bit_count() == 10
    assert host.get("/v1/cache/llc").json()["number"] == 1
    assert host.get("/v1/policy").json()["gold"] == {"cache": {"max": "2", "min": "2"}}
    made = host.post("/v1/workloads", json={"core_ids": ["4", "5"], "policy": "gold"})
    assert made.status_code == 201
    assert made.json()["cos_name"] == "4_5-guarantee"
    assert made.json()["status"] == "Successful"
    assert made.json()["enforced"] == {"cache": True, "memory_bandwidth": False, "others_kept_off": True}
    assert host.get("/v1/workloads").json() == [made.json()]
    assert host.post("/v1/hospitality", json={"max_cache": 2, "min_cache": 2}).json()["score"] == {"l3": {"0": 100}}
    assert host.post("/v1/hospitality", json={"max_cache": 9, "min_cache": 9}).json()["score"] == {"l3": {"0": 0}}
    changed = host.patch("/v1/workloads/1", json={"policy": "silver"})
    assert changed.json()["rdt"] == {"cache": {"max": 2, "min": 1}}
    assert host.post("/v1/workloads", json={"core_ids": ["4"], "policy": "gold"}).status_code == 400
    assert host.post("/v1/workloads", json={"core_ids": ["6"], "policy": "none"}).status_code == 400
    assert host.delete("/v1/workloads/1").status_code == 200

    assert host.get("/v1/workloads/1").status_code == 404
    assert host.get("/v1/cache/l2").status_code == 404
    host.service.host.close()  # type: ignore[attr-defined]
    assert everything(tree) == before


def test_hospitality_is_told_by_the_models_in_force(start: Started, tmp_path: Path, toy_library: ModelLibrary) -> None:
    """Where everybody says what runs, predictions decide; where one does not, free ways do, and that is said."""
    (tmp_path / "rmd.toml").write_text(RMD)
    models = with_allocations(toy_library).save(tmp_path / "models")
    client = start(models=models, pools=tmp_path / "rmd.toml", host_machine="e5-2620v4")
    resident = {"core_ids": ["4"], "policy": "bronze", "nf": "lpm", "slo_share": 0.9}
    counted = client.post("/v1/workloads", json=resident)
    assert (counted.status_code, counted.json()["status"], counted.json()["enforced"]["cache"]) == (201, "None", False)
    absent = client.post("/v1/workloads", json={"core_ids": ["5", "99999"], "policy": "gold"})
    assert (absent.status_code, "core_ids: CPU 99999, but this machine has CPUs 0-" in absent.text) == (400, True)
    assert client.get("/v1/cache").json()["cat_on"] is ResctrlTree().can_allocate
    alone = client.post("/v1/hospitality", json={"policy": "gold", "nf": "nat"}).json()
    beside = client.post("/v1/hospitality", json={"policy": "bronze", "nf": "nat"}).json()
    assert (alone["basis"], beside["basis"]) == ("predictions", "predictions")
    assert set(alone["score"]["l3"]) == {"0", "1"}
    assert beside["expected_share"] < alone["expected_share"]
    assert client.post("/v1/workloads", json={"core_ids": ["5"], "policy": "gold"}).status_code == 201
    unsure = client.post("/v1/hospitality", json={"policy": "bronze", "nf": "nat"}).json()

    assert (unsure["basis"], unsure["score"]["l3"]["0"]) == ("free ways", 100)
    assert unsure["why"] == "workload '2' does not say its network function (nf)"


def test_pools_are_given_back_when_the_service_ends(host: TestClient, tree: ResctrlTree) -> None:
    """The machine is as it was found once the service has stopped."""
    before = everything(tree)
    assert host.post("/v1/workloads", json={"core_ids": ["4"], "max_cache": 3, "min_cache": 1}).status_code == 201
    assert everything(tree) != before
    host.__exit__(None, None, None)

    assert everything(tree) == before


@pytest.mark.slow
def test_a_control_loop_runs_as_a_job(host: TestClient) -> None:
    """Its rounds are told as progress; it names machines and functions, never files."""
    body = {"name": "loop", "controller": "max_min", "steps": 3, "tenants": [{"workload": "lpm", "slo": 0.5}]}
    accepted = host.post("/v1/control", json=body, headers={"Idempotency-Key": "loop-1"})
    again = host.post("/v1/control", json=body, headers={"Idempotency-Key": "loop-1"})
    assert accepted.status_code == 202, accepted.text
    assert again.json() == accepted.json()
    with host.stream("GET", f"{accepted.headers['location']}/events") as events:
        lines = [json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: ")]

    assert lines[-1]["state"] == "done", lines[-1]
    assert lines[-1]["result"]["rounds"] == 3
    assert host.get("/v1/control").json()["loops"] == []
    for machine in ("/etc/passwd", "x.yaml", "none"):
        assert host.post("/v1/control", json={**body, "machine": machine}).status_code == 422
    assert host.post("/v1/control", json={**body, "tenants": [{"workload": "/etc/passwd.yaml"}]}).status_code == 422


def test_outcomes_correct_what_is_placed_and_scheduled(start: Started) -> None:
    """A promise that held by the models is refused, by placement and by the extender, once outcomes are 5 % lower."""
    client = start(correct=True)
    client.post("/v1/cluster/servers", json={"servers": [{"name": "s1", "machine": "e5-2620v4"}]})
    view = client.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes([KubernetesNode(Metadata(name="n1", labels={"slomo.io/machine": "e5-2620v4"}))])
    view.heard("nodes")
    view.heard("pods")
    notes = {"slomo.io/nf": "lpm", "slomo.io/min-share": "0.97"}

    def ask() -> tuple[Any, Any]:
        placement = {"requests": [{"id": "a", "nf": "lpm", "slo": {"min_share": 0.97}}], "what_if": True}
        pod = {"metadata": {"name": "p", "uid": "u", "annotations": notes}}
        passed = client.post("/scheduler/filter", json={"Pod": pod, "NodeNames": ["n1"]})
        return client.post("/v1/place", json=placement).json()["decisions"][0], passed.json()["NodeNames"]

    before, passed = ask()
    alone = client.post("/v1/predict", json={"target": "lpm"}).json()["throughput_mpps"]
    seen = [{"target": "lpm", "competitors": [], "throughput_mpps": 0.95 * alone}] * 5
    assert client.post("/v1/observations", json={"observations": seen}).json()["kept"] == 5
    after, held_back = ask()

    assert (before["accepted"], len(passed)) == (True, 1)
    assert (after["accepted"], len(held_back)) == (False, 0)


def test_outcomes_correct_predictions_within_a_bound(start: Started) -> None:
    """With correction on, predictions follow what is seen, at most ten per cent; without, they stay."""
    question = {"target": "lpm", "competitors": ["nat"]}
    corrected, plain = start(correct=True), start()
    before = corrected.post("/v1/predict", json=question).json()
    for client in (corrected, plain):
        seen = [{**question, "throughput_mpps": 0.95 * before["throughput_mpps"]}] * 30
        assert client.post("/v1/observations", json={"observations": seen}).status_code == 200
    after = corrected.post("/v1/predict", json=question).json()
    columns = corrected.post("/v1/predict/batch", json={"targets": ["lpm", "nat"], "mixes": [["nat"], []]}).json()

    assert after["correction"] == pytest.approx(0.95, abs=1e-6)
    assert after["throughput_mpps"] == pytest.approx(0.95 * before["throughput_mpps"])
    assert columns["throughput_mpps"][0] == pytest.approx(after["throughput_mpps"])
    assert columns["correction"][1] == 1.0
    assert plain.post("/v1/predict", json=question).json()["throughput_mpps"] == before["throughput_mpps"]
    far = [{**question, "throughput_mpps": 0.5 * before["throughput_mpps"]}] * 40
    corrected.post("/v1/observations", json={"observations": far})
    assert corrected.post("/v1/predict", json=question).json()["correction"] == pytest.approx(0.9)
    assert corrected.get("/v1/drift").json()["refit_asked"][0]["machine"] == before["machine"]


def test_outcomes_of_replaced_models_no_longer_count(start: Started, models_folder: Path, tmp_path: Path) -> None:
    """A restart over other models forgets what the old ones were off by; over the old ones it is known again."""
    folder, other, state = tmp_path / "models", tmp_path / "other", tmp_path / "state.sqlite"
    shutil.copytree(models_folder, folder)
    shutil.copytree(models_folder, other)
    index = json.loads((other / "library.json").read_text(encoding="utf-8"))
    index["models"] = [row for row in index["models"] if "ids" not in row["workload"]]
    (other / "library.json").write_text(json.dumps(index), encoding="utf-8")

    def known(models: Path) -> tuple[Any, Any]:
        client = start(models=models, state=state, correct=True)
        if models == folder and not client.get("/v1/drift").json()["errors"]:
            alone = client.post("/v1/predict", json={"target": "lpm"}).json()["throughput_mpps"]
            seen = [{"target": "lpm", "throughput_mpps": 0.95 * alone}] * 5
            assert client.post("/v1/observations", json={"observations": seen}).json()["kept"] == 5
        errors = client.get("/v1/drift").json()["errors"]
        factors = client.service.cluster_store.factors  # type: ignore[attr-defined]
        assert "Over time" in client.get("/drift").text or not errors
        client.__exit__(None, None, None)
        return len(errors), factors

    assert known(folder)[0] == 1
    assert known(other) == (0, {})
    count, factors = known(folder)
    assert count == 1
    assert factors


def test_policies_show_their_memory_bandwidth(host: TestClient) -> None:
    """In the unit of the configured mode; without a mode it is not in use."""
    pools = host.service.host.pools  # type: ignore[attr-defined]
    named = {"mine": PoolPolicy("mine", 2, 2, 40.0)}
    for mode, shown in (("percentage", {"mba": {"percentage": "40"}}), ("none", {})):
        pools.configuration = replace(pools.configuration, policies=named, mba_mode=mode)
        assert host.get("/v1/policy").json() == {"mine": {"cache": {"max": "2", "min": "2"}, **shown}}
