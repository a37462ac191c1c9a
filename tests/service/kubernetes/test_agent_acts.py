"""The agent of a node reads pods' counters and carries out plans, on an emulated resctrl and real control groups."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.host.journal import Receipt, open_receipts
from slomo.host.resctrl_tree import ResctrlTree
from slomo.service.agents import Agents
from slomo.service.door.bodies import AgentReport
from slomo.service.kubernetes import counting
from slomo.service.kubernetes.containers import PodGroups
from slomo.service.kubernetes.counting import PodCounting
from slomo.service.kubernetes.enforcing import NodeEnforcer
from slomo.service.kubernetes.pods import NF
from slomo.testbed.host.counters.resctrl import ResctrlReader
from tests.fake_resctrl.files import everything, fake_tree
from tests.fake_resctrl.model import Flavour
from tests.service.kubernetes.test_agent import Told, looks

UIDS = {name: f"0000000{n}-1111-2222-3333-444444444444" for n, name in enumerate(("edge", "core", "twin", "wide"))}


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count for less than a second; keep locks out of the user's cache."""
    monkeypatch.setattr(counting, "COUNT_S", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path: Path) -> ResctrlTree:
    """Return a resctrl of files with the tasks 101 to 104."""
    (tmp_path / "resctrl").mkdir()
    return fake_tree(tmp_path / "resctrl", Flavour(cpus=8))


