"""Write predictions and models to Kubernetes objects: a NodeContention per node, a NetworkFunctionProfile per function.

The leading replica writes changed objects, a few at a time; a new leader first lists the existing objects. If the two
kinds are not installed (`deploy/kubernetes/slomo-crds.yaml`), no object is written.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx
import msgspec

from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.identity import model_fingerprint
from slomo.service.kubernetes.watch import Watch
from slomo.service.servers import RunningNF, RunningServer
from slomo.vocabulary.defaults import DEFAULT_MODEL

_LOG = logging.getLogger("slomo.service")
GROUP = "/apis/slomo.io/v1alpha1"
NODES, PROFILES = "nodecontentions", "networkfunctionprofiles"
#: Largest number of objects written at once; further objects follow a second later. Pause after the API server has
#: refused a write [s].
MOST_AT_A_TIME, REFUSED_S = 20, 60.0


class ContentionWriter:
    """Writes NodeContention and NetworkFunctionProfile objects to Kubernetes."""

    def __init__(self, watch: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch, self._clock = watch, clock
        self._stands: dict[str, dict[str, Any]] = {}
        self._not_before_s = 0.0

    def forget(self) -> None:
        """Forget which objects were written, since another replica may have changed them."""
        self._stands = {}

    async def write(self, servers: Iterable[RunningServer], library: ModelLibrary) -> None:
        """Write the objects whose content has changed."""
        if self._clock() < self._not_before_s:
            return
        try:
            await self._write_kind(NODES, "NodeContention", {server.name: contention(server) for server in servers})
            await self._write_kind(PROFILES, "NetworkFunctionProfile", profiles(library))
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            _LOG.info("objects of slomo.io are not written: %s", error)
            self._not_before_s = self._clock() + REFUSED_S

    async def _write_kind(self, plural: str, kind: str, statuses: Mapping[str, dict[str, Any]]) -> None:
        if plural not in self._stands:
            self._stands[plural] = await self._listed(plural)
        stands = self._stands[plural]
        changed = [name for name, status in statuses.items() if stands.get(name) != status][:MOST_AT_A_TIME]
        for name in changed:
            path = f"{GROUP}/{plural}/{name}"
            body = {"apiVersion": "slomo.io/v1alpha1", "kind": kind, "metadata": {"name": name}}
            if name not in stands:
                (await self._apply(path, body)).raise_for_status()
            answer = await self._apply(f"{path}/status", {**body, "status": statuses[name]})
            if answer.status_code == 404:  # another client has deleted it
                stands.pop(name, None)
                continue
            answer.raise_for_status()
            stands[name] = statuses[name]
        for name in [name for name in stands if name not in statuses][:MOST_AT_A_TIME]:
            await self._watch.request("DELETE", f"{GROUP}/{plural}/{name}")
            del stands[name]

    async def _listed(self, plural: str) -> dict[str, Any]:
        answer = await self._watch.request("GET", f"{GROUP}/{plural}")
        answer.raise_for_status()
        return {item["metadata"]["name"]: item.get("status") for item in msgspec.json.decode(answer.content)["items"]}

    async def _apply(self, path: str, body: dict[str, Any]) -> httpx.Response:
        query = "fieldManager=slomo&force=true"
        return await self._watch.request("PATCH", f"{path}?{query}", body, "application/apply-patch+yaml")


def contention(server: RunningServer) -> dict[str, Any]:
    """Return the status for a node's NodeContention object."""
    tenants = [_tenant(item) for item in sorted(server.tenants, key=lambda item: item.owner)]
    status: dict[str, Any] = {"machine": server.machine, "state": server.kind, "tenantCount": len(tenants)}
    if math.isfinite(server.headroom):
        status["headroom"] = _text(server.headroom)
    return {**status, "tenants": tenants}


def _tenant(item: RunningNF) -> dict[str, Any]:
    status = {"pod": item.owner, "networkFunction": item.workload, "promise": item.state}
    if item.solo_mpps:
        shares = {"predictedShare": item.predicted_mpps, "leastShare": item.low_mpps,
                  "promisedShare": item.needed_mpps or None}  # fmt: skip
        status |= {name: _text(mpps / item.solo_mpps) for name, mpps in shares.items() if mpps is not None}
    return {**status, "message": item.why} if item.why else status


def profiles(library: ModelLibrary) -> dict[str, dict[str, Any]]:
    """Return the statuses of all NetworkFunctionProfiles by name."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for machine, key in library:
        model = library[machine, key]
        name = re.sub(r"[^a-z0-9.-]+", "-", model.workload.nf.lower()).strip("-.")
        digest = model_fingerprint(model, DEFAULT_MODEL)
        row = {"machine": machine, "workload": key, "digest": digest, "soloMpps": _text(model.solo_mpps)}
        rows.setdefault(name, []).append(row)
    return {name: {"models": models} for name, models in rows.items()}


def _text(value: float) -> str:
    """Return a number as text with three digits, the form used in Kubernetes objects."""
    return f"{value:.3g}"
