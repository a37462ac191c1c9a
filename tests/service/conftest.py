"""A service over the toy's models, called without a network."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the service's packages are not installed: pip install 'slomo[service]'")

with warnings.catch_warnings():  # Starlette 1 would like another package than the client needs
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.service.api.every import OPERATIONS
from slomo.service.application import Service, make_app
from slomo.service.settings import ServiceSettings
from slomo.vocabulary.defaults import DEFAULT_MODEL

SERVERS = [{"name": f"s{number}", "machine": "e5-2620v4"} for number in range(1, 5)]
Started = Callable[..., TestClient]


@pytest.fixture(scope="session")
def toy_library(toy_profile: ProfileDataset) -> ModelLibrary:
    """Return models of the toy of the two families that the service's tests ask for; all would take much longer."""
    from slomo.training.training import train

    return train(toy_profile, models=[DEFAULT_MODEL, "dobrescu"])


@pytest.fixture(scope="session")
def models_folder(toy_library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the toy's models as files."""
    return toy_library.save(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture
def start(models_folder: Path) -> Iterator[Started]:
    """Return what starts a service with settings of one's own."""
    open_: list[TestClient] = []

    def started(**settings: Any) -> TestClient:
        service = Service(ServiceSettings(settings.pop("models", models_folder), **settings))
        client = TestClient(make_app(service, OPERATIONS), raise_server_exceptions=False)
        client.__enter__()
        client.service = service  # type: ignore[attr-defined]
        open_.append(client)
        return client

    yield started
    for client in open_:
        client.__exit__(None, None, None)


@pytest.fixture
def client(start: Started) -> TestClient:
    """Return a client of a service with four empty servers."""
    made = start()
    assert made.post("/v1/cluster/servers", json={"servers": SERVERS}).status_code == 201
    return made
