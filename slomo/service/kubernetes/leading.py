"""Elect a leader among replicas: the leader writes objects and evicts pods; the others only answer the scheduler.

The Lease is used as in client-go: its holder renews it, and another replica takes it over once it has not changed for
its stated duration. The waiting replica measures this time by its own clock, so clocks need not agree. A holder that
cannot renew the Lease stops acting before another replica may take it over.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import msgspec

from slomo.service.kubernetes.watch import Watch
from slomo.service.kubernetes.wire import Lease

_LOG = logging.getLogger("slomo.service")
NAME = "slomo-controller"
#: Annotation of the Lease with the fingerprint of its holder's models.
MODELS = "slomo.io/models"
#: Duration of a lease, interval between renewals or attempts, and time after a renewal for which the holder acts [s].
LASTS_S, RENEW_S, ACTS_S = 6, 1.0, 4.0


class Leader:
    """Takes part in the election of the leader; `models` returns the fingerprint of this replica's models."""

    def __init__(
        self,
        watch: Watch,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        models: Callable[[], str] = str,
    ) -> None:
        self._watch, self.identity, self._clock, self._models = watch, identity, clock, models
        self._leads_by = ""
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{watch.namespace}/leases"
        self._renewed_s = -LASTS_S * 1.0
        self._seen: tuple[str, float] = ("", 0.0)
        self.trouble = ""

    @property
    def is_leading(self) -> bool:
        """Whether this replica is the leader."""
        return self._clock() - self._renewed_s < ACTS_S

    @property
    def models_differ(self) -> bool:
        """Whether the leader has other models than this replica."""
        return not self.is_leading and self._leads_by not in ("", self._models())

    async def lead(self) -> None:
        """Try repeatedly, without end, to become or stay leader."""
        while True:
            try:
                await self.attempt()
            except (httpx.HTTPError, msgspec.MsgspecError) as error:
                self._note(f"{type(error).__name__}: {str(error)[:200]}")
            await asyncio.sleep(RENEW_S)

    async def attempt(self) -> None:
        """Take or renew the leader's lease if possible."""
        begun = self._clock()
        answer = await self._watch.request("GET", f"{self._path}/{NAME}")
        if answer.status_code == 404:
            answer = await self._watch.request("POST", self._path, self._lease(Lease(), begun))
        elif answer.status_code < 300:
            lease = msgspec.json.decode(answer.content, type=Lease)
            holder, version = lease.spec.holder_identity or "", lease.metadata.resource_version
            self._leads_by = (lease.metadata.annotations or {}).get(MODELS, "") if holder else ""
            if self._seen[0] != version:
                self._seen = version, begun
            if holder not in ("", self.identity) and begun - self._seen[1] < (lease.spec.lease_duration or LASTS_S):
                self._renewed_s = -LASTS_S * 1.0
                return
            answer = await self._watch.request("PUT", f"{self._path}/{NAME}", self._lease(lease, begun))
        if answer.status_code < 300:
            if not self.is_leading:
                _LOG.info("%s leads: it tells pods and evicts", self.identity)
            self._renewed_s, self.trouble = begun, ""
        elif answer.status_code != 409:
            self._note(f"the API server refuses Leases ({answer.status_code})")

    async def step_down(self) -> None:
        """Release the leader's lease, so that another replica need not wait."""
        if not self.is_leading:
            return
        self._renewed_s = -LASTS_S * 1.0
        try:
            answer = await self._watch.request("GET", f"{self._path}/{NAME}")
            lease = msgspec.json.decode(answer.content, type=Lease)
            if lease.spec.holder_identity == self.identity:
                await self._watch.request("PUT", f"{self._path}/{NAME}", self._lease(lease, None))
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            _LOG.warning("cannot give the lease up: %s", error)

    def _lease(self, before: Lease, now_s: float | None) -> dict[str, object]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_mine = before.spec.holder_identity == self.identity
        spec = {"holderIdentity": "" if now_s is None else self.identity,
                "leaseDurationSeconds": 1 if now_s is None else LASTS_S, "renewTime": now,
                "acquireTime": before.spec.acquire_time if is_mine else now,
                "leaseTransitions": (before.spec.transitions or 0) + (not is_mine)}  # fmt: skip
        version = before.metadata.resource_version
        meta = {"name": NAME, "annotations": {MODELS: self._models()},
                **({"resourceVersion": version} if version else {})}  # fmt: skip
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    def _note(self, trouble: str) -> None:
        if trouble != self.trouble:
            _LOG.warning("cannot lead: %s", trouble)
        self.trouble = trouble
