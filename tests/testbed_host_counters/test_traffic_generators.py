"""Traffic generators: the commands they run, the numbers they tell, what they refuse, here and over SSH."""

import json
import math
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.testbed.host.traffic.base import TrafficGenerator
from slomo.testbed.host.traffic.pcap import count_frames
from slomo.testbed.host.traffic.pktgen import WRAP, LuaSocket, PktgenGenerator
from slomo.testbed.host.traffic.place import Place
from slomo.testbed.host.traffic.registry import GENERATORS, make_generator
from slomo.testbed.host.traffic.testpmd import PcapReplay, TestpmdGenerator, memif
from slomo.testbed.host.traffic.trex import TrexGenerator
from slomo.vocabulary.workload import Traffic

Program = Callable[[str, str], Path]
FLOWS = Traffic(flow_count=200)
ZIPF = Traffic(flow_count=200, flow_distribution="zipf")


def test_every_generator_keeps_the_contract() -> None:
    """All aliases give something with the four methods and its own name."""
    settings = {"pcap": {"port": "net_null0", "core": 0}, "testpmd": {"port": "net_null0", "core": 0}}

    for alias in GENERATORS:
        generator = make_generator(alias, **settings.get(alias, {}))
        assert isinstance(generator, TrafficGenerator)
        assert generator.name == alias
        generator.stop()  # before a start it does nothing


def test_wrong_aliases_and_settings_are_refused() -> None:
    """The nearest alias is offered, and settings that do not exist are named."""
    with pytest.raises(UnknownNameError, match="pktgn"):
        make_generator("pktgn")
    with pytest.raises(InvalidValueError, match="'speed'"):
        make_generator("pktgen", speed=3)


def test_testpmd_tells_the_statistics_of_its_port(program: Program) -> None:
    """Counts and rates are those of the port that faces the network function."""
    program("dpdk-testpmd", "fake_testpmd.py")
    generator = TestpmdGenerator(memif("/run/x.sock"), core=1, hugepages=False)

    generator.start(FLOWS)
    statistics = generator.statistics()
    generator.stop()

    assert statistics.sent_packets < 200
    assert (statistics.sent_mpps, statistics.received_mpps) == (3.0, 2.0)
    with pytest.raises(TestbedError, match="does not run"):
        generator.statistics()


def test_a_replay_reads_the_port_behind_the_capture(program: Program, tmp_path: Path) -> None:
    """The capture is testpmd's first port, the network function's its second; the capture is written by us."""
    program("dpdk-testpmd", "fake_testpmd.py")
    generator = PcapReplay("net_memif0,role=client", core=1, folder=tmp_path / "captures", hugepages=False)

    generator.start(ZIPF)
    statistics = generator.statistics()
    generator.stop()

    assert statistics.sent_packets >= 200
    (capture,) = (tmp_path / "captures").glob("*.pcap")
    assert count_frames(capture) == 65_536


def test_testpmd_that_cannot_start_says_why(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """DPDK's last words come with the command to try by hand."""
    program("dpdk-testpmd", "fake_testpmd.py")
    monkeypatch.setenv("FAKE_MODE", "broken")

    with pytest.raises(TestbedError, match="Unable to parse device") as caught:
        TestpmdGenerator("net_nonsense0", core=1).start(FLOWS)

    assert "try by hand: dpdk-testpmd" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("generator", "traffic", "match"),
    [
        (TestpmdGenerator("net_null0", 1), ZIPF, "Zipf"),
        (TestpmdGenerator("net_null0", 1), Traffic(offered_mpps=1.0), "only sends at full speed"),
        (TestpmdGenerator("net_null0", 1, mode="txonly"), FLOWS, "one flow"),
        (PcapReplay("net_null0", 1), Traffic(flow_count=100_000), "at most 65535"),
        (PktgenGenerator(), ZIPF, "Zipf"),
        (TrexGenerator(api=SimpleNamespace()), ZIPF, "Zipf"),
        (TrexGenerator(api=SimpleNamespace()), Traffic(flow_count=1 << 25), "at most"),
    ],
)
def test_traffic_that_a_generator_cannot_make_is_refused(
    generator: TrafficGenerator, traffic: Traffic, match: str
) -> None:
    """Nothing is sent instead of something else."""
    with pytest.raises(InvalidValueError, match=match):
        generator.start(traffic)


