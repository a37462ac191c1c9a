"""Send spans of requests, predictions for pods and reserved places to an OpenTelemetry collector.

Trace ids are those of the log's lines (`slomo.service.logs`): the caller's id or, without one, a new id per request.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from slomo.extras import missing
from slomo.service.logs import CONTEXT

#: Time limit for sending spans to the collector [s].
SEND_S = 2.0


class Tracer:
    """Records spans; does nothing if there is no collector.

    `collector`: address that takes OTLP over HTTP, such as ``"http://localhost:4318"``. Raises MissingExtraError for a
    collector without the packages of the extra `otel`.
    """

    def __init__(self, collector: str | None = None) -> None:
        self._provider = None if collector is None else _provider(collector)
        self._tracer = None if self._provider is None else self._provider.get_tracer("slomo")

    def span(
        self, name: str, headers: Mapping[str, str] | None = None, **attributes: str | int
    ) -> AbstractContextManager[Any]:
        """Return a context manager that records a span: a child of the caller's (in `headers`) or the present span."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = None if headers is None else TraceContextTextMapPropagator().extract(headers, context=Context())
        kind = SpanKind.INTERNAL if headers is None else SpanKind.SERVER
        named = {f"slomo.{key}": value for key, value in attributes.items()}
        begun: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            name, context=parent, kind=kind, attributes=named
        )
        return begun

    def answered(self, span: Any, status: int) -> None:
        """Record the status of the answer to a request."""
        if span is None:
            return
        from opentelemetry.trace import StatusCode

        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(StatusCode.ERROR)

    def close(self) -> None:
        """Send the spans that still wait to be sent."""
        if self._provider is not None:
            self._provider.shutdown()


def _provider(collector: str) -> Any:
    """Return a tracer provider that sends spans to a collector in its own thread."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError:
        raise missing("opentelemetry") from None

    class LogIds(RandomIdGenerator):  # type: ignore[misc, unused-ignore]
        """Generator of trace ids that takes the id from the log context, so that logs and spans match."""

        def generate_trace_id(self) -> int:
            return int(CONTEXT.get().trace_id or "0", 16) or int(super().generate_trace_id())

    provider = TracerProvider(resource=Resource.create({"service.name": "slomo"}), id_generator=LogIds())
    exporter = OTLPSpanExporter(endpoint=f"{collector.rstrip('/')}/v1/traces", timeout=SEND_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
