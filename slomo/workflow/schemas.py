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
    "noisy-neighbour": ("a noisy-neighbour test", "slomo.workflow.acting.noisy_neighbour", "NoisyNeighbourFile"),
    "noisy-neighbour-host": ("the same on a real machine", "slomo.workflow.acting.noisy_host", "HostNoiseTest"),
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
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_id(name),
        "title": f"{title[0].upper()}{title[1:]}",
    }
    return head | msgspec.json.schema(getattr(import_module(home), part))
