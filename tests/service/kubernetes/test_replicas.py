"""Two replicas over one API server: each sees the places that the other holds; one of them acts."""

import asyncio
import json
import random
import time
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from slomo.service.kubernetes import holds
from slomo.service.kubernetes.holds import HELD, LABEL, SharedHolds, TakenMeanwhile
from slomo.service.kubernetes.leading import ACTS_S, LASTS_S, NAME, Leader
from slomo.service.kubernetes.pods import MACHINE, MIN_SHARE, NF, need_of
from slomo.service.kubernetes.service import UNDER_WAY, KubernetesRoom, NotBound, PlacesHeld
from slomo.service.kubernetes.view import HOLD_S, ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import BindingArgs, KubernetesNode, Lease, Metadata, Pod
from tests.service.conftest import Started
from tests.service.kubernetes.test_extender import node, pod


class Leases:
    """An API server that keeps leases, refuses those of an old version, and tells them to watches when it likes."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.version, self.refused, self.status = 100, 0, 0
        self.pods: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, str] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # others come between
        if self.status:
            return httpx.Response(self.status)
        name = request.url.path.rsplit("/", 1)[1]
        if "/pods/" in request.url.path:
            return self.bind(json.loads(request.content)) if name == "binding" else self.show(name)
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

    def show(self, name: str) -> httpx.Response:
        """Return a pod."""
        return httpx.Response(200, json=self.pods[name]) if name in self.pods else httpx.Response(404)

    def bind(self, body: dict[str, Any]) -> httpx.Response:
        """Bind a pod; those of slomo only where a lease says that they are expected."""
        uid, where = body["metadata"]["uid"], body["target"]["name"]
        lease = self.kept.get(f"slomo-hold-{where}", {"metadata": {"annotations": {}}})
        assert uid == "other" or uid in json.loads(lease["metadata"]["annotations"].get(HELD, "{}"))
        self.bound[uid] = where
        return httpx.Response(201)


def line(api: Leases, view: ClusterView) -> Watch:
    """Return a line to an API server."""
    watch = Watch("http://api", view)
    asyncio.run(watch.close())
    watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
    return watch


def replica(start: Started, api: Leases, nodes: int) -> KubernetesRoom:
    """Return the room of one replica that sees some empty nodes."""
    room: KubernetesRoom = start().service.kubernetes  # type: ignore[attr-defined]
    room.view.replace_nodes([node(f"n{number}") for number in range(nodes)])
    room.view.heard("nodes")
    room.view.heard("pods")
    room.watch = line(api, room.view)
    room.holds = SharedHolds(room.watch, room.view)
    return room


def order(wish: Pod, where: str) -> BindingArgs:
    """Return the order to bind a pod."""
    return BindingArgs(wish.metadata.name, "default", wish.metadata.uid, where)


@pytest.mark.parametrize("binds", [False, True])
def test_two_replicas_that_choose_at_the_same_time_break_no_promise(start: Started, binds: bool) -> None:
    """Neither hears of the other but by refused writes; together they fill nodes no further than one would."""
    api = Leases()
    rooms = [replica(start, api, 8) for _ in range(2)]
    dice = random.Random(3)
    wishes = [
        pod(f"u{number}", dice.choice(("lpm", "nat", "ids")), dice.choice(("0.8", "0.9"))) for number in range(40)
    ]
    names = [f"n{number}" for number in range(8)]

    async def asked(room: KubernetesRoom, wish: Pod) -> str:
        for _ in range(2):  # the scheduler asks again for a pod that was put off
            try:
                passed, _, _ = await room.filter(wish, names, binds=binds)
                if binds and passed:
                    await room.bind(order(wish, passed[0]))
                return passed[0] if passed else ""
            except (NotBound, PlacesHeld):
                continue
        return ""

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
        assert judge.oracle.verdict(host, mix).ok, name
    assert api.refused > 0
    assert sum(map(bool, placed.values())) >= 15
    assert not binds or api.bound == {uid: where for uid, where in placed.items() if where}
    assert all(lease["metadata"]["labels"] == {LABEL: ""} for lease in api.kept.values())


def test_pods_for_one_node_share_writes_and_wait_for_them(start: Started) -> None:
    """Chosen one after the other before any write has ended, all are in the lease once they are bound."""
    api = Leases()
    room = replica(start, api, 1)
    wishes = [pod(f"u{number}", share="0.1") for number in range(4)]

    async def run() -> None:
        for wish in wishes:
            assert (await room.filter(wish, ["n0"], binds=True))[0] == ["n0"]
        assert api.kept == {}
        await asyncio.gather(*(room.bind(order(wish, "n0")) for wish in wishes))

    asyncio.run(run())
    assert set(api.bound) == {"u0", "u1", "u2", "u3"}
    assert api.version <= 102


def test_a_slow_api_server_is_asked_for_few_pods_at_a_time(start: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """While twelve places are being written the next pod waits, then is told to ask again; later it goes on."""
    monkeypatch.setattr("slomo.service.kubernetes.service.FILTER_S", 0.05)
    api = Leases()
    room = replica(start, api, UNDER_WAY + 1)
    names, answers = [f"n{number}" for number in range(UNDER_WAY + 1)], asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        await answers.wait()
        return await api(request)

    assert room.watch is not None
    room.watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(slow))

    async def run() -> None:
        for number in range(UNDER_WAY):
            assert (await room.filter(pod(f"u{number}", share="0.9"), names, binds=True))[0]
        with pytest.raises(NotBound, match="does not answer in time"):
            await room.filter(pod("next", share="0.9"), names, binds=True)
        answers.set()
        assert (await room.filter(pod("next", share="0.9"), names, binds=True))[0]

    asyncio.run(run())


def test_a_pod_that_is_not_bound_gives_its_place_up(start: Started) -> None:
    """Meanwhile a pod that fits only there is not refused, for nothing tells the scheduler of a place given up."""
    api = Leases()
    room = replica(start, api, 1)
    full, next_one = pod("full", "nat", "1.0"), pod("next", "nat", "1.0")

    async def run() -> None:
        assert (await room.filter(full, ["n0"], binds=True))[0] == ["n0"]
        with pytest.raises(PlacesHeld, match="ask again"):
            await room.filter(next_one, ["n0"], binds=True)
        await asyncio.sleep(0.01)
        api.status = 500
        with pytest.raises(NotBound, match="refuses the binding"):
            await room.bind(order(full, "n0"))
        api.status = 0
        assert (await room.filter(next_one, ["n0"], binds=True))[0] == ["n0"]

    asyncio.run(run())


def test_a_pod_is_refused_once_the_pods_in_its_way_are_bound(start: Started) -> None:
    """Or at once if it fits beside the bound pods nowhere, whatever else is held."""
    room = replica(start, Leases(), 2)
    room.view.replace_pods([pod("bound", "nat", "1.0", "n1")])

    async def run() -> None:
        names, last = ["n0", "n1"], pod("last", "nat", "1.0")
        assert (await room.filter(pod("first", "nat", "1.0"), names, binds=True))[0] == ["n0"]
        assert (await room.filter(last, ["n1"], binds=True))[0] == []
        with pytest.raises(PlacesHeld):
            await room.filter(last, names, binds=True)
        room.view.pod_seen(pod("first", "nat", "1.0", "n0"))
        assert (await room.filter(last, names, binds=True))[0] == []

    asyncio.run(run())


def test_a_pod_that_was_filtered_by_nobody_is_judged_before_it_is_bound(start: Started) -> None:
    """After a restart slomo reads the pod; what breaks a promise, is unreadable or gone is not bound."""
    api = Leases()
    room = replica(start, api, 1)
    room.view.replace_pods([pod(f"t{number}", "nat", "0.3", "n0") for number in range(7)])
    wishes = {"fits": {NF: "lpm"}, "breaks": {NF: "lpm", MIN_SHARE: "0.99"}, "slip": {NF: "lpm", MIN_SHARE: "90%"},
              "other": {}}  # fmt: skip
    api.pods = {f"p-{uid}": {"metadata": {"name": f"p-{uid}", "uid": uid, "annotations": notes}}
                for uid, notes in wishes.items()}  # fmt: skip
    for uid in (*wishes, "gone"):
        wanted = order(pod(uid), "n0")
        if uid in ("fits", "other"):
            asyncio.run(room.bind(wanted))
        else:
            with pytest.raises(NotBound):
                asyncio.run(room.bind(wanted))
    assert set(api.bound) == {"fits", "other"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"PodName": "../x", "PodNamespace": "d", "PodUID": "u", "Node": "n0"}, BindingArgs)


def test_held_places_are_seen_by_a_replica_that_starts_and_end_with_their_time(
    start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    later = time.time() + HOLD_S + 1.0
    monkeypatch.setattr(holds, "time", SimpleNamespace(time=lambda: later))
    asyncio.run(new.filter(pod("c", share="0.1"), ["n0"]))
    assert set(json.loads(api.kept["slomo-hold-n0"]["metadata"]["annotations"][HELD])) == {"c"}


@pytest.mark.parametrize("jump_s", [-86400.0, -3600.0, 3600.0])
def test_clocks_of_replicas_need_not_agree(start: Started, jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another replica holds counts for as long as here, however far its clock is off, and ends in time."""
    api = Leases()
    here, there = replica(start, api, 1), replica(start, api, 1)
    now = [0.0]
    here.view._clock = lambda: now[0]
    assert here.holds is not None
    assert there.holds is not None
    with monkeypatch.context() as clock:
        clock.setattr(holds, "time", SimpleNamespace(time=lambda: time.time() + jump_s))
        asyncio.run(there.filter(pod("a", share="0.1"), ["n0"]))
    here.holds._seen(msgspec.convert(api.kept["slomo-hold-n0"], Lease))
    assert set(here.view.holds) == {"a"}
    now[0] = HOLD_S + 1.0
    here.view.expire()
    assert not here.view.holds


