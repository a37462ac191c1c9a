"""What slomo writes as objects and reads as policies; what it tells of pods that wait for a correction."""

import asyncio
import json
from typing import Any

import httpx

from slomo.models.library import ModelLibrary
from slomo.service.kubernetes.contention import REFUSED_S, ContentionWriter, contention
from slomo.service.kubernetes.pods import MIN_SHARE, NF
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import (
    KubernetesNode,
    Metadata,
    Pod,
    PodSpec,
    PolicySpec,
    Selector,
    SLOPolicy,
)
from slomo.service.servers import RunningNF, RunningServer


class Objects:
    """An API server that keeps objects of a group, or has none of its kinds."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.writes = status, 0
        self.kept: dict[str, dict[str, Any]] = {"nodecontentions": {"gone": {"state": "free"}}}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        plural, *name = request.url.path.split("/")[4:]
        here = self.kept.setdefault(plural, {})
        if self.status != 200:
            return httpx.Response(self.status)
        if request.method == "GET":
            items = [{"metadata": {"name": key}, "status": status} for key, status in here.items()]
            return httpx.Response(200, json={"items": items})
        self.writes += 1
        if request.method == "DELETE":
            del here[name[0]]
        elif name[1:]:
            here[name[0]] = json.loads(request.content)["status"]
        else:
            here.setdefault(name[0], None)
        return httpx.Response(200, json={})


def written(api: Objects, servers: list[RunningServer], library: ModelLibrary, times: int = 1) -> None:
    """Write what is known, with a writer that has just begun to lead."""

    async def run() -> None:
        watch = Watch("http://api", ClusterView())
        await watch.close()
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
        writer = ContentionWriter(watch, clock=lambda: 0.5 * REFUSED_S)
        for _ in range(times):
            await writer.write(servers, library)
        await watch.close()

    asyncio.run(run())


def test_nodes_and_models_are_written_once_and_again_where_they_change() -> None:
    """Predicted, promised and least shares of each tenant; nodes that are gone leave; a new leader repeats nothing."""
    broken = RunningNF("nfv/edge", "lpm", 0, "", 2.0, 1.9, 1.5, 2.2, 2.5, "broken", "too little", "u")
    servers = [RunningServer("n", "e5-2620v4", 8, (broken, RunningNF("nfv/free", "odd")))]
    api, library = Objects(), ModelLibrary({})
    written(api, servers, library, times=3)

    assert api.writes == 3  # the object, its status, and the one that is gone
    status = api.kept["nodecontentions"].pop("n")
    assert api.kept["nodecontentions"] == {}
    assert status == contention(servers[0])
    assert (status["state"], status["headroom"], status["tenantCount"]) == ("broken", "-0.25", 2)
    assert status["tenants"][0] == {
        "pod": "nfv/edge", "networkFunction": "lpm", "promise": "broken", "predictedShare": "0.76",
        "leastShare": "0.6", "promisedShare": "0.8", "message": "too little"}  # fmt: skip
    api.kept["nodecontentions"]["n"], api.writes = status, 0
    written(api, servers, library)
    assert api.writes == 0
    written(Objects(404), servers, library)  # no such kinds: nothing happens


def test_a_policy_promises_where_annotations_do_not() -> None:
    """By namespace and labels, the highest of several; the pod's own word goes first; pods are listed again."""
    view = ClusterView()
    spec = PolicySpec(Selector({"tier": "gold"}), 0.8)
    view.replace_policies([SLOPolicy(Metadata("a", "nfv"), spec),
                           SLOPolicy(Metadata("b", "nfv"), PolicySpec(Selector({"tier": "gold"}), 0.9))])  # fmt: skip

    def share(namespace: str, labels: dict[str, str], **notes: str) -> float | None:
        need = view.need(Pod(Metadata("p", namespace, "u", labels, {NF: "lpm", **notes})))
        return None if need is None else need.min_share

    assert share("nfv", {"tier": "gold", "more": "x"}) == 0.9
    assert share("nfv", {"tier": "gold"}, **{MIN_SHARE: "0.5"}) == 0.5
    assert share("nfv", {"tier": "tin"}) is None
    assert share("else", {"tier": "gold"}) is None
    bare = view.need(Pod(Metadata("p", "nfv", "u", {"tier": "gold"})))
    assert bare is not None
    assert "slomo.io/nf is missing" in bare.fault
    view.again.clear()
    view.policy_gone(SLOPolicy(Metadata("b", "nfv"), spec))
    assert share("nfv", {"tier": "gold"}) == 0.8
    assert view.again == {"pods"}


def test_a_pod_that_waits_for_a_correction_is_told_of_it() -> None:
    """Its fault is kept until it is corrected, bound or gone."""
    view = ClusterView()
    view.node_seen(KubernetesNode(Metadata("n")))

    def seen(share: str, where: str = "") -> None:
        view.pod_seen(Pod(Metadata("p", "nfv", "u", None, {NF: "lpm", MIN_SHARE: share}), PodSpec(where)))

    seen("90%")
    name, fault = view.refused["u"]
    assert name == "nfv/p"
    assert "no share" in fault
    seen("0.9")
    assert not view.refused
    seen("90%")
    seen("90%", "n")
    assert not view.refused
    seen("90%")
    view.replace_pods([])
    assert not view.refused
