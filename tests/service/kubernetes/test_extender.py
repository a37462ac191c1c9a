"""The scheduler extender in both modes, as kube-scheduler writes and reads it; when it passes, refuses or defers."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slomo.service.kubernetes import judging
from slomo.service.kubernetes.pods import CORES_RESERVED, MACHINE, MIN_MPPS, MIN_SHARE, NF, need_of
from slomo.service.kubernetes.view import HOLD_S, LOST_S, STALE_S, ClusterView
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
    view.heard("nodes")
    view.heard("pods")
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


def filtered(client: TestClient, notes: dict[str, str], names: list[str], **metadata: Any) -> Any:
    """Return the answer to filter for a pod with these annotations."""
    body = {"Pod": {"metadata": {"name": "a", "uid": "a", "annotations": notes, **metadata}}, "NodeNames": names}
    return client.post("/scheduler/filter", json=body).json()


def test_a_pod_that_says_nothing_of_slomo_goes_anywhere(extender: TestClient) -> None:
    """Other pods are let pass, and counted."""
    told = filtered(extender, {"example.com/team": "core"}, ["empty", "plain", "ghost"])

    assert told["NodeNames"] == ["empty", "plain", "ghost"]
    assert extender.get("/v1/explain/default/a").json()["outcome"] == "passed"
    assert 'slomo_extender_unjudged_total{outcome="passed"' in extender.get("/metrics").text


@pytest.mark.parametrize(
    ("notes", "word"),
    [
        ({NF: "<b>?!"}, "names no network function"),
        ({NF: "../../etc/passwd"}, "names no network function"),
        ({NF: ""}, "missing or empty"),
        ({MIN_SHARE: "0.9"}, "missing or empty"),
        ({NF: "lpm", MIN_SHARE: "90%"}, "no share"),
        ({NF: "lpm", MIN_SHARE: "95"}, "no share"),
        ({NF: "lpm", MIN_SHARE: "-1"}, "no share"),
        ({NF: "lpm", MIN_SHARE: "nan"}, "no share"),
        ({NF: "lpm", MIN_SHARE: "0"}, "no share"),
        ({NF: "lpm", MIN_MPPS: "inf"}, "no number of Mpps"),
        ({NF: "lpm", MIN_SHARE: "0.9", MIN_MPPS: "1"}, "both given"),
        ({NF: "lpm", "slomo.io/min_share": "0.9"}, "slomo.io/min-share may be meant"),
        ({NF: "lpm", "min-share": "0.9"}, "slomo.io/min-share may be meant"),
        ({NF: "lpm", "slomo/min-share": "0.9"}, "slomo.io/min-share may be meant"),
    ],
)
def test_annotations_that_cannot_be_read_are_refused_with_the_reason(
    extender: TestClient, notes: dict[str, str], word: str
) -> None:
    """No node passes, for good; the event says which annotation is wrong, and explain, too."""
    told = filtered(extender, notes, ["empty", "busy"])

    assert told["NodeNames"] == []
    assert set(told["FailedAndUnresolvableNodes"]) == {"empty", "busy"}
    assert word in told["FailedAndUnresolvableNodes"]["empty"]
    assert word in extender.get("/v1/explain/a").json()["reason"]


def test_a_promise_as_a_label_is_told(extender: TestClient) -> None:
    """Labels are not read for promises, but not passed over either."""
    told = filtered(extender, {NF: "lpm"}, ["empty"], labels={MIN_SHARE: "0.9"})

    assert "is written as an annotation" in told["FailedAndUnresolvableNodes"]["empty"]


def test_no_mutated_annotation_is_taken_for_no_promise() -> None:
    """A thousand slips of the pen in keys and values: each is another promise that can be read, or is told."""
    dice = random.Random(25)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_./%, +eE"

    def slipped(text: str) -> str:
        for _ in range(dice.choice((1, 1, 2))):
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice(("", dice.choice(letters))) + text[at + dice.randrange(2) :]
        return text

    silent, told = [], 0
    for number in range(1000):
        key = (MIN_SHARE, MIN_MPPS)[number % 2]
        value = ("0.9", "0.85", "1.25")[number % 3] if number % 2 else "0.9"
        notes = {NF: "lpm", key: value}
        where = number % 4
        if where == 0:
            notes = {NF: "lpm", slipped(key): value}
        elif where == 1:
            notes = {NF: "lpm", key: slipped(value)}
        elif where == 2:
            notes = {slipped(NF): "lpm", key: value}
        else:
            notes[NF] = slipped("lpm")
        need = need_of(Pod(Metadata(annotations=notes)))
        told += need is not None and bool(need.fault)
        if need is None or not need.has_promise:
            silent.append(notes)

    assert silent == []
    assert told > 500


def test_a_promise_without_a_model_is_refused_and_nothing_promised_weighs_as_the_worst(extender: TestClient) -> None:
    """Nothing is promised to what is not known; beside others it counts as the worst neighbour, and that is said."""
    promised = filtered(extender, {NF: "never-heard", MIN_SHARE: "0.5"}, ["empty", "plain"])
    assert promised["NodeNames"] == []
    assert "no model of this network function" in promised["FailedNodes"]["empty"]
    assert filtered(extender, {NF: "never-heard"}, ["empty", "plain"])["NodeNames"] == ["empty", "plain"]

    def headroom(uid: str) -> float:
        ask(extender, "filter", uid, ["empty"], share="0.05")
        row = extender.get(f"/v1/explain/{uid}").json()["nodes"][0]
        assert row["unknown_tenants"] == ["never-heard"] * len(view.nodes["empty"].tenants)
        return float(row["headroom"])

    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    view.release("a")
    alone = headroom("first")
    view.release("first")
    for number in range(5):
        view.pod_seen(Pod(Metadata(name="x", uid=f"x{number}", annotations={NF: "never-heard"}), PodSpec("empty")))
    beside = headroom("second")

    assert beside < alone - 0.01


def test_more_than_it_does_alone_is_told(extender: TestClient) -> None:
    """A promise beyond the throughput alone is not taken for a crowded node."""
    told = filtered(extender, {NF: "lpm", MIN_MPPS: "1e6"}, ["empty"])

    assert told["FailedNodes"]["empty"] == "slomo: more is promised than the network function does alone"


@pytest.mark.parametrize("mode", ["names", "nodes"])
def test_nodes_that_only_the_caller_knows_are_refused(extender: TestClient, mode: str) -> None:
    """A caller cannot invent a node, with labels or without, and no place is held there."""
    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    known = set(view.nodes)
    node_ = {"metadata": {"name": "ghost", "labels": {MACHINE: "e5-2620v4"}}}
    given = {"NodeNames": ["ghost"]} if mode == "names" else {"Nodes": {"items": [node_]}}
    question = {"Pod": {"metadata": {"uid": "u", "annotations": {NF: "lpm", MIN_SHARE: "0.5"}}}, **given}

    assert extender.post("/scheduler/filter", json=question).json()["FailedNodes"] == {
        "ghost": "slomo: node is not known"
    }
    extender.post("/scheduler/prioritize", json=question)
    assert set(view.nodes) == known
    assert not view.holds


def test_a_node_whose_annotation_cannot_be_read_takes_nothing(extender: TestClient) -> None:
    """Cores that were to be reserved are not forgotten for a slip of the pen."""
    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    view.node_seen(node("empty", reserved="two"))
    assert "is no number of cores" in ask(extender, "filter", "n", ["empty"])["FailedNodes"]["empty"]
    view.node_seen(KubernetesNode(Metadata(name="empty", labels={MACHINE: "e5-2620v5"})))
    assert "names no machine type" in ask(extender, "filter", "n", ["empty"])["FailedNodes"]["empty"]


@pytest.mark.parametrize("how", ["never heard", "muted", "lost"])
def test_what_cannot_be_judged_now_is_deferred(extender: TestClient, how: str) -> None:
    """Without a fresh view of what runs, the scheduler is told to ask again; nothing passes, nothing is held."""
    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    extender.service.kubernetes.watch = type("Watch", (), {"trouble": "", "close": _nothing})()  # type: ignore[attr-defined]
    assert extender.get("/readyz").status_code == 200
    now = view._clock()
    if how == "never heard":
        view.heard_at_s.clear()
    elif how == "lost":
        view.lost("pods")
    later = now + {"never heard": 0.0, "muted": STALE_S, "lost": LOST_S}[how] + 1.0
    view._clock = lambda: later
    told = ask(extender, "filter", "late", ["empty", "busy"])

    assert told["NodeNames"] == []
    assert told["Error"].startswith("slomo: slomo ")
    assert {row["Score"] for row in ask(extender, "prioritize", "late", ["empty", "busy"])} == {0}
    assert not view.holds
    assert extender.get("/readyz").status_code == 503
    assert extender.get("/readyz").json()["status"] == "not ready"
    assert extender.get("/v1/explain/late").json()["outcome"] == "deferred"


async def _nothing(_: object) -> None:
    """Close nothing."""


def test_judging_that_takes_too_long_is_deferred_and_gets_further(
    extender: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler is not kept waiting; what was judged in time is remembered for the next question."""
    with monkeypatch.context() as busy:
        busy.setattr(judging, "LONGEST_S", -1.0)
        assert "takes too long" in ask(extender, "filter", "slow", ["empty", "busy"])["Error"]

    assert ask(extender, "filter", "slow", ["empty", "busy"], share="0.5")["Error"] == ""