@pytest.fixture
def groups(tmp_path: Path) -> PodGroups:
    """Return control groups of files, by both drivers of the kubelet: CPUs and a thread of each pod."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu cpuset\n")
    places = {
        "edge": ("kubepods/pod{}/id-edge", "1", "101"),
        "core": ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{_}.slice/cri-containerd-id-core.scope",
                 "2", "102"),
        "twin": ("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{_}.slice/cri-containerd-id-twin.scope",
                 "2", "103"),
        "wide": ("kubepods/burstable/pod{}/id-wide", "0-3", "104"),
    }  # fmt: skip
    for name, (place, cpus, threads) in places.items():
        folder = root / place.replace("{_}", UIDS[name].replace("-", "_")).replace("{}", UIDS[name])
        (folder.parent / "pause").mkdir(parents=True)
        folder.mkdir()
        (folder / "cpuset.cpus.effective").write_text(f"{cpus}\n")
        (folder / "cgroup.threads").write_text(f"{threads}\n")
    return PodGroups(root)


def pods(*names: str, ids: dict[str, str] = {}) -> list[dict[str, Any]]:  # noqa: B006 - is read only
    """Return running pods."""
    return [
        {"metadata": {"name": name, "uid": UIDS[name], "annotations": {NF: "lpm"}}, "spec": {"nodeName": "n"},
         "status": {"phase": "Running", "podIP": "127.0.0.1",
                    "containerStatuses": [{"containerID": f"containerd://{ids.get(name, f'id-{name}')}"}]}}
        for name in names
    ]  # fmt: skip


def test_counters_are_those_of_a_pods_own_cpu(client: TestClient, tree: ResctrlTree, groups: PodGroups) -> None:
    """Numbers where a pod has a CPU for itself, else the reason; API, page and metrics show both; no group stays."""
    before = everything(tree)
    counting = PodCounting(ResctrlReader(tree, lambda _: 0), socket=lambda _: 0)
    told = Told()
    agent = asyncio.run(looks(pods(*UIDS), [0], told, counting=counting, groups=groups))

    assert agent.counts == {"counted": 1, "uncounted": 3}
    assert everything(tree) == before
    assert client.post("/v1/agents/s1", json=told.reports[0]).status_code == 200
    (report,) = client.get("/v1/agents").json()["agents"]
    rows = {item["tenant"]: item for item in report["tenants"]}
    assert rows["default/edge"]["counters"] == {"L3OCC": 8.0, "LMB": 0.0, "RMB": 0.0}  # the kernel counted nothing new
    assert rows["default/edge"]["source"] == "resctrl"
    assert "2 pods share CPU 2" in rows["default/core"]["reason"]
    assert "static CPU manager policy" in rows["default/wide"]["reason"]
    page = client.get("/servers/s1").text
    assert "L3OCC 8 KiB" in page
    assert "No counters: it may run on CPUs [0, 1, 2, 3]" in page
    metrics = client.get("/metrics").text
    assert 'slomo_tenant_counter{node="s1",tenant="default/edge",metric="L3OCC"} 8' in metrics
    assert "slomo_tenants_without_counters 3" in metrics


def test_without_a_reader_or_a_group_there_is_a_reason(groups: PodGroups, tmp_path: Path) -> None:
    """Never zeros: what cannot be read, and pods that are not found, are told."""
    none = PodCounting(None, "no counters here")
    told = Told()
    asyncio.run(looks(pods("edge"), [0], told, counting=none, groups=groups))
    asyncio.run(looks(pods("edge"), [0], told, counting=none, groups=PodGroups(tmp_path / "none")))
    asyncio.run(looks(pods("edge", ids={"edge": "gone"}), [0], told, groups=groups))

    reasons = [report["tenants"][0]["reason"] for report in told.reports]
    assert reasons[0] == "no counters here"
    assert "has no control group below" in reasons[1]
    assert "no container of its status" in reasons[2]
    assert all("counters" not in report["tenants"][0] for report in told.reports)
    assert PodCounting.of("off").source == ""
    assert "unknown counter reader" in PodCounting.of("nonsense").count({"u": 1})["u"].reason


def test_reports_of_nodes_that_are_gone_are_forgotten() -> None:
    """An agent that was silent for an hour no longer counts, so that a deleted node raises no alarm for ever."""
    times = [0.0]
    agents = Agents(lambda: times[0])
    agents.tell("gone", AgentReport([]))
    times[0] = 3000.0
    agents.tell("here", AgentReport([]))
    times[0] = 3601.0
    assert [item["node"] for item in agents.all()] == ["here"]
    assert agents.of("gone") is None


@pytest.mark.parametrize("item", [{"tenant": "a/b", "nf": "lpm"}, {"tenant": "a/b", "nf": "lpm", "counters": {"X": 1}},
                                  {"tenant": "a/b", "nf": "lpm", "counters": {"IPC": -1}}])  # fmt: skip
def test_reports_without_reason_or_with_strange_metrics_are_refused(client: TestClient, item: dict[str, Any]) -> None:
    """An agent cannot leave out both, name what is no metric, or say less than nothing."""
    assert client.post("/v1/agents/n", json={"tenants": [item]}).status_code == 422


def test_outcomes_carry_counters_to_the_drift_monitor(client: TestClient) -> None:
    """They are kept with the outcome, replayed after a restart, and judged where the models have the metrics."""
    row = {"target": "lpm", "competitors": ["nat"], "throughput_mpps": 4.1, "machine": "e5-2620v4",
           "counters": {"L3OCC": 900.0, "L2MISS": 20.0},
           "counters_beside": {"L3OCC": 5000.0, "L2MISS": 50.0}}  # fmt: skip
    assert client.post("/v1/observations", json={"observations": [row]}).json()["kept"] == 1
    wrong = {**row, "counters": {"NONSENSE": 1.0}}
    assert client.post("/v1/observations", json={"observations": [wrong]}).json()["refused"] == 1
    assert client.service._replayed().errors()  # type: ignore[attr-defined]


def plan(*settings: dict[str, Any]) -> dict[str, Any]:
    """Return a body with a plan."""
    return {"plan": {"tenants": list(settings)}}


EDGE = {"tenant": "edge", "pod": "default/edge", "llc_way_mask": "0x3", "memory_bandwidth": {"value": 50}}


def test_a_plan_is_carried_out_changed_refused_and_undone(
    client: TestClient, tree: ResctrlTree, groups: PodGroups, tmp_path: Path
) -> None:
    """Whatever the service's plan says holds for the pod's threads; a refused plan leaves what was; none, nothing."""
    before, enforcer = everything(tree), NodeEnforcer("n", ResctrlBackend(tree, tmp_path), tmp_path / "receipts")
    told = Told()

    def follow(body: dict[str, Any] | None) -> dict[str, Any]:
        if body is None:
            assert client.delete("/v1/agents/n/plan").status_code == 200
        else:
            assert client.put("/v1/agents/n/plan", json=body).status_code == 200
        told.document = client.get("/v1/agents/n/plan").json()["plan"]
        asyncio.run(looks(pods("edge", "core"), [0], told, groups=groups, enforcer=enforcer))
        assert client.post("/v1/agents/n", json=told.reports[-1]).status_code == 200
        enforcement: dict[str, Any] = told.reports[-1]["enforcement"]
        return enforcement

    first = follow(plan(EDGE, {"tenant": "away", "pod": "default/away", "llc_way_mask": "0xc"}))
    assert tree.tasks("slomo-edge") == (101,)
    assert "L3:0=003" in tree.read("slomo-edge/schemata").replace("0=3", "0=003")
    assert first["refusals"] == ["'default/away' runs no network function on this node"]
    assert any("task:101" in change for change in first["changes"])
    assert "slomo_agent_refusals 1" in client.get("/metrics").text

    second = follow(plan({**EDGE, "llc_way_mask": "0x7", "cpu_weight": 2.0}))
    assert second["receipt"] == first["receipt"]
    assert second["refusals"] == ["'default/edge': cpu_weight needs the backend cgroup, the agent has resctrl"]
    held = everything(tree)

    third = follow(plan({**EDGE, "llc_way_mask": "0x5"}))  # not contiguous
    assert third["refusals"]
    assert everything(tree) == held

    last = follow(None)
    assert (last["receipt"], last["changes"], last["refusals"]) == ("", [], [])
    assert everything(tree) == before
    assert open_receipts(tmp_path / "receipts") == ()
    assert client.delete("/v1/agents/n/plan").status_code == 404


def test_an_agent_that_was_killed_goes_on_and_undoes_when_it_ends(
    tree: ResctrlTree, groups: PodGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next agent takes the receipt over; a service that does not answer changes nothing; the end restores."""
    before, backend = everything(tree), ResctrlBackend(tree, tmp_path)
    asked = EnforcementPlan("n", (TenantSetting("edge", pod="default/edge", llc_way_mask=3),))
    found = {"default/edge": groups.containers(UIDS["edge"], ["id-edge"])}
    first = NodeEnforcer("n", backend, tmp_path / "receipts").follow(asked, found)
    monkeypatch.setattr(Receipt, "owner_is_alive", property(lambda _: False))
    assert NodeEnforcer("other", backend, tmp_path / "receipts").follow(None, {}).receipt == ""

    again = NodeEnforcer("n", backend, tmp_path / "receipts")
    assert again.follow(asked, found).receipt == first.receipt
    tree.write("slomo-edge/schemata", "L3:0=f")
    assert "another program sets it" in again.follow(asked, found).refusals[0]
    again.end()

    tree.write("slomo-edge/schemata", "L3:0=3") if tree.has_group("slomo-edge") else None
    assert everything(tree) == before


