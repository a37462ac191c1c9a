"""Show on each pod whether its promise is kept: as a condition, and as an event when the condition changes.

The condition ``slomo.io/PromiseKept`` is written only if it differs from its intended value, so that restarts lose
nothing and two writers agree. If the API server refuses (missing role), only metrics and the page show broken promises.
"""

import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import httpx

from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import PROMISE_KEPT
from slomo.service.metrics import Counter
from slomo.service.servers import RunningNF, RunningServer, State

_LOG = logging.getLogger("slomo.service")
#: State of a promise -> status and reason of the pod's condition.
_SAID: dict[State, tuple[str, str]] = {
    "kept": ("True", "PromiseKept"), "broken": ("False", "PromiseBroken"), "unjudged": ("Unknown", "PromiseNotJudged"),
}  # fmt: skip
#: Largest number of pods updated at once; the others follow a second later.
MOST_AT_A_TIME = 20
#: Pause after the API server refused an update [s].
REFUSED_S = 300.0


class Teller:
    """Writes conditions and events of pods; `told` counts updates by outcome."""

    def __init__(
        self, watch: Watch, view: ClusterView, told: Counter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watch, self._view, self._told, self._clock = watch, view, told, clock
        self._not_before_s = 0.0

    async def tell(self, servers: Iterable[RunningServer]) -> None:
        """Update the condition of those pods whose state has changed."""
        if self._clock() < self._not_before_s:
            return
        tenants = [item for server in servers for item in server.tenants if item.state != "none"]
        # a promise that was kept from the start needs no condition
        wrong = [item for item in tenants if _SAID[item.state][0] != (self._view.told.get(item.uid) or "True")]
        for item in wrong[:MOST_AT_A_TIME]:
            try:
                status = await self._tell(item)
            except httpx.HTTPError as error:
                self._told.add(("failed",))
                _LOG.warning("cannot tell %s: %s", item.owner, error)
                return
            outcome = "done" if status < 300 else "gone" if status in (404, 409) else "refused"
            self._told.add((outcome,))
            if outcome == "refused":
                _LOG.warning("the API server refuses conditions and events (%d): metrics and page tell alone", status)
                self._not_before_s = self._clock() + REFUSED_S
                return

    async def _tell(self, item: RunningNF) -> int:
        namespace, _, name = item.owner.partition("/")
        status, reason = _SAID[item.state]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": PROMISE_KEPT, "status": status, "reason": reason, "message": _message(item),
                     "lastTransitionTime": now}  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        patch = {"metadata": {"uid": item.uid}, "status": {"conditions": [condition]}}
        answer = await self._watch.send("PATCH", path, patch, "application/strategic-merge-patch+json")
        if answer < 300:
            self._view.told[item.uid] = status
            await self._watch.send("POST", f"/api/v1/namespaces/{namespace}/events", _event(item, reason, now))
        return answer


def _message(item: RunningNF) -> str:
    if item.state == "kept":
        return "slomo: what was promised holds beside what runs here"
    if item.state == "unjudged" or item.low_mpps is None:
        return f"slomo: {item.why}"
    return f"slomo: {item.needed_mpps:.3g} Mpps promised, {item.low_mpps:.3g} to be counted on: {item.why}"


def _event(item: RunningNF, reason: str, now: str) -> dict[str, Any]:
    namespace, _, name = item.owner.partition("/")
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": item.uid}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "slomo-", "namespace": namespace},
            "involvedObject": subject, "reason": reason, "message": _message(item), "count": 1,
            "type": "Normal" if item.state == "kept" else "Warning", "source": {"component": "slomo"},
            "firstTimestamp": now, "lastTimestamp": now}  # fmt: skip
