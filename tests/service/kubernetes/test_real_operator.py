"""Slomo as an operator's system on a real API server: replicas, priorities, wrong annotations, silence, objects.

Runs where SLOMO_KUBE_BIN names the folder that `make kube-tools` fills, with the models of `slomo demo` and the rights
of the shipped roles. With -s the figures are printed.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slomo.models.library import ModelLibrary
from slomo.service.demo import demo_models
from slomo.service.kubernetes.leading import LASTS_S, NAME, Leader
from slomo.service.kubernetes.pods import MIN_MPPS, MIN_SHARE, NF, need_of
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import Metadata, Pod
from tests.service.kubernetes.control_plane import ControlPlane, free_port, waited
from tests.service.kubernetes.test_real_scheduler import CONFIDENCE, broken, in_view, is_ready, note, wishes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes")]
#: How many promises of pods per scheduler, failovers, and mutated annotations.
PODS, FAILOVERS, MUTATED = 44, 20, 1000


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Return a control plane, or skip."""
    named = os.environ.get("SLOMO_KUBE_BIN")
    if not named:
        pytest.skip("SLOMO_KUBE_BIN is not set: make kube-tools builds kube-apiserver, once, from Go modules")
    with ControlPlane(Path(named), tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def models() -> Path:
    """Return the models of the demonstration."""
    return demo_models(lambda _: None)


def replica(plane: ControlPlane, models: Path, name: str, *options: str) -> str:
    """Start a replica; return its address once it is ready."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    plane.slomo(models, port, CONFIDENCE, name, *options)
    waited(name, lambda: is_ready(address), 400.0)
    return address


def nodes_of(models: Path, count: int) -> list[tuple[str, str]]:
    """Return names and machine types of some nodes."""
    machines = ModelLibrary.load(models).machines
    return [(f"n{number:03d}", machines[number % len(machines)]) for number in range(count)]


def test_two_schedulers_with_a_replica_each_break_no_promise(plane: ControlPlane, models: Path) -> None:
    """They choose at the same time among the same nodes; each sees what the other holds."""
    nodes = nodes_of(models, 24)
    plane.add_nodes(nodes)
    for name in ("first", "second"):
        plane.scheduler(name, replica(plane, models, f"slomo-{name}"))
    pods = wishes(PODS, seed=25)
    for number, (name, nf, share) in enumerate(pods):
        plane.add_pod(name, nf, share, ("first", "second")[number % 2])
    took_s = plane.wait_until_bound([name for name, _, _ in pods], 300.0)
    late = broken(plane, dict(nodes), ModelLibrary.load(models))
    leases = plane.line.get("/apis/coordination.k8s.io/v1/namespaces/slomo/leases").json()["items"]
    note(f"two schedulers: {len(pods)} pods in {took_s:.1f} s, {len(late)} promises broken, {len(leases)} leases")

    assert late == []
    held = [item["metadata"] for item in leases if item["metadata"]["name"].startswith("slomo-hold-")]
    assert {item["ownerReferences"][0]["name"] for item in held} == {item["name"][11:] for item in held} != set()


def test_twenty_failovers(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leads stops without a word; another leads soon after the lease has run out, never both."""
    monkeypatch.setenv("SLOMO_KUBE_TOKEN_FILE", str(plane._folder / "token"))
    monkeypatch.setenv("SLOMO_KUBE_CA_FILE", str(plane._folder / "certificates/apiserver.crt"))

    async def run() -> tuple[list[float], int]:
        watch = Watch(plane.address, ClusterView())
        tasks: dict[Leader, asyncio.Task[None]] = {}

        def begin(number: int) -> None:
            leader = Leader(watch, f"replica-{number}")
            tasks[leader] = asyncio.create_task(leader.lead())

        async def leads() -> Leader:
            while not (found := [leader for leader in tasks if leader.is_leading]):
                await asyncio.sleep(0.02)
            assert len(found) == 1
            return found[0]

        begin(0)
        begin(1)
        took, both = [], 0
        for number in range(FAILOVERS):
            gone = await leads()
            await asyncio.sleep(1.5)
            tasks.pop(gone).cancel()
            begun = time.monotonic()
            begin(2 + number)
            after = await leads()
            took.append(time.monotonic() - begun)
            both += gone.is_leading and after.is_leading
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await watch.close()
        return took, both

    took, both = asyncio.run(run())
    lease = plane.line.get(f"/apis/coordination.k8s.io/v1/namespaces/slomo/leases/{NAME}").json()
    note(f"{FAILOVERS} failovers: {min(took):.1f} to {max(took):.1f} s, {both} with two leaders")
    assert both == 0
    assert max(took) <= LASTS_S + 9.0  # the machine may do other work
    assert lease["spec"]["leaseTransitions"] == FAILOVERS + 1


def test_promises_are_told_by_the_replica_that_is_left(plane: ControlPlane, models: Path) -> None:
    """The leader is killed, promises break by another scheduler; the other replica tells every pod."""
    nodes = nodes_of(models, 6)
    plane.add_nodes(nodes)
    plane.apply_file("slomo-crds.yaml")
    waited("kinds", lambda: plane.line.get("/apis/slomo.io/v1alpha1/nodecontentions").status_code == 200)
    plane.scheduler("plain-scheduler")
    addresses = {name: replica(plane, models, name) for name in ("one", "two")}
    waited("leader", lambda: any(in_view(address, "slomo_kubernetes_leading") for address in addresses.values()))
    leads = next(name for name, address in addresses.items() if in_view(address, "slomo_kubernetes_leading"))
    (left,) = set(addresses) - {leads}
    plane.stop(leads)
    pods = wishes(30, seed=9)
    for name, nf, share in pods:
        plane.add_pod(name, nf, share, "plain-scheduler")
    plane.wait_until_bound([name for name, _, _ in pods])
    begun = time.monotonic()
    waited("metric", lambda: in_view(addresses[left], "slomo_slo_violation_predicted") > 0, 10.0)
    rows = httpx.get(f"{addresses[left]}/v1/cluster/at-risk", timeout=10.0).json()["at_risk"]
    told = {row["request"].partition("/")[2] for row in rows}
    waited("conditions", lambda: told <= set(plane.conditions()), 30.0)
    note(f"{len(told)} promises told {time.monotonic() - begun:.1f} s after the last binding, the leader being killed")
    late = broken(plane, dict(nodes), ModelLibrary.load(models))
    assert {text.split()[0] for text in late} <= told
    state = objects(plane, "nodecontentions")
    waited("objects", lambda: Counter(pod_states(plane)) == Counter(row["state"] for row in rows), 30.0)
    assert set(state) == {name for name, _ in nodes}
    assert {"machine", "workload", "digest", "soloMpps"} <= set(
        next(iter(objects(plane, "networkfunctionprofiles").values()))["models"][0]
    )


def objects(plane: ControlPlane, plural: str) -> dict[str, Any]:
    """Return the statuses of all objects of a kind of slomo's."""
    items = plane.line.get(f"/apis/slomo.io/v1alpha1/{plural}").json()["items"]
    return {item["metadata"]["name"]: item.get("status") for item in items}


def pod_states(plane: ControlPlane) -> list[str]:
    """Return how broken and unjudged promises stand in the NodeContentions."""
    statuses = [status or {} for status in objects(plane, "nodecontentions").values()]
    states = [tenant["promise"] for status in statuses for tenant in status.get("tenants", [])]
    return [state for state in states if state in ("broken", "unjudged")]


def test_high_priority_is_placed_for_the_fewest_victims(plane: ControlPlane, models: Path) -> None:
    """Promises fill every node; one pod of low priority leaves for the one of high priority, and no promise breaks."""
    nodes = nodes_of(models, 4)
    plane.add_nodes(nodes)
    for name, value in (("low", 10), ("high", 1000)):
        plane.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                     "value": value})  # fmt: skip
    plane.scheduler("slomo-scheduler", replica(plane, models, "slomo", "--evict", "on"))
    lows = [f"low{number}" for number in range(45)]
    for name in lows:
        plane.add_pod(name, "flowstats", 0.9, "slomo-scheduler", "low", "100m")
    time.sleep(15.0)
    bound = {name for name in lows if plane.pods()[name][1]}
    took = []
    for number in range(3):
        plane.add_pod(f"high{number}", "flowstats", 0.9, "slomo-scheduler", "high", "100m")
        took.append(plane.wait_until_bound([f"high{number}"], 30.0))
        time.sleep(2.0)
    pods = plane.pods()
    gone = bound - set(pods)
    late = broken(plane, dict(nodes), ModelLibrary.load(models))
    times = ", ".join(f"{item:.2f}" for item in took)
    note(f"high priority: placed after {times} s; {len(gone)} victims of {len(bound)}")
    assert len(bound) < len(lows)  # promises, not cores, were in the way
    assert len(gone) == len(took)
    assert late == []
    assert max(took) < 2.0


