"""Two replicas over one API server: each sees the places that the other holds; one of them acts."""

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from slomo.service.kubernetes.holds import HELD, LABEL, SharedHolds, TakenMeanwhile
from slomo.service.kubernetes.leading import ACTS_S, LASTS_S, NAME, Leader
from slomo.service.kubernetes.pods import MIN_SHARE, NF, need_of
from slomo.service.kubernetes.service import KubernetesRoom
from slomo.service.kubernetes.view import HOLD_S, ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import Metadata, Pod
from tests.service.conftest import Started
from tests.service.kubernetes.test_extender import node, pod


class Leases:
    """An API server that keeps leases, refuses those of an old version, and tells them to watches when it likes."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.version, self.refused, self.status = 100, 0, 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # others come between
        if self.status:
            return httpx.Response(self.status)
        name = request.url.path.rsplit("/", 1)[1]
        if request.method == "GET" and name == "leases":
            return httpx.Response(200, json={"items": list(self.kept.values()), "metadata": {"resourceVersion": "9"}})
        if request.method == "GET":
            return httpx.Response(200, json=self.kept[name]) if name in self.kept else httpx.Response(404)
        body = json.loads(request.content)
        name, given = body["metadata"]["name"], body["metadata"].get("resourceVersion")
        known = self.kept.get(name, {"metadata": {}})["metadata"].get("resourceVersion")
        if (request.method == "POST") == (name in self.kept) or given != known:
            self.refused += 1
            return httpx.Response(404 if known is None else 409)
        self.version += 1
        self.kept[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return httpx.Response(200, json=self.kept[name])


def line(api: Leases, view: ClusterView) -> Watch:
    """Return a line to an API server."""
    watch = Watch("http://api", view)
    asyncio.run(watch.close())
    watch._client = httpx.AsyncClient(transport=httpx.MockTransport(api))
    return watch


def replica(start: Started, api: Leases, nodes: int) -> KubernetesRoom:
    """Return the room of one replica that sees some empty nodes."""
    room: KubernetesRoom = start().service.kubernetes  # type: ignore[attr-defined]
    room.view.replace_nodes([node(f"n{number}") for number in range(nodes)])
    room.view.heard("nodes")
    room.view.heard("pods")
    room.judge._clock = lambda: 0.0
    room.holds = SharedHolds(line(api, room.view), room.view)
    return room


def test_two_replicas_that_choose_at_the_same_time_break_no_promise(start: Started) -> None:
    """Neither hears of the other but by refused writes; together they fill nodes no further than one would."""
    api = Leases()
    rooms = [replica(start, api, 8) for _ in range(2)]
    dice = random.Random(3)
    wishes = [
        pod(f"u{number}", dice.choice(("lpm", "nat", "ids")), dice.choice(("0.8", "0.9"))) for number in range(40)
    ]
    names = [f"n{number}" for number in range(8)]

    async def asked(room: KubernetesRoom, wish: Pod) -> str:
        passed, _, _ = await room.filter(wish, names)
        return passed[0] if passed else ""

    async def run() -> dict[str, str]:
        placed: dict[str, str] = {}
        for first, second in zip(wishes[::2], wishes[1::2], strict=True):
            both = await asyncio.gather(asked(rooms[0], first), asked(rooms[1], second))
            placed |= {first.metadata.uid: both[0], second.metadata.uid: both[1]}
        return placed

    placed = asyncio.run(run())
    judge, machine = rooms[0].judge, "e5-2620v4"
    host = rooms[0].view.nodes["n0"].host
    assert host is not None
    for name in names:
        here = [wish for wish in wishes if placed[wish.metadata.uid] == name]
        mix = tuple(sorted(judge.number(need, machine) for wish in here if (need := need_of(wish)) is not None))
        assert judge.verdict(host, mix).ok, name
    assert api.refused > 0
    assert sum(map(bool, placed.values())) >= 15
    assert all(lease["metadata"]["labels"] == {LABEL: ""} for lease in api.kept.values())


def test_held_places_are_seen_by_a_replica_that_starts_and_end_with_their_time(start: Started) -> None:
    """A list of leases gives what is held; what is bound or over is not held again, and is written no more."""
    api = Leases()
    old, new = replica(start, api, 1), replica(start, api, 1)
    assert old.holds is not None
    assert new.holds is not None
    asyncio.run(old.filter(pod("a", share="0.1"), ["n0"]))
    asyncio.run(old.filter(pod("b", share="0.1"), ["n0"]))
    new.view.pod_seen(pod("a", share="0.1", where="n0"))
    asyncio.run(new.holds._watch._list("leases"))
    assert set(new.view.holds) == {"b"}
    assert set(new.view.nodes["n0"].tenants) == {"a"}

    later = new.holds._wall() + HOLD_S + 1.0
    new.holds._wall = lambda: later
    asyncio.run(new.filter(pod("c", share="0.1"), ["n0"]))
    assert set(json.loads(api.kept["slomo-hold-n0"]["metadata"]["annotations"][HELD])) == {"c"}


@pytest.mark.parametrize("status", [403, 500])
def test_without_leases_one_scheduler_goes_on_alone(start: Started, status: int) -> None:
    """Where the role is missing, places are held in memory, and that is told; where the server fails, pods wait."""
    api = Leases()
    room = replica(start, api, 1)
    api.status = status
    assert room.holds is not None
    if status == 500:
        with pytest.raises(TakenMeanwhile):
            asyncio.run(room.filter(pod("a"), ["n0"]))
        assert not room.view.holds
        return
    assert asyncio.run(room.filter(pod("a"), ["n0"]))[0] == ["n0"]
    assert set(room.view.holds) == {"a"}
    assert not room.holds.is_shared
    assert {name: values for name, _, _, values in room.gauges()}["slomo_kubernetes_holds_shared"] == {(): 0.0}


def test_a_kind_that_the_api_server_refuses_is_done_without() -> None:
    """Without the right to read leases pods are judged all the same; needed kinds are waited for."""
    view, api = ClusterView(), Leases()
    api.status = 403

    async def run() -> None:
        watch = Watch("http://api", view)
        await watch.close()
        watch._client = httpx.AsyncClient(transport=httpx.MockTransport(api))
        SharedHolds(watch, view)
        view.needed.add("leases")
        view.heard("nodes")
        tasks = [
            asyncio.create_task(watch.follow("leases", "nodes")),
            asyncio.create_task(watch.follow("pods", "leases")),
        ]
        while "pods" not in view.lost_at_s:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await watch.close()

    asyncio.run(asyncio.wait_for(run(), 10.0))
    assert view.needed == {"nodes", "pods"}
    assert not view.is_fresh


def test_one_replica_leads_and_another_takes_over() -> None:
    """Who holds the lease renews it; killed, another leads once it has not changed for its time; given up, at once."""
    api, now = Leases(), [100.0]
    first, second = (Leader(line(api, ClusterView()), name, lambda: now[0]) for name in ("a", "b"))
    for _ in range(5):
        asyncio.run(first.attempt())
        asyncio.run(second.attempt())
        assert (first.is_leading, second.is_leading) == (True, False)
        now[0] += 1.0
    killed = now[0]
    while not second.is_leading:
        now[0] += 1.0
        asyncio.run(second.attempt())
        assert not (first.is_leading and second.is_leading)
    assert now[0] - killed <= LASTS_S + 1.0
    assert api.kept[NAME]["spec"]["leaseTransitions"] == 2
    asyncio.run(first.attempt())  # it was hung, not dead
    assert not first.is_leading
    asyncio.run(second.step_down())
    asyncio.run(first.attempt())
    assert first.is_leading
    now[0] += ACTS_S
    assert not first.is_leading  # who cannot renew stops before another may begin
    api.status = 403
    asyncio.run(first.attempt())
    assert "403" in first.trouble


def test_a_mistyped_annotation_is_held_by_nobody(start: Started) -> None:
    """A pod that is refused takes no place, in no lease."""
    api = Leases()
    room = replica(start, api, 1)
    slip = Pod(Metadata(name="s", uid="s", annotations={NF: "lpm", MIN_SHARE: "90%"}))
    assert asyncio.run(room.filter(slip, ["n0"]))[0] == []
    assert api.kept == {}
