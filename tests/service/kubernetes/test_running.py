"""What runs on the nodes is judged, and one state is shown: page, API, metrics, conditions on pods."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from slomo.models.intervals import ConformalCalibration
from slomo.models.library import ModelLibrary
from slomo.service.kubernetes.evicting import Eviction, Evictor
from slomo.service.kubernetes.pods import MIN_SHARE, NF
from slomo.service.kubernetes.telling import REFUSED_S, Teller
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import PROMISE_KEPT, Condition, KubernetesNode, Metadata, Pod, PodSpec, PodStatus
from slomo.service.metrics import Counter
from slomo.service.servers import RunningNF, RunningServer
from tests.service.conftest import Started
from tests.service.kubernetes.test_extender import node, pod


@pytest.fixture
def nodes(start: Started) -> TestClient:
    """Return a service that sees promises kept, broken and not judged, bound by somebody else."""
    client = start()
    view: ClusterView = client.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes([node("fine"), node("full"), node("strange"), KubernetesNode(Metadata(name="plain"))])
    running = [pod("kept", "lpm", "0.5", "fine")]
    running += [pod(f"m{number}", "ids", "0.99", "full") for number in range(8)]
    running += [pod("unknown", "never-heard", "0.9", "strange"), pod("beside", "lpm", "0.2", "strange")]
    running += [pod("elsewhere", "lpm", "0.9", "plain")]
    slip = Metadata(name="slip", uid="slip", annotations={NF: "lpm", MIN_SHARE: "90%"})
    view.replace_pods([*running, Pod(slip, PodSpec("fine"))])
    view.heard("nodes")
    view.heard("pods")
    return client


def metric(client: TestClient, name: str) -> float:
    """Return a gauge."""
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} "))


def test_one_state_is_shown_everywhere(nodes: TestClient) -> None:
    """Page, cluster, at-risk and metrics say the same of nodes and pods."""
    rows = {row["request"]: row for row in nodes.get("/v1/cluster/at-risk").json()["at_risk"]}
    cluster = nodes.get("/v1/cluster").json()
    page = nodes.get("/").text

    broken = {name for name, row in rows.items() if row["state"] == "broken"}
    unjudged = {name: row["why"] for name, row in rows.items() if row["state"] == "unjudged"}
    assert broken == {f"default/p-m{number}" for number in range(8)}
    assert set(unjudged) == {"default/p-unknown", "default/p-elsewhere", "default/slip"}
    assert "no model" in unjudged["default/p-unknown"]
    assert "slomo.io/machine" in unjudged["default/p-elsewhere"]
    assert "no share" in unjudged["default/slip"]
    assert cluster["source"] == "kubernetes"
    assert {row["name"]: len(row["assignments"]) for row in cluster["servers"]} == {
        "fine": 2, "full": 8, "plain": 1, "strange": 2}  # fmt: skip
    assert metric(nodes, "slomo_slo_violation_predicted") == 8.0
    assert metric(nodes, 'slomo_promises{state="unjudged"}') == 3.0
    assert metric(nodes, 'slomo_promises{state="kept"}') == 2.0
    assert metric(nodes, "slomo_servers_used") == 4.0
    assert "default/p-m0" in page
    assert "not judged" in page
    assert "server broken" in page
    assert "server unjudged" in page


def test_too_few_errors_break_no_promise(start: Started, toy_library: ModelLibrary, tmp_path: Path) -> None:
    """Where eight prediction errors are known, promises beside others are not judged: nobody is evicted for that."""
    few = ConformalCalibration(np.linspace(-1.0, 1.0, 8), "mixes")
    models = ModelLibrary(
        replace(each, calibration=dict.fromkeys(each.calibration, few), response=None) for each in toy_library.values()
    )
    client = start(models=models.save(tmp_path / "models"))
    view: ClusterView = client.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes([node("alone"), node("shared")])
    view.replace_pods(
        [pod("one", "lpm", "0.5", "alone"), pod("a", "lpm", "0.5", "shared"), pod("b", "ids", "0.5", "shared")]
    )
    view.heard("nodes")
    view.heard("pods")
    rows = {row["request"]: row for row in client.get("/v1/cluster/at-risk").json()["at_risk"]}
    assert {name: row["state"] for name, row in rows.items()} == {"default/p-a": "unjudged", "default/p-b": "unjudged"}
    assert rows["default/p-a"]["why"] == "39 held-out errors would be needed, 8 are there"
    assert metric(client, 'slomo_promises{state="kept"}') == 1.0
    more = client.get("/whatif", params={"server": "alone", "add": "ids", "share": "50"}).text
    assert "These 2 promises could not be judged" in more
    assert "39 held-out errors would be needed" in more
    assert "No other promise would break" in more


def test_a_node_shows_its_pods_and_what_one_more_would_do(nodes: TestClient) -> None:
    """Pods with promise and state, no button that takes them off; whose promise would break, and where else it fits."""
    text = nodes.get("/servers/full").text
    assert text.count("may break") >= 8
    assert "Remove" not in text
    harmless = nodes.get("/whatif", params={"server": "fine", "add": "ids"}).text
    assert "This promise could not be judged" in harmless  # the slip's, as before
    assert "No other promise would break" in harmless
    harmful = nodes.get("/whatif", params={"server": "fine", "add": "lpm", "share": "100"}).text
    assert "This promise would break" in harmful
    assert "the newcomer" in harmful
    crowded = nodes.get("/whatif", params={"server": "full", "add": "ids"}).text
    assert "does not fit there" in crowded
    assert 'href="/servers/fine"' in crowded
    assert nodes.get("/whatif", params={"server": "plain", "add": "ids"}).status_code == 422
    assert nodes.get("/whatif", params={"server": "fine", "add": "ids", "share": "x"}).status_code == 422


def test_what_changes_on_a_node_is_judged_anew(nodes: TestClient) -> None:
    """A pod that leaves, and models that are exchanged, change what is said at once."""
    view: ClusterView = nodes.service.kubernetes.view  # type: ignore[attr-defined]
    for number in range(8):
        view.pod_gone(f"m{number}")
    assert metric(nodes, "slomo_slo_violation_predicted") == 0.0
    service: Any = nodes.service  # type: ignore[attr-defined]
    key = service.model_store.answers.library.find("lpm", "e5-2620v4").workload.key
    service.kubernetes.exchange_models({"e5-2620v4": {key: 0.1}})

    assert metric(nodes, "slomo_slo_violation_predicted") == 2.0


class Api:
    """Keeps what is written, or refuses it."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.written = status, []  # type: int, list[tuple[str, str, dict[str, Any]]]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.written.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(self.status)


