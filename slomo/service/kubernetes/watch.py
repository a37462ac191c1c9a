"""List and watch objects of a Kubernetes API server, and start again when a watch ends.

A watch resumes from the last version seen; bookmarks advance that version while nothing changes. Only if the server no
longer has the version (status 410), all objects are listed again, in pages.
"""

import asyncio
import importlib.util
import logging
import os
import random
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Raw, Struct

from slomo.errors import ConfigurationError, SlomoError
from slomo.files.opening import read_text
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.wire import KubernetesNode, Metadata, Pod, SLOPolicy

if importlib.util.find_spec("sniffio") is None:
    # httpcore tries this import for every lock, and a failing import searches all folders each time
    sys.modules["sniffio"] = None  # type: ignore[assignment]

_LOG = logging.getLogger("slomo.service")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500
#: Requested duration of one watch [s]; the server sends a bookmark before it ends. A watch that does not end is
#: considered dead.
WATCH_S = 6
#: Additional silence after which a connection is considered dead [s].
MUTE_S = 2.0
#: Time limit for the answer to a read or write [s].
SEND_S = 5.0
#: Largest number of connections for reads and writes.
WRITERS = 6
#: First and longest pause between attempts [s], and duration below which an attempt counts as failed, so that a server
#: that ends every watch at once, or forgets every version, does not cause a busy loop.
FIRST_PAUSE_S, LONGEST_PAUSE_S, SHORT_S = 0.2, 5.0, 1.0


class _Page(Struct):
    """One page of a list of objects that the API server sends in pages."""

    items: list[Raw] = []
    metadata: "_ListMetadata" = msgspec.field(default_factory=lambda: _ListMetadata())


class _ListMetadata(Struct):
    """Version of a list, and the token for its next page."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    carry_on: str = msgspec.field(default="", name="continue")


class _Event(Struct):
    """One event of a watch."""

    type: str
    object: Raw


class _Status(Struct):
    """The server's message when a watch cannot continue."""

    code: int = 0
    message: str = ""


