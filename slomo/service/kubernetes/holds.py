"""Reserve places for pods that are not yet bound, in Lease objects that all replicas of the service see.

There is one Lease per node; its annotation lists the expected pods. It is written with the version on which the node
was judged (optimistic concurrency). If two schedulers choose one node at the same time, one write fails, and its pod is
judged again. Writes for one node follow each other; all pods that wait meanwhile share the next write. Entries expire
by time only; they are not removed when a binding is seen, since another replica may see the binding later.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta, Struct

from slomo.errors import PredictionError
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import HOLD_S, ClusterView
from slomo.service.kubernetes.watch import Watch, WatchedKind
from slomo.service.kubernetes.wire import Lease

_LOG = logging.getLogger("slomo.service")
#: Annotation of a Lease with the expected pods as JSON; label of these Leases; prefix of their names.
HELD, LABEL, PREFIX = "slomo.io/held", "slomo.io/holds", "slomo-hold-"


class TakenMeanwhile(PredictionError):  # noqa: N818 - says what happened
    """A place could not be reserved, since other schedulers took it in every attempt."""


class _HeldPlace(Struct, array_like=True):
    """A place reserved for one pod that is expected on the node."""

    nf: Annotated[str, Meta(max_length=300)]
    min_share: float | None
    min_mpps: float | None
    until_s: float


@dataclass(frozen=True)
class _Held:
    """Places reserved on a node, as stored in its Lease object, with the object's version."""

    version: str
    places: dict[str, _HeldPlace]
    #: Owner references: the node, with which the API server removes the Lease.
    owners: list[dict[str, Any]]


_decode = msgspec.json.Decoder(dict[str, _HeldPlace]).decode


class SharedHolds:
    """Reserves places for pods, in this replica and in the Kubernetes API.

    A replica compares the time of day with other replicas' times only when it lists places reserved before its start;
    if the clocks differ by half a minute, such a place is missed or kept half a minute too long. `is_shared`: whether
    other replicas see the reserved places; False if the API server refuses Leases (missing role).
    """

    def __init__(self, watch: Watch, view: ClusterView) -> None:
        self._watch, self._view = watch, view
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{watch.namespace}/leases"
        self._known: dict[str, _Held] = {}
        #: Places of this replica that wait to be written, by node.
        self._wanted: dict[str, dict[str, _HeldPlace]] = {}
        #: By node: number of times that places of other replicas were seen; it invalidates earlier judgements of the
        #: node.
        self._foreign: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}
        self.is_shared = True
        watch.kinds["leases"] = WatchedKind(
            self._path, Lease, self._replace, self._seen, self._gone, {"labelSelector": LABEL}, is_optional=True
        )

    def take(self, uid: str, need: PodNeed, node: str) -> Coroutine[None, None, bool]:
        """Reserve a place for a pod: at once in this replica, in the API by the returned coroutine.

        The coroutine returns False if another replica has changed the node's places, so that the node must be judged
        again. It raises TakenMeanwhile if the API server does not answer.
        """
        place = _HeldPlace(need.nf, need.min_share, need.min_mpps, time.time() + HOLD_S)
        self._wanted.setdefault(node, {})[uid] = place
        self._view.hold(uid, need, node)
        return self._take(uid, place, node, self._foreign[node])

    async def _take(self, uid: str, place: _HeldPlace, node: str, judged_at: int) -> bool:
        places, is_held = self._wanted[node], False
        try:
            async with self._locks.setdefault(node, asyncio.Lock()):
                known = self._known.get(node)
                is_held = known is not None and known.places.get(uid) == place  # written with another place
                if not is_held and judged_at == self._foreign[node]:
                    is_held = await self._shared(node)
            return is_held
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            raise TakenMeanwhile("a place cannot be held, ask again") from error
        finally:
            if places.get(uid) is place:
                del places[uid]
                if not is_held and self._view.node_of(uid) == node:
                    self._view.release(uid)

    async def _shared(self, node: str) -> bool:
        """Write all places wanted on a node to the API; return False if another replica has changed them."""
        known, now_s = self._known.get(node), time.time()
        places = {} if known is None else {key: it for key, it in known.places.items() if it.until_s > now_s}
        answer = await self._write(node, places | self._wanted[node], known)
        if answer.status_code < 300:
            self._keep(node, msgspec.json.decode(answer.content, type=Lease))
            self.is_shared = True
            return True
        if answer.status_code == 403 or (answer.status_code == 404 and known is None):
            if self.is_shared:
                _LOG.warning("the API server refuses Leases (%d): run one scheduler alone", answer.status_code)
            self.is_shared = False
            return True
        if answer.status_code not in (404, 409):
            raise TakenMeanwhile(f"a place cannot be held ({answer.status_code}), ask again")
        await self._read(node)
        return False

    async def _write(self, node: str, places: dict[str, _HeldPlace], known: _Held | None) -> httpx.Response:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        notes = {HELD: msgspec.json.encode(places).decode()}
        meta: dict[str, Any] = {"name": PREFIX + node, "labels": {LABEL: ""}, "annotations": notes}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta,
                "spec": {"holderIdentity": "slomo", "leaseDurationSeconds": int(HOLD_S), "renewTime": now}}  # fmt: skip
        if known is None:
            view = self._view.nodes.get(node)
            if view is not None and view.uid:
                meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": view.uid}]
            return await self._watch.request("POST", self._path, body)
        if known.owners:  # unchanged, since changing them may need more rights
            meta["ownerReferences"] = known.owners
        meta["resourceVersion"] = known.version
        return await self._watch.request("PUT", f"{self._path}/{PREFIX}{node}", body)

    async def _read(self, node: str) -> None:
        """Read the places on a node that other replicas have reserved."""
        answer = await self._watch.request("GET", f"{self._path}/{PREFIX}{node}")
        if answer.status_code == 404:
            self._known.pop(node, None)
        elif answer.status_code < 300:
            self._seen(msgspec.json.decode(answer.content, type=Lease))

    def _keep(self, node: str, lease: Lease) -> dict[str, _HeldPlace]:
        """Remember the content of a Lease object; return the places that are new."""
        known, version = self._known.get(node), lease.metadata.resource_version
        # versions of one object compare as integers, which the API server guarantees since 1.35
        if known is not None and not (len(version), version) > (len(known.version), known.version):
            return {}
        try:
            places = _decode((lease.metadata.annotations or {}).get(HELD, "{}"))
        except msgspec.MsgspecError as error:
            _LOG.warning("lease %s: %s: %s", lease.metadata.name, HELD, error)
            places = {}
        self._known[node] = _Held(version, places, lease.metadata.owner_references or [])
        before = {} if known is None else known.places
        return {uid: place for uid, place in places.items() if before.get(uid) != place}

    def _seen(self, lease: Lease, since_s: float = -math.inf) -> None:
        """Reserve in this replica the places that another replica has written, if they last beyond `since_s`."""
        node = lease.metadata.name.removeprefix(PREFIX)
        own = self._wanted.get(node, {})
        for uid, place in self._keep(node, lease).items():
            if uid not in own and place.until_s > since_s:
                self._foreign[node] += 1
                self._view.hold(uid, PodNeed(place.nf, place.min_share, place.min_mpps), node)

    def _gone(self, lease: Lease) -> None:
        self._known.pop(lease.metadata.name.removeprefix(PREFIX), None)

    def _replace(self, leases: list[Lease]) -> None:
        names = {lease.metadata.name.removeprefix(PREFIX) for lease in leases}
        self._known = {node: held for node, held in self._known.items() if node in names}
        for lease in leases:  # their time of writing is known only by the replicas' clocks
            self._seen(lease, time.time())
