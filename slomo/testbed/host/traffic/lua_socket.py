"""Client of Pktgen-DPDK's remote Lua socket: plain TCP, one chunk of Lua per line, only explicit output is returned.

In Pktgen 23.03 and 23.06 (lib/lua/lua_socket.c) the socket sends no prompt, echo or length, and values and errors go to
Pktgen's own terminal. Every request is therefore wrapped in Lua code that writes the result or error and an end mark to
the socket.
"""

import socket

from slomo.errors import TestbedError

_END = "@@END@@"
_LARGEST_B = 4 * 2**20
#: Wrapper of a request: it writes values, or an error in the same way, then an end mark.
WRAP = (
    "do local function W(x) io.write(tostring(x), '\\n') end "
    "local ok,e=pcall(function() {body} end) "
    "if not ok then W('ERROR '..tostring(e)) end W('@@END@@') io.flush() end\n"
)


class LuaSocket:
    """A connection to a Lua socket; `limit_s`: longest time to wait for an answer."""

    def __init__(self, host: str = "127.0.0.1", port: int = 22022, limit_s: float = 5.0) -> None:
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=limit_s)
        except OSError as problem:
            raise TestbedError(
                f"no Pktgen answers at {self.address}: {problem}",
                hint=f"start it with `pktgen ... -- -g {host}:{port}`; over SSH, forward the port: ssh -L",
            ) from None

    def ask(self, body: str) -> list[str]:
        """Run Lua statements and return the lines that they wrote with ``W(...)``."""
        if "\n" in body:
            raise ValueError("one line is one chunk")
        try:
            self._socket.sendall(WRAP.replace("{body}", body).encode("ascii"))
            lines = self._lines()
        except OSError as problem:
            raise TestbedError(
                f"Pktgen at {self.address} does not answer '{body[:60]}': {problem}",
                hint="it serves one client at a time; end the other one",
            ) from None
        for line in lines:
            if line.startswith("ERROR "):
                raise TestbedError(
                    f"Pktgen at {self.address} refuses '{body[:60]}': {line[6:]}",
                    hint="releases 23.03 and 23.06 are known",
                )
        return lines

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _lines(self) -> list[str]:
        text = b""
        while not text.endswith(f"{_END}\n".encode("ascii")):
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the connection was closed")
            text += chunk
            if len(text) > _LARGEST_B:
                raise ConnectionAbortedError(f"more than {_LARGEST_B} bytes came")
        return text.decode("utf-8", "replace").splitlines()[:-1]