def test_a_capture_without_packets_is_refused(tmp_path: Path) -> None:
    """An empty recording is told before anything starts."""
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(16))

    with pytest.raises(ConfigurationError, match="no packets"):
        PcapReplay("net_null0", 1, pcap=empty).start(FLOWS)


def test_commands_travel_over_ssh_word_by_word(tmp_path: Path) -> None:
    """A remote shell receives the same words, whatever they contain."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n', encoding="ascii")
    ssh.chmod(0o755)
    from slomo.host.tool import run_tool

    words = Place("lab@gen1", ssh=str(ssh)).words(["printf", "%s|", "a b", "$HOME", "'x;y'"])

    assert run_tool(words).stdout == "a b|$HOME|'x;y'|\n"


def test_captures_are_copied_to_the_other_machine(tmp_path: Path) -> None:
    """The file is there before testpmd names it; a copy that fails is told."""
    scp = tmp_path / "scp"
    scp.write_text('#!/bin/sh\nfor last; do :; done\necho "$last" > "$0.log"\n', encoding="ascii")
    scp.chmod(0o755)
    file = tmp_path / "t.pcap"
    file.touch()

    assert Place("gen1", scp=str(scp)).bring(file) == "/tmp/t.pcap"
    assert (tmp_path / "scp.log").read_text(encoding="ascii") == "gen1:/tmp/t.pcap\n"
    scp.write_text("#!/bin/sh\necho 'Permission denied' >&2\nexit 255\n", encoding="ascii")
    with pytest.raises(TestbedError, match="Permission denied"):
        Place("gen1", scp=str(scp)).bring(file)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", ""])
def test_hosts_that_are_options_are_refused(host: str) -> None:
    """A host's name cannot become an option of ssh."""
    with pytest.raises(InvalidValueError, match="no host"):
        Place(host)


RECORDED = json.loads(Path(__file__).with_name("pktgen-23.06.1.json").read_text(encoding="utf-8"))["exchanges"]
_BEFORE, _AFTER = WRAP.split("{body}")


class Pktgen:
    """Answers as Pktgen 23.06.1 did: what was recorded of it, and Lua's own complaint about functions it lacks."""

    def __init__(self, silent: bool = False, looks_down: float = 0) -> None:
        self.heard: list[str] = []
        self.silent, self.looks_down = silent, looks_down
        self._answers: dict[str, deque[str]] = {}
        for exchange in RECORDED:
            self._answers.setdefault(exchange["sent"], deque()).append(exchange["answered"])
        said = " ".join(item["sent"] for item in RECORDED if not item["answered"].startswith("ERROR"))
        self._functions = set(_CALLS.findall(said))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        try:
            while True:
                client, _ = self._listener.accept()
                with client, client.makefile("rw", encoding="ascii") as stream:
                    for line in stream:
                        self.heard.append(line)
                        if not self.silent:
                            stream.write(self._answer(line.removeprefix(_BEFORE).removesuffix(_AFTER)))
                            stream.flush()
        except OSError:
            return

    def _answer(self, body: str) -> str:
        if "linkState" in body and self.looks_down > 0:
            self.looks_down -= 1
            return "<--Down-->\n@@END@@\n"
        answers = self._answers.get(body)
        if answers:
            return answers.popleft() if len(answers) > 1 else answers[0]
        for name in _CALLS.findall(body):
            if name not in self._functions:
                return f"ERROR stdin:1: attempt to call a nil value (field '{name.split('.')[-1]}')\n@@END@@\n"
        return "@@END@@\n"


_CALLS = re.compile(r"pktgen\.([a-zA-Z_.]+)\(")


@pytest.fixture
def pktgen() -> Iterator[Pktgen]:
    """Return a running stand-in."""
    server = Pktgen()
    yield server
    server.close()


