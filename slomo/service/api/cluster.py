"""`/v1/place` and `/v1/cluster`: servers, placed requests, and receipts, by which changes can be undone."""

import asyncio
import time
from collections.abc import AsyncIterator
from sqlite3 import Connection
from typing import Any

import msgspec

from slomo.placement.problem.request import Request
from slomo.service.application import Service
from slomo.service.door.bodies import Placement, PlacementRequest, Rebalance, ServersBody
from slomo.service.door.operation import Answer, Call, LongWork, Operation
from slomo.service.door.problems import Problem
from slomo.service.jobs import JobProgress
from slomo.service.servers import RunningServer
from slomo.service.state import journal
from slomo.service.state.cluster_store import etag, server_documents
from slomo.vocabulary.numbers import digits

#: Duration of a stream of events, and time between two checks for changes [s].
LASTS_S, LOOK_S = 60.0, 0.5
#: Number of requests per batch of an asynchronous placement.
CHUNK = 100


def as_request(body: PlacementRequest) -> Request:
    """Convert the body of a placement request to a `Request`."""
    return Request.from_dict(msgspec.to_builtins(body))


async def place(service: Service, call: Call) -> Answer:
    """Place requests, or show the decisions without placing them."""
    placement: Placement = call.body
    requests = [as_request(item) for item in placement.requests]
    if placement.what_if:
        decisions = await service.aside(lambda: service.cluster_store.placer.what_if_all(requests))
        shown = {"decisions": [item.to_dict() for item in decisions], "what_if": True}
        return Answer({**shown, "fingerprint": service.model_store.answers.fingerprint})
    if "respond-async" in call.headers.get("prefer", ""):
        return await _place_later(service, call, placement)
    caller = call.caller.name
    answer = await service.changed(call, lambda c: service.cluster_store.place(c, requests, caller), "POST /v1/place")
    if not answer.headers.get("Idempotency-Replayed"):
        body = msgspec.json.decode(answer.body)
        service.metrics.decisions.add(("accepted",), body["accepted"])
        service.metrics.decisions.add(("refused",), body["refused"])
        service.metrics.actions.add(("place",))
    return answer


async def _place_later(service: Service, call: Call, placement: Placement) -> Answer:
    service.cluster_store.placer  # noqa: B018 - refuses where there is no cluster
    errand = {"requests": msgspec.to_builtins(placement.requests), "caller": call.caller.name}
    job = await service.jobs.accept("place", errand, call.headers.get("idempotency-key"))
    return Answer({"job": job.id}, 202, {"Location": f"/v1/jobs/{job.id}"})


async def place_in_batches(service: Service, errand: dict[str, Any], progress: JobProgress) -> dict[str, int]:
    """Place many requests in batches; each batch is stored in one transaction with the job's progress."""
    requests = [as_request(msgspec.convert(item, PlacementRequest)) for item in errand["requests"]]
    so_far: dict[str, int] = progress.before or {"decided": 0, "accepted": 0, "refused": 0}
    while so_far["decided"] < len(requests):
        chunk = requests[so_far["decided"] : so_far["decided"] + CHUNK]

        def write(connection: Connection, chunk: list[Request] = chunk, before: dict[str, int] = so_far) -> Any:
            body, _ = service.cluster_store.place(connection, chunk, errand["caller"])
            after = {name: before[name] + body[name] for name in ("accepted", "refused")}
            after["decided"] = before["decided"] + len(chunk)
            state = after["decided"] / len(requests), f"{after['accepted']} placed, {after['refused']} refused", after
            progress.put(connection, *state)
            return state

        state = await service.writing(lambda write=write: service.store.write(write).result())  # type: ignore[misc]
        progress.tell(*state)
        so_far = state[2]
    return {name: so_far[name] for name in ("accepted", "refused")}


async def cluster(service: Service, call: Call) -> Answer:
    """Show servers and their tenants; with a watched Kubernetes cluster, its nodes and pods."""
    if service.kubernetes.is_on:
        return Answer(_nodes(service.kubernetes.view.changes, await service.servers()))
    tag = etag(service.cluster_store.revision)
    if call.headers.get("if-none-match") == tag:
        return Answer(None, 304, {"ETag": tag})
    return Answer(await service.aside(lambda: _cluster(service)), headers={"ETag": tag})


def _nodes(changes: int, servers: list[RunningServer]) -> dict[str, Any]:
    """Return Kubernetes nodes in the format of servers, and their pods in the format of placed functions."""
    rows = [
        {
            "name": server.name,
            "machine": server.machine,
            "cores": server.cores,
            "assignments": [{"server": server.name, **msgspec.to_builtins(item)} for item in server.tenants],
        }
        for server in servers
    ]
    used = sum(bool(server.tenants) for server in servers)
    return {"revision": changes, "source": "kubernetes", "servers": rows, "servers_used": used}


def _cluster(service: Service) -> dict[str, Any]:
    if not service.cluster_store.has_cluster:
        return {"revision": service.cluster_store.revision, "source": "own", "servers": [], "servers_used": 0}
    placer = service.cluster_store.placer
    layout = placer.layout()
    closed = service.store.read(journal.closed)
    rows = [
        {
            **server.to_dict(),
            "closed": closed.get(server.name),
            "assignments": [msgspec.to_builtins(item) for item in layout.get(server.name, ())],
        }
        for server in placer.cluster.servers
    ]
    used = placer.servers_used
    return {"revision": service.cluster_store.revision, "source": "own", "servers": rows, "servers_used": used}


async def add_servers(service: Service, call: Call) -> Answer:
    """Add servers to the cluster."""
    documents, verb = server_documents(call.body.servers), "add-servers"
    return await service.changed(call, lambda c: service.cluster_store.add_servers(c, documents), verb, verb)