def told(api: Api, view: ClusterView, states: list[RunningServer], times: int = 1) -> Counter:
    """Tell pods what is so."""
    counter = Counter("told", "", ("outcome",))

    async def run() -> None:
        watch = Watch("http://api", view)
        await watch.close()
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
        teller = Teller(watch, view, counter, clock=lambda: 0.5 * REFUSED_S)
        for _ in range(times):
            await teller.tell(states)
        await watch.close()

    asyncio.run(run())
    return counter


def test_pods_are_told_once_when_their_promise_breaks_and_when_it_is_kept_again() -> None:
    """A condition and an event per change; what stands there already is not written again, also after a restart."""
    view, api = ClusterView(), Api()
    broken = RunningNF("nfv/edge", "lpm", needed_mpps=2.0, low_mpps=1.5, state="broken", why="too little", uid="u")
    kept = RunningNF("nfv/core", "lpm", needed_mpps=2.0, low_mpps=2.5, state="kept", uid="k")
    free = RunningNF("nfv/free", "lpm", uid="f")
    servers = [RunningServer("n", "e5-2620v4", 8, (broken, kept, free))]
    told(api, view, servers, times=3)

    (patched, path, patch), (posted, events, event) = api.written
    assert (patched, path) == ("PATCH", "/api/v1/namespaces/nfv/pods/edge/status")
    assert patch["status"]["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": PROMISE_KEPT, "status": "False", "reason": "PromiseBroken", "lastTransitionTime": "",
        "message": "slomo: 2 Mpps promised, 1.5 to be counted on: too little"}  # fmt: skip
    assert (posted, events) == ("POST", "/api/v1/namespaces/nfv/events")
    assert (event["type"], event["reason"], event["involvedObject"]["uid"]) == ("Warning", "PromiseBroken", "u")

    again = ClusterView()
    stands = PodStatus("Running", [Condition(PROMISE_KEPT, "False")])
    again.pod_seen(Pod(Metadata(name="edge", uid="u", annotations={NF: "lpm"}), PodSpec("n"), stands))
    api.written.clear()
    told(api, again, servers)
    assert api.written == []
    told(api, again, [RunningServer("n", "e5-2620v4", 8, (RunningNF("nfv/edge", "lpm", state="kept", uid="u"),))])
    assert [body["reason"] for _, _, body in api.written if "reason" in body] == ["PromiseKept"]


