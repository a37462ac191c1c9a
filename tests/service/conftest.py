"""A service over the toy's models, called without a network."""

import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the service's packages are not installed: pip install 'slomo[service]'")

with warnings.catch_warnings():  # Starlette 1 would like another package than the client needs
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.service.api.routes import OPERATIONS
from slomo.service.application import Service, make_app
from slomo.service.door.openapi import EXAMPLES
from slomo.service.history import point
from slomo.service.settings import ServiceSettings
from slomo.service.state import journal
from slomo.service.state.store import Store
from slomo.vocabulary.defaults import FORMER_DEFAULT
from tests.conftest import few_steps

SERVERS = [{"name": f"s{number}", "machine": "e5-2620v4"} for number in range(1, 5)]
Started = Callable[..., TestClient]


@pytest.fixture(scope="session")
def toy_library(toy_profile: ProfileDataset) -> ModelLibrary:
    """Return models of the toy of the two families that the service's tests ask for; all would take much longer."""
    from slomo.training.training import train

    with few_steps():
        return train(toy_profile, models=[FORMER_DEFAULT, "dobrescu"])


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


class Running:
    """A service in a process of its own; what it answers at is in `url`."""

    def __init__(self, models: Path, *options: object) -> None:
        command = [sys.executable, "-m", "slomo", "serve", "--models", str(models), "--port", "0", *map(str, options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said: list[str] = []
        while True:
            line = self.process.stderr.readline()
            assert line, f"the service ended: {self.said}"
            self.said.append(line)
            if "slomo answers at" in line:
                self.url = line.split()[-1]
                return

    def kill(self) -> None:
        """Kill without warning; doing it again does nothing."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def run_service() -> Iterator[Callable[..., Running]]:
    """Return what starts services in processes; all have ended after the test, however it goes."""
    made: list[Running] = []

    def started(models: Path, *options: object) -> Running:
        made.append(Running(models, *options))
        return made[-1]

    yield started
    for service in made:
        service.kill()


@pytest.fixture(scope="session")
def served(models_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running service with thirty servers, some requests and some history, for tests that need a network."""
    state = tmp_path_factory.mktemp("served") / "state.sqlite"
    store = Store(state)
    for number in range(200):
        broken, headroom = int(number % 50 > 40), 0.3 - 0.002 * number
        row = {**point([], {"accepted": number % 7, "refused": number % 2}, time.time() - 60.0 * (200 - number)),
               "kept": 20, "broken": broken, "least_share": 0.7 + 0.001 * number, "median_share": 0.95,
               "least_headroom": headroom}  # fmt: skip
        store.write(lambda opened, row=row: journal.add_point(opened, row["at_s"], row, 5760)).result()  # type: ignore[misc]
    store.close()
    service = Running(models_folder, "--state", state)
    try:
        with httpx.Client(base_url=service.url, timeout=30.0) as line:
            names = [f"rack{1 + number // 10}-s{number % 10}" for number in range(30)]
            names[-1] += "-as-an-asset-database-names-it-row-17-position-42.data-centre-west.example.org"
            rows = [{"name": name, "machine": "e5-2620v4"} for name in names]
            line.post("/v1/cluster/servers", json={"servers": rows})
            requests = [
                {"id": f"r{n}", "nf": ("lpm", "nat", "ids")[n % 3], "slo": {"min_share": 0.8}} for n in range(20)
            ]
            assert line.post("/v1/place", json={"requests": requests}).status_code == 200
            report = EXAMPLES["POST", "/v1/agents/{node}"]
            assert line.post("/v1/agents/rack1-s0", json=report).status_code == 200
            seen = [{"target": "lpm", "competitors": ["nat"], "throughput_mpps": 4.0 + 0.01 * n} for n in range(30)]
            assert line.post("/v1/observations", json={"observations": seen}).json()["kept"] == 30
        yield service
    finally:
        service.kill()
