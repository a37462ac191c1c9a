"""The testbed on ChampSim: recording, conversion, statistics and refusals; ChampSim itself is needed by none of it."""

import itertools
import json
import re
import shutil
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError
from slomo.testbed.champsim.binaries import EXPECTED, find_binaries
from slomo.testbed.champsim.conversion import (
    FLAGS,
    INSTRUCTION_POINTER,
    RECORD,
    STACK_POINTER,
    Disassembler,
    Instruction,
    convert,
    resident_set,
    working_set,
)
from slomo.testbed.champsim.execution import Execution, check_length, counted, memory_lines, read_execution
from slomo.testbed.champsim.recording import STORE, Recording, parse, record, symbol_address
from slomo.testbed.champsim.testbed import (
    MACHINE,
    ChampSimTestbed,
    champsim_machine,
    occupancy_lines,
    throughput_mpps,
    vectors,
    windows,
)
from slomo.testbed.champsim.traces import Trace
from slomo.testbed.registry import machine_of
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.workload import Traffic, Workload

RECORDED = Path(__file__).with_name("champsim")
NONE = np.array([], dtype=np.uint64)
#: An addition from memory, a store, a jump taken back to the begin.
LACKEY = b"""==1== Lackey
I  00401000,4
 L 1ffe000010,8
I  00401004,4
 S 1ffe000050,8
I  00401008,2
I  00401000,4
 M 1ffe000090,8
"""
KNOWN = {
    0x401000: Instruction((64,), (65,), (65, FLAGS)),
    0x401004: Instruction((64,), (65,), ()),
    0x401008: Instruction((), (FLAGS,), (), branch="conditional"),
}


def recorded(text: bytes = LACKEY, instructions: int = 4) -> Recording:
    return parse(text, history=NONE, marker=0x401000, instructions=instructions)


def execution(part: str) -> Execution:
    """Return what ChampSim with two cores reported: NAT beside the synthetic competitor."""
    text, statistics = ((RECORDED / f"two-cores-{part}.{kind}").read_text() for kind in ("txt", "json"))
    return read_execution(text, statistics, cores=2, warm=4096)


def trace(records_per_cycle: float, lines: float) -> Trace:
    """Return a trace of even speed that touches so many lines."""
    alone = np.array([(0.0, 0.0), (1e6, 1e6 / records_per_cycle)])
    return Trace(Path("whole"), Path("settling"), 0.002, 0.9, alone, np.array([(0.0, 0.0), (1e5, lines)]))


def test_lackeys_lines_become_a_recording() -> None:
    """Instructions keep their order, references their instruction; a modification is one reference."""
    recording = recorded()
    assert recording.ip.tolist() == [0x401000, 0x401004, 0x401008, 0x401000]
    assert recording.owner.tolist() == [0, 1, 3]
    assert recording.calls == 2


@pytest.mark.parametrize(
    ("text", "instructions", "says"),
    [
        (LACKEY, 9, r"ends after 4 instructions, needed 9"),
        (LACKEY[:40], 4, r"ends after \d instructions?, needed 4"),
        (b"I  00401000,4\nnonsense\n", 1, r"line 2: b'nonsense' is no reference"),
    ],
)
def test_a_trace_cut_short_is_refused(text: bytes, instructions: int, says: str) -> None:
    """A recording that ends early, or is none, is told with line and need."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        recorded(text, instructions)
    assert caught.value.hint


def count_references(records) -> tuple[int, int]:
    """Return how many loads and stores a trace has."""
    return int(np.count_nonzero(records["loads"])), int(np.count_nonzero(records["stores"]))


def test_memory_operands_become_records_of_their_own() -> None:
    """An addition from memory loads by its address alone; a modification loads, computes and stores."""
    records, place = convert(recorded(), lambda ip, size: KNOWN[ip])
    assert place.tolist() == [0, 2, 3, 4]
    assert len(records) == 7
    load, addition = records[0], records[1]
    assert load["loads"][0] == 0x1FFE000010
    assert load["source"].tolist() == [64, 0, 0, 0]
    assert load["destination"][0] == addition["source"][0]
    assert not addition["loads"].any()
    assert records[2]["stores"][0] == 0x1FFE000050
    assert records[6]["stores"][0] == records[4]["loads"][0] == 0x1FFE000090
    assert count_references(records) == (2, 2)


def test_a_branch_is_recognised_by_its_registers() -> None:
    """A conditional branch reads flags and instruction pointer, writes the latter, and knows whether it was taken."""
    records, _ = convert(recorded(), lambda ip, size: KNOWN[ip])
    branch = records[3]
    assert (branch["is_branch"], branch["taken"]) == (1, 1)
    assert set(branch["source"]) - {0} == {INSTRUCTION_POINTER, FLAGS}
    assert branch["destination"][0] == INSTRUCTION_POINTER
    assert STACK_POINTER not in branch["source"]
    assert records["is_branch"].sum() == 1


def test_a_record_is_64_bytes() -> None:
    """The layout is ChampSim's input_instr."""
    assert RECORD.itemsize == 64
    assert [RECORD.fields[name][1] for name in ("is_branch", "destination", "source", "stores", "loads")] == [
        8, 10, 12, 16, 32,
    ]  # fmt: skip


