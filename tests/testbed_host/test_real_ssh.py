"""A generator on another machine, over Debian's real OpenSSH: words, files, a whole run, and how connections fail."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slomo.errors import SlomoError, TestbedError
from slomo.host.tool import run_tool
from slomo.testbed.host.host_file import load_host
from slomo.testbed.host.testbed import HostTestbed
from slomo.testbed.host.traffic.place import Place
from slomo.testbed.host.traffic.testpmd import TestpmdGenerator
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload
from tests.testbed_host.real_sshd import RealSshd

TESTPMD = Path(__file__).parents[1] / "testbed_host_counters" / "programs" / "fake_testpmd.py"
BROKEN = "cannot be reached over SSH, or the connection broke"
FAILURES = {
    "Permission denied": lambda sshd: sshd.identify("stranger"),
    "Host key verification failed": lambda sshd: sshd.know("stranger"),
    "Connection refused": lambda sshd: sshd.move(9),
}


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSshd]:
    """Return a running server, with ``ssh`` and ``scp`` on the PATH that know it as gen1."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    server = RealSshd(folder)
    try:
        monkeypatch.setenv("PATH", f"{server.bin}{os.pathsep}{os.environ['PATH']}")
        yield server
    finally:
        server.close()


def ended(sshd: RealSshd) -> bool:
    """Wait until nothing that was started over there runs any more."""
    deadline_s = time.monotonic() + 20.0
    while sshd.sessions() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return not sshd.sessions()


def test_words_and_files_arrive_as_they_are(sshd: RealSshd, tmp_path: Path) -> None:
    """The shell at the other end changes no word; a file is there before it is named; what is missing is named."""
    place = Place("gen1")
    file = tmp_path / f"slomo-{os.getpid()}.pcap"
    file.write_bytes(bytes(range(256)))

    said = run_tool(place.words(["printf", "%s|", "a b", "$HOME", "'x;y'", "*"]), 20.0)
    copy = Path(place.bring(file))

    assert said.stdout.strip() == "a b|$HOME|'x;y'|*|"
    assert copy.read_bytes() == file.read_bytes()
    copy.unlink()
    assert place.can_run("sh")[0]
    assert place.can_run("no-such-tool") == (False, "'no-such-tool' is not found on gen1: it said nothing")


@pytest.mark.parametrize("why", FAILURES)
def test_a_connection_that_fails_is_told_apart_from_a_program_that_does(
    sshd: RealSshd, tmp_path: Path, why: str
) -> None:
    """A wrong key, a host key that changed and a host that is not there: OpenSSH's own words, and what must work."""
    FAILURES[why](sshd)
    place = Place("gen1")
    (tmp_path / "t.pcap").touch()

    usable, text = place.can_run("dpdk-testpmd")
    assert not usable
    assert BROKEN in text
    assert why in text
    with pytest.raises(TestbedError, match=f"{BROKEN}.*{why}") as caught:
        TestpmdGenerator("net_null0", core=0, place=place).start(Traffic())
    assert "ssh gen1 true" in str(caught.value.hint)
    with pytest.raises(TestbedError, match=why):
        place.bring(tmp_path / "t.pcap")


def bed_behind(sshd: RealSshd, tmp_path: Path, bed: Callable[..., HostTestbed], nf: NetworkFunction) -> HostTestbed:
    """Return a testbed whose generator a host file places on gen1."""
    sshd.offer("dpdk-testpmd", TESTPMD)
    file = tmp_path / "host.yaml"
    file.write_text(
        "cores: [0]\ncounters: probe\ngenerator: {name: testpmd, place: gen1, port: net_null0, core: 0}\n",
        encoding="ascii",
    )
    return bed(nf, generator=load_host(file)._bench.generator)


FROM_GENERATOR = {"throughput": {"source": "generator", "interval_s": 0.02}, "ready": {"first_reading": True}}


def test_a_run_gets_its_throughput_from_a_generator_over_ssh(
    sshd: RealSshd, tmp_path: Path, bed: Callable[..., HostTestbed], fake: Callable[..., NetworkFunction]
) -> None:
    """What the generator counts at the other end is the throughput, and it ends there with the run."""
    testbed = bed_behind(sshd, tmp_path, bed, fake("one", **FROM_GENERATOR))

    record = testbed.run(Colocation("test-host", Workload("one")))

    assert record.target.throughput_mpps > 0.0
    assert ended(sshd)


def test_a_connection_dropped_during_a_run_ends_it_with_the_reason(
    sshd: RealSshd, tmp_path: Path, bed: Callable[..., HostTestbed], fake: Callable[..., NetworkFunction]
) -> None:
    """The run is not kept, the error says that the connection broke, and nothing goes on at either end."""
    testbed = bed_behind(sshd, tmp_path, bed, fake("one", **FROM_GENERATOR))
    done = threading.Event()

    def drop_when_sending() -> None:
        while not done.wait(0.3):
            sshd.drop()

    threading.Thread(target=drop_when_sending, daemon=True).start()
    try:
        with pytest.raises(SlomoError, match=BROKEN):
            testbed.run(Colocation("test-host", Workload("one")))
    finally:
        done.set()

    assert ended(sshd)