def test_of_empty_nodes_a_pod_opens_the_one_of_which_it_takes_the_least(extender: TestClient) -> None:
    """Its share of a node is one over the copies of it that fit there; the emptiest of nodes stay for others."""
    judge, view = extender.service.kubernetes.judge, extender.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes([node("large"), node("small", reserved="6")])
    view.replace_pods([])
    judged = judge.judge(need_of(pod("n", share="0.3")), "n", ["large", "small"], view)
    assert judged["large"].ok
    assert judged["small"].ok
    assert judged["large"].rank > judged["small"].rank


def test_a_scored_pod_holds_its_place_until_it_is_bound(extender: TestClient) -> None:
    """Between score and bind the place is taken; the binding elsewhere, or the end of time, frees it."""
    view: ClusterView = extender.service.kubernetes.view  # type: ignore[attr-defined]
    names = ["empty"]
    ask(extender, "filter", "n1", names, share="0.01")
    assert list(view.nodes["empty"].held) == ["n1"]
    for number in range(2, 9):
        passed = ask(extender, "filter", f"n{number}", names, "ids", "0.01")["NodeNames"]
        assert passed == names
    deferred = ask(extender, "filter", "n9", names, "ids", "0.01")
    assert deferred["Error"] == "slomo: places are held for pods that are being bound, ask again"
    assert extender.service.metrics.unjudged.values == {}  # type: ignore[attr-defined] # it was judged

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


