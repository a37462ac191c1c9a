"""`/healthz`, `/readyz`, `/metrics`, `/openapi.json`: for health probes, Prometheus, and authors of clients."""

from slomo.service.application import Service
from slomo.service.door.openapi import document
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.metrics import MEDIA_TYPE


async def health(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Answer that the process is alive."""
    return Answer({"status": "ok"})


async def ready(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Report readiness: status 503 until the promises of all running functions have been checked, then 200."""
    faults, unjudged = service.faults(), bool(service.kubernetes.faults())
    status = "not ready" if unjudged else "degraded" if faults else "ready"
    document = {"status": status, "fingerprint": service.model_store.answers.fingerprint, "faults": faults}
    return Answer(document, 503 if unjudged else 200)


async def metrics(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Return metrics in Prometheus' text format."""
    await service.servers()
    text = await service.aside(service.metrics.exposition)
    return Answer(text.encode(), media_type=MEDIA_TYPE)


async def openapi(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Return the OpenAPI document."""
    return Answer(document(service.operations))


OPERATIONS = (
    Operation("GET", "/healthz", health, scope="open"),
    Operation("GET", "/readyz", ready, statuses=(503,), scope="open"),
    Operation("GET", "/metrics", metrics, media_type="text/plain"),
    Operation("GET", "/openapi.json", openapi, scope="open"),
)  # fmt: skip
