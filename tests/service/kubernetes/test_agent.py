"""The agent of a node: pods' own counters, sent as outcomes while packets are dropped."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import httpx
import pytest
from starlette.testclient import TestClient

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.service.kubernetes.agent import NodeAgent, read_prometheus, reader
from slomo.service.kubernetes.pods import MACHINE, NF, RATE
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
    with pytest.raises(ConfigurationError, match="nothing reads 'dpdk:'"):
        reader("dpdk")
    with pytest.raises(InvalidValueError, match="names no counters"):
        asyncio.run(read_prometheus("http://elsewhere:1/?served=a&dropped=b", "127.0.0.1"))
