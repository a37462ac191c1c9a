"""Logs as JSON: one object per line, with the request and the trace that it belongs to."""

import json
import logging

import pytest
from starlette.testclient import TestClient

from slomo.service.logs import JsonLines, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_line_names_its_request_and_trace(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """What is logged while a request is answered has its id and the caller's trace; after it, neither."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Kept()
    handler.setFormatter(JsonLines())
    logging.getLogger("slomo").addHandler(handler)
    headers = {"X-Request-Id": "mine", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    try:
        with caplog.at_level(logging.INFO, "slomo"):
            client.post("/v1/place", json={"requests": []}, headers=headers)
            logging.getLogger("slomo.test").warning("line\n%s", "two")
    finally:
        logging.getLogger("slomo").removeHandler(handler)
    first, last = (json.loads(line) for line in (lines[0], lines[-1]))
    assert (first["request_id"], first["trace_id"], first["logger"]) == ("mine", TRACE, "slomo.service.audit")
    assert (last["message"], last["level"]) == ("line\ntwo", "warning")
    assert "request_id" not in last


@pytest.mark.parametrize(
    "parent", ["", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff-" + TRACE + "-00f067aa0ba902b7-01"]
)
def test_a_trace_that_cannot_be_read_is_begun_anew(parent: str) -> None:
    """As W3C's trace context asks."""
    assert trace_of(parent) not in (TRACE, "0" * 32)
    assert len(trace_of(parent)) == 32


def test_an_exception_is_part_of_its_line() -> None:
    """Tracebacks stay in one line."""
    try:
        raise ValueError("odd")
    except ValueError as error:
        record = logging.LogRecord("slomo", logging.ERROR, "", 0, "failed", (), (type(error), error, None))
    text = JsonLines().format(record)
    assert "\n" not in text
    assert "ValueError: odd" in json.loads(text)["exception"]
