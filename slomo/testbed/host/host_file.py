"""A real testbed described in a file: which cores, counters, traffic generator and settings a campaign uses.

What `HostTestbed` takes as arguments, for those who work at the command line; a rack is described once and kept beside
its machine file.
"""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from slomo.files.opening import read_text
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.testbed.host.traffic.place import Place
from slomo.testbed.host.traffic.registry import GENERATORS, make_generator
from slomo.vocabulary.documents import parse_document, validate
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction

_NUMBER = {"type": ["number", "boolean"]}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:slomo:schema:host:1",
    "title": "A host as testbed",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "cores": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0},
            "minItems": 1,
            "description": "CPUs, the target's first, then the competitors'",
        },
        "counters": {
            "type": "string",
            "description": "pcm, perf, resctrl, pqos, several joined by +, or probe; the first that works if left out",
        },
        "settings": {
            "type": "object",
            "additionalProperties": False,
            "properties": {field.name: _NUMBER for field in fields(HostSettings)},
            "description": f"fields of HostSettings: {', '.join(field.name for field in fields(HostSettings))}",
        },
        "generator": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"enum": sorted(GENERATORS)}, "place": {"type": "string"}},
            "description": f"name ({', '.join(sorted(GENERATORS))}), settings of that generator, place: USER@HOST",
        },
    },
}


def load_host(
    path: str | Path, machine: str | Machine | None = None, network_functions: Iterable[NetworkFunction] = ()
) -> HostTestbed:
    r"""Return the testbed a file describes.

    Raises ConfigurationError for a file that cannot be read, or a wrong field, with file, line and field;
    InvalidValueError, UnknownNameError, TestbedError for values this host or the generator does not take.

    Parameters
    ----------
    path : path
        YAML file with any of `cores`, `counters`, `settings` (see `HostSettings`) and `generator` (`name`, and the
        arguments of its class).
    machine : str or Machine, optional
        What the measurements are filed under.
    network_functions : iterable of NetworkFunction
        NFs of one's own.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "host.yaml"
    ...     _ = file.write_text("counters: probe\nsettings: {window_s: 1.0}\n")
    ...     load_host(file).settings.window_s
    1.0
    """
    file = Path(path)
    data, lines = parse_document(read_text(file), str(file))
    validate(data, SCHEMA, str(file), lines)
    return HostTestbed(
        machine,
        network_functions,
        cores=data.get("cores"),
        counters=data.get("counters"),
        settings=HostSettings(**data.get("settings", {})),
        generator=_generator(dict(data["generator"])) if "generator" in data else None,
    )


def _generator(given: dict[str, Any]) -> TrafficGenerator:
    if "place" in given:
        given["place"] = Place(given["place"])
    return make_generator(given.pop("name"), **given)
