"""Tools that count, driven as programs: pcm, perf, pqos; their numbers, their absence, their sudden end."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slomo.errors import TestbedError, UnknownNameError
from slomo.testbed.host.counters.base import CounterReader, CounterSample
from slomo.testbed.host.counters.events import Events
from slomo.testbed.host.counters.pcm import PcmMemoryReader, PcmPcieReader, PcmReader, pcie_lookups
from slomo.testbed.host.counters.perf import PerfReader, counted
from slomo.testbed.host.counters.pqos import PqosReader, polls_by_core
from slomo.testbed.host.counters.registry import READERS, CombinedReader, choose_reader

Program = Callable[[str, str], Path]


def test_pcm_gives_core_and_socket_vectors_in_our_units(program: Program) -> None:
    """Amounts per interval of a quarter second become amounts per second."""
    program("pcm", "fake_pcm.py")
    reader = PcmReader(interval_s=0.02)

    reader.start([1])
    sample = reader.stop()

    assert set(sample.cores) == {1}
    assert sample.cores[1]["L3MISS"] == pytest.approx(4.0)
    assert sample.cores[1]["L3OCC"] == 2048.0
    assert sample.sockets[0]["LMB"] == pytest.approx(1000.0)
    assert "READ" not in sample.cores[1]


def test_pcm_without_rights_is_unavailable_with_its_reason(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """PCM's empty file and sentence on stderr become one message with a hint."""
    program("pcm", "fake_pcm.py")
    monkeypatch.setenv("FAKE_MODE", "denied")

    usable, why = PcmReader().available()
    with pytest.raises(TestbedError, match="no performance counters") as caught:
        PcmReader().start([0])

    assert not usable
    assert "exit code 1" in why
    assert "vPMU" in str(caught.value.hint)


