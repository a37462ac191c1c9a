"""`/v1/enforce` and `/v1/control`: change settings of the service's machine, and run control loops, if allowed."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from slomo.enforce.plan import EnforcementPlan
from slomo.errors import ConfigurationError
from slomo.service.application import Service
from slomo.service.door.bodies import Identifier, Name
from slomo.service.door.operation import Answer, Call, LongWork, Operation
from slomo.service.door.problems import Problem
from slomo.service.host.room import configuration_of, run_loop
from slomo.service.jobs import JobProgress
from slomo.workflow.acting.control import control_status

#: Name of a machine type or a loop; a file is refused.
PlainName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class Enforcement(Struct, forbid_unknown_fields=True):
    """A plan of settings for the service's machine; with `what_if` the answer shows the changes without making them."""

    plan: dict[str, Any]
    what_if: bool = False


class ControlTenant(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One tenant of a controlled machine, and its promised share of solo throughput."""

    workload: Name
    name: Identifier | None = None
    slo: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None


class ControlBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A control loop on a simulated machine, in the format of `slomo control run`."""

    tenants: Annotated[list[ControlTenant], Meta(min_length=1, max_length=64)]
    name: PlainName = "service"
    machine: PlainName = "e5-2620v4"
    controller: Literal["guard", "max_min"] = "guard"
    steps: Annotated[int, Meta(ge=1, le=10_000)] = 60
    period_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 1.0
    dwell_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    cool_down_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


async def show(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """Show the settings that the service has changed on its machine, and the receipts by which they can be undone."""
    return Answer(await service.aside(service.host.describe))


async def enforce(service: Service, call: Call) -> Answer:
    """Apply a plan of settings to the machine; each change is on disk before it is made, so that it can be undone."""
    enforcement: Enforcement = call.body
    service.host.enforcing  # noqa: B018 - refuses before anything is read
    plan = as_plan(enforcement.plan)
    action = None if enforcement.what_if else "enforce"
    return await service.changed(
        call, lambda _: (service.host.enforce(plan, what_if=enforcement.what_if), 200), "POST /v1/enforce", action
    )


def as_plan(document: dict[str, Any]) -> EnforcementPlan:
    """Convert a document to a plan. Raises ConfigurationError if the document is no plan."""
    try:
        return EnforcementPlan.from_dict(document)
    except (TypeError, ValueError, AttributeError) as fault:
        hint = "as `slomo enforce` reads it: {server, tenants: [{tenant, cores, llc_way_mask}]}"
        raise ConfigurationError(f"this is no plan: {str(fault)[:200]}", hint=hint) from None


async def undo(service: Service, call: Call) -> Answer:
    """Undo the changes that one receipt (record of changes) lists."""
    name = call.path["receipt"]
    service.host.enforcing  # noqa: B018
    return await service.changed(call, lambda _: (service.host.undo(name), 200), f"undo host {name}", "undo-host")


async def control(service: Service, call: Call) -> Answer:
    """Run a control loop on a simulated machine, as a job."""
    require_control(service)
    body: ControlBody = call.body
    document = msgspec.to_builtins(body)
    configuration_of(document)  # raises an error before the job is accepted
    job = await service.jobs.accept("control", document, call.headers.get("idempotency-key"))
    return Answer({"job": job.id}, 202, {"Location": f"/v1/jobs/{job.id}"})


async def control_loop(service: Service, errand: dict[str, Any], progress: JobProgress) -> dict[str, Any]:
    """Run a control loop until its end."""
    return await run_loop(service.settings.receipts, errand, progress)


async def loops(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Show the running control loops, and the changes that were not undone."""
    require_control(service)
    return Answer(await service.aside(control_status))


def require_control(service: Service) -> None:
    """Raise Problem 403 if control loops are not allowed."""
    if not service.settings.control:
        raise Problem(403, "this service runs no control loops", hint="slomo serve --control")


_ACTS: dict[str, Any] = {"scope": "admin", "writes": True, "tag": "host"}
OPERATIONS = (
    Operation("GET", "/v1/enforce", show, tag="host"),
    Operation("POST", "/v1/enforce", enforce, body=Enforcement, **_ACTS),
    Operation("POST", "/v1/enforce/{receipt}/undo", undo, statuses=(404,), **_ACTS),
    Operation("GET", "/v1/control", loops, tag="host"),
    Operation("POST", "/v1/control", control, body=ControlBody, success=202, job=LongWork("control", control_loop),
              **_ACTS),
)  # fmt: skip
