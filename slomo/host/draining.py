"""Read all output of a process, so that the process never blocks on a full pipe and its last lines are kept.

One thread per stream; memory is bounded whatever the process prints.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO

LineHandler = Callable[[float, str], None]
_CHUNK_B = 1 << 16
_LONGEST_LINE_B = 1 << 16
_LAST_LINES = 20


class Drain:
    """Reads one output stream of a process in a thread of its own.

    `handlers`, to which more may be added, get the arrival time [s, monotonic] and the text of every line.
    """

    def __init__(self, stream: IO[bytes], handlers: list[LineHandler]) -> None:
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._handlers = handlers
        self._rest = b""
        self._thread = threading.Thread(target=self._loop, args=(stream,), daemon=True, name="slomo-drain")
        self._thread.start()

    def join(self, limit_s: float) -> None:
        """Wait until the stream has ended."""
        self._thread.join(limit_s)

    def _loop(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := _read(stream.fileno()):
                self._take(chunk)
            self._take(b"\n" if self._rest else b"")

    def _take(self, chunk: bytes) -> None:
        arrived_s = time.monotonic()
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:_LONGEST_LINE_B]
        for line in lines:
            text = line[:_LONGEST_LINE_B].decode("utf-8", "replace").rstrip("\r")
            self.last_lines.append(text[:500])
            for handle in tuple(self._handlers):
                handle(arrived_s, text)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_B)
    except OSError:
        return b""
