"""The service as others meet it: a real Prometheus, clients with certificates, the command line."""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
import uvicorn
import yaml

from slomo.cli.main import main
from slomo.client import AsyncClient, Client, ServiceError
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.placement.problem.request import SLO, Request
from slomo.records.catalog import catalog
from slomo.service.demo import ARCHIVE, demo_folder, demo_models
from slomo.service.server import serve
from slomo.service.settings import ServiceSettings
from tests.service.conftest import Running
from tests.service.test_deploy import DASHBOARD

#: Metrics that exist only while an API server is watched, or after a fault.
ELSEWHERE = ("slomo_kubernetes_", "slomo_models_reloads")


def test_a_slow_service_is_not_called_missing() -> None:
    """Somebody who listens and says nothing in time is told apart from nobody."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2) as line,
        pytest.raises(ServiceError, match="in time") as told,
    ):
        line.predict("lpm", ["stats"])
    assert "timeout_s" in str(told.value)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@pytest.fixture
def prometheus(served: Running, tmp_path: Path) -> Iterator[str]:
    """Return the address of Prometheus scraping the service every second, with the shipped rules; or skip."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no prometheus here: apt-get install prometheus")
    rules = Path(__file__).resolve().parents[2] / "deploy/prometheus/rules.yaml"
    job = {"job_name": "slomo", "static_configs": [{"targets": [served.url.removeprefix("http://")]}]}
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [job],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    port = free_port()
    process = subprocess.Popen(
        [binary, f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address=127.0.0.1:{port}",
         f"--storage.tsdb.path={tmp_path / 'data'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def is_elsewhere(expression: str) -> bool:
    """Say whether a query is about what this service has not."""
    return any(name in expression for name in ELSEWHERE)


def samples_of(prometheus: str, expression: str) -> list[object]:
    """Return what Prometheus answers to a query."""
    answer = httpx.get(f"{prometheus}/api/v1/query", params={"query": expression}, timeout=10.0).json()
    assert answer["status"] == "success", answer
    rows: list[object] = answer["data"]["result"]
    return rows


def used(served: Running) -> None:
    """Ask the service a bit of everything, so that every counter counts."""
    with httpx.Client(base_url=served.url, timeout=30.0) as line:
        line.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"]})
        line.post("/scheduler/filter", json={"Pod": {}, "NodeNames": ["n"]})
        line.post("/scheduler/prioritize", json={"Pod": {}, "NodeNames": ["n"]})
        placed = line.post("/v1/place", json={"requests": [{"id": "counted", "nf": "ids"}]})
        assert placed.status_code == 200
        line.delete("/v1/cluster/requests/counted")


@pytest.mark.slow
def test_prometheus_scrapes_and_the_dashboard_has_data(served: Running, prometheus: str) -> None:
    """A real Prometheus finds the service up, every panel's query returns rows, and no rule fails."""
    end = time.monotonic() + 60.0
    pairs = [(target["expr"], panel["title"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
    panels = {text.replace("$__rate_interval", "1m"): title for text, title in pairs if not is_elsewhere(text)}
    empty = set(panels)
    while empty and time.monotonic() < end:
        used(served)
        time.sleep(1.0)
        try:
            empty = {text for text in empty if not samples_of(prometheus, text)}
        except httpx.HTTPError:
            continue
    health = httpx.get(f"{prometheus}/api/v1/targets", timeout=10.0).json()["data"]["activeTargets"]
    rules = httpx.get(f"{prometheus}/api/v1/rules", timeout=10.0).json()["data"]["groups"]

    assert [target["health"] for target in health] == ["up"]
    assert {text: panels[text] for text in empty} == {}
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Return a folder with an authority, and certificates of a server and a client signed by it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")

    def run(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj",
        "/CN=test authority")  # fmt: skip
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n", encoding="utf-8")
    for who in ("server", "client"):
        run(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", f"/CN={who}"
        )
        run("x509", "-req", "-in", f"{who}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", f"{who}.crt", "-extfile", "names")  # fmt: skip
    return tmp_path


@pytest.mark.slow
def test_mutual_tls_lets_in_who_has_a_certificate(
    models_folder: Path, authority: Path, run_service: Callable[..., Running]
) -> None:
    """With a client's certificate everything is answered, without one the handshake fails."""
    options = [word for name, file in (("certificate", "server.crt"), ("key", "server.key"), ("client-ca", "ca.crt"))
               for word in (f"--{name}", authority / file)]  # fmt: skip
    service = run_service(models_folder, *options)
    stranger = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    acquainted = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    acquainted.load_cert_chain(authority / "client.crt", authority / "client.key")

    assert service.url.startswith("https://")
    body = {"servers": [{"name": "s", "machine": "e5-2620v4"}]}
    assert httpx.post(f"{service.url}/v1/cluster/servers", json=body, verify=acquainted).status_code == 201
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{service.url}/healthz", verify=stranger)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/healthz")


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return what runs a command line, giving exit code and standard output."""

    def run(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_the_command_line_asks_a_service(
    served: Running, models_folder: Path, tmp_path: Path, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    """predict, place and whatif answer with --server what they answer from files; other options are refused."""
    words = ["predict", "--target", "lpm", "--with", "nat:2", "--json"]
    code, here = said(*words, "--models", models_folder)
    assert code == 0, here
    code, there = said(*words, "--server", served.url)
    assert code == 0, there
    same = ("target", "competitors", "throughput_mpps", "interval", "verdict", "solo_mpps")
    assert {name: json.loads(there)[name] for name in same} == {name: json.loads(here)[name] for name in same}

    requests = tmp_path / "requests.yaml"
    requests.write_text("requests: [{id: by-command, nf: ids, slo: {min_share: 0.5}}]\n", encoding="utf-8")
    code, told = said("place", requests, "--server", served.url, "--what-if", "--json")
    assert code == 0, told
    assert json.loads(told)["decisions"][0]["accepted"]
    assert "by-command" not in httpx.get(f"{served.url}/v1/cluster/requests").text
    code, told = said("whatif", "lpm", "nat:2", "--server", served.url, "--json")
    assert code == 0, told
    assert len(json.loads(told)["tenants"]) == 3
    capsys.readouterr()
    assert main(["whatif", "lpm", "nat:2", "--cores", "0,0,1", "--server", served.url]) == 0
    assert "shares its core with nat" in capsys.readouterr().err

    assert said("predict", "--target", "lpm", "--traffic", "a=1", "--server", served.url)[0] == 2
    assert said("place", "a.yaml", "b.yaml", "--server", served.url)[0] == 2
    assert said("predict", "--target", "lpm", "--server", "http://127.0.0.1:1")[0] == 3


def test_both_clients_get_the_same_answers(served: Running) -> None:
    """Waiting in line or not: predictions, columns, what-ifs and placements are the same, and so are refusals."""
    edge = Request("client-edge", ("lpm",), SLO(min_share=0.5))

    async def asked() -> list[Any]:
        async with AsyncClient(served.url) as line:
            one, other = await asyncio.gather(line.predict("lpm", ["nat"]), line.predict("ids"))
            with pytest.raises(UnknownNameError, match="nope"):
                await line.predict("nope")
            columns = await line.predict_batch(["lpm"], [["nat"]])
            return [one, other, columns, await line.whatif(["lpm", "nat"]), await line.place([edge], what_if=True),
                    await line.get("/v1/cluster")]  # fmt: skip

    with Client(served.url) as line:
        waited = [line.predict("lpm", ["nat"]), line.predict("ids"), line.predict_batch(["lpm"], [["nat"]]),
                  line.whatif(["lpm", "nat"]), line.place([edge], what_if=True), line.get("/v1/cluster")]  # fmt: skip
    answers = asyncio.run(asked())

    assert [item.to_dict() for item in answers[:2]] == [item.to_dict() for item in waited[:2]]
    assert answers[2:4] == waited[2:4]
    assert [item.to_dict() for item in answers[4]] == [item.to_dict() for item in waited[4]]
    assert answers[5] == waited[5]
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert public == {name for name in dir(AsyncClient) if not name.startswith("_")}


def test_while_models_are_made_the_port_is_open_and_says_so(models_folder: Path, tmp_path: Path) -> None:
    """Alive but not ready, to people as a page; then the service takes over, and a fault ends it with its reason."""
    go_on, folder = threading.Event(), tmp_path / "models"
    address: list[str] = []

    def prepare() -> None:
        assert go_on.wait(60.0)
        shutil.copytree(models_folder, folder)

    def run() -> None:
        serve(ServiceSettings(folder, port=0), on_ready=address.append, prepare=prepare)

    with mock.patch("gc.freeze"), mock.patch("gc.set_threshold"):
        servers: list[uvicorn.Server] = []
        plain = uvicorn.Server.__init__

        def noted(self: uvicorn.Server, config: uvicorn.Config) -> None:
            plain(self, config)
            servers.append(self)

        with mock.patch("uvicorn.Server.__init__", noted):
            thread = threading.Thread(target=run)
            thread.start()
            deadline = time.monotonic() + 60.0
            while not (servers and servers[0].started) and time.monotonic() < deadline:
                time.sleep(0.02)
        with httpx.Client(base_url=address[0], timeout=30.0) as line:
            codes = {path: line.get(path).status_code for path in ("/healthz", "/readyz", "/v1/cluster", "/page.css")}
            assert codes == {"/healthz": 200, "/readyz": 503, "/v1/cluster": 503, "/page.css": 200}
            assert "trained" in line.get("/", headers={"Accept": "text/html"}).text
            go_on.set()
            while line.get("/readyz").status_code != 200 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert line.post("/v1/predict", json={"target": "lpm"}).status_code == 200
        servers[0].should_exit = True
        thread.join(30.0)
    assert not thread.is_alive()


def test_the_demonstration_needs_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped models are unpacked, once; they are those of the shipped datasets."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    folder = demo_models(said.append)
    assert demo_models(said.append) == folder == demo_folder()
    library = ModelLibrary.load(folder)
    datasets = [entry.load() for entry in catalog() if entry.name.startswith("slomo-")]
    expected = {(name, target): item.solo_mpps(target, name)
                for item in datasets for name in item.machines for target in item.profiled_targets}  # fmt: skip
    assert {key: library[key].solo_mpps for key in library} == pytest.approx(expected)
    assert said == []
    assert [path.name for path in tmp_path.glob("slomo/*")] == [folder.name]


def test_the_demonstration_unpacks_no_stranger_s_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive in a folder that SLOMO_DATASETS names is left alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = demo_folder()
    (tmp_path / ARCHIVE.name).write_bytes(ARCHIVE.read_bytes())
    monkeypatch.setenv("SLOMO_DATASETS", str(tmp_path))
    assert demo_folder() != own
    with pytest.raises(ConfigurationError, match="datasets are not here"):
        demo_models(print)
    assert not list(tmp_path.glob("slomo/*"))


def test_models_that_cannot_be_made_end_the_service_with_the_reason(tmp_path: Path) -> None:
    """What goes wrong behind the open port is raised as if it had been before."""

    def prepare() -> None:
        raise ConfigurationError("no datasets")

    with mock.patch("gc.freeze"), pytest.raises(ConfigurationError, match="no datasets"):
        serve(ServiceSettings(tmp_path, port=0), prepare=prepare)
