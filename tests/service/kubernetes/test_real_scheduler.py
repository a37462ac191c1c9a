"""The real kube-scheduler asks the extender: where pods go, judged by the simulator, and what happens when things end.

Runs where SLOMO_KUBE_BIN names the folder that `make kube-tools` fills. Three machine types: two of the shipped
datasets, one profiled by the test once and kept beside the binaries. With -s the figures are printed.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.service.demo import demo_models
from slomo.service.kubernetes.pods import MIN_SHARE, NF
from slomo.vocabulary.machine import load_machine
from slomo.workflow.place import make_judge
from tests.service.kubernetes.control_plane import ControlPlane, free_port, waited

THIRD = "e5-2699v4"
NAMES = ("flowstats", "ip-router", "maglev", "pfsense", "snort", "stateless-firewall", "suricata", "vpn")
SHARES = (0.7, 0.8, 0.85, 0.9)
#: Near the highest for which the errors of 150 mixes suffice with eight different functions on a node.
CONFIDENCE = 0.99
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture(scope="module")
def binaries() -> Path:
    """Return the folder of the binaries, or skip."""
    named = os.environ.get("SLOMO_KUBE_BIN")
    if not named:
        pytest.skip("SLOMO_KUBE_BIN is not set: make kube-tools builds kube-scheduler, once, from Go modules")
    return Path(named)


@pytest.fixture(scope="module")
def models(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return models of three machine types."""
    from slomo.records.dataset import ProfileDataset
    from slomo.workflow.profile import profile
    from slomo.workflow.train import train

    kept = binaries.parent / f"{THIRD}.parquet"
    if not kept.is_file():
        profile(NAMES, machine=THIRD, design="adaptive", mixes=150).to_parquet(kept)
    library = ModelLibrary.load(demo_models(lambda _: None))
    library = library.merge(train(ProfileDataset.read_parquet(kept), models=["slomo-xgb"]))
    return library.save(tmp_path_factory.mktemp("models") / "three")