async def remove_server(service: Service, call: Call) -> Answer:
    """Remove an empty server from the cluster."""
    name, verb = call.path["name"], "remove-server"
    return await service.changed(call, lambda c: service.cluster_store.remove_server(c, name), f"{verb} {name}", verb)


async def requests(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """List the placed requests."""
    store = service.cluster_store
    rows = [item.to_dict() for item in store.placer.requests] if store.has_cluster else []
    return Answer({"requests": rows}, headers={"ETag": etag(store.revision)})


async def decision(service: Service, call: Call) -> Answer:
    """Show where a request is placed, and its history."""
    name = call.path["id"]

    def read() -> dict[str, Any]:
        history = service.store.read(lambda connection: journal.decisions(connection, 50, name))
        store = service.cluster_store
        placed = store.has_cluster and name in {item.id for item in store.placer.requests}
        if not history and not placed:  # old decisions are deleted
            raise Problem(404, "there is no such request", hint="list /v1/cluster/requests")
        return {"decision": store.placer.decision(name).to_dict() if placed else None, "history": history}

    return Answer(await service.aside(read))


async def remove(service: Service, call: Call) -> Answer:
    """Remove a placed request from the cluster."""
    name, caller = call.path["id"], call.caller.name
    return await service.changed(
        call, lambda c: service.cluster_store.remove(c, name, caller), f"remove {name}", "remove"
    )


async def rebalance(service: Service, call: Call) -> Answer:
    """Empty servers by moving their requests."""
    moves, caller, verb = call.body.max_moves, call.caller.name, "rebalance"
    return await service.changed(call, lambda c: service.cluster_store.rebalance(c, moves, caller), verb, verb)


async def receipts(service: Service, call: Call) -> Answer:
    """List the latest changes to the cluster, each with the number by which it can be undone."""
    limit = number_of(call, "limit", 100, 1000)
    return Answer({"receipts": service.store.read(lambda connection: journal.receipts(connection, limit))})


async def events(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Send a server-sent event whenever the cluster's tenants, servers or models change."""
    return Answer(media_type="text/event-stream", stream=_changes(service))


async def _changes(service: Service) -> AsyncIterator[bytes]:
    """Yield an identifier of the cluster's state at once and after every change, for a minute; browsers then reopen."""
    shown, end_s = "", time.monotonic() + LASTS_S
    while time.monotonic() < end_s:
        view, answers = service.kubernetes.view, service.model_store.answers
        now = f"{service.cluster_store.revision}-{view.changes}-{answers.fingerprint}"
        if now != shown:
            yield f'event: cluster\ndata: {{"state": "{now}"}}\n\n'.encode()
            shown = now
        await asyncio.sleep(LOOK_S)


async def history(service: Service, call: Call) -> Answer:
    """Show shares of solo throughput, headroom above promises, and decisions over the last hours."""
    hours = number_of(call, "hours", 24, 24)
    return Answer(await service.aside(lambda: service.history.told(hours)))


def number_of(call: Call, name: str, usual: int, most: int) -> int:
    """Return a number given in the URL's query, or `usual`."""
    text = call.query.get(name, str(usual))
    if not (number := digits(text, most)):
        raise Problem(422, f"{name} is '{text[:40]}', needed a whole number from 1 to {most}", hint=f"{name}={usual}")
    return number


async def undo(service: Service, call: Call) -> Answer:
    """Undo a change to the cluster."""
    number, caller = digits(call.path["number"], 10**15 - 1), call.caller.name
    if number is None:
        raise Problem(404, "there is no such receipt", hint="list /v1/receipts")
    return await service.changed(
        call, lambda c: service.cluster_store.undo(c, number, caller), f"undo {number}", "undo"
    )


async def decisions(service: Service, call: Call) -> Answer:
    """List the latest placement decisions."""
    limit = number_of(call, "limit", 100, 1000)
    return Answer({"decisions": service.store.read(lambda connection: journal.decisions(connection, limit))})


_LIMIT = {"limit": "How many, 1 to 1000."}
#: Query parameters of the history.
HOURS = {"hours": "How many hours back, 1 to 24."}
_WRITES: dict[str, Any] = {"scope": "admin", "writes": True, "tag": "cluster"}
OPERATIONS = (
    Operation("POST", "/v1/place", place, body=Placement, statuses=(202, 409), job=LongWork("place", place_in_batches),
              **_WRITES),
    Operation("GET", "/v1/cluster", cluster, statuses=(304,), tag="cluster"),
    Operation("POST", "/v1/cluster/servers", add_servers, body=ServersBody, success=201, statuses=(409,), **_WRITES),
    Operation("DELETE", "/v1/cluster/servers/{name:path}", remove_server, statuses=(404, 409), **_WRITES),
    Operation("GET", "/v1/cluster/events", events, media_type="text/event-stream", tag="cluster"),
    Operation("GET", "/v1/cluster/history", history, query=HOURS, tag="cluster"),
    Operation("GET", "/v1/cluster/requests", requests, tag="cluster"),
    Operation("GET", "/v1/cluster/requests/{id:path}", decision, statuses=(404, 409), tag="cluster"),
    Operation("DELETE", "/v1/cluster/requests/{id:path}", remove, statuses=(404, 409), **_WRITES),
    Operation("POST", "/v1/cluster/rebalance", rebalance, body=Rebalance, statuses=(409,), **_WRITES),
    Operation("GET", "/v1/receipts", receipts, query=_LIMIT, tag="cluster"),
    Operation("POST", "/v1/receipts/{number}/undo", undo, statuses=(404, 409), **_WRITES),
    Operation("GET", "/v1/decisions", decisions, query=_LIMIT, tag="cluster"),
)  # fmt: skip
