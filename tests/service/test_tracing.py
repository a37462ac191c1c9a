"""Spans of OpenTelemetry: what a collector gets, and what is told where the packages are missing."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from slomo.errors import MissingExtraError
from slomo.extras import translated
from slomo.service.tracing import Tracer
from tests.service.conftest import Started
from tests.service.kubernetes.test_extender import node

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Return the address of a small collector, and the spans that it got."""
    pytest.importorskip("opentelemetry.exporter", reason="pip install 'slomo[otel]'")
    messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            told = messages.ExportTraceServiceRequest()
            told.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            spans.extend(span for each in told.resource_spans for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_requests_and_what_was_done_in_them(collector: tuple[str, list[Any]], start: Started) -> None:
    """The request is a child of the caller's span, judging one of the request; without a caller a trace begins."""
    address, spans = collector
    client = start(otlp=address)
    view = client.service.kubernetes.view  # type: ignore[attr-defined]
    view.replace_nodes([node("n")])
    view.replace_pods([])
    view.heard("nodes")
    view.heard("pods")
    asked = {"metadata": {"name": "p", "uid": "u", "annotations": {"slomo.io/nf": "lpm", "slomo.io/min-share": "0.5"}}}
    client.post("/scheduler/filter", json={"Pod": asked, "NodeNames": ["n"]},
                headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})  # fmt: skip
    assert client.get("/v1/jobs/none").status_code == 404
    client.service.tracer.close()  # type: ignore[attr-defined]

    named = {span.name: span for span in spans}
    request, judge = named["POST /scheduler/filter"], named["judge"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert (judge.trace_id.hex(), judge.parent_span_id) == (TRACE, request.span_id)
    assert {item.key: item.value.int_value for item in request.attributes}["http.response.status_code"] == 200
    other = named["GET /v1/jobs/{id}"]
    assert other.trace_id.hex() != TRACE
    assert other.parent_span_id == b""


def test_a_missing_package_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every extra, and by the option's own extra, not by that of the verb."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError) as told:
        Tracer("http://localhost:4318")
    assert told.value.exit_code == 2
    shown = translated(told.value, "serve")
    assert shown is not None
    assert shown.hint == "pip install 'slomo[otel]'"
