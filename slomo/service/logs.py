"""Write logs as JSON lines, each with the identifiers of its request and trace (`slomo serve --log json`).

A caller's W3C ``traceparent`` is used; otherwise every request starts a trace of its own.
"""

import contextvars
import json
import logging
import os
import re
from datetime import UTC, datetime
from typing import NamedTuple

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)


class RequestContext(NamedTuple):
    """Identifiers of the present request and its trace."""

    request_id: str = ""
    trace_id: str = ""


#: Context of the request that this task answers.
CONTEXT: contextvars.ContextVar[RequestContext] = contextvars.ContextVar("request", default=RequestContext())  # noqa: B039


def trace_of(parent: str) -> str:
    """Return the trace identifier in a ``traceparent`` header, or a new one."""
    match = _PARENT.fullmatch(parent)
    return match[1] if match is not None else os.urandom(16).hex()


class JsonLines(logging.Formatter):
    """A log formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as JSON."""
        row = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in CONTEXT.get()._asdict().items() if value},
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)
