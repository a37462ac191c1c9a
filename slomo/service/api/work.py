"""`/v1/jobs` and `/v1/observations`: background jobs, and measured throughput of placed network functions."""

import sqlite3
from dataclasses import asdict
from typing import Any

from msgspec import structs

from slomo.errors import SlomoError
from slomo.service.api.host import require_control
from slomo.service.application import Service
from slomo.service.door.bodies import Observation, Observations
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.knowledge.outcomes import Outcomes
from slomo.service.state import journal


async def jobs(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """List the background jobs."""
    return Answer({"jobs": [asdict(job) for job in service.jobs.all()]})


async def job(service: Service, call: Call) -> Answer:
    """Show one background job."""
    return Answer(asdict(service.jobs.get(call.path["id"])))


async def events(service: Service, call: Call) -> Answer:
    """Send a job's progress as server-sent events."""
    name = call.path["id"]
    service.jobs.get(name)
    return Answer(media_type="text/event-stream", stream=service.jobs.events(name))


async def resume(service: Service, call: Call) -> Answer:
    """Resume a background job that was interrupted."""
    name = call.path["id"]
    if service.jobs.get(name).kind == "control":
        require_control(service)
    job = await service.jobs.resume(name)
    return Answer({"job": job.id}, 202, {"Location": f"/v1/jobs/{job.id}"})


def record(
    outcomes: Outcomes, connection: sqlite3.Connection, item: Observation, judged: tuple[str, str, float]
) -> dict[str, Any]:
    """Store a measurement with what `Outcomes.judge` returned; return its comparison with the prediction."""
    machine, target, predicted_mpps = judged
    document, fingerprint = structs.asdict(item), outcomes.fingerprint(machine)
    journal.add_observation(connection, machine, target, document, predicted_mpps, fingerprint)
    return outcomes.note(item, machine, target, predicted_mpps)


async def observe(service: Service, call: Call) -> Answer:
    """Accept measured throughputs: store them, compare them with predictions, and check for drift."""
    body: Observations = call.body

    def run() -> Answer:
        outcomes = service.outcomes
        judged: list[tuple[str, str, float] | SlomoError] = []
        for item in body.observations:
            try:
                judged.append(outcomes.judge(item))
            except SlomoError as error:
                judged.append(error)

        def write(connection: sqlite3.Connection) -> tuple[dict[str, Any], int]:
            rows: list[dict[str, Any]] = []
            for item, judgement in zip(body.observations, judged, strict=True):
                if isinstance(judgement, SlomoError):
                    rows.append({"target": item.target, "error": judgement.message, "hint": judgement.hint})
                else:
                    rows.append(record(outcomes, connection, item, judgement))
            accepted = sum("error" not in row for row in rows)
            return {"kept": accepted, "refused": len(rows) - accepted, "observations": rows}, 200

        return service.cluster_store.perform(call, write, "POST /v1/observations")

    answer = await service.writing(run)
    await service.learn_from_outcomes()
    return answer


async def drift(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Show prediction errors and drift alarms."""
    return Answer(await service.aside(service.outcomes.report))


OPERATIONS = (
    Operation("GET", "/v1/jobs", jobs, tag="work"),
    Operation("GET", "/v1/jobs/{id}", job, statuses=(404,), tag="work"),
    Operation("GET", "/v1/jobs/{id}/events", events, statuses=(404,), media_type="text/event-stream", tag="work"),
    Operation("POST", "/v1/jobs/{id}/resume", resume, scope="admin", writes=True, success=202, statuses=(404, 409),
              tag="work"),
    Operation("POST", "/v1/observations", observe, body=Observations, scope="observe", writes=True, tag="work"),
    Operation("GET", "/v1/drift", drift, tag="work"),
)  # fmt: skip
