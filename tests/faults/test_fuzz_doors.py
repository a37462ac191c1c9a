"""Mutated files given to commands and mutated bodies sent to the service: an answer or an error, never a fault.

`make fuzz` tries many more (``SLOMO_FUZZ`` of each reader, a quarter more of each command and path).
"""

import contextlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.cli.main import main
from slomo.models.library import ModelLibrary
from tests.faults.counts import bounded, note
from tests.faults.readers import PARQUET_MAPPING, Reader, readers
from tests.faults.right_files import POD
from tests.faults.test_fuzz import EXAMPLES, VALUES, as_json, edits, mutated, place_in, quickly, replaced

DOOR_EXAMPLES = EXAMPLES * 5 // 4 if EXAMPLES > 25 else 2
MODELS, ASK = ("--models", "{right}/models"), ("predict", "--target", "lpm", "--with", "nat", "--json")
PLACE = ("place", "batch", "{right}/cluster.yaml", "{right}/requests-json.json", *MODELS)
#: Reader -> commands that read its file: `{file}` is the mutated one, `{right}` the folder of the right ones.
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("machine", ("machine", "show", "{file}", "--json")),
    ("machine", (*ASK, "--machine", "{file}", *MODELS)),
    ("nf", ("nf", "show", "{file}", "--yaml")),
    ("nf-host", ("nf", "show", "{file}", "--json")),
    ("settings", ("--config", "{file}", *ASK, *MODELS)),
    ("requests", ("place", "batch", "{right}/cluster.yaml", "{file}", *MODELS, "--json")),
    ("requests-json", ("place", "batch", "{right}/cluster.yaml", "{file}", *MODELS)),
    ("cluster", ("place", "batch", "{file}", "{right}/requests-json.json", *MODELS, "--json")),
    ("plan", ("enforce", "diff", "{file}", "--backend", "cgroup")),
    (
        "plan-of-decisions",
        ("enforce", "diff", "{file}", "--member", "s1", "--machine", "e5-2620v4", "--backend", "cgroup"),
    ),
    ("ways", (*PLACE, "--profiles", "{file}", "--policy", "resq-greedy")),
    ("snapshot", ("place", "change", "{file}", "at-risk", *MODELS)),
    ("probes", ("probes", "{file}", "--json")),
    ("mapping", ("dataset", "import", "{right}/regex.csv", "--mapping", "{file}", "--out", "{right}/out.csv")),
    ("table", ("dataset", "import", "{file}", "--mapping", "{right}/mapping.json", "--out", "{right}/out.csv")),
    ("dataset-csv", ("dataset", "show", "{file}", "--json")),
    ("dataset-of-others", ("dataset", "show", "{file}", "--json")),
    ("pairs", ("dataset", "import", "{file}", "--machine", "m", "--out", "{right}/out.csv")),
    ("table-parquet", ("dataset", "import", "{file}", "--mapping", "{right}/parquet.json", "--out", "{right}/out.csv")),
    ("mixes", ("predict", "--from", "{file}", "--to", "{right}/told.parquet", "--jobs", "1", *MODELS)),
    ("partitions", ("whatif", "lpm", "--profiles", "{file}", "--json")),
    ("host-nf", ("nf", "show", "{file}")),
    ("dataset-parquet", ("dataset", "show", "{file}")),
)
MIX = {"target": "lpm", "competitors": ["nat", "ids:2"], "coverage": 0.8, "explain": True}
SETTING = {"cores": [0, 1, 2], "weights": [1.0, 2.0, 1.0], "port_gbps": 40.0}
SERVER = {"name": "s9", "machine": "e5-2620v4", "cores_reserved": 1, "labels": {"rack": "b"}, "taints": ["slow"]}
#: Path -> a right body.
BODIES: dict[str, Any] = {
    "/v1/predict": {**MIX, "competitors": ["nat", "ids"], "setting": SETTING, "window_s": 1.0},
    "/v1/predict/batch": {"targets": ["lpm", "nat"], "mixes": [["ids"], []], "machine": "e5-2620v4"},
    "/v1/whatif": {"tenants": ["lpm", "nat", "ids"], "setting": SETTING},
    "/v1/place": {"requests": [{"id": "edge", "nf": "lpm", "slo": {"min_share": 0.7}, "replicas": 2}], "what_if": True},
    "/v1/cluster/servers": {"servers": [SERVER]},
    "/v1/cluster/changes": {"action": "taint", "server": "s1", "taints": ["slow"], "what_if": True},
    "/v1/observations": {"observations": [{"target": "lpm", "throughput_mpps": 4.0, "competitors": ["nat"]}]},
    "/scheduler/filter": {"pod": POD, "nodenames": ["s1", "s2"]},
    "/scheduler/filter-to-bind": {"pod": POD, "nodenames": ["s1", "s2"]},
    "/scheduler/bind": {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "s1"},
    "/scheduler/prioritize": {"pod": POD, "nodenames": ["s1", "s2"]},
    "/scheduler/preempt": {"Pod": POD, "NodeNameToMetaVictims": {"s1": {"Pods": [{"UID": "u"}]}}},
}
changes = st.one_of(edits, st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3 * len(VALUES))))


