"""`/v1/cluster/changes` and `/v1/cluster/at-risk`: changes of a running cluster, and promises predicted to break.

The terms are those of `slomo place change` and of Kubernetes: cordon, drain, fail, update (with surge or not), preempt.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from slomo.errors import InvalidValueError
from slomo.placement.online.change import ClusterChange
from slomo.placement.online.lifecycle import Lifecycle
from slomo.service.api.cluster import as_request
from slomo.service.application import Service
from slomo.service.door.bodies import ClusterChangeBody
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.servers import RunningNF

#: Fields that name what is changed; for the other actions it is `server`.
_SUBJECTS = {"fail_domain": ("label", "value"), "update": ("request",), "preempt": ("request",)}


async def change(service: Service, call: Call) -> Answer:
    """Cordon, drain, taint or fail servers, or update or preempt a request; or only preview the change."""
    body: ClusterChangeBody = call.body
    act, caller = _act(body), call.caller.name
    if body.what_if:
        shown = await service.aside(lambda: act(service.cluster_store.placer.lifecycle).to_dict())
        return Answer({**shown, "what_if": True})

    return await service.changed(call, lambda c: service.cluster_store.live(c, act, caller), body.action, body.action)


def _act(body: ClusterChangeBody) -> Callable[[Lifecycle], ClusterChange]:
    """Return the function that makes the change."""
    needed = _SUBJECTS.get(body.action, ("server",))
    named = tuple(name for name in ("server", "request", "label", "value") if getattr(body, name) is not None)
    if named != needed:
        takes, got = " and ".join(needed), " and ".join(named) or "none"
        raise InvalidValueError(f"'{body.action}' takes {takes}, got {got}", hint=f"name {takes} and nothing else")
    subject: Any = getattr(body, needed[0]) if body.request is None else as_request(body.request)
    options: dict[str, Any] = {name: getattr(body, name) for name in ("what_if", "max_moves", "surge", "value")}
    return lambda life: life.act(body.action, subject, taints=tuple(body.taints), **options)


async def at_risk(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """Show promises that are predicted to break, and promises that cannot be judged."""

    def read() -> list[dict[str, Any]]:
        if not service.cluster_store.has_cluster:
            return []
        return [asdict(item) for item in service.cluster_store.placer.lifecycle.at_risk()]

    if service.kubernetes.is_on:
        rows = [_at_risk(server.name, item) for server in await service.servers() for item in server.tenants]
        doubtful = [row for row in rows if row["state"] in ("broken", "unjudged")]
    else:
        doubtful = await service.aside(read)
    return Answer({"at_risk": doubtful, "fingerprint": service.model_store.answers.fingerprint})


def _at_risk(server: str, item: RunningNF) -> dict[str, Any]:
    return {"request": item.owner, "workload": item.workload, "server": server, "what": "throughput",
            "needed": item.needed_mpps, "possible": item.low_mpps, "state": item.state, "why": item.why}  # fmt: skip


OPERATIONS = (
    Operation("POST", "/v1/cluster/changes", change, body=ClusterChangeBody, statuses=(404, 409), scope="admin",
              writes=True, tag="cluster"),
    Operation("GET", "/v1/cluster/at-risk", at_risk, tag="cluster"),
)  # fmt: skip
