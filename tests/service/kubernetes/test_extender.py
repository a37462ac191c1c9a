"""The scheduler extender in both modes, as kube-scheduler writes and reads it, and when it lets pass."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slomo.service.kubernetes.pods import CORES_RESERVED, MACHINE, MIN_SHARE, NF, need_of
from slomo.service.kubernetes.view import HOLD_S, ClusterView
from slomo.service.kubernetes.wire import KubernetesNode, Metadata, Pod, PodSpec, PodStatus
from tests.service.conftest import Started

GOLDEN = Path(__file__).parent / "golden"


def node(name: str, machine: str = "e5-2620v4", reserved: str = "0") -> KubernetesNode:
    """Return a node of a machine type."""
    return KubernetesNode(Metadata(name=name, labels={MACHINE: machine}, annotations={CORES_RESERVED: reserved}))


def pod(uid: str, nf: str = "lpm", share: str = "0.9", where: str = "", phase: str = "") -> Pod:
    """Return a pod."""
    notes = {NF: nf, MIN_SHARE: share}
    return Pod(Metadata(name=f"p-{uid}", uid=uid, annotations=notes), PodSpec(node_name=where), PodStatus(phase))


@pytest.fixture
def extender(start: Started) -> TestClient:
    """Return a service that sees an empty node, a busy one, a full one, and one that names no machine."""
    client = start()
    view: ClusterView = client.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes(
        [node("empty"), node("busy"), node("full", reserved="6"), KubernetesNode(Metadata(name="plain"))]
    )
    tenants = [pod(f"b{i}", "nat", "0.3", "busy") for i in range(4)] + [
        pod(f"f{i}", "ids", "0.3", "full") for i in (1, 2)
    ]
    view.replace_pods(tenants)
    return client


def ask(client: TestClient, verb: str, uid: str, names: list[str], nf: str = "lpm", share: str = "0.9") -> Any:
    """Ask the extender about a pod."""
    body = {"Pod": {"metadata": {"name": f"p-{uid}", "uid": uid, "annotations": {NF: nf, MIN_SHARE: share}}}}
    answer = client.post(f"/scheduler/{verb}", json={**body, "Nodes": None, "NodeNames": names})
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("name", ["filter_names", "filter_nodes", "prioritize"])
def test_answers_are_as_go_reads_them(extender: TestClient, name: str) -> None:
    """Questions of both modes, and in lower case, get the answers written down, casing included."""
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    told = extender.post(f"/scheduler/{name.split('_')[0]}", json=golden["question"])

    assert told.status_code == 200
    assert told.json() == golden["answer"]


@pytest.mark.parametrize(
    "question",
    [
        {"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["empty", "busy"]},
        {"Pod": {"metadata": {"name": "a", "annotations": {NF: "never-heard"}}}, "NodeNames": ["empty", "busy"]},
        {"Pod": {"metadata": {"name": "a", "annotations": {NF: "<b>?!"}}}, "NodeNames": ["empty", "busy"]},
        {"Pod": {"metadata": {"name": "a", "annotations": {NF: "../../etc/passwd"}}}, "NodeNames": ["empty", "busy"]},
    ],
)
def test_what_cannot_be_judged_passes_and_is_said(extender: TestClient, question: dict[str, Any]) -> None:
    """Pods without a network function, with an unknown one, or with nonsense, go anywhere, and that is said."""
    told = extender.post("/scheduler/filter", json=question).json()

    assert told["NodeNames"] == ["empty", "busy"]
    assert extender.get("/v1/explain/default/a").json()["passed_through"]
    assert "slomo_extender_passed_through_total{" in extender.get("/metrics").text


def test_a_scored_pod_holds_its_place_until_it_is_bound(extender: TestClient) -> None:
    """Between score and bind the place is taken; the binding elsewhere, or the end of time, frees it."""
    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    names = ["empty"]
    ask(extender, "filter", "n1", names, share="0.01")
    assert list(view.nodes["empty"].held) == ["n1"]
    for number in range(2, 9):
        passed = ask(extender, "filter", f"n{number}", names, "ids", "0.01")["NodeNames"]
        assert passed == names
    refused = ask(extender, "filter", "n9", names, "ids", "0.01")
    assert refused["FailedNodes"] == {"empty": "slomo: no core left for a network function"}

    view.pod_seen(pod("n1", where="busy"))
    assert ask(extender, "filter", "n9", names, "ids", "0.01")["NodeNames"] == names

    later = view._clock() + HOLD_S + 1.0
    view._clock = lambda: later
    view.expire()
    assert not view.holds
    assert not view.nodes["empty"].held


def test_a_pod_asked_about_twice_does_not_stand_beside_itself(extender: TestClient) -> None:
    """A pod that is scheduled again is judged without the place held for it."""
    for _ in range(20):
        assert ask(extender, "filter", "same", ["empty"], "lpm", "0.95")["NodeNames"] == ["empty"]


def test_explain_has_the_numbers_that_reasons_leave_out(extender: TestClient) -> None:
    """Reasons are few; what was needed and what is possible stands behind explain."""
    ask(extender, "filter", "x", ["empty", "busy"], share="0.95")
    rows = {row["node"]: row for row in extender.get("/v1/explain/p-x").json()["nodes"]}

    assert rows["busy"]["breach"]["needed"] > rows["busy"]["breach"]["possible"]
    assert rows["empty"]["headroom"] > 0
    assert extender.get("/v1/explain/default/p-x").json() == extender.get("/v1/explain/x").json()
    assert extender.get("/v1/explain/nobody").status_code == 404


def test_judgement_is_the_placers(extender: TestClient) -> None:
    """What passes here is what a placer would take, with the same confidence."""
    from slomo.placement.online.placer import Placer
    from slomo.placement.problem.cluster import Cluster, Server
    from slomo.placement.problem.request import SLO, Request

    library = extender.service.shelf.answers.library  # type: ignore[attr-defined]
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        placer = Placer(library, Cluster((Server("busy", "e5-2620v4"),)))
        for number in range(4):
            assert placer.admit(Request(f"b{number}", ("nat",), SLO(min_share=0.3))).accepted
        taken = placer.admit(Request("edge", ("lpm",), SLO(min_share=share))).accepted
        told = ask(extender, "filter", f"s{share}", ["busy", "plain"], share=str(share))

        assert ("busy" in told["NodeNames"]) == taken


def test_view_follows_pods_and_nodes_that_come_and_go() -> None:
    """Pods that end, move or lose their annotation leave; nodes that are gone are not judged."""
    view = ClusterView()
    view.replace_nodes([node("a"), node("b")])
    view.pod_seen(pod("1", where="a"))
    view.pod_seen(pod("2", where="a"))
    view.pod_seen(pod("2", where="a", phase="Succeeded"))
    view.pod_seen(pod("1", where="b"))
    assert view.pods == {"1": "b"}
    assert not view.nodes["a"].tenants
    view.replace_pods([])
    view.replace_nodes([node("a")])

    assert not view.pods
    assert list(view.nodes) == ["a"]


def test_a_label_is_never_a_file() -> None:
    """A node cannot make the service open a path."""
    from slomo.service.kubernetes.pods import host_on

    assert host_on(node("a", "/etc/passwd")) is None
    assert host_on(node("a", "x.yaml")) is None
    assert need_of(Pod(Metadata(annotations={NF: "lpm", MIN_SHARE: "nan"}))).min_share is None  # type: ignore[union-attr]
