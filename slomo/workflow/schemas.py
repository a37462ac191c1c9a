"""The JSON Schema (draft 2020-12) of every document that people write for slomo, each with its ``$id``.

What a reader checks is what the schema says: documents become values of the types named here (msgspec writes their
schemas), or are checked against the schema itself.
"""

import json
from importlib import import_module
from importlib.resources import files
from typing import Any

import msgspec

from slomo.errors import UnknownNameError

#: document -> what it is, then where its type (module, name) or its schema (package, file) is.
DOCUMENTS: dict[str, tuple[str, str, str]] = {
    "machine": ("a machine", "slomo.vocabulary", "machines/schema.json"),
    "network-function": ("a network function", "slomo.vocabulary", "network_functions/schema.json"),
    "host-network-function": (
        "its section `host:`, for real machines",
        "slomo.vocabulary",
        "network_functions/host.schema.json",
    ),
    "chains": ("service chains on shared cores", "slomo.vocabulary", "chains/schema.json"),
    "mapping": ("columns of an imported table", "slomo.records.importing", "mapping.schema.json"),
    "host": ("a real machine as testbed", "slomo.testbed.host.host_file", "SCHEMA"),
    "hosts": ("hosts of a fleet", "slomo.fleet.hosts", "Fleet"),
    "settings": ("slomo.toml", "slomo.config", "Settings"),
    "cluster": ("servers", "slomo.placement.problem.entries", "ClusterFile"),
    "requests": ("requests and chains to place", "slomo.placement.problem.entries", "RequestsFile"),
    "way-profiles": ("profiles over cache ways", "slomo.placement.problem.way_profiles", "WayProfilesFile"),
    "resource-table": ("NUMASFP's lookup table", "slomo.placement.chains.resource_table", "ResourceTableFile"),
    "noisy-neighbour": ("a noisy-neighbour test", "slomo.workflow.acting.noisy_neighbour", "NoisyNeighbourFile"),
    "noisy-neighbour-host": ("the same on a real machine", "slomo.workflow.acting.noisy_host", "HostNoiseFile"),
}
VERSION = 1


def schema_id(name: str) -> str:
    """Return the ``$id`` of a document's schema.

    Examples
    --------
    >>> schema_id("cluster")
    'urn:slomo:schema:cluster:1'
    """
    return f"urn:slomo:schema:{name}:{VERSION}"


def document_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document.

    `name`: one of ``DOCUMENTS``. Raises UnknownNameError for another name.

    Examples
    --------
    >>> document_schema("cluster")["$id"]
    'urn:slomo:schema:cluster:1'
    """
    if name not in DOCUMENTS:
        raise UnknownNameError("document", name, DOCUMENTS)
    title, home, part = DOCUMENTS[name]
    schema: dict[str, Any]
    if part.endswith(".json"):
        schema = json.loads((files(home) / part).read_text(encoding="utf-8"))
        return schema
    found = getattr(import_module(home), part)
    if isinstance(found, dict):
        return found
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_id(name),
        "title": f"{title[0].upper()}{title[1:]}",
    }
    return head | msgspec.json.schema(found)
