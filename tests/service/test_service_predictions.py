"""The service predicts what the library predicts, and says in one shape what it cannot."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from slomo.models.intervals import ConformalCalibration
from slomo.models.library import ModelLibrary
from slomo.service.api.routes import OPERATIONS
from slomo.service.door.endpoint import _check_keys
from slomo.service.door.operation import Operation
from slomo.service.door.problems import Problem
from slomo.workflow.predict import predict

from .conftest import Started

WRONG = "invalid-value"
NAMES = ("lpm", "nat", "ids")


def test_service_answers_what_the_library_answers(client: TestClient, toy_library: ModelLibrary) -> None:
    """One question gets the same numbers from the service as from the library, to the last bit."""
    dice = np.random.default_rng(4)
    for _ in range(25):
        target, beside = str(dice.choice(NAMES)), [str(n) for n in dice.choice(NAMES, size=dice.integers(0, 6))]
        own = predict(target, beside, toy_library).to_dict()
        told = client.post("/v1/predict", json={"target": target, "competitors": beside}).json()

        same = (
            "throughput_mpps",
            "interval",
            "solo_mpps",
            "slowdown",
            "verdict",
            "reasons",
            "workloads",
            "competitors",
        )
        assert {key: told[key] for key in same} == {key: own[key] for key in same}


@pytest.mark.parametrize(
    "extra", [{"method": "composed"}, {"model": "dobrescu"}, {"offered_mpps": 1.0}, {"explain": True}]
)
def test_questions_that_are_not_plain_get_the_librarys_answer(
    client: TestClient, toy_library: ModelLibrary, extra: dict[str, object]
) -> None:
    """Equilibria, loads and explanations come from the library's own verb."""
    if "offered_mpps" in extra:
        told = client.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"], **extra})
        assert told.json()["throughput_mpps"] <= 1.0
        return
    options = {key: value for key, value in extra.items() if key != "explain"}
    own = predict("lpm", ["nat"], toy_library, **options).to_dict()  # type: ignore[arg-type]
    told = client.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"], **extra}).json()

    assert told["throughput_mpps"] == own["throughput_mpps"]
    assert (told["explanation"] is not None) == ("explain" in extra)


def test_verdicts_are_counted_for_prometheus(start: Started, toy_library: ModelLibrary, tmp_path: Path) -> None:
    """Every predicted function counts by its verdict, cached answers, columns and what-ifs included."""
    few = ConformalCalibration(np.linspace(-1.0, 1.0, 8), "mixes")
    doubtful = ModelLibrary(
        replace(each, calibration=dict.fromkeys(each.calibration, few), response=None)
        if each.workload.nf == "lpm"
        else each
        for each in toy_library.values()
    )
    client = start(models=doubtful.save(tmp_path / "models"))
    question = {"target": "lpm", "competitors": ["nat"], "method": "composed"}
    assert [client.post("/v1/predict", json=question).json()["verdict"] for _ in range(2)] == ["unknown"] * 2
    assert client.post("/v1/predict/batch", json={"targets": ["lpm"] * 2, "mixes": [["nat"], []]}).status_code == 200
    assert client.post("/v1/whatif", json={"tenants": ["lpm", "ids"]}).status_code == 200
    counts = dict(re.findall(r'slomo_predictions_total\{verdict="(\w+)"\} (\d+)', client.get("/metrics").text))
    assert counts["unknown"] == "4"
    assert sum(map(int, counts.values())) == 6


def test_a_cached_answer_is_counted_again(client: TestClient) -> None:
    """A question that was answered before costs no prediction, and counts."""
    for _ in range(3):
        assert client.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"]}).status_code == 200
    assert re.search(r"slomo_predictions_total\{verdict=\"\w+\"\} 3\n", client.get("/metrics").text)


def test_each_mix_of_a_batch_is_bounded(client: TestClient) -> None:
    """A mix is no longer than the competitors of a single question may be; the row that is too long is named."""
    mixes = [["nat"], ["nat"] * 1025]
    refused = client.post("/v1/predict/batch", json={"targets": ["lpm"] * 2, "mixes": mixes})
    assert refused.status_code == 422
    assert "field 'mixes.1': got a list of 1025" in refused.json()["detail"]


