"""A pcm-sensor-server on the loop-back interface: what it counts, and what else may listen there."""

import copy
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.counters.sensor_server import SensorServerReader

Serve = Callable[[list[Any]], str]
INVALID = 2**64 - 1


def answer(times: int, occupancy: int = 2048) -> dict[str, Any]:
    """Return an answer in which every count stands at `times` steps."""
    counts = {
        "Instructions Retired Any": 3_000_000,
        "Clock Unhalted Thread": 2_000_000,
        "Clock Unhalted Ref": 2_000_000,
        "Invariant TSC": 4_000_000,
        "L3 Cache Misses": 1000,
        "L3 Cache Hits": 3000,
        "L2 Cache Misses": 4000,
        "L2 Cache Hits": 4000,
    }

    def thread(number: int) -> dict[str, Any]:
        return {
            "Object": "HyperThread",
            "Thread ID": 0,
            "OS ID": number,
            "Core Counters": {**{k: v * times for k, v in counts.items()}, "L3 Cache Occupancy": occupancy},
            "Core Memory Bandwidth Counters": {"Local Memory Bandwidth": 100 * times, "Remote Memory Bandwidth": 0},
        }

    cores = [{"Object": "Core", "Core ID": n, "Threads": [thread(n)]} for n in (0, 1)]
    uncore = {"Object": "ServerUncore", "Uncore Counters": {"DRAM Reads": 10**6 * times, "DRAM Writes": 0}}
    return {"Interval us": 1, "Sockets": [{"Object": "Socket", "Socket ID": 0, "Cores": cores, "Uncore": uncore}]}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a starter of servers that give a list of answers in turn."""
    servers: list[http.server.HTTPServer] = []

    def start(answers: list[Any]) -> str:
        left = copy.deepcopy(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = left.pop(0) if left else (500, b"")
                if self.headers.get("Accept") != "application/json" and status == 200:
                    status, body = 406, b""
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_window_is_the_difference_of_two_answers(serve: Serve) -> None:
    """Quotients come from differences of counts, occupancy is the last level, zeros that cannot be are missing."""
    reader = SensorServerReader(serve([(200, answer(5)), (200, answer(6))]))

    reader.start([1])
    sample = reader.stop()

    core, socket = sample.cores[1], sample.sockets[0]
    assert set(sample.cores) == {1}
    assert (core["IPC"], core["FREQ"], core["L3HIT"], core["L2HIT"]) == (1.5, 0.5, 0.75, 0.5)
    assert core["L3OCC"] == 2048.0
    assert "RMB" not in core
    assert socket["L3OCC"] == 4096.0
    assert socket["FREQ"] == 0.5
    assert socket["READ"] * sample.duration_s == pytest.approx(1e-3)
    assert "WRITE" not in socket


def test_an_invalid_occupancy_is_missing(serve: Serve) -> None:
    """The largest unsigned number is no occupancy."""
    reader = SensorServerReader(serve([(200, answer(5)), (200, answer(6, INVALID))]))

    reader.start([0])
    sample = reader.stop()

    assert "L3OCC" not in sample.cores[0]
    assert "L3OCC" not in sample.sockets[0]


def test_a_server_restarted_meanwhile_gives_nothing_negative(serve: Serve) -> None:
    """Counts that fell are missing."""
    reader = SensorServerReader(serve([(200, answer(6)), (200, answer(5))]))

    reader.start([0])

    assert "INST" not in reader.stop().cores[0]


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ((500, b"no"), "status 500"),
        ((200, b"<html>"), "no JSON"),
        ((200, {"Sockets": []}), "no sockets"),
        ((200, b"[" * 100_000), "no JSON"),
    ],
)
def test_something_else_at_the_port_is_told(serve: Serve, told: tuple[int, Any], match: str) -> None:
    """Whatever else answers there gives one sentence, not a traceback."""
    usable, why = SensorServerReader(serve([told])).available()

    assert not usable
    assert match in why


def test_an_answer_of_another_shape_is_told(serve: Serve) -> None:
    """JSON without the fields of a sensor server is refused."""
    strange = {"Sockets": [{"Socket ID": 0, "Cores": [{}]}]}
    reader = SensorServerReader(serve([(200, strange), (200, strange)]))
    reader.start([0])

    with pytest.raises(TestbedError, match="another shape"):
        reader.stop()


def test_nobody_at_the_port_is_told() -> None:
    """Without a server there is a command that starts one."""
    usable, why = SensorServerReader("http://127.0.0.1:9").available()

    assert not usable
    assert "no pcm-sensor-server answers" in why


def test_only_http_addresses_are_taken() -> None:
    """A file is no server."""
    with pytest.raises(InvalidValueError, match="no address"):
        SensorServerReader("file:///etc/passwd")
