"""The edge: heads, bodies and connections that never end, and one address that takes all places."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from slomo.service.edge import EdgeLimits, _JoinedWrites, guarded

#: Deadlines for what is to be ended, and for what is to pass however busy the machine is.
SHORT = EdgeLimits(head_b=4096, head_s=0.3, body_s=0.3, stalled_s=0.3, per_address=40)
LONG = EdgeLimits(head_b=4096, head_s=60.0, body_s=60.0, stalled_s=60.0, per_address=40)
Open = Callable[..., socket.socket]
#: Port of a server -> its connections by address.
COUNTS: dict[int, dict[str, int]] = {}
#: Set once /slow is to go on.
GO_ON = threading.Event()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body; /large with much; /slow and /broken begin, and go on or fail once told."""
    if scope["type"] != "http":
        return
    length, more = 0, scope["path"] != "/deaf"
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    body = b"x" * 30_000_000 if scope["path"] == "/large" else json.dumps(length).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    if scope["path"] == "/slow":
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await asyncio.to_thread(GO_ON.wait, 20.0)
    if scope["path"] == "/broken":
        raise RuntimeError("after the head")
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(limits: EdgeLimits) -> Iterator[int]:
    """Yield the port of a server with some limits."""
    protocol: Any = guarded(limits)
    server = uvicorn.Server(uvicorn.Config(echo, port=0, http=protocol, ws="none", lifespan="off", log_config=None))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(200)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()
        COUNTS[listener.getsockname()[1]] = protocol.open_by_address
        yield listener.getsockname()[1]
        server.force_exit = server.should_exit = True
        thread.join(20.0)


@pytest.fixture(scope="module")
def edge() -> Iterator[int]:
    """Return the port of a server with short deadlines."""
    with serving(SHORT) as port:
        yield port


@pytest.fixture(scope="module")
def patient() -> Iterator[int]:
    """Return the port of a server with long deadlines."""
    with serving(LONG) as port:
        yield port


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return what opens connections, from another address if named; all are closed after the test."""
    lines: list[socket.socket] = []

    def open_(port: int, said: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        lines.append(socket.create_connection(("127.0.0.1", port), 20.0, (address, 0)))
        lines[-1].sendall(said)
        return lines[-1]

    yield open_
    for line in lines:
        line.close()


def is_ended(line: socket.socket, drip: bytes = b"") -> bool:
    """Say whether the server ends a connection, also while something drips in."""
    end = time.monotonic() + 20.0
    line.settimeout(0.05)
    while time.monotonic() < end:
        try:
            if drip:
                line.sendall(drip)
            if line.recv(65536) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    ("said", "drip"),
    [
        (b"", b""),  # half-open
        (b"", b"\r\n"),
        (HEAD, b"X-A: b\r\n"),  # Slowloris
        (HEAD, b"a"),
        (HEAD + b"Content-Length: 100000\r\n\r\n", b"a"),  # a body that drips
        (b"GET /deaf HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", b"a"),  # nobody reads it
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"G"),  # the second request of a connection
        (b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" + b"GET /large HTTP/1.1\r\nHost: a\r\n", b""),
    ],
)
def test_what_never_ends_is_ended(edge: int, opened: Open, said: bytes, drip: bytes) -> None:
    """Heads, bodies and connections have deadlines, however they drip in."""
    assert is_ended(opened(edge, said), drip)


def test_a_reader_that_does_not_read_is_ended(edge: int, opened: Open) -> None:
    """What cannot be written for long is given up: its place is free while nothing was read."""
    line = opened(edge, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "127.0.0.3")
    assert line.recv(1) == b"H"
    end = time.monotonic() + 20.0
    while "127.0.0.3" in COUNTS[edge]:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_head_that_is_too_large_is_refused(patient: int, opened: Open, pieces: int) -> None:
    """431, whether it comes at once or piece by piece."""
    line = opened(patient, HEAD)
    for _ in range(pieces):
        line.sendall(b"X-A: " + b"a" * (SHORT.head_b // pieces + 10) + b"\r\n")

    assert line.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_large_bodies_and_many_requests_of_one_connection_pass(patient: int, opened: Open) -> None:
    """A body larger than a head may be, in one piece with its head or not; several requests, pipelined too."""
    body = b"b" * 100_000
    with httpx.Client(base_url=f"http://127.0.0.1:{patient}", timeout=20.0) as line:
        assert [line.post("/", content=body).json() for _ in range(5)] == [100_000] * 5
        line.headers["X-A"] = "a" * 3000
        assert [line.post("/", content=body[:9]).json() for _ in range(5)] == [9] * 5
    both = opened(patient, 2 * (HEAD + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc"))
    assert both.recv(65536).startswith(b"HTTP/1.1 200 OK")
    split = opened(patient, HEAD + b"Content-Length: 6000\r\nConnection: close\r\n\r")
    time.sleep(0.05)
    split.sendall(b"\n" + b"b" * 6000)
    assert split.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_an_answer_s_head_is_sent_with_its_body() -> None:
    """In one write; what is large is not copied, and no head is lost."""
    below = Mock()
    transport = _JoinedWrites(below)
    for data in (b"HTTP/1.1 200 OK\r\n\r\n", b"3", b"4", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
                 large := b"x" * 100_000, b"HTTP/1.1 204 No Content\r\n\r\n"):  # fmt: skip
        transport.write(data)
    transport.close()
    assert [call.args[0] for call in below.write.call_args_list] == [
        b"HTTP/1.1 200 OK\r\n\r\n3", b"4", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", large,
        b"HTTP/1.1 204 No Content\r\n\r\n"]  # fmt: skip
    below.close.assert_called_once()


def test_a_head_does_not_wait_for_its_body(patient: int, opened: Open) -> None:
    """Where no body follows, follows later, or the answer fails."""
    line = opened(patient, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert line.recv(65536).endswith(b"\r\n\r\n")
    line.sendall(HEAD.replace(b"/", b"/slow", 1) + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert line.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.sendall(b"abc")
    assert line.recv(65536).endswith(b"\r\n\r\n")
    GO_ON.set()
    assert line.recv(65536) == b"3"
    line.sendall(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n")
    assert line.recv(65536).endswith(b"\r\n\r\n")
    assert is_ended(line)


def test_one_address_does_not_take_all_places(patient: int, opened: Open) -> None:
    """Beyond its part connections are dropped; others are answered meanwhile, and places come back."""
    many = [opened(patient, HEAD) for _ in range(LONG.per_address + 20)]
    other = opened(patient, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "127.0.0.2")
    assert other.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert all(is_ended(line) for line in many[LONG.per_address :])
    for line in many:
        line.close()
    with httpx.Client(timeout=20.0) as again:
        assert _answered(again, f"http://127.0.0.1:{patient}/") == 200


def _answered(line: httpx.Client, url: str) -> int:
    """Ask until there is a place: the server sees closed connections a moment later."""
    end = time.monotonic() + 20.0
    while True:
        try:
            return line.get(url).status_code
        except httpx.HTTPError:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.parametrize(
    "query",
    ["&".join(f"f{n}=1" for n in range(25)), "limit", "limit=%ff", "limit=1&limit=2", "limit=0010009", "limit=-1", "="],
)
def test_a_query_that_is_none_is_told(client: TestClient, query: str) -> None:
    """422 with a hint, never a fault of the service."""
    answer = client.get(f"/v1/receipts?{query}")

    assert answer.status_code == 422, answer.text
