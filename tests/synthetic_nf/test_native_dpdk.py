"""What only the DPDK build has: ports of every kind, telemetry, hugepages or none, and nothing left behind."""

import json
import os
import socket
import time
from pathlib import Path

import pytest

RUNTIME = Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp") if os.geteuid() else "/var/run") / "dpdk"
HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


def ask(prefix: str, *commands: str) -> list[dict]:
    """Send commands to the telemetry socket of a DPDK process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(str(RUNTIME / prefix / "dpdk_telemetry.v2"))
        limit = json.loads(connection.recv(1024))["max_output_len"]
        answers = []
        for command in commands:
            connection.send(command.encode())
            answers.append(json.loads(connection.recv(limit)))
        return answers


def test_telemetry_counts_what_the_lines_count(dpdk, captures, started):
    """/slomo/nf and /ethdev/stats answer while it runs, and agree that every packet received was sent."""
    path = captures.write([captures.packet(source_port=port) for port in range(1, 65)])
    prefix = f"slomo-test-{os.getpid()}"
    process = dpdk.start("--nf", "flowstats", "--pcap", path, "--file-prefix", prefix, "--interval-s", 60)
    started.append(process)

    for _ in range(200):
        own, port = ask(prefix, "/slomo/nf,0", "/ethdev/stats,0")
        if own["/slomo/nf"]["packets"] >= 64:  # each flow of the capture has come by
            break
    process.terminate()
    process.communicate(timeout=30)

    counters = own["/slomo/nf"]
    assert (counters["nf"], counters["flows"]) == ("flowstats", 64)
    assert counters["packets"] >= counters["sent"] > 0
    assert port["/ethdev/stats"]["ipackets"] > 0
    assert not (RUNTIME / prefix).exists()


def test_unknown_instances_are_refused_by_telemetry(dpdk, started):
    """An instance that does not run has no counters."""
    prefix = f"slomo-test-none-{os.getpid()}"
    process = dpdk.start("--file-prefix", prefix, "--interval-s", 60)
    started.append(process)

    (answer,) = ask(prefix, "/slomo/nf,7")

    assert answer == {"/slomo/nf": None}
    process.terminate()
    assert process.wait(timeout=30) == 0


def test_net_null_gives_frames_of_its_size(dpdk):
    """A port that makes its own frames is used as it is."""
    run = dpdk.run("--vdev", "net_null0,size=128", "--packets", 3200, "--reads-per-packet", 1)

    assert run.one("ready")["instances"][0]["source"] == "net_null0"
    assert (run.end["packets"], run.end["bytes"]) == (3200, 3200 * 128)


def test_net_ring_carries_the_first_frames_round_and_round(dpdk):
    """What is sent into a ring comes back: 64 first frames give any number of packets."""
    end = dpdk.run("--nf", "l2fwd", "--vdev", "net_ring0", "--tx-first", 64, "--packets", 5000).end

    assert end["packets"] == end["sent"] == 5000


def test_net_memif_joins_two_processes(dpdk, captures, started):
    """Frames that one process sends into a shared-memory link arrive in another one unharmed."""
    link = f"net_memif0,role={{}},id=0,socket={captures.folder / 'link'},socket-abstract=no"
    quiet = ["--interval-s", 60, "--vdev"]
    arrived = f"net_pcap0,tx_pcap={captures.folder / 'out.pcap'}"
    receiver = dpdk.start("--nf", "l2fwd", "--packets", 200, *quiet, link.format("server"), "--vdev", arrived)
    started.append(receiver)
    sender = dpdk.start("--rate-mpps", 0.05, *quiet, link.format("client"), "--vdev", "net_null0,size=90")
    started.append(sender)

    output, _ = receiver.communicate(timeout=50)

    end = json.loads(output.splitlines()[-1])
    assert end["packets"] == end["sent"] == 200
    assert {(frame[:6], len(frame)) for frame in captures.read()} == {(b"\x02\0\0\0\0\x02", 90)}


def test_two_instances_have_a_port_each(dpdk, captures):
    """Every instance replays the capture by itself."""
    path = captures.write([captures.packet()] * 10)

    run = dpdk.run("--instances", 2, "--nf", "l2fwd", "--pcap", path, "--packets", 100)

    sources = [instance["source"] for instance in run.one("ready")["instances"]]
    assert sources == ["net_pcap0", "net_pcap1"]
    assert [line["packets"] for line in run.lines if line["event"] == "end"] == [100, 100]


def test_instances_do_not_share_ports(dpdk):
    """Fewer ports than instances is a mistake of the user."""
    run = dpdk.run("--instances", 2, "--vdev", "net_null0", "--packets", 1)

    assert (run.returncode, run.lines) == (2, [])
    assert "2 instances share 1 ports" in run.errors


def test_a_port_that_does_not_start_is_named(dpdk):
    """A driver that does not exist ends with code 3, a hint, and leaves no directory behind."""
    prefix = f"slomo-test-failing-{os.getpid()}"

    run = dpdk.run("--vdev", "net_nosuch0", "--packets", 1, "--file-prefix", prefix)

    assert run.returncode == 3
    assert "hint:" in run.errors
    assert not (RUNTIME / prefix).exists()


def test_buffers_that_do_not_fit_are_refused(dpdk):
    """More packet buffers than memory: code 3 and the flag that helps."""
    run = dpdk.run("--no-huge", "--memory-mib", 64, "--packet-buffers", 200000, "--packets", 1)

    assert run.returncode == 3
    assert "--memory-mib" in run.errors


def test_it_runs_without_hugepages(dpdk):
    """--no-huge needs nothing of the machine."""
    run = dpdk.run("--no-huge", "--packets", 100)

    assert run.one("ready")["hugepages"] is False
    assert run.end["packets"] == 100


def test_it_runs_in_hugepages_and_gives_them_back(dpdk):
    """With reserved hugepages it uses them, and all are free again afterwards."""
    if os.geteuid() != 0 or not HUGEPAGES.exists():
        pytest.skip("only root can reserve hugepages")
    free = HUGEPAGES.with_name("free_hugepages")
    before = HUGEPAGES.read_text(encoding="ascii")
    try:
        HUGEPAGES.write_text(str(int(before) + 80), encoding="ascii")
        idle = int(free.read_text(encoding="ascii"))
        if idle < 80:
            pytest.skip(f"the kernel reserved {idle} of 80 hugepages")
        run = dpdk.run("--memory-mib", 128, "--data-size-mib", 8, "--packets", 100)
        deadline = time.monotonic() + 20  # another test's function may hold pages for a moment
        while (after := int(free.read_text(encoding="ascii"))) != idle and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        HUGEPAGES.write_text(before, encoding="ascii")

    ready = run.one("ready")
    assert (ready["hugepages"], ready["data_pages"]) == (True, "huge_2mib")
    assert after == idle


def test_arguments_behind_two_dashes_go_to_dpdk(dpdk):
    """A user's own EAL arguments are passed on; what EAL prints never reaches stdout."""
    good = dpdk.run("--packets", 10, "--", "--vdev", "net_null7,size=64")
    bad = dpdk.run("--packets", 10, "--", "--no-such-argument")

    assert good.one("ready")["instances"][0]["source"] == "net_null7"
    assert (bad.returncode, bad.lines) == (3, [])