@pytest.fixture
def plane(binaries: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """Return a control plane."""
    with ControlPlane(binaries, tmp_path) as made:
        yield made


def fifty_nodes(machines: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return names and machine types of fifty nodes."""
    return [(f"n{number:02d}", machines[number % len(machines)]) for number in range(50)]


def broken(plane: ControlPlane, nodes: dict[str, str], library: ModelLibrary) -> list[str]:
    """Let the judge run what is bound to each node; return who misses a promise."""
    servers = tuple(Server(name, machine) for name, machine in nodes.items())
    placer = Placer(library, Cluster(servers))
    taken: Counter[str] = Counter()
    entries = []
    for name, (notes, node) in plane.pods().items():
        if not node:
            continue
        workload = library.find(notes[NF], nodes[node]).workload
        share = float(notes[MIN_SHARE])
        needed = share * library.find(notes[NF], nodes[node]).solo_mpps
        piece = {"server": node, "socket": load_machine(nodes[node]).nic_socket, "cores": [taken[node]],
                 "workloads": [workload.key], "needed_mpps": needed, "ways": [], "exclusive": False, "instances": 1,
                 "replicas": 1}  # fmt: skip
        taken[node] += 1
        entries.append({"request": Request(name, (workload,), SLO(min_share=share)).to_dict(), "pieces": [piece]})
    placer.restore({**placer.snapshot(), "placed": entries}, keep_at_risk=True)
    judged = make_judge().judge(placer)
    assert judged.placed == len(entries)
    return [f"{v.request} on {v.server}: promised {v.promised:.3f}, has {v.measured:.3f}" for v in judged.violations]


def note(text: str) -> None:
    """Print a figure, for those who run with -s."""
    sys.stdout.write(f"{text}\n")


def wishes(count: int, seed: int) -> list[tuple[str, str, float]]:
    """Return names, network functions and promises of pods."""
    dice = random.Random(seed)
    return [(f"p{seed}-{number:03d}", dice.choice(NAMES), dice.choice(SHARES)) for number in range(count)]


def in_view(address: str, name: str) -> float:
    """Return a gauge of the service."""
    text = httpx.get(f"{address}/metrics", timeout=10.0).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def started(plane: ControlPlane, models: Path, nodes: list[tuple[str, str]]) -> str:
    """Start slomo and its scheduler over some nodes; return slomo's address."""
    plane.add_nodes(nodes)
    address = f"http://127.0.0.1:{(port := free_port())}"
    plane.slomo(models, port, CONFIDENCE)
    waited("slomo", lambda: is_ready(address), 90.0)
    plane.scheduler("slomo-scheduler", address)
    return address


def is_ready(address: str) -> bool:
    """Say whether slomo answers and has a fresh view."""
    try:
        return bool(httpx.get(f"{address}/readyz", timeout=5.0).json()["status"] == "ready")
    except (httpx.HTTPError, ValueError):
        return False


@pytest.mark.parametrize("seed", [1, 101])
def test_two_hundred_pods_on_three_machine_types_keep_their_promises(
    plane: ControlPlane, models: Path, seed: int
) -> None:
    """Bound by our answers no promise breaks in the judge; the same pods, scheduled without us, break many.

    The pods need nearly all fifty nodes: in this order of arrival all find a place, in some others a few find none.
    """
    library = ModelLibrary.load(models)
    nodes = fifty_nodes(library.machines)
    started(plane, models, nodes)
    pods = wishes(200, seed=seed)
    for name, nf, share in pods:
        plane.add_pod(name, nf, share, "slomo-scheduler")
    took_s, waiting = plane.wait_until_settled([name for name, _, _ in pods], 420.0)
    used = {node for _, node in plane.pods().values() if node}
    ours = broken(plane, dict(nodes), library)
    for name, _, _ in pods:
        plane.delete_pod(name)
    plane.scheduler("plain-scheduler")
    for name, nf, share in pods:
        plane.add_pod(f"{name}-plain", nf, share, "plain-scheduler")
    plane.wait_until_bound([f"{name}-plain" for name, _, _ in pods], 300.0)
    theirs = broken(plane, dict(nodes), library)
    note(
        f"{200 - len(waiting)} pods bound in {took_s:.1f} s on {len(used)} nodes; "
        f"broken: {len(ours)} with us, {len(theirs)} without; {plane.unjudged()} answers not waited for"
    )

    assert ours == []
    assert len(theirs) >= 10
    assert {dict(nodes)[node] for node in used} <= set(library.machines)


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_pods_wait_while_the_extender_is_away_and_are_judged_when_it_is_back(
    plane: ControlPlane, models: Path, how: str
) -> None:
    """Killed or hung, nothing is bound; back again, one list gives it everything that runs, and no promise breaks."""
    library = ModelLibrary.load(models)
    nodes = fifty_nodes(library.machines)[:24]
    address = started(plane, models, nodes)
    first, second = wishes(15, seed=2), wishes(15, seed=3)
    for name, nf, share in first:
        plane.add_pod(name, nf, share, "slomo-scheduler")
    plane.wait_until_bound([name for name, _, _ in first])
    if how == "killed":
        plane.stop("slomo")
    else:
        plane.signal("slomo", signal.SIGSTOP)
    for name, nf, share in second:
        plane.add_pod(name, nf, share, "slomo-scheduler")
    time.sleep(10.0)
    meanwhile = [name for name, _, _ in second if plane.pods()[name][1]]
    if how == "killed":
        plane.slomo(models, int(address.rsplit(":", 1)[1]), CONFIDENCE)
    else:
        plane.signal("slomo", signal.SIGCONT)
    waited("slomo again", lambda: is_ready(address), 90.0)
    back_s = plane.wait_until_bound([name for name, _, _ in second])
    note(f"{how}: {len(meanwhile)} of {len(second)} pods bound meanwhile; all bound {back_s:.1f} s after it was back")

    assert meanwhile == []
    assert plane.unjudged() == 0
    assert broken(plane, dict(nodes), library) == []
    assert in_view(address, "slomo_kubernetes_nodes") == len(nodes)


def test_promises_that_another_scheduler_breaks_are_told_within_ten_seconds(plane: ControlPlane, models: Path) -> None:
    """By metric, row and a condition on the pod; once the others are gone the condition says that it is kept again."""
    library = ModelLibrary.load(models)
    nodes = fifty_nodes(library.machines)[:24]
    address = started(plane, models, nodes)
    plane.scheduler("plain-scheduler")
    pods = wishes(75, seed=9)
    for name, nf, share in pods:
        plane.add_pod(name, nf, share, "plain-scheduler")
    plane.wait_until_bound([name for name, _, _ in pods])
    begun = time.monotonic()
    waited("metric", lambda: in_view(address, "slomo_slo_violation_predicted") > 0, 10.0)
    rows = httpx.get(f"{address}/v1/cluster/at-risk", timeout=10.0).json()["at_risk"]
    told = {row["request"].partition("/")[2] for row in rows}
    waited("conditions", lambda: told <= set(plane.conditions()), 10.0)
    note(f"{len(told)} promises told {time.monotonic() - begun:.1f} s after the last binding")

    assert {text.split()[0] for text in broken(plane, dict(nodes), library)} <= told
    assert {plane.conditions()[name] for name in told} == {"False"}
    for name, _, _ in pods[5:]:
        plane.delete_pod(name)
    waited("kept again", lambda: "False" not in plane.conditions().values(), 20.0)


def test_pods_and_nodes_that_come_and_go_while_pods_are_scheduled(plane: ControlPlane, models: Path) -> None:
    """Deleted pods give their place back, drained nodes take nothing, added ones are used; promises hold throughout."""
    library = ModelLibrary.load(models)
    nodes = fifty_nodes(library.machines)
    address = started(plane, models, nodes[:30])
    present = dict(nodes[:30])
    pods = wishes(120, seed=5)
    dice = random.Random(6)
    alive: list[str] = []
    for number, (name, nf, share) in enumerate(pods):
        plane.add_pod(name, nf, share, "slomo-scheduler")
        alive.append(name)
        if number % 4 == 3:
            plane.delete_pod(alive.pop(dice.randrange(len(alive))))
        if number % 15 == 14:
            plane.add_nodes([nodes[30 + number // 15]])
            present.update([nodes[30 + number // 15]])
            gone = set(plane.drain(nodes[number // 15][0]))
            alive = [kept for kept in alive if kept not in gone]
    drained = {nodes[number][0] for number in range(8)}
    plane.wait_until_bound(alive)
    waited("view", lambda: in_view(address, "slomo_kubernetes_pods") == len(plane.pods()), 20.0)

    assert set(alive) <= set(plane.pods())
    note(f"{plane.unjudged()} answers not waited for while pods and nodes came and went")
    late = [text for text in broken(plane, present, library) if text.split()[2].rstrip(":") not in drained]
    assert late == []
    assert {node for _, node in plane.pods().values()} & {name for name, _ in nodes[30:38]}
