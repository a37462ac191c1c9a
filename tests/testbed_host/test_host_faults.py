"""Network functions that misbehave, and campaigns that are killed: the right error, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slomo.errors import ConfigurationError, MeasurementError, SlomoError, TestbedError
from slomo.host import orphans
from slomo.host.family import Family, place_of_groups
from slomo.host.locks import MachineLock
from slomo.host.marker import VARIABLE, RunMark, boot_identity, new_mark, pid_namespace, start_time
from slomo.host.process import ManagedProcess
from slomo.testbed.host.nf.definition import parse_host
from slomo.testbed.host.nf.readings import FunctionReadings
from slomo.testbed.host.nf.ready import ReadyWatch
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

pytestmark = pytest.mark.usefixtures("nothing_left")
Maker = Callable[..., NetworkFunction]
Beds = Callable[..., HostTestbed]
SOLO = Colocation("test-host", Workload("one"))


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("crash", "ended with exit code 1 while getting ready. It last said: no memory for my tables"),
        ("hang", r"was not ready within 0.5 s \(ready signal: json\)"),
        ("garbage", "lines could not be read"),
        ("dies", "ended with exit code 7 while"),
        ("goes-silent", "was reported [01] times"),
    ],
)
def test_a_broken_nf_ends_the_run_with_its_story(
    mode: str, text: str, fake: Maker, bed: Beds, quick: HostSettings
) -> None:
    """An NF that crashes, hangs, prints garbage, dies or falls silent is named, with exit code 3 or 4."""
    limit_s = 0.5 if mode == "hang" else 20
    nf = fake("one", mode, ready={"json": {"event": "ready"}, "limit_s": limit_s})
    testbed = bed(nf, reporters=(), settings=replace(quick, window_s=0.4, pairs=3, most_pairs=3))
    with pytest.raises((TestbedError, MeasurementError), match=text) as caught:
        testbed.run(SOLO)
    assert caught.value.exit_code == (4 if mode in ("garbage", "goes-silent") else 3)
    assert caught.value.hint


@pytest.mark.parametrize("mode", ["stubborn", "flood", "escapes"])
def test_a_rude_nf_is_measured_and_ended(mode: str, fake: Maker, bed: Beds) -> None:
    """An NF that ignores signals, floods its pipes or starts runaway children is measured all the same, and ended."""
    record = bed(fake("one", mode), reporters=()).run(SOLO)
    assert record.target.throughput_mpps > 0.0


def test_a_failed_run_leaves_the_testbed_usable(fake: Maker, bed: Beds) -> None:
    """After a run that failed, the next one is as good as any."""
    testbed = bed(fake("one", "crash"), fake("two"), reporters=())
    with pytest.raises(TestbedError):
        testbed.run(SOLO)
    assert testbed.run(Colocation("test-host", Workload("two"))).target.throughput_mpps > 0.0


def test_commands_that_do_not_exist_are_named(fake: Maker, bed: Beds) -> None:
    """A missing program is a fault of the testbed, exit code 3."""
    nf = fake("one", command=["no-such-program-of-this-name"])
    with pytest.raises(TestbedError, match="command 'no-such-program-of-this-name' does not exist") as caught:
        bed(nf, reporters=()).run(SOLO)
    assert caught.value.exit_code == 3


def test_ports_in_use_are_named(fake: Maker, bed: Beds) -> None:
    """An NF that needs a port somebody else listens on is not started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        source = {"source": "click", "port": port, "packets": "c.count"}
        with pytest.raises(TestbedError, match=f"needs TCP port {port}"):
            bed(fake("one", throughput=source), reporters=()).run(SOLO)


def test_captures_without_packets_are_refused(fake: Maker, bed: Beds, tmp_path: Path) -> None:
    """A capture of one's own must be one, and hold packets."""
    empty, text = tmp_path / "empty.pcap", tmp_path / "text.pcap"
    empty.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    text.write_text("no capture at all, but long enough to hold a header")
    for path, story in (
        (empty, "holds no packets"),
        (text, "is no pcap capture"),
        (tmp_path / "none", "cannot be read"),
    ):
        nf = fake("one", traffic={"pcap": str(path)})
        with bed(nf, reporters=()) as testbed, pytest.raises(ConfigurationError, match=story) as caught:
            testbed.run(SOLO)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("cores", "text"), [([0, 9999], "core 9999 cannot be used"), ([0, 0], "cores overlap: core 0")]
)
def test_impossible_cores_are_refused(cores: list[int], text: str, bed: Beds) -> None:
    """A core that does not exist, or is given twice, is named."""
    with pytest.raises(TestbedError, match=text):
        bed(cores=cores)