def test_every_trace_begins_with_as_many_loads() -> None:
    """Caches start empty: the lines used last come first, over and over where they are few, the last one at the end."""
    recording = Recording(*[NONE] * 5, history=np.array([5, 7, 9], dtype=np.uint64), calls=0)
    assert (resident_set(recording, 8)["loads"][:, 0] // 64).tolist() == [7, 9, 5, 7, 9, 5, 7, 9]
    assert (resident_set(recording, 2)["loads"][:, 0] // 64).tolist() == [7, 9]


def test_the_working_set_grows_with_the_window() -> None:
    """A scan touches a line per record."""
    records = np.zeros(1000, dtype=RECORD)
    records["loads"][:, 0] = 64 * np.arange(1, 1001)
    assert working_set(records) == [(0, 0.0), (256, 256.0), (512, 512.0), (1000, 1000.0)]


def program(folder: Path) -> Path:
    """Compile a program that works for a while and calls a function again and again."""
    source = folder / "work.c"
    source.write_text(
        "static volatile unsigned long table[4096];\n"
        "__attribute__((noinline)) unsigned long worker_step(unsigned long x)\n"
        "{ for (int i = 0; i < 64; i++) { x = x * 6364136223846793005ul + 1; table[x >> 52] += x; } return x; }\n"
        "int main(void) { unsigned long x = 1; for (int i = 0; i < 2000; i++) x = worker_step(x); return x == 0; }\n"
    )
    subprocess.run(["cc", "-O1", "-static", "-no-pie", "-o", str(folder / "work"), str(source)], check=True)
    return folder / "work"


@pytest.mark.slow
def test_a_trace_agrees_with_cachegrinds_count(tmp_path: Path) -> None:
    """Instructions, loads and stores of a whole run are those that cachegrind, which shares no code with us, counts."""
    for tool in ("valgrind", "cc", "nm"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}, which is not installed")
    pytest.importorskip("capstone", reason="needs the package capstone")
    work = program(tmp_path)
    counting = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=yes",
        f"--cachegrind-out-file={tmp_path / 'out'}",
        str(work),
    ]
    told = subprocess.run(counting, capture_output=True, text=True, check=True).stderr
    whole = int(re.search(r"I +refs: +([\d,]+)", told)[1].replace(",", ""))  # type: ignore[index]
    reads, writes = re.search(r"\(([\d,]+) rd +\+ +([\d,]+) wr\)", told).groups()  # type: ignore[union-attr]
    marker = symbol_address(work, "worker_step")
    recording = record([str(work)], marker, skipped_calls=0, instructions=int(0.9 * whole))
    assert 0.85 < len(recording.ip) / whole < 0.95
    per_call = np.flatnonzero(recording.ip == marker)
    calls = (per_call[-1] - per_call[0]) / (len(per_call) - 1)
    assert calls * 2000 == pytest.approx(whole, rel=0.05)  # what is not in the calls is start-up
    records, _ = convert(recording, Disassembler(work))
    loads, stores = count_references(records)
    counted_reads, counted_writes = (int(text.replace(",", "")) for text in (reads, writes))
    share = len(recording.ip) / whole
    modified = int(np.count_nonzero(recording.kind > STORE))  # cachegrind counts these as reads only
    assert loads == pytest.approx(share * counted_reads, rel=0.03)
    assert stores - modified == pytest.approx(share * counted_writes, rel=0.03)


def test_without_valgrind_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing tool is named."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TestbedError, match="valgrind, which is not installed"):
        record(["true"], 0x1000, skipped_calls=0, instructions=1)


def test_a_window_is_the_longer_run_less_the_shorter() -> None:
    """Two runs with the same begin differ by the window, in records, cycles and every counter."""
    settling, whole = execution("settling"), execution("whole")
    cores = windows(settling, whole)
    for number, core in enumerate(cores):
        assert core.records == whole.records[number] - settling.records[number] > 0
        assert core.start == whole.start[number] + settling.records[number]
        first, last = (counted(run, "LLC", number, ("WRITE",), "hit") for run in (settling, whole))
        assert 0 <= last - first <= core.counts["written"]
    assert cores[0].cycles == cores[1].cycles == whole.cycles - settling.cycles


def test_the_same_begin_is_the_same_run() -> None:
    """The shorter run's warm-up is the longer one's, and none of its counters is larger: ChampSim is deterministic."""
    settling, whole = execution("settling"), execution("whole")
    assert settling.start == whole.start
    for core in range(2):
        for cache, kind in itertools.product(("LLC", f"cpu{core}_L2C"), ("LOAD", "RFO", "WRITE", "TRANSLATION")):
            for what in ("hit", "miss"):
                assert counted(settling, cache, core, (kind,), what) <= counted(whole, cache, core, (kind,), what)


def test_cores_have_their_own_counters() -> None:
    """The competitor misses more often than the NAT; together they read what memory read."""
    settling, whole = execution("settling"), execution("whole")
    machine = champsim_machine()
    traces = [trace(1.4, 2000.0), trace(0.6, 50_000.0)]
    own, together = vectors(windows(settling, whole), traces, settling, whole, machine)
    assert own[1]["L3MISS"] > own[0]["L3MISS"]
    assert own[0]["L3MISS"] + own[1]["L3MISS"] == pytest.approx(together["L3MISS"])
    assert own[0]["READ"] + own[1]["READ"] == pytest.approx(together["READ"])
    seconds = (whole.cycles - settling.cycles) / 2.4e9
    assert together["READ"] * 1e9 * seconds / 64 == pytest.approx(
        memory_lines(whole, "RQ") - memory_lines(settling, "RQ")
    )
    assert "DDIOOCC" not in together
    assert together["LMB"] * 2**20 < machine.memory_peak_gb_s * 1e9


def test_occupancy_fills_the_cache_and_no_more() -> None:
    """Who refers to more lines in the same time holds more; small tenants hold all they have."""
    cores = windows(execution("settling"), execution("whole"))
    greedy = occupancy_lines(cores, [trace(1.0, 90_000.0), trace(1.0, 90_000.0)], 4096)
    assert sum(greedy) == pytest.approx(4096, rel=1e-3)
    assert occupancy_lines(cores, [trace(1.0, 100.0), trace(1.0, 200.0)], 4096) == pytest.approx([100.0, 200.0])


def test_throughput_is_relative_to_the_same_part_alone(tmp_path: Path) -> None:
    """As many cycles as alone give the speed alone; twice as many give half of it."""
    (tmp_path / "settling").write_bytes(bytes(64 * 1000))
    (tmp_path / "whole").write_bytes(bytes(64 * 3000))
    alone = np.array([(0.0, 0.0), (4000.0, 8000.0)])
    own = Trace(tmp_path / "whole", tmp_path / "settling", 0.01, 1.0, alone, alone)
    core = windows(execution("settling"), execution("whole"))[0]
    same = type(core)(1000, 2000, 1500, core.counts)
    slower = type(core)(1000, 4000, 1500, core.counts)
    assert throughput_mpps(same, own, champsim_machine()) == pytest.approx(0.5 * 0.01 * 2400)
    assert throughput_mpps(slower, own, champsim_machine()) == pytest.approx(0.25 * 0.01 * 2400)


def test_statistics_of_another_run_are_refused() -> None:
    """A run of other cores, one cut short, one that ended while warming up, and text that is no statistics."""
    text, statistics = ((RECORDED / f"two-cores-whole.{kind}").read_text() for kind in ("txt", "json"))
    with pytest.raises(ConfigurationError, match=r"'Number of CPUs' is 2, needed 4"):
        read_execution(text, statistics, cores=4, warm=4096)
    with pytest.raises(ConfigurationError, match="no line says 'complete'"):
        read_execution(text[:400], statistics, cores=2, warm=4096)
    with pytest.raises(ConfigurationError, match=r"warmed up with \d+ records, needed 90000"):
        read_execution(text, statistics, cores=2, warm=90_000)
    for broken in ("{", "[]", '[{"sim": {}}]', statistics.replace("cpu1_L2C", "cpu1_X")):
        with pytest.raises(ConfigurationError, match="statistics"):
            read_execution(text, broken, cores=2, warm=4096)


@pytest.mark.parametrize(
    ("size", "says"), [(100, "100 bytes, needed a multiple of 64"), (640, "10 records, needed more than the 20")]
)
def test_a_trace_file_cut_short_is_refused(tmp_path: Path, size: int, says: str) -> None:
    """ChampSim would read a half record, or end while warming up, without a word."""
    (tmp_path / "x.trace").write_bytes(bytes(size))
    with pytest.raises(ConfigurationError, match=says):
        check_length(tmp_path / "x.trace", 20)


def built(folder: Path, cores: int, **changed: object) -> None:
    """Write a configuration as expected, and a binary that does nothing."""
    data: dict[str, object] = {"num_cores": cores, "executable_name": f"champsim-{cores}", "ooo_cpu": [{}]}
    for name, value in {**EXPECTED, **changed}.items():
        parts = name.split(".")
        inner: object = data
        for part in parts[:-1]:
            inner = inner[int(part)] if isinstance(inner, list) else inner.setdefault(part, {})  # type: ignore[attr-defined]
        inner[parts[-1]] = value  # type: ignore[index]
    (folder / f"{cores}.json").write_text(json.dumps(data))
    binary = folder / f"champsim-{cores}"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)