def changed(content: bytes, text: str | None, change: Any) -> bytes:
    """Return a file or body with its bytes or one of its fields changed."""
    if isinstance(change, list) or text is None:
        return mutated(content, change if isinstance(change, list) else [("flip", change[0], change[1])])
    data = json.loads(text)
    return json.dumps(replaced(data, place_in(data, change[0]), change[1])).encode()


@pytest.fixture(scope="module")
def by_name(tmp_path_factory: pytest.TempPathFactory, toy_library: ModelLibrary) -> dict[str, Reader]:
    """Return the readers; beside what they read stands a right file of each kind."""
    folder = tmp_path_factory.mktemp("doors", numbered=False)
    return {reader.name: reader for reader in readers(folder, toy_library)}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory, by_name: dict[str, Reader]) -> Path:
    """Return a folder with a right file of each kind, and models."""
    folder = tmp_path_factory.getbasetemp() / "doors"
    for reader in by_name.values():
        (folder / f"{reader.name}{reader.suffix}").write_bytes(reader.content)
    (folder / "parquet.json").write_text(json.dumps(PARQUET_MAPPING))
    (folder / "regex.csv").write_text("0.5,2.0\n1.0,3.0\n")
    return folder


def _ended(words: list[str]) -> tuple[int, str]:
    """Return a command's exit code, and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main(words), said.getvalue()


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=lambda item: item if isinstance(item, str) else item[-2])
def test_commands_read_or_refuse_mutated_files(
    name: str, command: tuple[str, ...], right: Path, by_name: dict[str, Reader], tmp_path: Path
) -> None:
    """A command ends with a code of the house, without a traceback, in bounded time and memory."""
    reader, tried = by_name[name], 0
    file = tmp_path / f"e5-2620v4{reader.suffix}"
    words = [word.format(file=file, right=right) for word in command]
    text = as_json(reader)
    file.write_bytes(reader.content)
    assert _ended(words)[0] in (0, 1, 3, 5), _ended(words)[1]

    @quickly(DOOR_EXAMPLES)
    @given(changes)
    def check(change: Any) -> None:
        nonlocal tried
        content = changed(reader.content, text, change)
        file.write_bytes(content)
        tried += 1
        with bounded((words, content[:2000])):
            code, said = _ended(words)
        assert code in (0, 1, 2, 3, 4, 5), (content[:2000], said[-2000:])
        assert "Traceback" not in said, (content[:2000], said[-2000:])

    check()
    note("mutations through the command line", " ".join(command[:2]), tried)


@pytest.fixture(scope="module")
def post(right: Path) -> Iterator[Callable[[str, bytes], Any]]:
    """Return what sends a body to a service in this process."""
    pytest.importorskip("starlette", reason="the service's packages are not installed: pip install 'slomo[service]'")
    with warnings.catch_warnings():  # Starlette 1 would like another package than the client needs
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient
    from slomo.service.api.routes import OPERATIONS
    from slomo.service.application import Service, make_app
    from slomo.service.settings import ServiceSettings

    app = make_app(Service(ServiceSettings(right / "models")), OPERATIONS)
    with TestClient(app, raise_server_exceptions=False) as client:
        servers = {"servers": [{"name": f"s{number}", "machine": "e5-2620v4"} for number in (1, 2)]}
        assert client.post("/v1/cluster/servers", json=servers).status_code == 201
        yield lambda path, body: client.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("path", BODIES)
def test_the_service_answers_or_refuses_mutated_bodies(path: str, post: Callable[[str, bytes], Any]) -> None:
    """A body that is changed in any way is answered or refused as the caller's fault, in bounded time and memory."""
    right_body, tried = json.dumps(BODIES[path]), 0
    answer = post(path, right_body.encode())
    assert answer.status_code in (200, 201), answer.text

    @quickly(DOOR_EXAMPLES)
    @given(changes)
    def check(change: Any) -> None:
        nonlocal tried
        body = changed(right_body.encode(), right_body, change)
        tried += 1
        with bounded((path, body[:2000])):
            answer = post(path, body)
        assert answer.status_code < 500, (body[:2000], answer.text[:2000])

    check()
    note("mutations through HTTP", path, tried)