def test_where_the_api_server_refuses_telling_stops_for_a_while() -> None:
    """Without the role nothing is hammered at; it is counted."""
    api, view = Api(403), ClusterView()
    tenants = tuple(RunningNF(f"nfv/p{n}", "lpm", state="unjudged", why="no model", uid=f"u{n}") for n in range(5))
    counter = told(api, view, [RunningServer("n", "", 8, tenants)], times=4)

    assert len(api.written) == 1
    assert counter.values == {("refused",): 1.0}


@pytest.mark.parametrize("mode", ["off", "dry-run", "on"])
def test_a_pod_without_a_promise_goes_first_where_a_promise_is_broken(nodes: TestClient, mode: Eviction) -> None:
    """Through the eviction API, once in a while; only a pod that something makes anew and that another node takes."""
    room = nodes.service.kubernetes  # type: ignore[attr-defined]
    view: ClusterView = room.view
    view.replace_pods([])
    owner = [{"controller": True, "kind": "ReplicaSet"}]
    others = [("stray", "ids", None, None, 0), ("low", "ids", None, owner, -5), ("free", "ids", None, owner, 0)]
    others += [(f"m{number}", "ids", "0.02", owner, 9) for number in range(3)]
    for uid, nf, share, owners, priority in [*others, ("promised", "lpm", "0.9", owner, 100)]:
        notes = {NF: nf} | ({MIN_SHARE: share} if share else {})
        meta = Metadata(name=uid, uid=uid, annotations=notes, owner_references=owners)
        view.pod_seen(Pod(meta, PodSpec("full", priority=priority)))
    api, counter, now = Api(201), Counter("evictions", "", ("mode", "outcome")), [100.0]

    async def run() -> list[list[str]]:
        watch = Watch("http://api", view)
        await watch.close()
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
        evictor = Evictor(watch, view, mode, counter, clock=lambda: now[0])
        servers = await room.running.servers()
        assert next(server.kind for server in servers if server.name == "full") == "broken"
        gone = [await evictor.look(servers, room.judge)]
        now[0] += 2.0
        gone.append(await evictor.look(servers, room.judge))
        view.pod_gone("low")
        view.pod_seen(Pod(Metadata(name="anew", uid="anew", annotations={NF: "ids"}), PodSpec("fine")))
        gone.append(await evictor.look(servers, room.judge))
        await watch.close()
        return gone

    first, second, third = asyncio.run(run())
    assert second == []  # not before what went is placed again
    assert third == ([] if mode == "off" else ["default/free"])
    if mode == "off":
        assert (first, api.written) == ([], [])
        return
    (method, path, body), _ = api.written
    assert first == ["default/low"]
    assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/low/eviction")
    assert body["deleteOptions"].get("dryRun") == (["All"] if mode == "dry-run" else None)
    assert body["deleteOptions"]["preconditions"] == {"uid": "low"}
    assert counter.values == {(mode, "done"): 2.0}
    view.replace_nodes([node("full")])
    assert Evictor(Watch("http://api", view), view, mode, counter).victim("full", room.judge) is None
