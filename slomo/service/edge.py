"""Limits of time and size for connections, which are needed since uvicorn does not limit a request's head.

Endless or slow heads (Slowloris), endless bodies, silent connections and clients that do not read all occupy memory and
a connection. Each of them has a deadline, and a limit per address prevents that one address takes all connections.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD, _CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100"
#: Largest body that is copied to be sent with its head [bytes].
_JOINED_B = 64 * 1024
_END = b"\r\n\r\n"
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 21\r\nconnection: close\r\n\r\nthe head is too large"
)


@dataclass(frozen=True)
class EdgeLimits:
    """Time and size limits of one connection."""

    #: Largest head of a request: request line and header fields [bytes].
    head_b: int = 64 * 1024
    #: Longest time from the connection, or from the first byte of a further request, to the end of the head [s].
    head_s: float = 10.0
    #: Longest time from the end of the head to the end of the body [s].
    body_s: float = 35.0
    #: Longest time for which a client may read nothing of an answer [s].
    stalled_s: float = 30.0
    #: Largest number of connections per address.
    per_address: int = 1024


def guarded(limits: EdgeLimits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class extended by limits; its connections are counted per address."""
    return type("GuardedProtocol", (_Guarded,), {"limits": limits, "open_by_address": Counter()})


class _JoinedWrites:
    """Sends an answer's head and body in one system call, to save about 10 us."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._head = transport, b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send data; keep a head back until its body follows."""
        if data.startswith(_HEAD) and not data.startswith(_CONTINUE) and not self._head:
            self._head = data
            return
        if self._head and len(data) > _JOINED_B:
            self.flush()
        self._transport.write(self._head + data if self._head else data)
        self._head = b""

    def flush(self) -> None:
        """Send a head that was kept back, without waiting for its body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Send a head that was kept back, and close the connection."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Guarded(HttpToolsProtocol):
    """One connection with time and size limits."""

    limits: EdgeLimits
    open_by_address: Counter[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._is_head, self._is_idle, self._head_b, self._tail = True, True, 0, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or drop it if its address has too many connections."""
        super().connection_made(_JoinedWrites(transport))  # type: ignore[arg-type]
        address = self.client[0] if self.client else ""
        self.open_by_address[address] += 1
        if self.open_by_address[address] > self.limits.per_address:
            transport.abort()
            return
        self._within(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection as closed."""
        address = self.client[0] if self.client else ""
        self.open_by_address[address] -= 1
        if self.open_by_address[address] <= 0:
            del self.open_by_address[address]
        self._in_time()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received data, unless the head of the request is too large."""
        self._is_idle = False
        if self._is_head:
            piece = self._tail + data[: self.limits.head_b + len(_END)]
            end = piece.find(_END)
            self._head_b += len(data) if end < 0 else max(end - len(self._tail), 0)
            self._tail = piece[-3:]
            if self._head_b > self.limits.head_b:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)
        if self._deadline is None and not self._is_idle:  # most requests are complete by now and need no deadline
            self._within(self.limits.head_s if self._is_head else self.limits.body_s)

    def on_message_begin(self) -> None:
        """Start the deadline for a request."""
        self._is_idle = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the deadline for the request's body."""
        self._is_head = False
        self._in_time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the deadline of a request."""
        self._is_head, self._is_idle, self._head_b, self._tail = True, True, 0, b""
        self._in_time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send an answer that has no body, and continue with the next request."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start a deadline for a client that does not read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue writing, since the client reads again."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self.flow is not None:
            super().resume_writing()

    def _within(self, seconds: float) -> None:
        """Drop the connection unless its next step ends within `seconds`."""
        self._in_time()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
