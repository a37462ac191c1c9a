"""The agent of a node: pods' own counters, sent as outcomes while packets are dropped."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from starlette.testclient import TestClient

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError
from slomo.service.kubernetes.agent import NodeAgent
from slomo.service.kubernetes.containers import Container
from slomo.service.kubernetes.pods import MACHINE, NF, RATE
from slomo.service.kubernetes.rates import read_dpdk, read_prometheus, reader
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.watch import Watch


class Exporter(BaseHTTPRequestHandler):
    """A pod's metrics: two ports, each a second of work further with every look."""

    looks: ClassVar[int] = 0
    drops: ClassVar[int] = 0

    def do_GET(self) -> None:
        """Answer with counters."""
        served, dropped = 2_000_000 * Exporter.looks, Exporter.drops
        Exporter.looks += 1
        rows = [f'rx_total{{port="{port}"}} {served / 2:g}' for port in (0, 1)]
        text = "\n".join(["# HELP rx_total packets", *rows, f"drops_total {dropped}", "other NaN"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def exporter() -> Iterator[int]:
    """Return the port of a pod's metrics."""
    server = HTTPServer(("127.0.0.1", 0), Exporter)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Exporter.looks, Exporter.drops = 0, 0
    yield server.server_port
    server.shutdown()
    server.server_close()


def pod(name: str, nf: str, **notes: str) -> dict[str, Any]:
    """Return a running pod."""
    return {"metadata": {"name": name, "uid": name, "annotations": {NF: nf, **notes}}, "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "podIP": "127.0.0.1"}}  # fmt: skip


class Told:
    """A service: what it was told, and the plan that it gives."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document, self.observed = document, list[dict[str, Any]]()
        self.reports = list[dict[str, Any]]()

    async def observe(self, observations: list[dict[str, Any]]) -> None:
        self.observed.extend(observations)

    async def report(self, node: str, report: Mapping[str, Any]) -> None:
        assert node == "n"
        self.reports.append(dict(report))

    async def plan(self, node: str) -> dict[str, Any] | None:
        assert node == "n"
        return self.document


async def looks(pods: list[dict[str, Any]], drops: list[int], told: Told, **parts: Any) -> NodeAgent:
    """Look as often as there are drops; return the agent."""

    def api(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/nodes/n"):
            return httpx.Response(200, json={"metadata": {"name": "n", "labels": {MACHINE: "e5-2620v4"}}})
        assert request.url.params["fieldSelector"] == "spec.nodeName=n"
        return httpx.Response(200, json={"items": pods})

    watch = Watch("http://api", ClusterView())
    await watch.close()
    watch._client = watch._writer = httpx.AsyncClient(transport=httpx.MockTransport(api))
    agent = NodeAgent(watch, "n", told, **parts)
    for count in drops:
        Exporter.drops += count
        await agent.look()
        await asyncio.sleep(0.05)
    await watch.close()
    return agent


def looked(pods: list[dict[str, Any]], drops: list[int]) -> tuple[NodeAgent, list[dict[str, Any]]]:
    """Look as often as there are drops; return the agent and what was sent."""
    told = Told()
    return asyncio.run(looks(pods, drops, told)), told.observed


def test_throughput_is_sent_while_packets_are_dropped(exporter: int, client: TestClient) -> None:
    """The first look begins; without drops nothing is sent; what is sent is what the service takes."""
    rate = f"http://:{exporter}/metrics?served=rx_total&dropped=drops_total"
    pods = [pod("edge", "lpm", **{RATE: rate}), pod("core", "nat"), pod("core2", "nat"), pod("slip", "lpm", x="y")]
    pods[3]["metadata"]["annotations"]["min-share"] = "0.9"  # cannot be read: it is no neighbour that can be named
    agent, sent = looked(pods, [0, 0, 500_000])
    assert agent.counts == {"first": 1, "unsaturated": 1, "sent": 1, "uncounted": 9}
    ((row,),) = (sent,)
    assert row.pop("throughput_mpps") > 2.0
    assert row == {"target": "lpm", "competitors": ["nat", "nat"], "machine": "e5-2620v4", "server": "n"}
    answer = client.post("/v1/observations", json={"observations": [{**row, "throughput_mpps": 2.5}]})
    assert answer.json()["kept"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "http://10.0.0.1:{}/metrics?served=rx_total&dropped=drops_total",
        "http://:{}/metrics?served=rx_total",
        "http://:{}/metrics?served=rx_total&dropped=never_heard",
        "http:///metrics?served=rx_total&dropped=drops_total",
        "telemetry:{}",
        "http://:{}:7/metrics",
        "http://:99999/metrics",
    ],
)
def test_what_cannot_be_read_is_counted_and_nothing_else_is_asked(exporter: int, text: str) -> None:
    """Another host than the pod is never asked; the looks go on."""
    agent, sent = looked([pod("edge", "lpm", **{RATE: text.format(exporter)})], [0, 1])
    assert agent.counts == {"failed": 2, "uncounted": 2}
    assert sent == []


def test_readers_are_prometheus_and_plug_ins() -> None:
    """By the scheme of the annotation; what is too large, or nowhere, is an error with a hint."""
    assert reader("http") is read_prometheus
    with pytest.raises(ConfigurationError, match="nothing reads 'telnet:'"):
        reader("telnet")
    with pytest.raises(InvalidValueError, match="names no counters"):
        asyncio.run(read_prometheus("http://elsewhere:1/?served=a&dropped=b", "127.0.0.1"))


def _telemetry(listener: socket.socket, imissed: int) -> None:
    """Answer as DPDK does: it introduces itself, then two questions."""
    connection, _ = listener.accept()
    with connection:
        connection.send(b'{"version": "DPDK 22.11.11", "pid": 7, "max_output_len": 16384}')
        for _ in range(2):
            connection.recv(1024)
            connection.send(
                json.dumps({"/ethdev/stats": {"ipackets": 50, "imissed": imissed, "rx_nombuf": 1}}).encode()
            )


def test_dpdk_s_telemetry_is_read_inside_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Summed over the ports; a link out of the container is not followed, and what is not there has a hint."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    here, containers = Path("proc"), (Container("a", (1,), ()), Container("b", (1,), (7, 8)))
    folder = here / "7/root/run/dpdk/nf1"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "dpdk_telemetry.v2"))
        listener.listen()
        thread = threading.Thread(target=_telemetry, args=(listener, 4), daemon=True)
        thread.start()
        count = asyncio.run(read_dpdk("dpdk://nf1/0,1", containers, here))
        thread.join()
        assert (count.served, count.dropped) == (100.0, 10.0)

        (here / "7/root/run/dpdk/link").symlink_to(folder.resolve())
        for text in ("dpdk://link/0", "dpdk://other/0"):
            with pytest.raises(TestbedError, match="no container of the pod has DPDK's telemetry"):
                asyncio.run(read_dpdk(text, containers, here))
    with pytest.raises(TestbedError, match="does not answer"):
        asyncio.run(read_dpdk("dpdk://nf1/0", containers, here))
    for text in ("dpdk:nf1", "dpdk://nf1/all", "dpdk://../0", "dpdk://nf1/../0"):
        with pytest.raises(InvalidValueError, match="names no ports"):
            asyncio.run(read_dpdk(text, containers, here))
    with pytest.raises(TestbedError, match="no control group"):
        asyncio.run(read_dpdk("dpdk://nf1/0", TestbedError("no control group"), here))
