"""Schemas of an agent's report about its node, and of the plan that the agent carries out."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from slomo.service.door.bodies import Identifier, Name

Text = Annotated[str, Meta(max_length=500)]


class TenantReport(Struct, forbid_unknown_fields=True):
    """An agent's report about one pod: its counters, or the reason why there are none."""

    tenant: Identifier
    nf: Name
    counters: dict[str, Annotated[float, Meta(ge=0.0)]] | None = None
    reason: Text = ""
    source: Annotated[str, Meta(max_length=100)] = ""
    throughput_mpps: Annotated[float, Meta(ge=0.0)] | None = None


class EnforcementReport(Struct, forbid_unknown_fields=True):
    """Settings of the node's plan that an agent has made, and settings that were refused."""

    backend: Annotated[str, Meta(max_length=100)]
    receipt: Annotated[str, Meta(max_length=200)] = ""
    changes: Annotated[list[Text], Meta(max_length=100)] = []
    refusals: Annotated[list[Text], Meta(max_length=100)] = []


class AgentReport(Struct, forbid_unknown_fields=True):
    """An agent's report about its node at one time."""

    tenants: Annotated[list[TenantReport], Meta(max_length=1024)]
    enforcement: EnforcementReport | None = None


class NodePlan(Struct, forbid_unknown_fields=True):
    """A plan for a node's pods in the format of `slomo enforce`, with `pod` (namespace/name) instead of processes."""

    plan: dict[str, Any]