def test_pktgen_is_set_up_started_and_asked(pktgen: Pktgen) -> None:
    """Word for word what was recorded is sent, and the answers of the real Pktgen become our statistics."""
    generator = PktgenGenerator(port=pktgen.port, sends=0, receives=0)

    generator.start(Traffic(packet_size_b=64, flow_count=1000, offered_mpps=0.02))
    measured = generator.statistics()
    generator.stop()

    sent = [line.removeprefix(_BEFORE).removesuffix(_AFTER) for line in pktgen.heard]
    assert set(sent) <= {exchange["sent"] for exchange in RECORDED}
    assert (measured.sent_packets, measured.received_packets, measured.lost) == (57536, 45138, 12398)
    assert (measured.sent_mpps, measured.received_mpps) == (0.020096, 0.020136)


def test_pktgen_is_told_size_before_rate_and_range(pktgen: Pktgen) -> None:
    """The rate is reckoned from the size of `set`: it comes before the rate, and the range holds it and all flows."""
    generator = PktgenGenerator(port=pktgen.port)

    generator.start(Traffic(packet_size_b=128, flow_count=1000, offered_mpps=1.0))
    generator.stop()

    heard = "".join(pktgen.heard)
    assert "pktgen.set('0', 'rate', 11.8400)" in heard  # 1 Mpps of 148 B on a link of 10 Gbit/s
    assert "pktgen.range.pkt_size('0', 'start', 128)" in heard
    assert "pktgen.range.dst_ip('0', 'max', '10.0.3.231')" in heard
    assert heard.index("'size', 128") < heard.index("'rate', 11.84")
    assert heard.index("pktgen.start('0')") > heard.index("set_range('0', 'on')")


def test_functions_that_pktgen_lacks_are_refused_by_the_stand_in(pktgen: Pktgen) -> None:
    """The names that were once imagined get the answer that the real one gave."""
    lua = LuaSocket(port=pktgen.port)
    try:
        for body in ("pktgen.pkt_size('0', 'start', 64)", "pktgen.dst_ip('0', 'start', '10.0.0.0')"):
            with pytest.raises(TestbedError, match="nil value"):
                lua.ask(body)
    finally:
        lua.close()


def test_pktgen_waits_for_its_port() -> None:
    """Nothing is sent before the NF at the other end has opened its port; one that never does is told."""
    server = Pktgen(looks_down=3)
    try:
        generator = PktgenGenerator(port=server.port)
        generator.start(FLOWS)
        generator.stop()
        server.looks_down = math.inf
        with pytest.raises(TestbedError, match=r"is down \('<--Down-->'\) and did not come up within 0.2 s"):
            PktgenGenerator(port=server.port, patience_s=0.2).start(FLOWS)
    finally:
        server.close()

    assert len([line for line in server.heard if "linkState" in line]) >= 5


def test_pktgen_has_a_flow_per_buffer(pktgen: Pktgen) -> None:
    """The real one sent 24576 of 100000 flows and said nothing: more than it tells to have are refused."""
    with pytest.raises(InvalidValueError, match="at most 24576 flows, one per buffer, 24577 were asked for"):
        PktgenGenerator(port=pktgen.port).start(Traffic(flow_count=24_577))


def test_pktgen_refuses_more_than_the_link_carries(pktgen: Pktgen) -> None:
    """An offered load above line rate is an error, and the socket is free again."""
    generator = PktgenGenerator(port=pktgen.port)

    with pytest.raises(InvalidValueError, match="the link carries 10 Gbit/s"):
        generator.start(Traffic(flow_count=1000, offered_mpps=20.0))

    assert generator.available() == (True, f"1 ports at 127.0.0.1:{pktgen.port}")


def test_a_pktgen_that_does_not_answer_is_told() -> None:
    """Silence ends after the time limit with one sentence."""
    server = Pktgen(silent=True)
    try:
        with pytest.raises(TestbedError, match="does not answer"):
            PktgenGenerator(port=server.port, limit_s=0.1).start(FLOWS)
    finally:
        server.close()