def test_ctrl_c_leaves_nothing(fake: Maker, bed: Beds, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in the middle of a window ends the run's processes before it reaches the caller."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slomo.testbed.host.interleaving.take_windows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bed(fake("one"), reporters=()).run(SOLO)


def test_one_campaign_per_host(fake: Maker, bed: Beds) -> None:
    """A second testbed is refused while the first holds the host, and served once it is closed."""
    first, second = bed(fake("one"), reporters=()), bed(fake("one"), reporters=())
    first.run(SOLO)
    with pytest.raises(TestbedError, match=f"this host is in use by another \\(process {os.getpid()}\\)"):
        second.run(SOLO)
    first.close()
    second.run(SOLO)


def test_the_lock_leaves_no_file(tmp_path: Path) -> None:
    """A lock released is gone; one that cannot be made is explained."""
    lock = MachineLock("this host", tmp_path / "lock")
    lock.acquire()
    assert lock.held
    lock.release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(TestbedError, match="cannot be opened"):
        MachineLock("this host", tmp_path / "file" / "lock").acquire()


_VICTIM = """
import sys
from slomo.host import family, marker
marker.VARIABLE = sys.argv[2]
family.place_of_groups = lambda: None  # else another campaign on this machine may find its group first
from slomo.testbed.host.nf.definition import parse_host
from slomo.testbed.host.run import Run
from slomo.vocabulary.workload import Workload
section = {"command": [sys.executable, "-S", sys.argv[1], "stays"], "ready": {"json": {"event": "ready"}},
           "throughput": {"source": "json-lines", "packets": "packets"}}
with Run() as run:
    run.start(parse_host(section, nf="x"), Workload("x"), (0,))
    print(run.mark.text, run.directory, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_campaign_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 of a campaign, the next one finds its processes and files by their mark, and removes them."""
    # a variable and a folder of its own: else a campaign of a test beside this one is the next
    variable = f"SLOMO_RUN_ID_OF_{os.getpid()}"
    monkeypatch.setattr(orphans, "VARIABLE", variable)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = [sys.executable, "-c", _VICTIM, str(Path(__file__).with_name("fake_nf.py")), variable]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as victim:
        assert victim.stdout is not None
        mark_text, directory = victim.stdout.readline().split()
        mark = RunMark.parse(mark_text)
        assert mark in orphans.marked_processes().values()
        orphans.remove_orphans()
        assert mark in orphans.marked_processes().values(), "a living campaign's processes are no orphans"
        victim.kill()
    assert Path(directory).exists()
    removed = orphans.remove_orphans()
    assert len(removed.processes) == 1
    assert directory in removed.files
    assert mark not in orphans.marked_processes().values()
    assert not Path(directory).exists()


def test_strangers_are_never_killed() -> None:
    """A process without our mark, or with that of a living campaign, is not touched."""
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeper) as plain, subprocess.Popen(sleeper, env={VARIABLE: new_mark().text}) as ours:
        orphans.remove_orphans()
        assert plain.poll() is None
        assert ours.poll() is None
        plain.kill()
        ours.kill()


def test_marks_of_another_boot_are_dead() -> None:
    """After a reboot, every mark made before belongs to nobody."""
    mark = new_mark()
    assert mark.owner_is_alive()
    assert not RunMark(
        "00000000" if boot_identity() != "00000000" else "1" * 8, mark.pid, mark.started, 0
    ).owner_is_alive()
    assert RunMark.parse("something-else") is None


def test_marks_of_another_namespace_are_never_taken_for_dead() -> None:
    """A container's process cannot be looked up from here, nor ours from there; marks of before name no namespace."""
    mark = new_mark()
    assert mark.namespace == pid_namespace() != ""
    elsewhere = replace(mark, namespace="1", pid=2**22 + 1)
    assert RunMark.parse(f"{elsewhere.text}-0map_0") == elsewhere
    assert elsewhere.owner_is_alive()
    older = replace(elsewhere, namespace="")
    assert RunMark.parse(older.text) == older
    assert not older.owner_is_alive()
    assert not replace(mark, pid=2**22 + 1).owner_is_alive()