class _Versioned(Struct):
    """An object of which only the version is read."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class Gone(Exception):  # noqa: N818 - the server's word for it
    """The requested version is no longer available, so that a new list is needed."""


@dataclass(frozen=True)
class WatchedKind:
    """A kind of object to watch: its path, the fields to read, and a handler."""

    path: str
    type: type[Any]
    replace: Callable[[list[Any]], None]
    seen: Callable[[Any], None]
    gone: Callable[[Any], None]
    query: dict[str, str] = field(default_factory=dict)
    #: Whether pods are judged even if the API server refuses this kind (missing role or kind).
    is_optional: bool = False


class Watch:
    """Watches the objects of one API server.

    `address`: ``"http://..."``, ``"https://..."``, or ``"in-cluster"``. `kinds`: kinds of objects that can be watched.
    `trouble`: the latest error; empty without one. `lists`: number of lists read so far.
    """

    def __init__(self, address: str, view: ClusterView) -> None:
        self._view = view
        self._token_file, verify = _credentials(address)
        self._base = _base(address)
        self.kinds = {
            "nodes": WatchedKind("/api/v1/nodes", KubernetesNode, view.replace_nodes, view.node_seen,
                          lambda node: view.node_gone(node.metadata.name)),
            "pods": WatchedKind("/api/v1/pods", Pod, view.replace_pods, view.pod_seen,
                         lambda pod: view.pod_gone(pod.metadata.uid)),
            "slopolicies": WatchedKind("/apis/slomo.io/v1alpha1/slopolicies", SLOPolicy, view.replace_policies,
                                       view.policy_seen, view.policy_gone, is_optional=True),
        }  # fmt: skip
        self.namespace = _namespace(address)
        self.trouble = ""
        self.lists = 0
        timeout = httpx.Timeout(10.0, read=WATCH_S + MUTE_S)
        self._client = httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False)
        # few, separate connections, since httpcore compares all of them pair by pair for every request
        limits = httpx.Limits(max_connections=WRITERS, max_keepalive_connections=WRITERS)
        self._writer = httpx.AsyncClient(verify=verify, timeout=SEND_S, trust_env=False, limits=limits)

    async def close(self) -> None:
        """Close the connections to the API server."""
        await self._client.aclose()
        await self._writer.aclose()

    async def follow(self, kind: str, after: str = "") -> None:
        """List a kind of object, then watch it without end; if `after` is given, wait until that kind was listed."""
        pause_s, version = FIRST_PAUSE_S, ""
        while after in self._view.needed - self._view.heard_at_s.keys():
            await asyncio.sleep(0.01)
        while True:
            begun = time.monotonic()
            try:
                if not version:
                    version = await self._list(kind)
                version = await self._watch(kind, version)
                if kind in self._view.again:
                    self._view.again.discard(kind)
                    version = ""
                self.trouble = ""
            except Gone:
                version = ""
            except (httpx.HTTPError, msgspec.MsgspecError, UnicodeError, RecursionError, OSError) as error:
                if _is_refused(error) and self.kinds[kind].is_optional and kind in self._view.needed:
                    _LOG.warning("the API server has no %s for slomo: it goes on without", kind)
                    self._view.needed.discard(kind)
                self._view.lost(kind)
                self.trouble = f"{kind}: {type(error).__name__}: {str(error)[:200]}"
            if time.monotonic() - begun > SHORT_S:
                pause_s = FIRST_PAUSE_S
                continue
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
            pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)

    async def _list(self, kind: str) -> str:
        """List all objects of a kind in pages; return the version of the list."""
        items: list[Raw] = []
        what = self.kinds[kind]
        carry_on = version = ""
        while True:
            query = {**what.query, "limit": str(PAGE), **({"continue": carry_on} if carry_on else {})}
            answer = await self._client.get(f"{self._base}{what.path}", params=query, headers=self._headers())
            if answer.status_code == 410:
                raise Gone
            answer.raise_for_status()
            page = msgspec.json.decode(answer.content, type=_Page)
            items += page.items
            version, carry_on = page.metadata.resource_version, page.metadata.carry_on
            if not carry_on:
                break
        what.replace([msgspec.json.decode(item, type=what.type) for item in items])
        self._view.needed.add(kind)
        self._view.heard(kind)
        self.lists += 1
        return version

    async def _watch(self, kind: str, version: str) -> str:
        """Watch from a version until the server ends the watch; return the version to continue from."""
        what = self.kinds[kind]
        query = {
            **what.query,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        request = self._client.stream("GET", f"{self._base}{what.path}", params=query, headers=self._headers())
        try:
            async with request as answer:
                if answer.status_code == 410:
                    raise Gone
                answer.raise_for_status()
                self._view.heard(kind)
                async for line in answer.aiter_lines():
                    if line.strip():
                        version = self._told(kind, msgspec.json.decode(line, type=_Event)) or version
        except httpx.ReadTimeout:
            self._view.lost(kind)
            return version
        except httpx.RemoteProtocolError as error:  # the server closed the connection: resume from this version
            self._view.lost(kind)
            self.trouble = f"{kind}: {error}"
        return version

    async def send(self, method: str, path: str, body: dict[str, Any], media_type: str = "application/json") -> int:
        """Send a write request; return the status of the answer."""
        return (await self.request(method, path, body, media_type)).status_code

    async def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, media_type: str = "application/json"
    ) -> httpx.Response:
        """Send a request; return the answer."""
        headers = {**self._headers(), "Content-Type": media_type}
        content = None if body is None else msgspec.json.encode(body)
        url = f"{self._base}{path}"
        return await self._writer.request(method, url, content=content, headers=headers)

    def _told(self, kind: str, event: _Event) -> str:
        """Process one event from the API server; return the version of its object."""
        self._view.heard(kind)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            if status.code == 410:
                raise Gone
            raise httpx.RemoteProtocolError(f"watch error {status.code}: {status.message[:200]}")
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=_Versioned).metadata.resource_version
        what = self.kinds[kind]
        item = msgspec.json.decode(event.object, type=what.type)
        (what.gone if event.type == "DELETED" else what.seen)(item)
        version: str = item.metadata.resource_version
        return version

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:  # read each time, since the kubelet replaces the token
            return {"Authorization": f"Bearer {read_text(self._token_file).strip()}"}
        except SlomoError:
            return {}


def check_address(address: str) -> None:
    """Check that an API server's address and credentials can be read. Raises ConfigurationError if not."""
    _base(address)
    _credentials(address)
    _namespace(address)


def _is_refused(error: Exception) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403, 404)


def _base(address: str) -> str:
    if address != "in-cluster":
        return address.rstrip("/")
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError("this is no pod: KUBERNETES_SERVICE_HOST is not set", hint="give --kubernetes URL")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _namespace(address: str) -> str:
    """Return the namespace of slomo's own objects: that of slomo's pod, or one from the environment."""
    named = os.environ.get("SLOMO_KUBE_NAMESPACE", "slomo")
    return read_text(ACCOUNT / "namespace").strip() if address == "in-cluster" else named


def _credentials(address: str) -> tuple[Path | None, ssl.SSLContext | bool]:
    """Return the paths of token and CA certificate: those of slomo's pod, or from the environment."""
    folder = ACCOUNT if address == "in-cluster" else None
    token = os.environ.get("SLOMO_KUBE_TOKEN_FILE")
    authority = os.environ.get("SLOMO_KUBE_CA_FILE")
    token_file = Path(token) if token else folder / "token" if folder else None
    ca_file = Path(authority) if authority else folder / "ca.crt" if folder else None
    if ca_file is None:
        return token_file, True
    try:
        return token_file, ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise ConfigurationError(f"cannot read '{ca_file}': {error}", hint="check SLOMO_KUBE_CA_FILE") from None
