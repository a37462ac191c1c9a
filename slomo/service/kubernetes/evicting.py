"""Move pods off nodes with broken promises, through the eviction API; by default only as a dry run.

The API server respects disruption budgets; the pod's controller creates the pod again, and the scheduler places it. A
node loses one pod at a time: pods without a promise first, then pods with low priority. A pod is evicted only if three
conditions hold: the eviction repairs or improves the node, another node can take the pod without breaking a promise,
and a controller will create it again. Pods evicted at the same time come from different nodes, and a place was found
for each; further evictions wait until these pods are placed.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

import httpx

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import without
from slomo.service import metrics
from slomo.service.kubernetes.judging import NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView, NodeView
from slomo.service.kubernetes.watch import Watch
from slomo.service.servers import RunningServer

_LOG = logging.getLogger("slomo.service.audit")
Eviction = Literal["off", "dry-run", "on"]
#: Longest time to wait until evicted pods run again, and pause of a node after a refused eviction [s].
PAUSE_S = 30.0
#: Pause of a node from which no pod can be evicted [s].
NO_PLACE_S = 10.0
#: Largest number of nodes examined in each round.
MOST_NODES = 5
#: Default limit of evictions per minute.
PER_MINUTE = 60


class Evictor:
    """Evicts pods from nodes with broken promises; in mode "dry-run" the API server only checks rights and budgets."""

    def __init__(
        self,
        watch: Watch,
        view: ClusterView,
        mode: Eviction,
        counted: metrics.Counter,
        per_minute: int = PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch, self._view, self._mode, self._counted, self._clock = watch, view, mode, counted, clock
        self._pause_s = 60.0 / per_minute
        self._not_before_s = self._until_s = 0.0
        self._gone: set[str] = set()
        self._there: dict[PodNeed, int] = {}
        self._spared: dict[str, float] = {}

    async def look(self, servers: Iterable[RunningServer], judge: NodeJudge) -> list[str]:
        """Evict pods if that helps to keep promises, at most one per node; return the evicted pods."""
        now_s = self._clock()
        if self._mode == "off" or now_s < self._not_before_s or not (now_s >= self._until_s or self._are_back()):
            return []
        self._spared = {name: until_s for name, until_s in self._spared.items() if until_s > now_s}
        broken = [server.name for server in servers if server.kind == "broken" and server.name not in self._spared]
        before = Counter(need for node in self._view.nodes.values() for need in node.tenants.values())
        self._gone, self._there, places, names = set(), {}, set[str](), list[str]()
        for name in broken[:MOST_NODES]:
            try:
                victim = self.victim(name, judge, places)
            except SlomoError as error:  # too many mixes to judge at once; finished judgements are cached
                _LOG.info("no eviction from %s: %s", name, error)
                victim = None
            if victim is None:
                self._spared[name] = now_s + NO_PLACE_S
                continue
            uid, place = victim
            need = self._view.nodes[name].tenants[uid]
            pod = await self._evict(uid, name)
            if pod is None:
                self._spared[name] = now_s + PAUSE_S
                continue
            names.append(pod)
            places.add(place)
            self._gone.add(uid)
            self._there[need] = before[need]
        self._not_before_s, self._until_s = now_s + len(names) * self._pause_s, now_s + PAUSE_S * bool(names)
        return names

    def _are_back(self) -> bool:
        """Return whether as many pods with the evicted pods' functions and promises run as before the evictions."""
        if any(uid in self._view.pods for uid in self._gone):
            return False
        there = Counter(need for node in self._view.nodes.values() for need in node.tenants.values())
        return all(there[need] >= count for need, count in self._there.items())

    def victim(self, name: str, judge: NodeJudge, taken: Collection[str] = ()) -> tuple[str, str] | None:
        """Return the uid of the pod whose eviction helps a node most, and another node that can take it; else None."""
        node = self._view.nodes.get(name)
        if node is None or node.host is None:
            return None
        for may_go in self._ranked(node):
            helpful: tuple[str, str] | None = None
            for uid in may_go:
                verdict = self._left(node, uid, judge)
                if not (verdict["ok"] or (verdict["helps"] and helpful is None)):
                    continue
                place = self._place(uid, name, node, judge, taken)
                if place is None:
                    continue
                if verdict["ok"]:
                    return uid, place
                helpful = uid, place
            if helpful is not None:
                return helpful
        return None

    def _ranked(self, node: NodeView) -> tuple[list[str], list[str]]:
        """Return the pods that may be evicted, those without and those with a promise, low priority first."""
        ranks, needs = self._view.ranks, node.tenants
        may_go = sorted((uid for uid in needs if ranks[uid][1]), key=lambda uid: (ranks[uid][0], uid))
        free = [uid for uid in may_go if not needs[uid].has_promise]
        return free, [uid for uid in may_go if needs[uid].has_promise]

    def _left(self, node: NodeView, uid: str, judge: NodeJudge) -> Mapping[str, bool]:
        """Return whether without this pod all other promises are kept (`ok`), and whether headroom grows (`helps`)."""
        host = node.host
        assert host is not None
        numbers = {each: judge.number(need, host.machine) for each, need in node.tenants.items()}
        mix = tuple(sorted(numbers.values()))
        now, then = judge.oracle.verdicts(host, [mix, without(mix, numbers[uid])])
        return {"ok": then.ok, "helps": then.headroom > now.headroom}

    def _place(self, uid: str, name: str, node: NodeView, judge: NodeJudge, taken: Collection[str]) -> str | None:
        """Return another node that can run the pod without breaking a promise."""
        others = [other for other in self._view.nodes if other != name and other not in taken]
        judged = judge.judge(node.tenants[uid], uid, others, self._view)
        return next((other for other, answer in judged.items() if answer.ok and answer.is_judged), None)

    async def _evict(self, uid: str, node: str) -> str | None:
        """Evict a pod; return its name if that succeeded."""
        name = self._view.names[uid]
        outcome = await evict(self._watch, self._view, uid, self._mode)
        self._counted.add((self._mode, outcome))
        _LOG.info("eviction (%s) of %s from %s, where a promise is broken: %s", self._mode, name, node, outcome)
        return name if outcome == "done" else None


async def evict(watch: Watch, view: ClusterView, uid: str, mode: Eviction) -> str:
    """Evict a pod, or let the API server only check that; return what happened, in one word."""
    namespace, _, name = view.names.get(uid, "").partition("/")
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if mode == "dry-run":
        options["dryRun"] = ["All"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options}  # fmt: skip
    try:
        status = await watch.send("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
    except httpx.HTTPError as error:
        _LOG.warning("cannot evict %s/%s: %s", namespace, name, error)
        status = 599
    return {429: "budget", 403: "refused", 404: "gone"}.get(status, "done" if status < 300 else "failed")
