"""Where throughput is read, and what becomes of it."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import MeasurementError, TestbedError
from slomo.host.control_socket import ControlSocket
from slomo.host.marker import new_mark
from slomo.host.process import ManagedProcess
from slomo.testbed.host import telemetry
from slomo.testbed.host.interleaving import summarise, wait_steady
from slomo.testbed.host.nf.definition import parse_host
from slomo.testbed.host.nf.readings import FunctionReadings, Reading
from slomo.testbed.host.nf.readout import Readout
from slomo.testbed.host.telemetry import TelemetrySocket
from slomo.vocabulary.host_section import Steadiness


@given(st.lists(st.floats(0.01, 10.0), min_size=2, max_size=30), st.floats(0.1, 100.0))
def test_all_meanings_give_the_same_rate(gaps_s: list[float], rate_mpps: float) -> None:
    """A steady NF shows the same throughput as counter, per interval and as a rate."""
    counter, interval, rate = FunctionReadings("a"), FunctionReadings("b"), FunctionReadings("c")
    now_s, packets = 0.0, 0.0
    for gap_s in gaps_s:
        now_s, packets = now_s + gap_s, packets + gap_s * rate_mpps * 1e6
        counter.add("counter", now_s, packets)
        interval.add("interval", now_s, gap_s * rate_mpps * 1e6)
        rate.add("rate", now_s, rate_mpps * 1e6)
    for series in (counter, interval, rate):
        assert series.rate_mpps(0.0, now_s) == pytest.approx(rate_mpps)


def test_the_clock_of_the_nf_is_preferred() -> None:
    """Where an NF states the time of a line, delays on its way do not change the rate."""
    series = FunctionReadings("x")
    series.add("counter", 10.0, 0.0, 1.0)
    series.add("counter", 10.9, 1e6, 1.5)
    assert series.rate_mpps(9.0, 12.0) == pytest.approx(2.0)


def test_a_restarted_counter_begins_anew() -> None:
    """A counter that falls says nothing about the time before."""
    series = FunctionReadings("x")
    for second, packets in enumerate((5e6, 6e6, 0.0, 1e6)):
        series.add("counter", float(second), packets)
    assert series.rate_mpps(-1.0, 9.0) == pytest.approx(1.0)


def test_silence_is_an_error_not_zero() -> None:
    """Fewer than two reports in a window are no throughput."""
    with pytest.raises(MeasurementError, match="reported 0 times"):
        FunctionReadings("x").rate_mpps(0.0, 1.0)


def test_climbing_is_not_steady() -> None:
    """A throughput that climbs is waited for until the limit; a level one is steady at once."""
    level, climbing = FunctionReadings("level"), FunctionReadings("climbing")
    done = threading.Event()

    def feed() -> None:
        packets = 0.0
        start_s = time.monotonic()
        while not done.wait(0.01):
            now_s = time.monotonic()
            level.add("counter", now_s, 1e6 * (now_s - start_s))
            packets += 1e4 * 2.0 ** (20.0 * (now_s - start_s))
            climbing.add("counter", now_s, packets)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        assert wait_steady(level, Steadiness(20.0, 0.5, 0.1), lambda: None)
        assert not wait_steady(climbing, Steadiness(0.6, 0.05, 0.15), lambda: None)
    finally:
        done.set()
        thread.join()


def test_one_bad_window_spoils_no_summary() -> None:
    """The median and its dispersion hardly move with one wild value."""
    calm, wild = summarise([1.0, 1.01, 0.99, 1.0, 1.02]), summarise([1.0, 1.01, 0.99, 1.0, 40.0])
    assert wild.median == calm.median
    assert wild.dispersion < 0.05


def _spread(readings: list[Reading]) -> bool:
    """Return whether three counts came at two times: a busy machine may deliver many at once."""
    return len(readings) >= 3 and readings[-1].arrived_s > readings[0].arrived_s + 0.01


def _read_from(source: dict[str, Any], code: str, table: dict[str, str]) -> float:
    definition = parse_host({"command": ["x"], "throughput": source}, nf="x")
    process = ManagedProcess("x", [sys.executable, "-S", "-c", code, table["stats_file"]], (0,), new_mark())
    readout = None
    try:
        readout = Readout(definition, process, table)
        process.listen()
        deadline = time.monotonic() + 20.0
        while not _spread(readout.readings.between(0.0, deadline)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return readout.readings.rate_mpps(0.0, time.monotonic())
    finally:
        process.stop()
        if readout is not None:
            readout.close()


_COUNT = """
import sys, time
out = {out}
for n in range(2000):
    out.write({line} + chr(10))
    out.flush()
    time.sleep(0.01)
