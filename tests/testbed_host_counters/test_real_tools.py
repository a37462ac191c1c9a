"""Other people's tools as they are installed here: they work, or fail with our words; skipped where there is none."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from slomo.errors import TestbedError
from slomo.host.tool import RunningTool, is_installed, run_tool
from slomo.testbed.host.counters.pcm import PcmMemoryReader, PcmPcieReader, PcmReader
from slomo.testbed.host.counters.perf import PerfReader
from slomo.testbed.host.counters.pqos import PqosReader
from slomo.testbed.host.traffic.testpmd import PcapReplay, TestpmdGenerator, memif
from slomo.vocabulary.workload import Traffic

READERS = (PcmReader, PcmMemoryReader, PcmPcieReader, PerfReader, PqosReader)


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_installed_counters_work_or_say_why(kind: type[PcmReader]) -> None:
    """A reader that cannot read names the reason in one line, and refuses to start with the same and a hint."""
    reader = kind()
    if not is_installed(reader.command):
        pytest.skip(f"'{reader.command}' is not installed")

    usable, why = reader.available()

    if usable:
        reader.start([0])
        assert reader.stop().duration_s > 0.0
        return
    assert why
    assert "\n" not in why
    with pytest.raises(TestbedError) as caught:
        reader.start([0])
    assert why in caught.value.message
    assert caught.value.hint


def test_what_perf_really_prints_is_read() -> None:
    """The JSON of perf of software events parses, and unsupported hardware events are absent."""
    from slomo.testbed.host.counters.perf import counted, enabled_s

    if not is_installed("perf"):
        pytest.skip("'perf' is not installed")
    finished = run_tool(["perf", "stat", "-j", "-a", "-A", "-e", "cpu-clock,cycles", "--", "sleep", "0.05"])
    if finished.code != 0:
        pytest.skip(f"perf may not count here: {finished.last_words()}")
    lines = finished.stderr.splitlines()

    counts = counted(lines, "cpu")

    assert counts[("0", "cpu-clock")] > 0.0
    assert enabled_s(lines) > 0.04
    unsupported = [json.loads(line)["event"] for line in lines if "<not supported>" in line]
    assert not {event for _, event in counts} & set(unsupported)


@pytest.fixture
def testpmd() -> dict[str, object]:
    """Return settings of a generator that needs neither hugepages nor a NIC."""
    usable, why = TestpmdGenerator("net_null0", 0).available()
    if not usable:
        pytest.skip(why)
    return {"core": 0, "hugepages": False}


@pytest.mark.parametrize("kind", [TestpmdGenerator, PcapReplay], ids=lambda kind: kind.name)
def test_packets_really_reach_another_process(
    kind: type[TestpmdGenerator], testpmd: dict[str, object], tmp_path: Path
) -> None:
    """Made or replayed packets cross a memif to a real program that mirrors them, come back, and leave nothing."""
    meeting = tmp_path / "m.sock"
    eal = ["--lcores=0@0,1@0", "-n", "1", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry"]
    eal += [f"--file-prefix=slomo-test-{os.getpid()}", "--vdev", memif(meeting, server=True)]
    options = ["--no-mlockall", "--stats-period=1", "--total-num-mbufs=16384", "--forward-mode=macswap"]
    mirror = ["dpdk-testpmd", *eal, "--", *options, "--port-topology=loop", "-a"]
    generator = kind(memif(meeting), **testpmd)

    with RunningTool(mirror) as running:
        assert running.wait(lambda: any("NIC statistics" in line for line in running.lines()), 20.0)
        try:
            generator.start(Traffic(flow_count=500))
            deadline = time.monotonic() + 15.0
            while generator.statistics().received_packets == 0 and time.monotonic() < deadline:
                time.sleep(0.05)
            statistics = generator.statistics()
        finally:
            generator.stop()
    shutil.rmtree(f"/var/run/dpdk/slomo-test-{os.getpid()}", ignore_errors=True)

    assert 0 < statistics.received_packets <= statistics.sent_packets
