"""Every network function for real, for a moment, on a replayed capture, its knobs, its statistics, its end."""

import json
import signal
import subprocess

import pytest

NFS = ["synthetic", "l2fwd", "router", "firewall", "flowstats", "nat", "maglev", "dpi", "ipsec"]


@pytest.mark.parametrize("nf", NFS)
def test_each_network_function_runs_on_a_replayed_capture(program, captures, nf):
    """All packets come from the capture, and each is sent or counted as dropped."""
    if nf == "ipsec" and program.build == "portable":
        assert program.run("--nf", nf).returncode == 2  # it is in the DPDK build only
        return
    path = captures.write([captures.packet(source_port=port, payload=b"p" * 22) for port in range(1, 501)])

    run = program.run("--nf", nf, "--pcap", path, "--duration-s", 0.3, "--interval-s", 0.1, "--routes", 2000)

    end = run.end
    assert run.returncode == 0, run.errors
    assert run.one("ready")["nf"] == nf
    assert run.one("ready")["instances"][0]["source"] == {"portable": "preloaded", "dpdk": "net_pcap0"}[program.build]
    assert end["packets"] > 500
    assert end["bytes"] == end["packets"] * len(captures.packet(payload=b"p" * 22).frame())
    assert end["sent"] + sum(end["drops"].values()) == end["packets"]
    assert end["drops"]["nf"] == 0


def test_intervals_add_up_and_hold_what_the_interface_promises(program):
    """Each interval has packets, bytes, cycles, accesses, drops and a latency histogram that counts every packet."""
    run = program.run("--duration-s", 0.7, "--interval-s", 0.2)

    intervals = [line for line in run.lines if line["event"] == "interval"]
    assert intervals
    assert sum(line["packets"] for line in intervals) <= run.end["packets"]
    for line in [*intervals, run.end]:
        assert set(line["drops"]) == {"nf", "send", "queue", "port"}
        assert line["rate_mpps"] == pytest.approx(line["packets"] / line["interval_s"] / 1e6, rel=1e-3, abs=1e-6)
        assert line["accesses_per_s"] == pytest.approx(line["accesses"] / line["interval_s"], rel=1e-3)
        assert (line["cycles_per_packet"] is None) == (line["packets"] == 0)
        assert 0 < line["cpu_share"] < 1.5
    latency = run.end["latency_ns"]
    assert sum(count for _, count in latency["histogram"]) == run.end["packets"]
    assert latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]


def test_every_knob_arrives(program):
    """What the flags say is what the program says it runs with."""
    knobs = {
        "data_size_mib": 1.5, "reads_per_packet": 3, "writes_per_packet": 2, "iterations": 4, "pattern": "sequential",
        "packet_buffers": 512, "packet_size_b": 200, "burst": 8, "rate_mpps": 0.01, "instances": 2,
    }  # fmt: skip
    flags = [word for name, value in knobs.items() for word in (f"--{name.replace('_', '-')}", value)]

    run = program.run(*flags, "--packets", 40)

    ready = run.one("ready")
    ends = {line["instance"]: line for line in run.lines if line["event"] == "end"}
    assert ready["knobs"] == knobs
    assert ready["data_bytes"] == 1.5 * 2**20
    for number in range(2):
        assert (ends[number]["packets"], ends[number]["bytes"]) == (40, 40 * 200)
        assert ends[number]["nf_counters"]["reads"] == 40 * 3 * 4
        assert ends[number]["nf_counters"]["writes"] == 40 * 2 * 4


def test_offered_load_bounds_the_packets(program):
    """With a rate no more packets are worked on than were offered, and what was too late is counted as lost."""
    end = program.run("--rate-mpps", 0.02, "--duration-s", 0.6, "--reads-per-packet", 1).end

    offered = 0.02e6 * end["interval_s"]
    assert 0 < end["packets"] <= offered + 1
    assert end["packets"] + end["drops"]["queue"] <= offered + 1


def test_overload_fills_the_queue_and_loses_the_rest(portable):
    """Offered more than it can do, it loses packets at its queue instead of falling behind for ever."""
    end = portable.run("--rate-mpps", 5, "--duration-s", 0.5, "--reads-per-packet", 20000, "--data-size-mib", 1).end

    assert end["drops"]["queue"] > end["packets"]


def test_generated_flows_are_as_many_as_asked_for(program):
    """Generated traffic has the number of flows that --flows says."""
    end = program.run("--nf", "flowstats", "--flows", 777, "--packets", 5000).end

    assert end["nf_counters"]["flows"] == 777


def test_same_seed_same_bytes(portable, captures):
    """Generated frames depend on the seed alone."""
    contents = []
    for number, seed in enumerate([3, 3, 4]):
        name = f"out{number}.pcap"
        portable.run("--nf", "l2fwd", "--packets", 64, "--seed", seed, "--tx-pcap", captures.folder / name)
        contents.append(captures.read(name))

    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    assert all(captures.packet.read(frame).ttl == 64 for frame in contents[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_totals(program, started, number):
    """SIGINT and SIGTERM end a run with exit code 0 and a last line of totals."""
    process = program.start("--interval-s", 60)
    started.append(process)

    process.send_signal(number)
    output, _ = process.communicate(timeout=30)

    assert process.returncode == 0
    assert json.loads(output.splitlines()[-1])["event"] == "end"


def test_it_ends_when_nobody_reads_its_lines(portable, started):
    """A closed pipe ends the run instead of leaving it behind."""
    process = portable.start("--interval-s", 0.05)
    started.append(process)
    assert process.stdout is not None

    process.stdout.close()

    assert process.wait(timeout=30) == 3
    process.stdout = None  # closed: nothing is left to be read after the test


def test_it_ends_with_its_parent(portable):
    """With --die-with-parent a killed parent leaves nothing running."""
    script = f"'{portable.path}' --die-with-parent --interval-s 60 & echo $!; read line"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.stdout.readline()  # ready
        parent.kill()
        parent.wait()
        lines = parent.stdout.read()  # ends when the last writer, the program, is gone

    assert json.loads(lines.splitlines()[-1])["event"] == "end"
    assert pid > 0


def test_heavy_packets_do_not_hide_the_progress(portable):
    """Counters move while a burst is worked on that lasts longer than an interval."""
    run = portable.run(
        "--reads-per-packet", 300000, "--data-size-mib", 1, "--burst", 256, "--interval-s", 0.05, "--duration-s", 0.6
    )

    packets = [line["packets"] for line in run.lines if line["event"] == "interval"]
    assert any(0 < count < 256 for count in packets)