def slipped(dice: random.Random) -> dict[str, dict[str, str]]:
    """Return annotations and labels of a pod with a slip of the pen in them."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_.%,eE"
    key, value = dice.choice(((MIN_SHARE, "0.9"), (MIN_SHARE, "0.85"), (MIN_MPPS, "1.25")))
    notes, labels = {NF: "vpn", key: value}, {}
    where = dice.randrange(5)
    if where == 4:
        labels[key] = notes.pop(key)
    else:
        old = (NF, key)[where % 2]
        text, content = old, notes.pop(old)
        for _ in range(dice.choice((1, 1, 2))):
            part = text if where < 2 else content
            at = dice.randrange(len(part) + 1)
            part = part[:at] + dice.choice(("", dice.choice(letters))) + part[at + dice.randrange(2) :]
            text, content = (part, content) if where < 2 else (text, part)
        notes[text] = content
    return {"annotations": notes, "labels": labels}


def test_broken_promises_are_mended_within_a_minute(plane: ControlPlane, models: Path) -> None:
    """Bound unjudged onto a third of the nodes, pods are evicted and placed anew until every promise holds."""
    nodes = nodes_of(models, 24)
    plane.add_nodes(nodes)
    pods = wishes(48, seed=31)
    for number, (name, nf, share) in enumerate(pods):
        plane.add_pod(name, nf, share, "slomo-scheduler", cpu="100m", owner=name)
        plane.bind_pod(name, nodes[number % 8][0])
    before = broken(plane, dict(nodes), ModelLibrary.load(models))
    plane.scheduler("slomo-scheduler", address := replica(plane, models, "slomo", "--evict", "on"))
    begun, moved, seen = time.monotonic(), 0, 0.0
    alive = {name: (nf, share) for name, nf, share in pods}

    def is_mended() -> bool:
        """Make pods anew that were evicted, as their ReplicaSets would; say whether all run and every promise holds."""
        nonlocal alive, moved, seen
        here = plane.pods()
        for name in [name for name in alive if name not in here]:
            moved += 1
            alive[f"{name}-r"] = alive.pop(name)
            plane.add_pod(f"{name}-r", *alive[f"{name}-r"], "slomo-scheduler", cpu="100m", owner=name)
        at_risk = in_view(address, "slomo_slo_violation_predicted")
        seen = max(seen, at_risk)
        return not at_risk and all(node for _, node in plane.pods().values())

    waited("mended", is_mended, 120.0)
    took_s = time.monotonic() - begun
    late = broken(plane, dict(nodes), ModelLibrary.load(models))
    told = f"{len(before)} broken in the simulation, {seen:.0f} predicted; {moved} pods moved"
    note(f"{told}, all mended {took_s:.1f} s after slomo was ready; {len(late)} broken")
    assert seen > 10
    assert late == []
    assert took_s <= 60.0


def test_a_thousand_mutated_annotations_are_refused_or_told(plane: ControlPlane, models: Path) -> None:
    """None is taken for no promise: the API server refuses it, slomo tells it on the pod, or it is another promise."""
    plane.add_nodes(nodes_of(models, 2))
    plane.apply_file("slomo-admission.yaml")
    bad = {"annotations": {NF: "vpn", MIN_SHARE: "90%"}, "labels": {}}
    waited("policy", lambda: created(plane, "probe", bad, dry_run=True).status_code == 422)
    assert created(plane, "fine", {"annotations": {NF: "vpn(a=1)@1500B,1000f", MIN_SHARE: " .9"}, "labels": {}},
                   dry_run=True).status_code == 201  # fmt: skip
    assert created(plane, "else", {"annotations": {"a.b/c": "d"}, "labels": {"app": "x"}}, dry_run=True).is_success
    dice, counts, silent, tell = random.Random(25), Counter[str](), [], []
    for number in range(MUTATED):
        meta = slipped(dice)
        answer = created(plane, f"m{number}", meta, dry_run=True)
        need = need_of(Pod(Metadata(annotations=meta["annotations"], labels=meta["labels"])))
        if not answer.is_success:
            counts["refused by slomo's policy" if "slomo" in answer.text else "refused as no annotation"] += 1
        elif need is not None and need.fault:
            counts["told on the pod"] += 1
            tell.append(meta)
        elif need is not None and need.has_promise:
            counts["another promise"] += 1
        else:
            silent.append(meta)
    replica(plane, models, "slomo")
    for number, meta in enumerate(tell[:20]):
        created(plane, f"told{number}", meta).raise_for_status()
    names = {f"told{number}" for number in range(len(tell[:20]))}
    told_s = waited("conditions", lambda: plane.conditions().keys() >= names, 20.0)
    note(f"{MUTATED} mutated: {dict(counts)}, {len(silent)} silent; {len(names)} told on pods after {told_s:.1f} s")
    assert silent == []
    assert counts["refused by slomo's policy"] > MUTATED // 4
    assert set(plane.conditions().values()) == {"Unknown"}


def created(plane: ControlPlane, name: str, meta: dict[str, Any], *, dry_run: bool = False) -> httpx.Response:
    """Create a pod, or let the API server say whether it would."""
    spec = {"schedulerName": "slomo-scheduler", "containers": [{"name": "nf", "image": "none"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}
    query = {"dryRun": "All"} if dry_run else {}
    return plane.line.post("/api/v1/namespaces/default/pods", content=json.dumps(body), params=query,
                           headers={"Content-Type": "application/json"})  # fmt: skip


def test_a_mute_api_server_is_noticed_and_a_policy_promises(plane: ControlPlane, models: Path) -> None:
    """Stopped, not ended: nothing is judged by old news after ten seconds; back again, a policy's promise counts."""
    plane.add_nodes(nodes_of(models, 2))
    plane.apply_file("slomo-crds.yaml")
    waited("kinds", lambda: plane.line.get("/apis/slomo.io/v1alpha1/slopolicies").status_code == 200)
    address = replica(plane, models, "slomo")
    took = []
    for _ in range(3):
        plane.signal("apiserver", signal.SIGSTOP)
        took.append(waited("noticed", lambda: not is_ready(address), 30.0))
        plane.signal("apiserver", signal.SIGCONT)
        waited("ready again", lambda: is_ready(address), 60.0)
        time.sleep(random.uniform(1.0, 4.0))
    note(f"a mute API server was noticed after {', '.join(f'{item:.1f}' for item in took)} s")
    plane.apply({"apiVersion": "slomo.io/v1alpha1", "kind": "SLOPolicy", "metadata": {"name": "gold"},
                 "spec": {"selector": {"matchLabels": {"tier": "gold"}}, "minShare": 0.9}})  # fmt: skip
    created(plane, "edge", {"annotations": {}, "labels": {"tier": "gold"}}).raise_for_status()
    waited("told", lambda: plane.conditions() == {"edge": "Unknown"}, 30.0)
    assert max(took) <= 11.0  # ten seconds, and a look every tenth of one


