"""Click's ControlSocket: read a handler of a running Click over TCP.

Protocol 1.3 (Click manual, elements/userlevel/controlsocket): ``READ c.count`` is answered ``200 ...``, ``DATA n``
and n bytes.
"""

import socket
from collections.abc import Callable
from typing import TypeVar

from slomo.errors import TestbedError

_LIMIT_S = 2.0
_MOST_B = 1 << 20
Answer = TypeVar("Answer")


class ControlSocket:
    """A client that connects on first use and after a failure."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._rest = b""

    def read(self, handler: str) -> str:
        """Return a handler's value; TestbedError if nothing answers, or the handler does not exist."""
        return self._guarded(lambda: self._read(handler), handler)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _guarded(self, action: Callable[[], Answer], handler: str) -> Answer:
        try:
            return action()
        except (OSError, ValueError) as problem:
            self.close()
            raise TestbedError(
                f"Click's ControlSocket on port {self.port} does not answer '{handler}': {problem}",
                hint="put `ControlSocket(TCP, PORT)` into the configuration and the same port into `host:`",
            ) from None

    def _read(self, handler: str) -> str:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), _LIMIT_S)
            if not self._line().startswith("Click::ControlSocket/"):
                raise ValueError("what listens there is no Click")
        self._socket.sendall(f"READ {handler}\r\n".encode("ascii"))
        status = self._line()
        if not status.startswith("200"):
            raise ValueError(status)
        size = int(self._line().removeprefix("DATA "))
        if not 0 <= size <= _MOST_B:
            raise ValueError(f"an answer of {size} bytes")
        while len(self._rest) < size:
            self._receive()
        data, self._rest = self._rest[:size], self._rest[size:]
        return data.decode("utf-8", "replace")

    def _line(self) -> str:
        while b"\n" not in self._rest:
            if len(self._rest) > _MOST_B:
                raise ValueError("a line without end")
            self._receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def _receive(self) -> None:
        assert self._socket is not None
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise ValueError("it hung up")
        self._rest += chunk
