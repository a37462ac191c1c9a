"""Who may do what, limits of a request, and that no question whatsoever breaks the service."""

import gc
import json
import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.contentiousness import ContentiousnessProfile
from slomo.models.intervals import ConformalCalibration
from slomo.models.nf_model import NFModel
from slomo.prediction.predictor import Predictor
from slomo.service.door.access import read_tokens
from slomo.service.door.bodies import Questions
from slomo.service.knowledge.model_store import ModelStore, give_memory_back
from slomo.service.server import serve
from slomo.service.settings import ServiceSettings
from tests.service.conftest import SERVERS, Started

READ, SCHEDULE, ADMIN = "r" * 20, "s" * 20, "a" * 20


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Return a token file."""
    path = tmp_path / "tokens"
    path.write_text(f"# who\ngrafana read {READ}\nkube schedule {SCHEDULE}\noperator admin {ADMIN}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def bearer(token: str) -> dict[str, str]:
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"ops write {READ}", "the second word is no scope, needed read"),
        (f"ops {READ} read", "the second word is no scope, needed read"),
        ("ops read short", "5 characters, needed 16"),
        ("x", "1 words"),
    ],
)
def test_a_wrong_line_of_the_token_file_is_told(tmp_path: Path, line: str, said: str) -> None:
    """The line and what is wrong in it are told, the secret is not."""
    path = tmp_path / "tokens"
    path.write_text(f"\n{line}\n")
    path.chmod(0o600)

    with pytest.raises(ConfigurationError, match=f"line 2: .*{said}") as told:
        read_tokens(path)
    assert READ not in str(told.value)


def test_scopes_read_and_change(start: Started, tokens: Path) -> None:
    """Without a token nothing, with read no change and no place held, with admin all; probes are open."""
    client = start(token_file=tokens)
    body = {"servers": SERVERS}
    question = {"Pod": {}, "NodeNames": ["n"]}
    for verb in ("filter", "prioritize"):
        codes = {
            token: client.post(f"/scheduler/{verb}", json=question, headers=bearer(token)).status_code
            for token in (READ, SCHEDULE, ADMIN)
        }
        assert codes == {READ: 403, SCHEDULE: 200, ADMIN: 200}
    assert client.post("/v1/cluster/servers", json=body, headers=bearer(SCHEDULE)).status_code == 403

    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/cluster").status_code == 401
    assert client.get("/v1/cluster", headers=bearer("wrong" * 5)).status_code == 401
    assert client.get("/v1/cluster", headers=bearer(READ)).status_code == 200
    assert client.post("/v1/cluster/servers", json=body, headers=bearer(READ)).status_code == 403
    assert client.post("/v1/cluster/servers", json=body, headers=bearer(ADMIN)).status_code == 201
    assert client.get("/", follow_redirects=False).headers["location"] == "/login"


def test_a_browser_enters_with_a_cookie_that_no_script_reads(start: Started, tokens: Path) -> None:
    """The form takes a token and sets a cookie; a wrong one is refused."""
    client = start(token_file=tokens)
    assert client.post("/login", content="token=nope").status_code == 401
    answer = client.post("/login", content=f"token={READ}", follow_redirects=False)

    assert answer.status_code == 303
    assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    assert client.get("/").status_code == 200


def test_pages_of_strangers_change_nothing(client: TestClient) -> None:
    """A foreign Origin, and a foreign Host without tokens, are refused."""
    body = {"requests": [{"id": "x", "nf": "lpm"}]}

    assert client.post("/v1/place", json=body, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/v1/cluster", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/v1/cluster", headers={"Host": "127.0.0.1:8080"}).status_code == 200
    assert client.post("/v1/place", json=body, headers={"Origin": "http://testserver"}).status_code == 200


@pytest.mark.parametrize("line", ["grafana read short", "a root " + "x" * 20, "only-one", ""])
def test_a_token_file_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    """Short secrets, unknown scopes, and files without a token."""
    path = tmp_path / "tokens"
    path.write_text(line, encoding="utf-8")
    path.chmod(0o600)

    with pytest.raises(ConfigurationError):
        read_tokens(path)


def test_a_token_file_that_everybody_reads_is_refused(tokens: Path) -> None:
    """Secrets belong to their owner."""
    tokens.chmod(0o644)

    with pytest.raises(ConfigurationError, match="other users"):
        read_tokens(tokens)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_beyond_loopback_needs_tokens_or_certificates(host: str) -> None:
    """The service does not listen for everybody by accident."""
    with pytest.raises(InvalidValueError, match="let every caller in"):
        ServiceSettings(Path("models"), host=host)


def test_refused_tokens_are_logged(start: Started, tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of reads, too; never the token itself, and what is answered is not logged."""
    client = start(token_file=tokens)
    with caplog.at_level("INFO", "slomo.service.audit"):
        client.get("/v1/cluster", headers=bearer("wrong" * 5))
        client.get("/v1/cluster", headers=bearer(READ))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "slomo.service.audit"]
    assert line.endswith(" GET '/v1/cluster' by 'nobody': 401")
    assert "wrong" not in line


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"evict": "on"}, "--evict on was given, which has no effect without --kubernetes"),
        ({"policies": Path("policy.yaml")}, "--policies was given"),
        ({"host_machine": "e5-2620v4"}, "--host-machine was given"),
        ({"kubernetes": "localhost:8080"}, "'localhost:8080' is no address of an API server"),
        ({"kubernetes": "http://"}, "is no address of an API server"),
        ({"kubernetes": "ftp://api"}, "is no address of an API server"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], told: str) -> None:
    """An option without the one that it belongs to, or an address of no API server, is not passed over."""
    with pytest.raises(InvalidValueError, match=told):
        ServiceSettings(Path("models"), **wrong)