def test_leases_go_with_their_node(start: Started) -> None:
    """A node that vanishes leaves nothing: the Lease of its held places belongs to it."""
    api = Leases()
    room = replica(start, api, 1)
    room.view.node_seen(KubernetesNode(Metadata(name="n0", uid="7-7", labels={MACHINE: "e5-2620v4"})))
    for name in "ab":
        asyncio.run(room.filter(pod(name, share="0.1"), ["n0"]))
        lease = api.kept["slomo-hold-n0"]["metadata"]
        assert lease["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "7-7"}]
    assert set(json.loads(lease["annotations"][HELD])) == {"a", "b"}


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
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
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


def test_a_replica_says_that_another_leads_by_other_models() -> None:
    """While models are exchanged, or one replica was given others; the one that leads judges by its own."""
    api, models = Leases(), ["old", "old"]
    first, second = (
        Leader(line(api, ClusterView()), name, lambda: 100.0, lambda place=place: models[place])
        for place, name in enumerate("ab")
    )

    def looked() -> tuple[bool, bool]:
        for leader in (first, second):
            asyncio.run(leader.attempt())
        return first.models_differ, second.models_differ

    assert looked() == (False, False)
    models[0] = "new"
    assert looked() == (False, True)
    models[1] = "new"
    assert looked() == (False, False)


def test_a_mistyped_annotation_is_held_by_nobody(start: Started) -> None:
    """A pod that is refused takes no place, in no lease."""
    api = Leases()
    room = replica(start, api, 1)
    slip = Pod(Metadata(name="s", uid="s", annotations={NF: "lpm", MIN_SHARE: "90%"}))
    assert asyncio.run(room.filter(slip, ["n0"]))[0] == []
    assert api.kept == {}
