"""Documents that have a JSON Schema (draft 2020-12): checked against it, wrong fields told with file and line."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from slomo.errors import ConfigurationError
from slomo.files.documents import parse
from slomo.files.json_text import Position


def parse_document(text: str, name: str) -> tuple[dict[str, Any], Mapping[Position, int]]:
    r"""Parse JSON or YAML; return the mapping and the line of every field.

    Raises ConfigurationError if it is neither, or not a mapping.

    Examples
    --------
    >>> parse_document("a: 1\nb: {c: 2}\n", "x.yaml")[1][("b", "c")]
    2
    """
    document = parse(text, name)
    return document.table(), document.lines


def load_schema(folder: str, name: str) -> dict[str, Any]:
    """Return a JSON Schema shipped in a folder of the vocabulary."""
    text = (resources.files("slomo.vocabulary") / folder / name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def validate(data: Mapping[str, Any], schema: Mapping[str, Any], name: str, lines: Mapping[Position, int]) -> None:
    """Check a document against a JSON Schema.

    Raises
    ------
    ConfigurationError
        Naming file, line, field, what was found and what was needed; fields that are missing beside each other are
        named together.
    """
    import jsonschema

    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(data))
    if not errors:
        return
    # a field that is wrong says more than one that is missing
    wrong = [error for error in errors if error.validator != "required"]
    error = jsonschema.exceptions.best_match(wrong or errors)
    position: Position = tuple(error.absolute_path)
    extra = _unexpected_field(error)
    if extra is not None:
        position = (*position, extra)
    field = ".".join(map(str, position)) or "the document"
    message, hint = f"field '{field}': {error.message}", error.schema.get("description")
    if error.validator == "required":
        message, hint = _missing_fields(error, field)
    raise ConfigurationError(f"{name}:{_line(position, lines)}: {message}", hint=hint)


def _missing_fields(error: Any, field: str) -> tuple[str, str | None]:
    """Return what to say about all fields that one mapping lacks, and what they are."""
    missing = [name for name in error.validator_value if name not in error.instance]
    properties = error.schema.get("properties", {})
    needed = [
        f"{name} ({properties[name]['description']})" for name in missing if properties.get(name, {}).get("description")
    ]
    plural = "s" if len(missing) > 1 else ""
    message = f"field '{field}': lacks the required field{plural} {', '.join(repr(name) for name in missing)}"
    return message, "; ".join(needed) or error.schema.get("description")


def to_yaml(table: Mapping[str, Any], comment: str) -> str:
    """Return the fields of a document as YAML that loads again, without those that say nothing.

    Examples
    --------
    >>> print(to_yaml({"name": "mine", "tags": [], "sockets": 2}, "a machine"), end="")
    # a machine
    name: mine
    sockets: 2
    """
    fields = {
        name: value for name, value in table.items() if value not in (None, "", [], {}) and name != "schema_version"
    }
    return f"# {comment}\n" + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=110)


def _unexpected_field(error: Any) -> str | None:
    if error.validator != "additionalProperties" or not isinstance(error.instance, Mapping):
        return None
    properties = error.schema.get("properties", {})
    return next((str(key) for key in error.instance if key not in properties), None)


def _line(position: Position, lines: Mapping[Position, int]) -> int:
    while position and position not in lines:
        position = position[:-1]
    return lines.get(position, 1)