def test_what_cannot_be_read_is_told_before_the_port_is_open(models_folder: Path, tmp_path: Path) -> None:
    """No certificate, and no pod to be in: one sentence, not a traceback of the server below."""
    wrong = tmp_path / "no.pem"
    wrong.write_text("no certificate", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="TLS cannot begin with certificate"):
        serve(ServiceSettings(models_folder, port=0, certificate=wrong, key=wrong))
    with pytest.raises(ConfigurationError, match="this is no pod"):
        serve(ServiceSettings(models_folder, port=0, kubernetes="in-cluster"))


def test_limits_of_body_batch_depth_and_type(start: Started) -> None:
    """Too large, too many, too deep, not JSON: each has its code."""
    client = start(body_limit_b=20_000, batch_limit=10)
    json_type = {"Content-Type": "application/json"}

    assert client.post("/v1/predict", content=b"x" * 20_001, headers=json_type).status_code == 413
    many = {"targets": ["lpm"] * 11, "mixes": [[]] * 11}
    assert client.post("/v1/predict/batch", json=many).status_code == 413
    assert client.post("/v1/predict", content=b'{"a":' * 500 + b"1" + b"}" * 500, headers=json_type).status_code == 422
    assert client.post("/v1/predict", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.put("/v1/predict").status_code == 405
    assert client.get("/nowhere").json()["status"] == 404


def test_models_are_exchanged_whole_or_not_at_all(start: Started, models_folder: Path, tmp_path: Path) -> None:
    """A damaged library does not take the place of one that works; a new one does, and has its own fingerprint."""
    import asyncio

    folder = tmp_path / "models"
    shutil.copytree(models_folder, folder)
    client = start(models=folder)
    service: Any = client.service  # type: ignore[attr-defined]
    before = client.get("/readyz").json()["fingerprint"]
    index = folder / "library.json"
    good = index.read_text(encoding="utf-8")
    index.write_text(good[:50], encoding="utf-8")
    assert not asyncio.run(service.look_at_models())
    assert client.get("/readyz").json()["status"] == "degraded"
    assert client.post("/v1/predict", json={"target": "lpm"}).json()["fingerprint"] == before
    rows = json.loads(good)
    rows["models"] = [row for row in rows["models"] if "ids" not in row["workload"]]
    index.write_text(json.dumps(rows), encoding="utf-8")
    assert asyncio.run(service.look_at_models())

    assert client.get("/readyz").json()["status"] == "ready"
    assert client.post("/v1/predict", json={"target": "lpm"}).json()["fingerprint"] != before
    assert client.post("/v1/predict", json={"target": "ids"}).status_code == 422


def test_models_that_were_exchanged_are_forgotten(models_folder: Path, tmp_path: Path) -> None:
    """Nothing that answered by them keeps them, or parts: the memory of a service does not grow with every exchange."""
    kinds = (NFModel, ContentiousnessProfile, ConformalCalibration)
    others = {id(item) for item in gc.get_objects() if issubclass(type(item), kinds)}
    folder = tmp_path / "models"
    shutil.copytree(models_folder, folder)
    store = ModelStore(folder)
    store.answers.columns(Questions(["lpm"], [["nat"]], machine="e5-2620v4"))
    Predictor(store.answers.library, "e5-2620v4").predict("lpm", ["nat"])
    before = [
        weakref.ref(item) for item in gc.get_objects() if issubclass(type(item), kinds) and id(item) not in others
    ]
    assert len(before) >= 9
    index = folder / "library.json"
    rows = json.loads(index.read_text(encoding="utf-8"))
    rows["models"] = [row for row in rows["models"] if "ids" not in row["workload"]]
    index.write_text(json.dumps(rows), encoding="utf-8")
    assert store.refresh()
    give_memory_back()

    assert [model for model in before if model() is not None] == []


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["lpm", "nat:2", "@"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def documented(schema: dict[str, Any], path: str, method: str) -> set[int]:
    """Return the codes an operation may answer with."""
    return {int(code) for code in schema["paths"][path][method]["responses"]}


@settings(max_examples=int(os.environ.get("SLOMO_FUZZ", "40")), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_no_question_breaks_the_service(fuzzed: TestClient, data: st.DataObject) -> None:
    """Bodies half like the schema and half not are answered with documented codes, never with a fault.

    SLOMO_FUZZ sets how many; benchmarks/service_robust.py lets schemathesis ask 10 000.
    """
    schema = fuzzed.get("/openapi.json").json()
    path, method = data.draw(st.sampled_from([(p, m) for p, item in schema["paths"].items() for m in item]))
    if path.endswith("/events"):
        return
    body, kind = None, "application/json"
    reference = schema["paths"][path][method].get("requestBody")
    if reference is not None:
        kind, described = next(iter(reference["content"].items()))  # the form that logs in is no JSON
        named = described["schema"].get("$ref", "").rsplit("/", 1)[-1]
        fields = list(schema["components"]["schemas"].get(named, described["schema"]).get("properties", {})) or ["x"]
        body = data.draw(st.dictionaries(st.sampled_from(fields), ANYTHING) | ANYTHING)
    filled = path
    while "{" in filled:
        begin, end = filled.index("{"), filled.index("}")
        filled = (
            filled[:begin]
            + data.draw(st.sampled_from(["lpm", "1", "%00", "..%2f..", "s1", "x" * 50]))
            + filled[end + 1 :]
        )
    headers = {"Content-Type": kind}
    raw = json.dumps(body).encode()
    answer = fuzzed.request(method.upper(), filled, content=raw, headers=headers, follow_redirects=False)

    assert answer.status_code in documented(schema, path, method)
    assert answer.status_code < 500


@pytest.fixture(scope="module")
def fuzzed(models_folder: Path) -> Any:
    """Return a client of one service for all examples."""
    from slomo.service.api.routes import OPERATIONS
    from slomo.service.application import Service, make_app

    with TestClient(
        make_app(Service(ServiceSettings(models_folder)), OPERATIONS), raise_server_exceptions=False
    ) as made:
        made.post("/v1/cluster/servers", json={"servers": SERVERS})
        yield made