@pytest.mark.parametrize("wrong", [{"process_ids": [7]}, {"cgroup": "x"}, {"buffers": 8}, {"pod": "edge"}])
def test_plans_name_pods_and_nothing_of_the_node(client: TestClient, wrong: dict[str, Any]) -> None:
    """Processes, groups and sockets are the node's own to find."""
    answer = client.put("/v1/agents/n/plan", json=plan({"tenant": "a", "pod": "default/a", **wrong}))
    assert answer.status_code == 422


def test_decisions_are_the_plan_of_a_server(client: TestClient) -> None:
    """Without a stored plan, the plan is what placement decided for the server of the node's name."""
    asked = {"requests": [{"id": "nfv/edge", "nf": "lpm"}]}
    (decision,) = client.post("/v1/place", json=asked).json()["decisions"]
    server = decision["assignments"][0]["server"]
    told = client.get(f"/v1/agents/{server}/plan").json()
    assert told["source"] == "decisions"
    assert told["plan"]["tenants"][0]["pod"] == "nfv/edge"
    assert client.get("/v1/agents/elsewhere/plan").json() == {"plan": None, "source": "none"}


class TestCgroupOfPods:
    """On this host's own control groups, with a process of ours in groups named as the kubelet names them."""

    @pytest.fixture
    def uid(self) -> Iterator[str]:
        """Return the uid of a pod with one process; group and process are gone afterwards."""
        backend, uid = CgroupBackend(), UIDS["edge"]
        if not backend.available()[0]:
            pytest.skip(backend.available()[1])
        version = backend.version
        places = [backend.root / backend.hierarchy(name) for name in dict.fromkeys(("cpuset", "cpu"))][
            : version % 2 + 1
        ]
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        made: list[Path] = []
        try:
            for place in places:
                folder = place
                for name in (f"kubepods-{os.getpid()}.slice", f"kubepods-pod{uid.replace('-', '_')}.slice", "id-edge"):
                    control = folder / "cgroup.subtree_control"
                    if version == 2 and not {"cpu", "cpuset"} <= {*control.read_text().split()}:
                        try:
                            control.write_text("+cpu +cpuset")
                        except OSError as problem:  # the hierarchy of a container, whose root holds processes
                            pytest.skip(f"no controllers below '{folder}': {problem.strerror}")
                    folder = folder / name
                    folder.mkdir()
                    made.append(folder)
                    if place.name == "cpuset":
                        for file in ("cpuset.cpus", "cpuset.mems"):
                            (folder / file).write_text((folder.parent / file).read_text())
                (folder / "cgroup.procs").write_text(str(process.pid))
            yield uid
        finally:
            process.kill()
            process.wait()
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def test_weights_are_set_on_the_pods_group_and_given_back(self, uid: str, tmp_path: Path) -> None:
        """Its containers' CPUs and threads are found, the pod's weight is doubled, and undone at the end."""
        groups, backend = PodGroups(), CgroupBackend()
        (container,) = groups.containers(uid, ["id-edge"])
        assert set(container.cpus) >= os.sched_getaffinity(0)
        assert len(container.threads) == 1
        asked = EnforcementPlan("n", (TenantSetting("edge", pod="default/edge", cpu_weight=2.0),))
        enforcer = NodeEnforcer("n", backend, tmp_path / "receipts")
        file, value, usual = {1: ("cpu/{}/cpu.shares", "2048", "1024"), 2: ("{}/cpu.weight", "200", "100")}[
            backend.version
        ]
        path = backend.root / file.format(container.group.rpartition("/")[0])

        told = enforcer.follow(asked, {"default/edge": (container,)})

        assert told.refusals == []
        assert path.read_text().strip() == value
        enforcer.end()
        assert path.read_text().strip() == usual
