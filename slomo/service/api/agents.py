"""`/v1/agents`: reports of the nodes' agents, and the plans that the agents carry out."""

import json
from dataclasses import replace
from typing import Any

from slomo.enforce.plan import EnforcementPlan
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.service.api.host import as_plan
from slomo.service.application import Service
from slomo.service.door.bodies import AgentReport, NodePlan
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.state import journal
from slomo.vocabulary.machine import load_machine

#: Fields of a tenant that only the agent of its node can fill in.
_OF_THE_NODE = ("process_ids", "cgroup", "control_socket")


async def agents(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """List the latest report of each node's agent."""
    return Answer({"agents": await service.aside(service.agents.all)})


async def report(service: Service, call: Call) -> Answer:
    """Store the report of a node's agent."""
    service.agents.tell(call.path["node"], call.body)
    return Answer({"kept": len(call.body.tenants)})


async def plan(service: Service, call: Call) -> Answer:
    """Show the plan of settings for a node: the stored plan, or else the plan that follows from placement decisions."""
    node = call.path["node"]

    def read() -> Answer:
        stored = service.store.read(lambda connection: journal.plan(connection, node))
        if stored is not None:
            return Answer({"plan": json.loads(stored), "source": "stored"})
        decided = _decided(service, node)
        return Answer({"plan": decided, "source": "none" if decided is None else "decisions"})

    return await service.aside(read)


def _decided(service: Service, node: str) -> dict[str, Any] | None:
    """Return the plan of settings that follows from placement decisions for a server; None without decisions."""
    if not service.cluster_store.has_cluster:
        return None
    placer = service.cluster_store.placer
    server = next((item for item in placer.cluster.servers if item.name == node), None)
    if server is None:
        return None
    decisions = [placer.decision(item.id) for item in placer.requests]
    made = plan_from_decision(decisions, node, load_machine(server.machine_type.name))
    tenants = []
    for item in made.tenants:
        request = item.tenant.rsplit("/", 2)[0]
        tenants.append(replace(item, pod=request if "/" in request else f"default/{request}"))
    return replace(made, tenants=tuple(tenants)).to_dict() if tenants else None


async def put_plan(service: Service, call: Call) -> Answer:
    """Store a plan for a node; the node's agent carries it out at its next poll."""
    node, body = call.path["node"], call.body
    made = _checked(as_plan({**body.plan, "server": node}))

    def change(connection: Any) -> tuple[Any, int]:
        journal.put_plan(connection, node, json.dumps(made.to_dict()))
        return {"plan": made.to_dict(), "source": "stored"}, 200

    return await service.changed(call, change, f"plan {node}")


def _checked(made: EnforcementPlan) -> EnforcementPlan:
    for item in made.tenants:
        fixed = [name for name in _OF_THE_NODE if getattr(item, name)]
        if fixed or item.buffers is not None:
            wrong = fixed[0] if fixed else "buffers"
            raise Problem(422, f"tenant '{item.tenant}': {wrong} cannot be set by an agent", hint="name its pod")
        if not item.pod or item.pod.count("/") != 1:
            raise Problem(422, f"tenant '{item.tenant}' names no pod", hint='write "pod": "namespace/name"')
    return made


async def drop_plan(service: Service, call: Call) -> Answer:
    """Delete a node's plan; the node's agent then undoes the settings that it has made."""
    node = call.path["node"]

    def change(connection: Any) -> tuple[Any, int]:
        if journal.plan(connection, node) is None:
            raise Problem(404, f"there is no plan for '{node[:200]}'", hint="GET /v1/agents/{node}/plan")
        journal.put_plan(connection, node, None)
        return {"plan": None, "source": "none"}, 200

    return await service.changed(call, change, f"drop plan {node}")


_WRITES: dict[str, Any] = {"scope": "admin", "writes": True, "tag": "agents"}
OPERATIONS = (
    Operation("GET", "/v1/agents", agents, tag="agents"),
    Operation("POST", "/v1/agents/{node}", report, body=AgentReport, scope="observe", statuses=(404,), tag="agents"),
    Operation("GET", "/v1/agents/{node}/plan", plan, statuses=(404,), tag="agents"),
    Operation("PUT", "/v1/agents/{node}/plan", put_plan, body=NodePlan, statuses=(404,), **_WRITES),
    Operation("DELETE", "/v1/agents/{node}/plan", drop_plan, statuses=(404,), **_WRITES),
)  # fmt: skip
