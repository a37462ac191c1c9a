"""List and watch against an API server that is forgetful, slow to page, and breaks lines."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from slomo.service.kubernetes.pods import MACHINE, NF
from slomo.service.kubernetes.view import STALE_S, ClusterView
from slomo.service.kubernetes.watch import FIRST_PAUSE_S, LONGEST_PAUSE_S, Watch


def a_pod(uid: str, version: int, node: str = "a") -> dict[str, Any]:
    """Return a pod as the server sends it."""
    meta = {"name": uid, "uid": uid, "resourceVersion": str(version), "annotations": {NF: "lpm"}}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"}}


class Lines(httpx.AsyncByteStream):
    """A watch: some events, then the line ends, or breaks."""

    def __init__(self, events: list[tuple[str, dict[str, Any]]], *, breaks: bool = False) -> None:
        self._events, self._breaks = events, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for kind, item in self._events:
            text = json.dumps({"type": kind, "object": item}).encode() + b"\n"
            yield text[: len(text) // 2]  # lines need not come whole
            yield text[len(text) // 2 :]
        if self._breaks:
            raise httpx.RemoteProtocolError("peer closed connection")


class Server:
    """Answers lists and watches of pods from a script."""

    def __init__(self, watches: list[Any]) -> None:
        self.watches, self.queries = watches, []  # type: list[Any], list[dict[str, str]]
        self.pods = [a_pod("p1", 5), a_pod("p2", 6), a_pod("p3", 7)]
        self.done = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        query = dict(request.url.params)
        self.queries.append(query)
        if "watch" in query:
            if not self.watches:
                self.done.set()
                await asyncio.sleep(3600)
            step = self.watches.pop(0)
            return httpx.Response(step) if isinstance(step, int) else httpx.Response(200, stream=step)
        first = int(query.get("continue", "0"))
        more = str(first + 2) if first + 2 < len(self.pods) else ""
        page = {"items": self.pods[first : first + 2], "metadata": {"resourceVersion": "10", "continue": more}}
        return httpx.Response(200, json=page)


def followed(watches: list[Any], change: Any = None) -> tuple[ClusterView, Server, Watch]:
    """Follow pods until the script has ended."""
    view = ClusterView()

    async def run() -> tuple[Server, Watch]:
        server, watch = Server(watches), Watch("http://api", view)
        if change is not None:
            change(server)
        await watch.close()
        watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(server))
        task = asyncio.create_task(watch.follow("pods"))
        await asyncio.wait_for(server.done.wait(), 20.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await watch.close()
        return server, watch

    server, watch = asyncio.run(run())
    return view, server, watch


def test_lists_are_read_in_pages_and_watched_from_their_version() -> None:
    """All pages make one list; the watch begins where it ended, with bookmarks."""
    view, server, _ = followed([Lines([("ADDED", a_pod("p4", 11)), ("DELETED", a_pod("p1", 12))])])

    assert set(view.pods) == {"p2", "p3", "p4"}
    watched = next(query for query in server.queries if "watch" in query)
    assert watched["resourceVersion"] == "10"
    assert watched["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("breaks", [True, False])
def test_a_line_that_breaks_is_resumed_where_it_was(breaks: bool) -> None:
    """After a break the watch goes on from the last version, a bookmark's included, without a new list."""
    events = [("MODIFIED", a_pod("p1", 15, "b")), ("BOOKMARK", {"metadata": {"resourceVersion": "40"}})]
    view, server, watch = followed([Lines(events, breaks=breaks), Lines([("DELETED", a_pod("p2", 41))])])

    assert [query["resourceVersion"] for query in server.queries if "watch" in query][1] == "40"
    assert view.pods == {"p1": "b", "p3": "a"}
    assert watch.lists == 1


@pytest.mark.parametrize("gone", [410, "event"])
def test_what_is_forgotten_is_listed_again(gone: int | str) -> None:
    """410, as status or as event, leads to one new list that replaces what was known."""
    step = 410 if gone == 410 else Lines([("ERROR", {"kind": "Status", "code": 410, "message": "too old"})])

    def change(server: Server) -> None:
        server.watches.insert(0, Lines([("ADDED", a_pod("ghost", 11))]))

    view, _, watch = followed([step, Lines([])], change)

    assert watch.lists == 2
    assert set(view.pods) == {"p1", "p2", "p3"}


@pytest.mark.parametrize("answer", [410, 429, 500, "short"])
def test_a_server_in_trouble_is_not_asked_without_end(answer: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it answers at once, to lists or to watches, pauses grow; and it is followed again once it is well."""
    waited: list[float] = []
    asleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asleep(min(seconds, 0.001) if seconds < 60.0 else seconds)

    monkeypatch.setattr("slomo.service.kubernetes.watch.asyncio.sleep", sleep)
    steps: list[Any] = [Lines([]) if answer == "short" else answer for _ in range(9)]
    view, server, watch = followed([*steps, Lines([("ADDED", a_pod("p4", 11))])])

    pauses = [seconds for seconds in waited if seconds < 60.0]
    assert len(pauses) >= 9
    assert max(pauses[:2]) <= 2 * FIRST_PAUSE_S < 2.0 < min(pauses[6:9]) <= LONGEST_PAUSE_S
    assert set(view.pods) == {"p1", "p2", "p3", "p4"}
    assert watch.trouble == ""
    assert len(server.queries) < 40


def test_a_view_without_news_is_stale() -> None:
    """Both kinds must have been heard of lately."""
    now = [0.0]
    view = ClusterView(clock=lambda: now[0])
    assert not view.is_fresh
    view.heard("pods")
    view.heard("nodes")
    assert view.is_fresh
    now[0] = STALE_S + 1.0

    assert not view.is_fresh
    assert MACHINE.startswith("slomo.io/")
