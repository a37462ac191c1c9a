"""The API reference: every property is described, every body has an example, and examples are sent."""

import copy
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from slomo.service.api.host import ControlBody
from slomo.service.api.routes import OPERATIONS
from slomo.service.door.bodies import PredictionAnswer, PredictionColumns
from slomo.service.door.openapi import EXAMPLES, PARAMETERS, PROPERTIES, document
from tests.service.test_host_doors import host, tree  # noqa: F401 - fixtures

DOCUMENT = document(OPERATIONS)


def test_every_property_and_parameter_is_described() -> None:
    """No name stands alone, and every line of the table is shown."""
    schemas = DOCUMENT["components"]["schemas"]
    names = {
        (name, key): item for name, schema in schemas.items() for key, item in schema.get("properties", {}).items()
    }
    parameters = [
        item for methods in DOCUMENT["paths"].values() for one in methods.values() for item in one["parameters"]
    ]

    assert [where for where, item in names.items() if not item.get("description")] == []
    assert [item["name"] for item in parameters if not item.get("description")] == []
    shown = {
        text
        for (name, key), item in names.items()
        for text in (f"{name}.{key}", key)
        if PROPERTIES.get(text, "").casefold() == item["description"].casefold()
    }
    assert set(PROPERTIES) - shown == set()
    assert set(PARAMETERS) - {item["name"] for item in parameters} == set()


def test_every_body_has_an_example() -> None:
    """As many examples as bodies."""
    bodies = {(item.method, item.path) for item in OPERATIONS if item.body is not None or item.form}

    assert set(EXAMPLES) == bodies


@pytest.mark.parametrize(("method", "path"), [key for key in EXAMPLES if key[1] != "/v1/control"])
def test_examples_are_answered(host: TestClient, method: str, path: str) -> None:  # noqa: F811
    """Each is sent as it stands, and succeeds."""
    servers = [{"name": f"s{number}", "machine": "e5-2620v4"} for number in (1, 2)]
    assert host.post("/v1/cluster/servers", json={"servers": servers}).status_code == 201
    if method == "PATCH":
        assert host.post("/v1/workloads", json=EXAMPLES["POST", "/v1/workloads"]).status_code == 201
    body: dict[str, Any] = copy.deepcopy(EXAMPLES[method, path])
    kind = {"data": body} if path == "/login" else {"json": body}
    answer = host.request(
        method, path.replace("{id}", "1").replace("{node}", "worker-1"), follow_redirects=False, **kind
    )  # type: ignore[arg-type]
    success = next(item.success for item in OPERATIONS if (item.method, item.path) == (method, path))

    assert answer.status_code == success, answer.text


def test_answers_are_as_their_schemas_say(client: TestClient) -> None:
    """Predictions have the types of their schema; nothing that it asks for is missing."""
    one = client.post("/v1/predict", json=EXAMPLES["POST", "/v1/predict"]).json()
    many = client.post("/v1/predict/batch", json=EXAMPLES["POST", "/v1/predict/batch"]).json()

    assert msgspec.convert(one, PredictionAnswer).target == "lpm"
    assert msgspec.convert(many, PredictionColumns).machine == "e5-2620v4"


def test_the_control_example_is_a_loop() -> None:
    """What would take long is decoded, not run."""
    assert msgspec.convert(EXAMPLES["POST", "/v1/control"], ControlBody).steps == 5