def test_an_explanation_keeps_the_models_that_judged(extender: TestClient) -> None:
    """After an exchange of models the numbers of an earlier judgement stay what they were."""
    ask(extender, "filter", "x", ["empty", "busy"])
    told = extender.get("/v1/explain/x").json()
    extender.service.kubernetes.exchange_models()  # type: ignore[attr-defined]

    assert "rates_mpps" in told["nodes"][0]
    assert extender.get("/v1/explain/x").json() == told


def test_judgement_is_the_placers(extender: TestClient) -> None:
    """What passes here is what a placer would take, with the same confidence."""
    from slomo.placement.online.placer import Placer
    from slomo.placement.problem.cluster import Cluster, Server
    from slomo.placement.problem.request import SLO, Request

    library = extender.service.model_store.answers.library  # type: ignore[attr-defined]
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        placer = Placer(library, Cluster((Server("busy", "e5-2620v4"),)))
        for number in range(4):
            assert placer.admit(Request(f"b{number}", ("nat",), SLO(min_share=0.3))).accepted
        taken = placer.admit(Request("edge", ("lpm",), SLO(min_share=share))).accepted
        told = ask(extender, "filter", f"s{share}", ["busy", "plain"], share=str(share))
        extender.service.kubernetes.view.release(f"s{share}")  # type: ignore[attr-defined]

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
    before = view.nodes["a"].version
    view.replace_nodes([])
    view.replace_nodes([node("a")])
    assert view.nodes["a"].version > before  # what was judged of the other node of that name is not of this one


def test_a_label_is_never_a_file() -> None:
    """A node cannot make the service open a path."""
    from slomo.service.kubernetes.pods import host_on

    assert "names no machine type" in str(host_on(node("a", "/etc/passwd")))
    assert "names no machine type" in str(host_on(node("a", "x.yaml")))