"""


def test_a_pattern_finds_throughput_in_any_output(tmp_path: Path) -> None:
    """A regular expression reads rates with a unit from stderr, between other lines."""
    source = {
        "source": "regex",
        "pattern": r"Rx-pps:\s+(?P<packets>[\d,.]+)",
        "stream": "stderr",
        "meaning": "rate",
        "unit": "kpps",
    }
    code = _COUNT.format(out="sys.stderr", line="'noise\\nRx-pps:  1,500.0 Tx'")
    assert _read_from(source, code, {"stats_file": str(tmp_path / "s")}) == pytest.approx(1.5)


def test_a_file_of_statistics_is_followed(tmp_path: Path) -> None:
    """JSON lines are read from a file the NF writes, with dotted fields, like an event log."""
    source = {
        "source": "json-lines",
        "stream": "stats_file",
        "packets": "stats.decoder.pkts",
        "time": "t",
        "match": {"event_type": "stats"},
    }
    line = '\'{"event_type": "stats", "t": %d, "stats": {"decoder": {"pkts": %d}}}\' % (n, n * 3000000)'
    code = _COUNT.format(out="open(sys.argv[1], 'w')", line=line)
    assert _read_from(source, code, {"stats_file": str(tmp_path / "s")}) == pytest.approx(3.0)


@pytest.fixture
def click() -> Iterator[int]:
    """Serve the protocol of Click's ControlSocket, as recorded, one connection at a time; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve_click, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _serve_click(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rwb", buffering=0) as stream:
            stream.write(b"Click::ControlSocket/1.3\r\n")
            while line := stream.readline():
                handler = line.split()[1].decode()
                if handler == "c.count":
                    stream.write(b"200 Read handler 'c.count' OK\r\nDATA 8\r\n29870208")
                else:
                    stream.write(b"510 No element named 'nosuch'\r\n")


def test_click_answers_and_complains(click: int) -> None:
    """A handler's value comes as exactly its bytes; one that does not exist is named."""
    client = ControlSocket(click)
    assert client.read("c.count") == "29870208"
    assert client.read("c.count") == "29870208"
    with pytest.raises(TestbedError, match="No element named 'nosuch'"):
        client.read("nosuch.x")
    client.close()


def test_nobody_there_is_a_testbed_error() -> None:
    """A port nobody listens on, and a telemetry socket that is not there, are faults of the testbed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(TestbedError, match=r"does not answer 'READ c\.count'"):
            ControlSocket(free.getsockname()[1]).read("c.count")
    with pytest.raises(TestbedError, match="dpdk_telemetry"):
        TelemetrySocket("no-such-prefix").ask("/info")


def test_telemetry_is_asked_as_dpdk_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes the introduction, asks, and returns what stands under the command's name."""
    path = tmp_path / "dpdk_telemetry.v2"
    monkeypatch.setattr(telemetry, "socket_path", lambda _: path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_serve_telemetry, args=(listener,), daemon=True)
        thread.start()
        client = TelemetrySocket("x")
        assert client.ask("/ethdev/stats,0")["ipackets"] == 113422560
        client.close()
        thread.join()


def _serve_telemetry(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.send(b'{"version": "DPDK 22.11.11", "pid": 21995, "max_output_len": 16384}')
        query = connection.recv(1024).decode()
        answers: dict[str, Callable[[], dict[str, Any]]] = {"/ethdev/stats,0": lambda: {"ipackets": 113422560}}
        connection.send(json.dumps({query.partition(",")[0]: answers[query]()}).encode())
