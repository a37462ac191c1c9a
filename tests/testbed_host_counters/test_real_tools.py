"""Other people's tools as they are installed here: they work, or fail with our words; skipped where there is none."""

import json
import time

import pytest

from slomo.errors import TestbedError
from slomo.testbed.host.counters.pcm import PcmReader
from slomo.testbed.host.counters.pcm_tools import PcmMemoryReader, PcmPcieReader
from slomo.testbed.host.counters.perf import PerfReader
from slomo.testbed.host.counters.pqos import PqosReader
from slomo.testbed.host.tool import is_installed, run_tool
from slomo.testbed.host.traffic.testpmd import PcapReplay, TestpmdGenerator
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

    found = counted(lines, "cpu")

    assert found[("0", "cpu-clock")] > 0.0
    assert enabled_s(lines) > 0.04
    unsupported = [json.loads(line)["event"] for line in lines if "<not supported>" in line]
    assert not {event for _, event in found} & set(unsupported)


@pytest.fixture
def testpmd() -> dict[str, object]:
    """Return settings of a generator that needs neither hugepages nor a NIC."""
    usable, why = TestpmdGenerator("net_null0", 0).available()
    if not usable:
        pytest.skip(why)
    return {"core": 0, "hugepages": False}


@pytest.mark.parametrize("kind", [TestpmdGenerator, PcapReplay], ids=lambda kind: kind.name)
def test_testpmd_really_sends(kind: type[TestpmdGenerator], testpmd: dict[str, object]) -> None:
    """Packets leave a real testpmd, made or replayed, and their number grows."""
    generator = kind("net_null0,size=64", **testpmd)
    try:
        generator.start(Traffic(flow_count=500))
        deadline = time.monotonic() + 15.0
        while generator.statistics().sent_packets == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert generator.statistics().sent_packets > 0
    finally:
        generator.stop()
