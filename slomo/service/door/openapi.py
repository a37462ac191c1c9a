"""Make the OpenAPI 3.1 document from the operations and from the schemas against which requests are checked."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from slomo.service.door.bodies import ProblemDocument
from slomo.service.door.descriptions import EXAMPLES, PARAMETERS, PROPERTIES
from slomo.service.door.operation import Operation
from slomo.service.door.problems import MEDIA_TYPE, TITLES

Document = dict[str, Any]
#: Error answers that every operation can give: access denied, foreign host name, invalid query, internal error.
_ALWAYS = (400, 401, 403, 421, 422, 500, 503, 504)
_WITH_BODY = (408, 413, 415)
_WITH_WRITE = (409, 412, 429, 507)


def document(operations: Sequence[Operation]) -> Document:
    """Return the OpenAPI document."""
    types = [item for operation in operations for item in (operation.body, operation.answers) if item is not None]
    _, components = msgspec.json.schema_components(
        [*types, ProblemDocument], ref_template="#/components/schemas/{name}"
    )
    for name, schema in components.items():
        _describe(name, schema.get("properties", {}))
    paths: Document = {}
    for operation in operations:
        paths.setdefault(operation.path.replace(":path}", "}"), {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "slomo",
            "version": version("slomo"),
            "summary": "Predicts what network functions lose when they share a server, and places them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(name: str, properties: Document) -> None:
    """Give every property a description: its own or, without one, that of its type or of its name."""
    for key, schema in properties.items():
        texts = [part["description"] for part in (schema, *schema.get("anyOf", ())) if "description" in part]
        texts += [PROPERTIES[known] for known in (f"{name}.{key}", key) if known in PROPERTIES]
        if texts:
            schema["description"] = texts[0][0].upper() + texts[0][1:]


def _operation(item: Operation) -> Document:
    described: Document = {
        "operationId": item.method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", item.path.replace(":path", "")).rstrip("_"),
        "summary": item.summary,
        "tags": [item.tag],
        "parameters": _parameters(item),
        "responses": {str(item.success): _success(item), **_problems(item)},
    }
    if item.scope != "open":
        described["security"] = [{"token": []}, {}]
        described["x-scope"] = item.scope
    if item.body is not None:
        schema = {"$ref": f"#/components/schemas/{item.body.__name__}"}
        described["requestBody"] = _body("application/json", schema, item)
    if item.form:
        fields = {name: {"type": "string", "description": what} for name, what in item.form.items()}
        form = {"type": "object", "properties": fields, "required": list(fields)}
        described["requestBody"] = _body("application/x-www-form-urlencoded", form, item)
    return described


def _body(media_type: str, schema: Document, item: Operation) -> Document:
    content = {"schema": schema, "example": EXAMPLES.get((item.method, item.path), {})}
    return {"required": True, "content": {media_type: content}}


def _parameters(item: Operation) -> list[Document]:
    text = {"type": "string"}
    parameters: list[Document] = [
        {"name": name, "in": "path", "required": True, "description": PARAMETERS.get(name, ""),
         "schema": {**text, "minLength": 1}}
        for name in re.findall(r"{(\w+)(?::path)?}", item.path)
    ]  # fmt: skip
    parameters += [
        {"name": name, "in": "query", "required": False, "description": what, "schema": text}
        for name, what in item.query.items()
    ]
    if item.writes:
        parameters += [
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {**text, "maxLength": 200},
             "description": "A write with the same key happens once; the answer is the first one's."},
            {"name": "If-Match", "in": "header", "required": False, "schema": text,
             "description": "Entity tag of the cluster the decision was made on."},
        ]  # fmt: skip
    return parameters


def _success(item: Operation) -> Document:
    schema: Document = {"type": "object"}
    if item.answers is not None:
        schema = {"$ref": f"#/components/schemas/{item.answers.__name__}"}
    elif item.media_type != "application/json":
        schema = {"type": "string"}
    return {"description": item.summary, "content": {item.media_type: {"schema": schema}}}


def _problems(item: Operation) -> Document:
    codes = {*_ALWAYS, *item.statuses}
    codes |= set(_WITH_BODY) if item.body is not None else set()
    codes |= set(_WITH_WRITE) if item.writes else set()
    content: Document = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    if item.media_type.startswith("text/html"):  # pages report errors as pages
        content[item.media_type] = {"schema": {"type": "string"}}
    problem = {"content": content}
    plain = {202: "Accepted; see Location", 303: "See Location", 304: "Nothing has changed"}
    return {
        str(code): {"description": plain[code]} if code in plain else {"description": TITLES.get(code, ""), **problem}
        for code in sorted(codes)
    }
