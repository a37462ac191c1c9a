"""Query DPDK's telemetry socket for statistics of any running DPDK process.

AF_UNIX, SOCK_SEQPACKET, ``/var/run/dpdk/<file-prefix>/dpdk_telemetry.v2`` (DPDK 22.11, guides/howto/telemetry); the
socket exists with ``--in-memory``, too.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

from slomo.errors import TestbedError

#: Name of the socket in the folder of its process.
SOCKET = "dpdk_telemetry.v2"
_LIMIT_S = 2.0
_MOST_B = 1 << 20


def socket_path(file_prefix: str) -> Path:
    """Return the telemetry socket's path for the DPDK process with this `--file-prefix`."""
    runtime = Path("/var/run/dpdk") if os.getuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp")) / "dpdk"  # noqa: S108  (DPDK's own rule)
    return runtime / file_prefix / SOCKET


class TelemetrySocket:
    """A telemetry client (`where`: prefix or path) that connects on first use, and again after a failure."""

    def __init__(self, where: str | Path) -> None:
        self.path = where if isinstance(where, Path) else socket_path(where)
        self._socket: socket.socket | None = None

    def ask(self, query: str) -> dict[str, Any]:
        """Return the answer to a query such as ``/ethdev/stats,0``. Raises TestbedError if no JSON answer comes."""
        try:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            self._socket.send(query.encode("ascii"))
            answer = json.loads(self._socket.recv(_MOST_B))[query.partition(",")[0]]
            if not isinstance(answer, dict):
                raise ValueError(f"answered {answer!r}")
        except (OSError, ValueError, KeyError) as problem:
            self.close()
            raise TestbedError(
                f"DPDK's telemetry at '{self.path}' does not answer '{query}': {problem}",
                hint="start the NF without --no-telemetry and with --file-prefix={file_prefix}",
            ) from None
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            made.settimeout(_LIMIT_S)
            made.connect(str(self.path))
            made.recv(_MOST_B)  # greeting: version, pid, longest answer
        except OSError:
            made.close()
            raise
        self._socket = made
