"""Client of Click's ControlSocket (also FastClick's): read and write handlers of a running Click over TCP.

Protocol 1.3 (Click manual, elements/userlevel/controlsocket): ``READ c.count`` is answered ``200 ...``, ``DATA n`` and
n bytes; ``WRITE c.reset 1`` is answered ``200 ...`` only.
"""

import socket

from slomo.errors import TestbedError
from slomo.host.knobs import VanishedError

_LIMIT_S = 2.0
_MOST_B = 1 << 20


class ControlSocket:
    """A ControlSocket client that connects on first use, and again after a failure."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.host, self.port = host, port
        self._socket: socket.socket | None = None
        self._rest = b""

    def read(self, handler: str) -> str:
        """Return a handler's value; raise VanishedError if nothing listens, TestbedError if no such handler exists."""
        return self._ask(f"READ {handler}")

    def write(self, handler: str, value: str) -> None:
        """Set a handler's value; raise the errors of `read`."""
        self._ask(f"WRITE {handler} {value}")

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _ask(self, line: str) -> str:
        try:
            return self._answer(line)
        except (OSError, ValueError) as problem:
            self.close()
            kind = VanishedError if isinstance(problem, ConnectionRefusedError) else TestbedError
            raise kind(
                f"Click's ControlSocket on {self.host}:{self.port} does not answer '{line}': {problem}",
                hint="put `ControlSocket(TCP, PORT)` into the configuration, and name the same port here",
            ) from None

    def _answer(self, line: str) -> str:
        if self._socket is None:
            self._socket = socket.create_connection((self.host, self.port), _LIMIT_S)
            if not self._line().startswith("Click::ControlSocket/"):
                raise ValueError("what listens there is no Click")
        self._socket.sendall(f"{line}\r\n".encode())
        status = self._line()
        if not status.startswith("200"):
            raise ValueError(status)
        if line.startswith("WRITE"):
            return ""
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
