"""A pod of high priority gets a place for the fewest victims, of lowest priority, and every promise holds after."""

import asyncio
import json

import httpx
import pytest

from slomo.service.kubernetes.evicting import Eviction
from slomo.service.kubernetes.holds import SharedHolds
from slomo.service.kubernetes.pods import MIN_SHARE, NF
from slomo.service.kubernetes.preempting import Preemptor
from slomo.service.kubernetes.service import KubernetesRoom
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import Metadata, Pod, PodSpec
from slomo.service.metrics import Counter
from tests.service.conftest import Started
from tests.service.kubernetes.test_extender import node


def ranked(uid: str, share: str, priority: int, where: str = "", policy: str | None = None) -> Pod:
    """Return a pod with a priority."""
    meta = Metadata(name=uid, uid=uid, annotations={NF: "ids", MIN_SHARE: share})
    return Pod(meta, PodSpec(where, priority=priority, preemption_policy=policy))


class Api:
    """Keeps what is written; a budget spares some pods."""

    def __init__(self, spares: str = "") -> None:
        self.spares, self.written = spares, []  # type: str, list[tuple[str, dict[str, Any]]]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.written.append((request.url.path, json.loads(request.content)))
        meta = {"name": "slomo-hold-a", "resourceVersion": "1"}
        is_spared = bool(self.spares) and f"/{self.spares}/" in request.url.path
        return httpx.Response(429) if is_spared else httpx.Response(201, json={"metadata": meta})

    def evicted(self) -> list[str]:
        """Return the pods whose eviction was asked for."""
        return [path.split("/")[-2] for path, _ in self.written if path.endswith("eviction")]


def asked(start: Started, api: Api, mode: Eviction, asks: list[Pod]) -> tuple[KubernetesRoom, Counter]:
    """Let a scheduler ask for places on two nodes full of promises."""
    room: KubernetesRoom = start().service.kubernetes  # type: ignore[attr-defined]
    room.view.replace_nodes([node("a"), node("b")])
    for name, priority in (("a0", 5), ("a1", 1), ("b0", 2), ("b1", 2), ("b2", 2)):
        room.view.pod_seen(ranked(name, "0.3", priority, name[0]))  # beside one alone there is room for 0.85
    room.view.heard("nodes")
    room.view.heard("pods")
    counter = Counter("evictions", "", ("mode", "outcome"))

    async def run() -> None:
        watch = Watch("http://api", room.view)
        await watch.close()
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
        room.holds = SharedHolds(watch, room.view)
        room.preemptor = Preemptor(watch, room.view, mode, counter)
        for pod in asks:
            await room.filter(pod, ["a", "b"])
            await asyncio.gather(*room._tasks)
        await watch.close()

    asyncio.run(run())
    return room, counter


@pytest.mark.parametrize("mode", ["off", "dry-run", "on"])
def test_the_fewest_pods_of_lowest_priority_leave(start: Started, mode: Eviction) -> None:
    """One victim where one is enough, and the place is held; asked again meanwhile, nobody else has to leave."""
    api, high = Api(), ranked("high", "0.85", 100)
    room, counter = asked(start, api, mode, [high, high])

    if mode == "off":
        assert api.written == []
        return
    assert set(api.evicted()) == {"a1"}
    assert counter.values == {(mode, "done"): 1.0 if mode == "on" else 2.0}
    assert ("high" in room.view.holds) == (mode == "on")
    room.view.pod_gone("a1")
    assert not room.preemptor or not room.preemptor.is_waiting("high")
    if mode == "on":
        room.holds = None
        passed, _, _ = asyncio.run(room.filter(high, ["a", "b"]))
        assert passed == ["a"]


def test_who_may_not_preempt_waits_and_whom_a_budget_protects_stays(start: Started) -> None:
    """Equal priority and `preemptionPolicy: Never` evict nobody; after a refusal another node is taken."""
    api = Api()
    asked(start, api, "on", [ranked("same", "0.85", 1), ranked("never", "0.85", 100, policy="Never")])
    assert api.evicted() == []
    api = Api(spares="a1")
    _, counter = asked(start, api, "on", [ranked("high", "0.85", 100), ranked("high", "0.85", 100)])
    assert api.evicted()[0] == "a1"
    assert api.evicted()[1:] == ["b0", "b1"]
    assert counter.values == {("on", "budget"): 1.0, ("on", "done"): 2.0}


def test_the_scheduler_is_told_which_victims_are_enough(start: Started) -> None:
    """Of the nodes it would empty, one comes back, with the victims that promises need beside those that cores need."""
    room, _ = asked(start, Api(), "on", [])
    high = ranked("high", "0.85", 100)
    assert room.preempt(high, {"a": ["a0"], "b": ["b0"], "strange": ["x"]}) == {"a": ["a0"]}
    assert room.preempt(high, {"b": ["b0"]}) == {"b": ["b0", "b1"]}
    assert room.preempt(ranked("low", "0.85", 0), {"b": ["none-of-ours"]}) == {}
