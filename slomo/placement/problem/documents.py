"""Read clusters and requests from YAML or JSON; errors name file, line and field."""

from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from slomo.files.documents import in_document, parse
from slomo.files.opening import read_text
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.entries import ClusterFile, RequestsFile
from slomo.placement.problem.request import Request, numbered, requests_from_dict, unique_requests


def read_cluster(path: str | Path) -> Cluster:
    """Read the servers of a cluster from a YAML or JSON file.

    Raises ConfigurationError, naming file, line and field, for a file that is no cluster; UnknownNameError for a
    machine type there is none of; InvalidValueError for a number that does not fit it.
    """
    return parse_cluster(read_text(path), str(path))


def parse_cluster(text: str, name: str = "cluster") -> Cluster:
    """Convert the text of a YAML or JSON document to a cluster."""
    entries = _checked(text, name, ClusterFile)
    with in_document(name):
        return Cluster.from_dict(entries)


def read_requests(path: str | Path) -> tuple[Request, ...]:
    """Read placement requests from a YAML or JSON file; raises as :func:`read_cluster`."""
    return parse_requests(read_text(path), str(path))


def parse_requests(text: str, name: str = "requests") -> tuple[Request, ...]:
    """Convert the text of a YAML or JSON document to requests."""
    entries = _checked(text, name, RequestsFile)
    with in_document(name):
        return requests_from_dict(entries)


def _checked(text: str, name: str, kind: type[Struct]) -> dict[str, Any]:
    """Return a document's values after checking them against a type."""
    document, first = parse(text, name), kind.__struct_fields__[0]
    begun = isinstance(document.data, dict) and first in document.data
    checked: dict[str, Any] = to_builtins(document.to(kind, None if begun else f"this file begins with `{first}:`"))
    return checked


def read_chains(path: str | Path) -> tuple[RatedChain, ...]:
    """Read chains with rates over time: requests with ``gbps``, or with an offered load."""
    return parse_rated_chains(read_text(path), str(path))


def parse_rated_chains(text: str, name: str = "requests") -> tuple[RatedChain, ...]:
    """Convert the text of a YAML or JSON document to chains with their rates."""
    entries = _checked(text, name, RequestsFile)["requests"]
    with in_document(name):
        made = tuple(RatedChain.from_dict(each) for entry in entries for each in numbered(entry))
        unique_requests(item.request for item in made)
    return made