def test_pcm_that_ends_by_itself_is_an_error(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that vanish in the middle of a run are told as such, with PCM's reason."""
    program("pcm", "fake_pcm.py")
    monkeypatch.setenv("FAKE_MODE", "vanishes")
    reader = PcmReader(interval_s=0.02)
    reader.start([0])

    with pytest.raises(TestbedError, match=r"counters vanished: 'pcm' ended .* another program has programmed"):
        reader.stop()


def test_tools_that_are_not_installed_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program there is no traceback but a package."""
    monkeypatch.setenv("PATH", "/nowhere")

    for reader in (PcmReader(), PcmMemoryReader(), PerfReader(), PqosReader()):
        usable, why = reader.available()
        assert not usable
        assert "apt-get install" in why


def test_pcie_tool_separates_what_devices_and_cores_ask() -> None:
    """Stores of cores to devices are no accesses of devices to the cache."""
    lines = [
        "Skt,PCIRdCur,RFO,ItoM,PRd,WiL",
        "0,100,10,1000,5,7(Total)",
        "0,40,4,600,0,7(Miss)",
        "0,60,6,400,5,0(Hit)",
        "1,0,0,0,0,0(Total)",
        "1,0,0,0,0,0(Miss)",
        "1,0,0,0,0,0(Hit)",
    ]

    assert pcie_lookups(lines) == {0: [(466.0, 644.0)], 1: [(0.0, 0.0)]}


def test_pcie_tool_gives_socket_vectors(tmp_path: Path) -> None:
    """Hits and misses per interval become millions per second."""
    tool = tmp_path / "pcm-pcie"
    rows = "Skt,ItoM\\n0,5000000(Total)\\n0,2000000(Miss)\\n0,3000000(Hit)\\n"
    tool.write_text(f"#!/bin/sh\nprintf '{rows}' > ${{2#-csv=}}\n[ $# = 4 ] || exec sleep 60\n", encoding="ascii")
    tool.chmod(0o755)
    reader = PcmPcieReader(str(tool), interval_s=0.5)

    reader.start([0])
    sample = reader.stop()

    assert dict(sample.sockets[0]) == {"PCIEHIT": 6.0, "PCIEMISS": 4.0}


def test_perf_counts_cores_and_sockets(program: Program, tmp_path: Path) -> None:
    """Rates follow perf's own clock; quotients of a socket are formed after adding its cores."""
    program("perf", "fake_perf.py")
    reader = PerfReader(vendor="intel", devices=tmp_path)

    reader.start([0])
    sample = reader.stop()

    assert set(sample.cores) == {0}
    assert sample.duration_s == 1.0
    core = sample.cores[0]
    assert (core["IPC"], core["L3MISS"], core["L2MISS"], core["L3HIT"]) == (1.5, 5.0, 20.0, 0.75)
    assert core["AFREQ"] == 1.25
    assert sample.sockets[0]["INST"] == 6000.0


def test_perf_reads_memory_controllers_where_the_kernel_has_them(program: Program, tmp_path: Path) -> None:
    """The uncore's MiB become GB/s of the socket."""
    program("perf", "fake_perf.py")
    for event in ("cas_count_read", "cas_count_write"):
        (tmp_path / "uncore_imc_0" / "events").mkdir(parents=True, exist_ok=True)
        (tmp_path / "uncore_imc_0" / "events" / event).touch()
    reader = PerfReader(vendor="intel", devices=tmp_path)

    reader.start([0])
    sample = reader.stop()

    assert sample.sockets[0]["READ"] == pytest.approx(1.073741824)


def test_cache_events_of_amd_count_at_l2(program: Program, tmp_path: Path) -> None:
    """On AMD the generic cache events say nothing about the last-level cache."""
    program("perf", "fake_perf.py")
    reader = PerfReader(vendor="amd", devices=tmp_path)

    reader.start([0])
    core = reader.stop().cores[0]

    assert core["L2MISS"] == 5.0
    assert "L3MISS" not in core


def test_what_perf_did_not_count_is_missing(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`<not counted>` on one core makes the metric missing there and in its socket's sum, nothing else."""
    program("perf", "fake_perf.py")
    monkeypatch.setenv("FAKE_MODE", "multiplexed")
    reader = PerfReader(vendor="intel", devices=tmp_path)

    reader.start([0, 1])
    sample = reader.stop()

    assert "L3MISS" in sample.cores[0]
    assert "L3MISS" not in sample.cores[1]
    assert "L3MISS" not in sample.sockets[0]
    assert sample.cores[1]["IPC"] == 1.5


def test_perf_without_a_pmu_is_unavailable(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 with nothing but `<not supported>` is no success."""
    program("perf", "fake_perf.py")
    monkeypatch.setenv("FAKE_MODE", "no-pmu")

    usable, why = PerfReader().available()

    assert not usable
    assert "no vPMU" in why


def test_perf_that_ends_by_itself_is_an_error(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last words of perf come with the error."""
    program("perf", "fake_perf.py")
    monkeypatch.setenv("FAKE_MODE", "vanishes")

    with pytest.raises(TestbedError, match="No permission to enable"):
        PerfReader().start([0])


def test_perf_output_of_every_aggregation_is_read() -> None:
    """Intervals, sockets and garbage lines do not confuse the reader."""
    lines = [
        "# started on Sat Nov 21 01:02:38 2026",
        "",
        "[not json",
        '"text"',
        '{"socket" : "S1", "aggregate-number" : 1, "counter-value" : "8.5", "unit" : "MiB", '
        '"event" : "uncore_imc/cas_count_read/", "event-runtime" : 10, "pcnt-running" : 100.00}',
        '{"cpu" : "0", "counter-value" : "5", "event" : "cycles", "pcnt-running" : 1.00}',
    ]

    assert counted(lines, "socket") == {("1", "cas_count_read"): 8.5}
    assert counted(lines, "cpu") == {}


def test_pqos_gives_medians_without_its_first_poll(program: Program) -> None:
    """The poll right after the start is nonsense and dropped; an empty cell is missing, also in the socket's sum."""
    program("pqos", "fake_pqos.py")
    reader = PqosReader(interval_s=0.1, operating_system=False, has_pmu=False)

    reader.start([0])
    sample = reader.stop()

    assert dict(sample.cores[0]) == {"L3OCC": 1024.0, "LMB": 100.0, "RMB": 50.0}
    assert dict(sample.sockets[0]) == {"L3OCC": 3072.0, "LMB": 350.0}


@pytest.mark.parametrize(("mode", "told"), [("unsupported", "not supported"), ("old", "Usage")])
def test_pqos_that_cannot_monitor_is_unavailable(
    program: Program, monkeypatch: pytest.MonkeyPatch, mode: str, told: str
) -> None:
    """Neither exit code 1 nor a usage text with exit code 0 passes for success."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_MODE", mode)

    usable, why = PqosReader().available()

    assert not usable
    assert told in why


def test_pqos_that_ends_by_itself_is_an_error(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitoring that stops early is told."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_MODE", "vanishes")
    reader = PqosReader(interval_s=0.1, operating_system=False, has_pmu=False)

    def run() -> None:
        reader.start([0])  # it may be gone before its first poll was read, or after
        reader.stop()

    with pytest.raises(TestbedError, match="counters vanished: 'pqos'"):
        run()


def test_pqos_columns_go_by_name() -> None:
    """Columns of newer releases in between, counts per interval, and N/A do not matter."""
    lines = ["Time,Core,IPC,LLC Misses,Power[W],LLC[KB]", 'x,"0",1.50,2000000,5.0,N/A', 'x,"0,1",1,1,1,1']

    assert polls_by_core(lines, 0.5) == {0: [{"IPC": 1.5, "L3MISS": 4.0}]}


class _Reader:
    """Answers from memory."""

    def __init__(self, name: str, usable: bool = True, breaks: bool = False) -> None:
        self.name, self.usable, self.breaks, self.running = name, usable, breaks, False

    def available(self) -> tuple[bool, str]:
        return self.usable, "as told"

    def start(self, cores: object) -> None:
        if self.breaks:
            raise TestbedError("cannot start")
        self.running = True

    def stop(self) -> CounterSample:
        from slomo.vocabulary.metrics import Scope
        from slomo.vocabulary.vector import MetricVector

        self.running = False
        values = {"IPC": 1.0} if self.name == "a" else {"IPC": 9.0, "L3OCC": 5.0}
        return CounterSample({0: MetricVector(values, scope=Scope.CORE)}, duration_s=1.0)


def test_readers_complete_each_other() -> None:
    """The first reader's value counts, what it lacks comes from the next one; names go to the provenance."""
    reader = CombinedReader([_Reader("a"), _Reader("b"), _Reader("c", usable=False)])

    reader.start([0])
    sample = reader.stop()

    assert dict(sample.cores[0]) == {"IPC": 1.0, "L3OCC": 5.0}
    assert reader.name == "a+b"


def test_no_reader_keeps_running_when_another_does_not_start() -> None:
    """Starting is all or nothing."""
    first = _Reader("a")

    with pytest.raises(TestbedError, match="cannot start"):
        CombinedReader([first, _Reader("b", breaks=True)]).start([0])

    assert not first.running


def test_readers_are_chosen_by_alias_and_joined_by_plus() -> None:
    """An alias that does not exist is named, also as part of a pair."""
    with pytest.raises(UnknownNameError, match="prf"):
        choose_reader("prf+resctrl")


def test_every_alias_is_a_reader() -> None:
    """All registered readers keep the contract, and say why when they cannot."""
    from slomo.testbed.host.counters.registry import _named

    for alias in READERS:
        reader = _named(alias, READERS)
        assert isinstance(reader, CounterReader)
        assert reader.name == alias
        with pytest.raises(TestbedError, match=r"not started|not asked"):
            reader.stop()


def test_an_event_nobody_counted_is_missing_not_zero() -> None:
    """Events without a count give no metric, and adding keeps the gap (law 5)."""
    added = Events(instructions=1e9, cycles=1e9) + Events(cycles=1e9)

    assert added.metrics(1.0) == {}
    assert Events(cycles=0.0, instructions=0.0).metrics(1.0) == {"INST": 0.0}


@pytest.mark.parametrize("damage", ["\r", "9" * 140_000, '"'])
def test_a_damaged_line_of_a_tool_is_passed_over(damage: str) -> None:
    """A carriage return, a huge cell or a quote in one line costs that line, not the run."""
    pcie = ["Skt,PCIRdCur,ItoM", "0,1,7(Total)", f"0,1,2(M{damage}iss)", "0,1,2(Miss)", "0,9,18(Hit)"]
    pqos = ["Time,Core,IPC,LLC Misses", f"t,1,1.{damage}5,2000k", "t,1,1.5,2000"]

    assert pcie_lookups(pcie) == {0: [(27.0, 3.0)]}
    assert 1.5 in [poll.get("IPC") for poll in polls_by_core(pqos, 0.5)[1]]
