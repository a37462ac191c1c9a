"""Moves a pod away from a node on which a promise is broken, through the eviction API, by default only for show.

The API server respects disruption budgets; the pod's controller makes it anew, and the scheduler places it. One pod
goes at a time: without a promise before with one, low priority before high, and only where its leaving mends the node
or helps, where another node takes it without breaking a promise, and where something makes it anew.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import httpx

from slomo.errors import SlomoError
from slomo.placement.feasibility.mixes import without
from slomo.service.kubernetes.judging import NodeJudge
from slomo.service.kubernetes.view import ClusterView, NodeView
from slomo.service.kubernetes.watch import Watch
from slomo.service.metrics import Counter
from slomo.service.servers import RunningServer

_LOG = logging.getLogger("slomo.service.audit")
Eviction = Literal["off", "dry-run", "on"]
#: Pause after an eviction [s]: the pod must be placed and judged anew before another one goes.
PAUSE_S = 30.0
#: Nodes that are looked at each time, at most.
MOST_NODES = 5


class Evictor:
    """Evicts.

    Parameters
    ----------
    watch : Watch
        The line to the API server.
    view : ClusterView
        What runs where.
    mode : {"off", "dry-run", "on"}
        Whether anything is evicted: with "dry-run" the API server checks rights and budgets, and changes nothing.
    counted : Counter
        Counts by mode and outcome.
    clock : callable
        Returns the time [s].
    """

    def __init__(
        self,
        watch: Watch,
        view: ClusterView,
        mode: Eviction,
        counted: Counter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch, self._view, self._mode, self._counted, self._clock = watch, view, mode, counted, clock
        self._not_before_s = 0.0

    async def look(self, servers: Iterable[RunningServer], judge: NodeJudge) -> str | None:
        """Evict one pod where that helps; return which."""
        if self._mode == "off" or self._clock() < self._not_before_s:
            return None
        broken = [server for server in servers if server.kind == "broken"]
        self._not_before_s = self._clock() + (PAUSE_S if broken else 0.0)
        for server in broken[:MOST_NODES]:
            try:
                uid = self.victim(server.name, judge)
            except SlomoError as error:  # too much to judge at once: what was judged is remembered
                _LOG.info("no eviction from %s: %s", server.name, error)
                continue
            if uid is not None:
                return await self._evict(uid, server.name)
        return None

    def victim(self, name: str, judge: NodeJudge) -> str | None:
        """Return the uid of the pod whose leaving helps a node most, or None.

        Raises SlomoError where too much would have to be judged.
        """
        node = self._view.nodes.get(name)
        if node is None or node.host is None:
            return None
        for may_go in self._ranked(node):
            helpful: str | None = None
            for uid in may_go:
                verdict = self._left(node, uid, judge)
                if not (verdict["ok"] or verdict["helps"]) or not self._has_place(uid, name, node, judge):
                    continue
                if verdict["ok"]:
                    return uid
                helpful = helpful or uid
            if helpful is not None:
                return helpful
        return None

    def _ranked(self, node: NodeView) -> tuple[list[str], list[str]]:
        """Return the pods that may go, without a promise and with one, low priority first."""
        ranks, needs = self._view.ranks, node.tenants
        may_go = sorted((uid for uid in needs if ranks[uid][1]), key=lambda uid: (ranks[uid][0], uid))
        free = [uid for uid in may_go if not needs[uid].has_promise]
        return free, [uid for uid in may_go if needs[uid].has_promise]

    def _left(self, node: NodeView, uid: str, judge: NodeJudge) -> Mapping[str, bool]:
        """Say whether every promise of those who stay would hold, or the worst be nearer to it."""
        host = node.host
        assert host is not None
        numbers = {each: judge.number(need, host.machine) for each, need in node.tenants.items()}
        mix = tuple(sorted(numbers.values()))
        now, then = judge.oracle.verdicts(host, [mix, without(mix, numbers[uid])])
        return {"ok": then.ok, "helps": then.headroom > now.headroom}

    def _has_place(self, uid: str, name: str, node: NodeView, judge: NodeJudge) -> bool:
        """Say whether another node takes a pod without breaking a promise."""
        others = [other for other in self._view.nodes if other != name]
        judged = judge.judge(node.tenants[uid], uid, others, self._view)
        return any(answer.ok and answer.is_judged for answer in judged.values())

    async def _evict(self, uid: str, node: str) -> str | None:
        name = self._view.names[uid]
        outcome = await evict(self._watch, self._view, uid, self._mode)
        self._counted.add((self._mode, outcome))
        _LOG.info("eviction (%s) of %s from %s, where a promise is broken: %s", self._mode, name, node, outcome)
        return name if outcome == "done" else None


async def evict(watch: Watch, view: ClusterView, uid: str, mode: Eviction) -> str:
    """Evict a pod, or let the API server say whether it would; return done, budget, refused, gone or failed."""
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