def test_errors_of_lua_are_told(pktgen: Pktgen) -> None:
    """An error inside Pktgen comes back as ours."""
    lua = LuaSocket(port=pktgen.port)
    try:
        with pytest.raises(TestbedError, match="nil value"):
            lua.ask("pktgen.broken()")
    finally:
        lua.close()


def test_no_pktgen_at_all_is_told() -> None:
    """A port where nobody listens gives the command that starts it."""
    usable, why = PktgenGenerator(port=9).available()

    assert not usable
    assert "no Pktgen answers" in why
    with pytest.raises(TestbedError, match="no Pktgen answers"):
        PktgenGenerator(port=9, patience_s=0.1).start(FLOWS)


class _Made(dict[str, Any]):
    """Remembers how it was made."""

    def __init__(self, kind: str, *given: Any, **named: Any) -> None:
        super().__init__(kind=kind, given=given, **named)


class Client:
    """A TRex client that remembers what it was told."""

    def __init__(self, server: str) -> None:
        self.told: list[str] = [server]
        self.streams: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda **_: self.told.append(name)

    def connect(self) -> None:
        if self.told[0] == "nowhere":
            raise RuntimeError("[RPC] Failed to get\nserver response")

    def add_streams(self, streams: list[Any], ports: list[int]) -> None:
        self.streams = streams

    def get_stats(self) -> dict[Any, Any]:
        latency = {7: {"latency": {"average": 12.5, "total_max": 99}}}
        return {
            0: {"opackets": 10, "tx_pps": 2e6},
            1: {"ipackets": 9, "rx_pps": 1e6},
            "latency": latency,
        }


def api() -> tuple[Any, list[Client]]:
    """Return TRex's package as far as it is used, and the clients it makes."""
    clients: list[Client] = []

    def client(server: str) -> Client:
        clients.append(Client(server))
        return clients[-1]

    names = (
        "STLStream",
        "STLPktBuilder",
        "STLTXCont",
        "STLFlowLatencyStats",
        "STLVmFlowVar",
        "STLVmWrFlowVar",
        "STLScVmRaw",
        "STLVmFixIpv4",
    )
    makers = {name: (lambda *given, _name=name, **named: _Made(_name, *given, **named)) for name in names}
    return SimpleNamespace(STLClient=client, **makers), clients


def test_trex_sends_a_stream_of_flows_and_measures_latency() -> None:
    """One stream varies the destination over all flows at the rate asked for, another one measures."""
    package, clients = api()
    generator = TrexGenerator("gen1", api=package)

    generator.start(Traffic(packet_size_b=128, flow_count=500, offered_mpps=2.0))
    statistics = generator.statistics()
    generator.stop()

    load, probe = clients[0].streams
    variable = load["packet"]["vm"]["given"][0][0]
    assert load["mode"]["pps"] == 2e6
    assert variable["max_value"] - variable["min_value"] == 499
    assert len(load["packet"]["pkt_buffer"]) == 124
    assert load["packet"]["pkt_buffer"][12:14] == b"\x08\x00"
    assert probe["flow_stats"]["pg_id"] == 7
    assert (statistics.sent_packets, statistics.received_packets, statistics.received_mpps) == (10, 9, 1.0)
    assert statistics.latency_us == {"mean": 12.5, "max": 99.0}
    assert clients[0].told[-3:] == ["stop", "release", "disconnect"]


def test_a_trex_that_does_not_answer_is_told() -> None:
    """TRex's own exceptions become one line of ours."""
    generator = TrexGenerator("nowhere", api=api()[0])

    with pytest.raises(TestbedError, match="'nowhere' does not answer: RuntimeError") as caught:
        generator.start(FLOWS)

    assert "\n" not in caught.value.message


def test_without_the_trex_package_its_folder_is_asked_for() -> None:
    """Nothing is installed behind the user's back."""
    with pytest.raises(TestbedError, match="cannot be imported") as caught:
        TrexGenerator().start(FLOWS)

    assert "api_folder" in str(caught.value.hint)