def test_batch_is_the_same_as_one_by_one(client: TestClient) -> None:
    """Columns of a batch hold what single questions are answered."""
    targets, mixes = ["lpm", "nat", "ids", "lpm", "lpm"], [["nat", "ids"], [], ["ids"] * 5, ["lpm"], ["ids:2"]]
    columns = client.post("/v1/predict/batch", json={"targets": targets, "mixes": mixes}).json()

    for row, (target, mix) in enumerate(zip(targets, mixes, strict=True)):
        one = client.post("/v1/predict", json={"target": target, "competitors": mix}).json()
        assert columns["throughput_mpps"][row] == one["throughput_mpps"]
        assert columns["slowdown"][row] == one["slowdown"]
        assert [columns["low_mpps"][row], columns["high_mpps"][row]] == one["interval"]
        assert columns["unit"][row] == one["unit"]
        assert columns["verdict"][row] == one["verdict"]
        assert columns["reasons"][row] == one["reasons"]


def test_every_answer_names_models_and_request(client: TestClient) -> None:
    """A request id of the caller comes back, and the fingerprint is that of the models in force."""
    answer = client.post("/v1/predict", json={"target": "lpm"}, headers={"X-Request-Id": "mine-1"})

    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.json()["fingerprint"] == client.get("/v1/models").json()["fingerprint"]
    assert client.get("/healthz", headers={"X-Request-Id": "no\tgood " * 30}).headers["x-request-id"] != "no"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ('{"target": "lpn"}', 422, "unknown-name"),
        ('{"target": "lpm", "competitors": ["nat", "nat", "nat", "nat", "ids", "ids", "ids", "ids"]}', 422, WRONG),
        ('{"target": "lpm", "coverage": 2}', 422, "schema"),
        ('{"target": "lpm", "colour": "red"}', 422, "schema"),
        ('{"target": ', 400, "malformed"),
        ('{"target": "../../etc/passwd"}', 422, WRONG),
        ('{"target": "lpm", "model": "nope"}', 422, "unknown-name"),
        ('{"target": "lpm", "machine": "/etc/passwd.yaml"}', 422, "unknown-name"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_problem_document(client: TestClient, body: str, status: int, kind: str) -> None:
    """Errors have status, type, detail and the library's hint."""
    answer = client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:slomo:problem:{kind}"
    assert answer.json()["status"] == status


def test_a_wrong_field_is_told_with_the_fields_there_are(client: TestClient) -> None:
    """A body is refused in the words of files: the field, what is wrong with it, and what it may be."""
    unknown = client.post("/v1/predict", json={"target": "lpm", "with": ["nat"]}).json()["detail"]
    wrong = client.post("/v1/predict", json={"target": "lpm", "coverage": "most"}).json()["detail"]

    assert unknown.startswith("the body: field 'with': is not known; fields: target, competitors")
    assert wrong.startswith("the body: field 'coverage': got 'most', needed a number")


@pytest.mark.parametrize(
    ("body", "detail", "hint"),
    [
        ("", "the body is empty", "/openapi.json"),
        ("{}", "the body: lacks the required field 'target'", "/openapi.json"),
        ('{"target": null}', "field 'target': got nothing, needed text", "/openapi.json"),
        ('{"target": "lpm", "coverage": 90}', "got 90, needed a number < 1.0", "90 % is written 0.9"),
        ('{"target": "lpm", "offered_mpps": 1e999}', "a number that is too large", "308 digits"),
        ('{"target": "lpm", "offered_mpps": 1e300}', "field 'offered_mpps': got 1e+300", "/openapi.json"),
        ('{"target": "lpm", "offered_mpps": NaN}', "the body is no JSON", "UTF-8"),
        ('{"target": "' + "[" * 40 + '"}', "'[[[[", "NF:count"),
        ('{"target": ' + "[" * 40 + "]" * 40 + "}", "nested 41 deep, at most 32", "/openapi.json"),
        ('{"target": "lpm@63B"}', "packet_size_b is 63", "/openapi.json"),
        ('{"target": "lpm", "model": "a\u202eb"}', "'a\\u202eb'", "Known"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(client: TestClient, body: str, detail: str, hint: str) -> None:
    """Whatever is wrong with a body, the answer says what, and one action."""
    answer = client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)
    assert detail in answer.json()["detail"], answer.json()
    assert hint in answer.json()["hint"], answer.json()


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ('{"target": "lpm",\n "target": "nat"}', "2:2: field 'target'"),
        ('{"target": "lpm", "competitors": [], "t\\u0061rget": "lpm"}', "1:38: field 'target'"),
        ('{"target": "lpm", "competitors": ["\\u003a"], "competitors": []}', "field 'competitors'"),
    ],
)
def test_a_repeated_field_is_refused(client: TestClient, body: str, where: str) -> None:
    """A body with a key twice is refused with the key's place, as a file is; neither value is used silently."""
    answer = client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400
    assert f"{where} occurs twice" in answer.json()["detail"]


_KEYS = st.sampled_from(["a", "b", ":", 'a"', "\\", "\\u003a", "é"])
_BODIES = st.recursive(
    st.one_of(_KEYS.map(json.dumps), st.sampled_from(["1", "null", '"\\u003a"', '"\\u003A:"'])),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(_KEYS.map(json.dumps), parts), max_size=3).map(
            lambda pairs: "{" + " ,".join(f"{key} :{value}" for key, value in pairs) + "}"
        ),
    ),
)


