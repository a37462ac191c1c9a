"""A service answers for the machines that its models were measured on; what is of another of the name is refused."""

import asyncio
import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from slomo.errors import ConfigurationError
from slomo.models.library import ModelLibrary
from tests.models.test_identity import MACHINE, OTHERS
from tests.service.conftest import SERVERS, Started


def _measured_on(library: ModelLibrary, fingerprint: str) -> ModelLibrary:
    """Return the models as if measured on a machine."""
    return ModelLibrary(
        [
            dataclasses.replace(model, manifest={**model.manifest, "machine_fingerprint": fingerprint})
            for model in library.values()
        ]
    )


@pytest.fixture(scope="module")
def models(toy_library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return models that say what they were measured on."""
    return _measured_on(toy_library, MACHINE.fingerprint).save(tmp_path_factory.mktemp("told") / "models")


def test_outcomes_of_other_machines_are_refused(start: Started, models: Path) -> None:
    """Twenty machines of the name: no outcome of theirs is kept, and each is answered with both fingerprints."""
    client = start(models=models)
    seen = {"target": "lpm", "machine": MACHINE.name, "throughput_mpps": 4.0}
    rows = [{**seen, "machine_fingerprint": other.fingerprint} for other in OTHERS]
    told = client.post("/v1/observations", json={"observations": [*rows, seen]}).json()
    assert (told["kept"], told["refused"]) == (1, len(OTHERS))
    for row, other in zip(told["observations"], OTHERS, strict=False):
        assert other.fingerprint in row["error"]
        assert MACHINE.fingerprint in row["error"]


def test_models_of_other_machines_never_come_into_force(
    start: Started, toy_library: ModelLibrary, models: Path, tmp_path: Path
) -> None:
    """A library in the folder that was measured on another machine of the name is a fault; the old one answers."""
    import shutil

    folder = Path(shutil.copytree(models, tmp_path / "models"))
    client = start(models=folder)
    service: Any = client.service  # type: ignore[attr-defined]
    before = client.get("/readyz").json()["fingerprint"]
    for other in OTHERS:
        shutil.rmtree(folder)
        _measured_on(toy_library, other.fingerprint).save(folder)
        assert not asyncio.run(service.look_at_models())
        assert other.fingerprint in service.model_store.fault
        assert MACHINE.fingerprint in service.model_store.fault
    assert client.post("/v1/predict", json={"target": "lpm"}).json()["fingerprint"] == before


def test_a_state_of_other_machines_is_not_taken_up(start: Started, models: Path, tmp_path: Path) -> None:
    """What was placed, or seen, on another machine of the name is not taken for this one's after a restart."""
    state = tmp_path / "state.sqlite"
    client = start(models=models, state=state)
    assert client.post("/v1/cluster/servers", json={"servers": SERVERS[:1]}).status_code == 201
    seen = {"target": "lpm", "machine": MACHINE.name, "throughput_mpps": 4.0}
    assert client.post("/v1/observations", json={"observations": [seen]}).json()["kept"] == 1
    client.__exit__(None, None, None)

    def rewritten(fingerprint: str) -> None:
        with sqlite3.connect(state) as connection:
            for table in ("cluster", "observations"):
                (held,) = connection.execute(f"SELECT document FROM {table}").fetchone()
                document = {**json.loads(held), "machine_fingerprint": fingerprint}
                connection.execute(f"UPDATE {table} SET document = ?", (json.dumps(document),))

    for other in OTHERS:
        rewritten(other.fingerprint)
        with pytest.raises(ConfigurationError) as told:
            start(models=models, state=state)
        assert MACHINE.fingerprint in told.value.message
        assert other.fingerprint in told.value.message
    with sqlite3.connect(state) as connection:
        connection.execute("DELETE FROM cluster")
    assert start(models=models, state=state).get("/v1/drift").json()["errors"] == []
