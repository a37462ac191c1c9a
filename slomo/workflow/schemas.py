"""The JSON Schema (draft 2020-12) of every document that people write for slomo, each with its ``$id``.

Readers and schemas cannot disagree: documents become values of the types named here, and msgspec derives the schemas
from these types. Rules over several fields (``__post_init__``) are not part of the schemas.
"""

from importlib import import_module
from typing import Any

import msgspec

from slomo.errors import UnknownNameError

#: document -> its description, and module and name of its type
DOCUMENTS: dict[str, tuple[str, str, str]] = {
    "machine": ("a machine", "slomo.vocabulary.machine", "MachineFile"),
    "network-function": ("a network function", "slomo.vocabulary.network_function_file", "NetworkFunctionFile"),
    "host-network-function": (
        "its section `host:`, for real machines",
        "slomo.vocabulary.host_section",
        "HostSection",
    ),
    "chains": ("service chains on shared cores", "slomo.vocabulary.chain_file", "ChainsFile"),
    "mapping": ("columns of an imported table", "slomo.records.importing.mapping_file", "MappingFile"),
    "probe-mapping": (
        "tables of a dial and a reporter probe",
        "slomo.records.importing.probe_tables",
        "ProbeMapping",
    ),
    "host": ("a real machine as testbed", "slomo.testbed.host.host_file", "HostFile"),
    "hosts": ("hosts of a fleet", "slomo.fleet.hosts", "Fleet"),
    "settings": ("slomo.toml", "slomo.config", "Settings"),
    "cluster": ("servers", "slomo.placement.problem.entries", "ClusterFile"),
    "requests": ("requests and chains to place", "slomo.placement.problem.entries", "RequestsFile"),
    "profiles": ("profiles over ways and partitions", "slomo.models.partition_profile", "ProfilesFile"),
    "plan": ("what `slomo enforce` sets on a server", "slomo.enforce.plan", "EnforcementPlan"),
    "control": ("a loop of `slomo control`", "slomo.workflow.acting.control_file", "ControlFile"),
    "noisy-neighbour": ("a noisy-neighbour test", "slomo.workflow.acting.noisy_neighbour", "NoisyNeighbourFile"),
    "noisy-neighbour-host": ("the same on a real machine", "slomo.workflow.acting.noisy_host", "HostNoiseTest"),
}
#: document -> module and name of a type whose fields it may have, too: loops of `cpu_shares` state chains, not tenants
BESIDE = {"control": ("slomo.vocabulary.chain_file", "ChainsFile")}
#: end of a field's name -> what a plan's author may write for its value (`EnforcementPlan.from_dict` reads it)
WRITTEN = {
    "way_mask": {"type": "string", "pattern": "^(0[xX])?[0-9a-fA-F]{1,60}$"},
    "memory_bandwidth": {"type": "number", "exclusiveMinimum": 0},
}
VERSION = 1


def schema_id(name: str) -> str:
    """Return the ``$id`` of a document's schema."""
    return f"urn:slomo:schema:{name}:{VERSION}"


def document_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document.

    `name`: one of ``DOCUMENTS``. Raises UnknownNameError for another name.
    """
    if name not in DOCUMENTS:
        raise UnknownNameError("document", name, DOCUMENTS)
    title, home, part = DOCUMENTS[name]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_id(name),
        "title": f"{title[0].upper()}{title[1:]}",
    }
    schema = head | msgspec.json.schema(getattr(import_module(home), part))
    if name in BESIDE:
        module, other = BESIDE[name]
        beside = msgspec.json.schema(getattr(import_module(module), other))["$defs"]
        schema["$defs"] = beside | schema["$defs"]
        schema["$defs"][part]["properties"] |= beside[other]["properties"] | schema["$defs"][part]["properties"]
    if name == "plan":
        schema["$defs"] = {key: _as_written(value) for key, value in schema["$defs"].items()}
        schema["$defs"][part]["required"] = []  # the server is this one
        schema["$defs"][part]["properties"]["schema_version"] = {"const": VERSION}
    return schema


def _as_written(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the plan's schema with short forms of masks and bandwidths, and without unknown fields."""
    properties = {
        name: {**value, "anyOf": [*value["anyOf"], *(form for end, form in WRITTEN.items() if name.endswith(end))]}
        if "anyOf" in value
        else value
        for name, value in definition["properties"].items()
    }
    return {**definition, "properties": properties, "additionalProperties": False}