def test_a_thousand_nodes_keep_up_with_the_plain_scheduler(plane: ControlPlane, models: Path) -> None:
    """Pods are bound as fast as promises allow: rates of both schedulers in one run are printed."""
    nodes = nodes_of(models, 1000)
    plane.add_nodes(nodes)
    address = replica(plane, models, "slomo")
    plane.scheduler("slomo-scheduler", address)
    plane.scheduler("plain-scheduler")
    rates = {}
    for scheduler, seed in (("slomo-scheduler", 1), ("plain-scheduler", 2)):
        pods = wishes(300, seed=seed)
        begun = time.monotonic()
        for name, nf, share in pods:
            plane.add_pod(name, nf, share, scheduler)
        plane.wait_until_bound([name for name, _, _ in pods], 300.0)
        rates[scheduler] = len(pods) / (time.monotonic() - begun)
        if scheduler == "slomo-scheduler":
            late = broken(plane, dict(nodes), ModelLibrary.load(models))
    told = []
    with httpx.Client(timeout=10.0) as line:  # one connection, as Prometheus: a new client takes 40 ms itself
        line.get(f"{address}/healthz")
        for _ in range(20):
            begun = time.monotonic()
            line.get(f"{address}/metrics").raise_for_status()
            told.append(1e3 * (time.monotonic() - begun))
            time.sleep(0.05)
    note(
        f"1,000 nodes: {rates} pods/s; /metrics {sorted(told)[10]:.0f} ms, {max(told):.0f} at most; {len(late)} broken"
    )
    assert late == []