@given(_BODIES)
def test_whatever_a_body_holds_repeated_fields_are_found(body: str) -> None:
    """The quick comparison of colons refuses exactly the bodies in which Python's parser meets a key twice."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated |= len(dict(pairs)) < len(pairs)
        return dict(pairs)

    json.loads(body, object_pairs_hook=look)
    with pytest.raises(Problem, match="occurs twice") if repeated else nullcontext():
        _check_keys(body.encode())


@pytest.mark.parametrize("body", [b"", b"null", b"[", b"1e999", b"\xff", b"[" * 40 + b"]" * 40])
@pytest.mark.parametrize("operation", [item for item in OPERATIONS if item.body is not None], ids=lambda o: o.path)
def test_every_operation_refuses_a_body_with_a_hint(client: TestClient, operation: Operation, body: bytes) -> None:
    """Broken bodies are refused alike by every operation, with a hint."""
    path = re.sub(r"{\w+}", "x", operation.path)
    answer = client.request(operation.method, path, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)
    assert answer.json()["hint"]


def test_a_misspelt_field_of_the_query_is_refused(client: TestClient) -> None:
    """An operation that takes fields in the query refuses others; one without looks at none."""
    told = client.get("/v1/cluster/history?hour=6").json()

    assert (told["status"], told["detail"]) == (422, "unknown query field 'hour'")
    assert "did you mean 'hours'" in told["hint"]
    assert client.get("/healthz?probe=1").status_code == 200


def test_one_wrong_question_does_not_spoil_those_beside_it(client: TestClient) -> None:
    """Questions that are answered together fail one by one."""
    import asyncio

    from slomo.errors import SlomoError
    from slomo.service.door.bodies import QuestionBody

    answers = client.service.model_store.answers  # type: ignore[attr-defined]

    async def both() -> list[object]:
        good, crowded = QuestionBody("lpm", ["nat"]), QuestionBody("lpm", ["nat"] * 9)
        assert answers.is_plain(good)
        assert answers.is_plain(crowded)
        return await asyncio.gather(answers.ask(good, b"1"), answers.ask(crowded, b"2"), return_exceptions=True)

    first, second = asyncio.run(both())

    assert isinstance(first, bytes)
    assert isinstance(second, SlomoError)


def test_what_if_says_who_costs_whom(client: TestClient) -> None:
    """Costs are what a tenant would gain if another left; nobody costs itself anything."""
    told = client.post("/v1/whatif", json={"tenants": ["lpm", "nat:2", "ids"]}).json()

    assert [item["target"] for item in told["tenants"]] == ["lpm", "nat", "nat", "ids"]
    assert all(told["costs_mpps"][i][i] == 0.0 for i in range(4))
    assert sum(map(sum, told["costs_mpps"])) > 0.0