#: Starts a child that nothing but its control group tells from a stranger's, then waits.
_HIDES = """
import os, subprocess, sys, time
sys.stdin.close()
time.sleep(float(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], env={}, start_new_session=True)
print(child.pid, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def groups() -> Path:
    """Return where control groups of families are made; skip where none may be."""
    place = place_of_groups()
    try:
        assert place is not None
        probe = place / f"slomo-probe-{os.getpid()}"
        probe.mkdir()
        has_kill = (probe / "cgroup.kill").exists()
        probe.rmdir()
    except (AssertionError, OSError):
        has_kill = False
    if not has_kill or place is None:
        pytest.skip("no control groups of version 2 with cgroup.kill that this user may make")
    return place


def _until(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 20.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def _hiding(mark: RunMark) -> tuple[ManagedProcess, int]:
    """Return a process, and the one it hides, once that runs."""
    process = ManagedProcess("hides", [sys.executable, "-S", "-c", _HIDES, "0.2"], (0,), mark)
    heard: list[str] = []
    process.on_line("stdout", lambda _, line: heard.append(line))
    process.listen()
    assert _until(lambda: heard)
    return process, int(heard[0])


def test_what_hides_from_its_mark_ends_with_its_group(groups: Path) -> None:
    """A child in a session of its own, without a mark, is ended with the network function that forked it."""
    process, hidden = _hiding(new_mark())
    assert orphans.mark_of(hidden) is None
    process.stop(signal.SIGTERM, 0.1)
    assert _until(lambda: start_time(hidden) is None)
    assert not list(groups.glob(f"slomo-*-{process.pid}"))


def test_groups_of_dead_campaigns_are_ended_by_the_next(groups: Path) -> None:
    """A group whose campaign is gone is killed with all that is in it, and removed; one of another namespace stays."""
    dead = replace(new_mark(), pid=2**22 + 1)
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
    with subprocess.Popen(sleeper, env={}) as left:
        Family(dead, left.pid)
        (stays := groups / f"{replace(dead, namespace='1').text}-1").mkdir()
        try:
            orphans.remove_orphans()
            assert _until(lambda: left.poll() is not None)
            assert stays.exists()
            assert not (groups / f"{dead.text}-{left.pid}").exists()
        finally:
            left.kill()
            stays.rmdir()


def test_hugepage_files_of_dead_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DPDK's files that bear the mark of a dead campaign go; a living one's and other people's stay."""
    monkeypatch.setattr(orphans, "_HUGE_DIRECTORIES", (tmp_path,))
    dead = RunMark(boot_identity(), 2**22 + 1, 1, 0).text
    alive = new_mark().text
    for name in (f"{dead}-0map_0", f"{alive}-0map_0", "rtemap_0"):
        (tmp_path / name).write_bytes(b"page")
    orphans.remove_orphans()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{alive}-0map_0", "rtemap_0"])


def test_a_process_can_be_paused_and_resumed() -> None:
    """A paused process uses no CPU; its CPU time is known to better than a tick."""
    spinner = ManagedProcess("spin", [sys.executable, "-S", "-c", "while True: pass"], (0,), new_mark())
    try:
        deadline = time.monotonic() + 20.0
        while spinner.cpu_time_s() < 0.05 and time.monotonic() < deadline:
            time.sleep(0.01)
        spinner.pause()
        time.sleep(0.05)
        used = spinner.cpu_time_s()
        time.sleep(0.1)
        assert used > 0.0
        assert spinner.cpu_time_s() == used
        spinner.resume()
        while spinner.cpu_time_s() == used and time.monotonic() < deadline:
            time.sleep(0.01)
        assert spinner.cpu_time_s() > used
    finally:
        spinner.stop(signal.SIGTERM, 1.0)
    assert not spinner.alive


def test_a_killed_process_says_by_what() -> None:
    """The error for a process that a signal ended names the signal."""
    process = ManagedProcess("gone", [sys.executable, "-S", "-c", "import time; time.sleep(60)"], (0,), new_mark())
    try:
        os.kill(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20.0
        while process.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(SlomoError, match="was killed by SIGKILL while testing"):
            process.require_alive("testing")
    finally:
        process.stop()


def test_nothing_printed_early_is_lost() -> None:
    """What a process prints before anybody listens is heard all the same."""
    process = ManagedProcess("early", [sys.executable, "-S", "-c", "print('hello')"], (0,), new_mark())
    try:
        deadline = time.monotonic() + 20.0
        while process.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        heard: list[str] = []
        process.on_line("stdout", lambda _, line: heard.append(line))
        process.listen()
        while not heard and time.monotonic() < deadline:
            time.sleep(0.01)
        assert heard == ["hello"]
    finally:
        process.stop()


def test_what_keeps_readings_away_is_told_with_the_time_limit() -> None:
    """A generator that is gone before its first reading is the reason, not the NF that waits for it."""
    readings = FunctionReadings("one")
    readings.problem = "host 'gen1' cannot be reached"
    process: Any = SimpleNamespace(name="one", require_alive=lambda _: None, last_words=lambda: "")
    section = {"command": ["one"], "throughput": {"source": "generator"}, "ready": {"limit_s": 0.05}}
    definition = parse_host(section, nf="one")

    with pytest.raises(TestbedError, match=r"was not ready within 0.05 s .*; host 'gen1' cannot be reached"):
        ReadyWatch(definition, process, readings, {}).wait()