def test_binaries_are_found_by_their_configuration(tmp_path: Path) -> None:
    """One binary for each number of cores."""
    for cores in (1, 2, 4):
        built(tmp_path, cores)
    assert sorted(find_binaries(tmp_path)) == [1, 2, 4]
    assert find_binaries(tmp_path)[2].cores == 2


def test_a_champsim_of_another_configuration_is_refused(tmp_path: Path) -> None:
    """The file, the field, its value and what was needed are named; as a variant it is taken."""
    built(tmp_path, 1, **{"LLC.sets": 2048})
    with pytest.raises(ConfigurationError, match=r"1\.json: field 'LLC.sets' is 2048, needed 256") as caught:
        find_binaries(tmp_path)
    assert caught.value.hint
    assert sorted(find_binaries(tmp_path, {"LLC.sets": 2048})) == [1]


def test_missing_binaries_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, an empty folder, a configuration without its binary, without cores, and no JSON."""
    monkeypatch.delenv("SLOMO_CHAMPSIM", raising=False)
    with pytest.raises(TestbedError, match="SLOMO_CHAMPSIM is not set"):
        find_binaries()
    with pytest.raises(TestbedError, match="no configuration"):
        find_binaries(tmp_path)
    built(tmp_path, 1)
    (tmp_path / "champsim-1").unlink()
    with pytest.raises(TestbedError, match="'champsim-1' is not beside it"):
        find_binaries(tmp_path)
    built(tmp_path, 0)
    (tmp_path / "1.json").unlink()
    with pytest.raises(ConfigurationError, match="'num_cores' is 0, needed 1 to 64"):
        find_binaries(tmp_path)
    (tmp_path / "0.json").write_text("{")
    with pytest.raises(ConfigurationError, match="is not JSON"):
        find_binaries(tmp_path)


def test_what_champsim_cannot_play_is_refused(tmp_path: Path) -> None:
    """Way masks, bounded loads, other machines and more tenants than cores."""
    for cores in (1, 2):
        built(tmp_path, cores)
    testbed = ChampSimTestbed(binaries=tmp_path, folder=tmp_path)
    router = Workload("ip-router")
    with pytest.raises(InvalidValueError, match="simulates 'champsim-4'"):
        testbed.check(Colocation("silver-4110", router))
    with pytest.raises(InvalidValueError, match="isolation is"):
        testbed.check(Colocation(MACHINE, router, isolation=(Isolation(llc_way_mask=1),)))
    with pytest.raises(InvalidValueError, match="limited offered load"):
        testbed.check(Colocation(MACHINE, router.with_traffic(Traffic(offered_mpps=1.0))))
    with pytest.raises(InvalidValueError, match="needs a ChampSim of 3 cores, found binaries for 1, 2"):
        testbed.check(Colocation(MACHINE, router, (router, router)))
    testbed.check(Colocation(MACHINE, router, (router,)))


def test_seats_depend_on_the_functions_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who is the target nor what the traces' folders are called (they name the binary) moves a core."""
    for cores in (1, 2):
        built(tmp_path, cores)
    testbed = ChampSimTestbed(binaries=tmp_path, folder=tmp_path)
    two = (Workload("ip-router"), Workload("flowstats"))
    seen: list[list[str]] = []

    def stop(traces: list[Trace], _: str) -> None:
        seen.append([trace.whole.suffix for trace in traces])
        raise TestbedError("seen")

    monkeypatch.setattr(testbed, "_execution", stop)
    for folders in (("a", "b"), ("b", "a")):
        kept = {
            workload.nf: Trace(tmp_path / f"{folder}.{workload.nf}", tmp_path, 1.0, 1.0, *[np.ones((1, 2))] * 2)
            for workload, folder in zip(two, folders, strict=True)
        }
        monkeypatch.setattr(testbed._traces, "trace", lambda workload, _, kept=kept: kept[workload.nf])
        for tenants in (two, two[::-1]):
            with pytest.raises(TestbedError, match="seen"):
                testbed._phase(tenants)
    assert seen == [[".flowstats", ".ip-router"]] * 4


def test_the_testbed_brings_its_machine() -> None:
    """Where no machine is named, experiments are filed under ChampSim's."""
    assert machine_of("champsim", "e5-2620v4", "e5-2620v4").name == MACHINE
