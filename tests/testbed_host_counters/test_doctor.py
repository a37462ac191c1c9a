"""What `slomo doctor` finds on hosts made of files, and the machine it writes."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.errors import TestbedError, UnstableMeasurementError
from slomo.testbed.host.doctor import counting, equipment, tuning
from slomo.testbed.host.doctor.check import Check, Status, System
from slomo.testbed.host.doctor.diagnosis import Diagnosis, diagnose, this_system, version_of
from slomo.testbed.host.doctor.drift import MachineDrift
from slomo.testbed.host.doctor.machine_file import machine_of, machine_text, write_machine
from slomo.testbed.host.doctor.memory import MemoryCurve, measure_memory
from slomo.testbed.host.machine.cache_levels import CacheLevels, find_levels
from slomo.testbed.host.probe.sentinel import Look
from slomo.vocabulary.machine import load_machine

Host = Callable[..., System]
CPU = "sys/devices/system/cpu"
CURVE = MemoryCurve((1.0, 64.0), (5.0, 90.0), 5.0, 20.0, 101.26, 14.1, 25.04)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a maker of hosts from files."""

    def make(cores: Sequence[int] = (0, 1), versions: dict[str, str] | None = None) -> System:
        return System(tmp_path, tuple(cores), lambda words: (versions or {}).get(words[0]))

    return make


def write(system: System, path: str, text: str) -> None:
    """Write one file."""
    file = system.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n", encoding="ascii")


@pytest.mark.parametrize(
    ("check", "path", "good", "bad", "remedy"),
    [
        (counting.watchdog, "proc/sys/kernel/nmi_watchdog", "0", "1", "nmi_watchdog=0"),
        (counting.lockdown, "sys/kernel/security/lockdown", "[none] integrity", "none [integrity]", "lockdown=none"),
        (tuning.governor, f"{CPU}/cpu0/cpufreq/scaling_governor", "performance", "powersave", "cpupower"),
        (tuning.turbo, f"{CPU}/intel_pstate/no_turbo", "1", "0", "echo 1 >"),
        (tuning.turbo, f"{CPU}/cpufreq/boost", "0", "1", "echo 0 >"),
        (tuning.hyper_threads, f"{CPU}/cpu0/topology/thread_siblings_list", "0", "0,8", "smt/control"),
        (tuning.load, "proc/loadavg", "0.05 0.1 0.2 1/99 7", "3.10 0.1 0.2 1/99 7", "ps "),
        (
            tuning.hugepage_mount,
            "proc/mounts",
            "none /dev/hugepages hugetlbfs rw 0 0",
            "none / ext4 rw 0 0",
            "mount -t",
        ),
        (tuning.stolen, "proc/stat", "cpu 90 0 5 5 0 0 0 0 0 0", "cpu 50 0 5 5 0 0 0 40 0 0", "pin"),
        (
            tuning.hugepages,
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "512",
            "0",
            "nr_hugepages",
        ),
    ],
)
def test_a_setting_is_ok_or_told_with_its_remedy(
    host: Host, check: Callable[[System], Check], path: str, good: str, bad: str, remedy: str
) -> None:
    """The same file gives ok or a warning, and the warning a command."""
    system = host()

    write(system, path, good)
    fine = check(system)
    write(system, path, bad)
    disturbed = check(system)

    assert (fine.status, fine.remedy) == (Status.OK, None)
    assert disturbed.status is Status.WARN
    assert remedy in str(disturbed.remedy)


def test_deep_idle_states_are_named(host: Host) -> None:
    """States that take long to wake from count only while they are enabled."""
    system = host()
    for state, name, latency in ((0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")):
        write(system, f"{CPU}/cpu0/cpuidle/state{state}/name", name)
        write(system, f"{CPU}/cpu0/cpuidle/state{state}/latency", latency)
        write(system, f"{CPU}/cpu0/cpuidle/state{state}/disable", "0")

    assert tuning.idle_states(system).finding == "deep ones are on: C6 (133 us)"
    write(system, f"{CPU}/cpu0/cpuidle/state2/disable", "1")
    assert tuning.idle_states(system).status is Status.OK


def test_resctrl_is_mounted_mountable_or_absent(host: Host) -> None:
    """A processor with RDT needs a mount, one without needs another machine."""
    system = host()
    write(system, "proc/cpuinfo", "flags\t\t: fpu sse")
    assert "no RDT" in counting.resctrl(system).finding
    write(system, "proc/cpuinfo", "flags\t\t: fpu cat_l3 cqm_occup_llc")
    assert counting.resctrl(system).remedy == "mount -t resctrl resctrl /sys/fs/resctrl"
    tree = Path(__file__).parents[1] / "data" / "resctrl"
    shutil.copytree(tree, system.root / "sys/fs/resctrl")
    assert counting.resctrl(system).status is Status.OK
    assert counting.monitoring_ids(system).finding == "30 of 32 free"  # root group and `batch` use one each
    write(system, "sys/fs/resctrl/info/L3_MON/num_rmids", "3")
    assert counting.monitoring_ids(system).status is Status.WARN


def test_a_held_pqos_lock_names_its_holder(host: Host) -> None:
    """The kernel's table of locks says who holds the file."""
    system = host()
    write(system, "var/lock/libpqos", "")
    inode = (system.root / "var/lock/libpqos").stat().st_ino
    write(system, "proc/locks", "1: POSIX  ADVISORY  WRITE 77 00:1a:1 0 EOF")
    assert counting.pqos_lock(system).status is Status.OK
    write(system, "proc/locks", f"1: POSIX  ADVISORY  WRITE 77 00:1a:{inode} 0 EOF")
    assert counting.pqos_lock(system).finding == "held by process 77"


def test_virtual_machines_without_counters_are_told_apart(host: Host) -> None:
    """No PMU device means no counters; with one, a guest has a vPMU."""
    system = host()
    write(system, "proc/cpuinfo", "flags : fpu hypervisor")
    assert counting.virtual_counters(system).finding == "virtual machine without vPMU"
    write(system, "sys/bus/event_source/devices/cpu/type", "4")
    assert counting.virtual_counters(system).finding == "vPMU"


def test_a_host_that_cannot_measure_fails(host: Host) -> None:
    """One core, or no compiler, prevents measuring; everything else only limits it."""
    system = host(cores=(0,))

    failed = {check.name for check in equipment.checks(system) if check.status is Status.FAIL}

    assert failed == {"cores", "C compiler"}


def test_tools_state_their_versions(host: Host) -> None:
    """Installed tools come with version, missing ones with package."""
    system = host(versions={"pkg-config": "22.11.4", "dpdk-testpmd": "x", "cc": "cc 12.2", "perf": "perf version 6.1"})

    assert equipment.dpdk(system).finding == "22.11.4, with testpmd"
    checks = {check.name: check for check in counting.tools(system)}
    assert checks["perf"].finding == "perf version 6.1"
    assert checks["pqos"].remedy == "apt-get install intel-cmt-cat"


def test_a_nic_far_from_the_cores_is_told(host: Host) -> None:
    """Also one that DPDK holds."""
    system = host()
    write(system, "sys/bus/pci/drivers/vfio-pci/0000:3b:00.0/numa_node", "1")

    assert equipment.network_cards(system).finding.startswith("0000:3b:00.0 (vfio-pci) on node 1")


def test_every_check_survives_an_empty_host(host: Host) -> None:
    """A container that shows nothing gives findings, not faults; each warning has a remedy."""
    diagnosis = diagnose(host(), quick=True)

    assert len(diagnosis.checks) >= 20
    assert all(check.remedy for check in diagnosis.checks if check.status is not Status.OK)


def test_two_levels_and_their_edge_are_found_in_a_noisy_curve() -> None:
    """Where the cache ends is found within a tenth although every point is off by some percent."""
    sizes = [0.25, 0.5, 1.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0]
    noise = [1.03, 0.98, 1.0, 1.02, 0.97, 1.03, 0.98, 1.02, 0.99, 1.01, 0.97, 1.03, 1.0, 0.99, 1.02, 0.98]
    curve = []
    for size, factor in zip(sizes, noise, strict=True):
        in_l2, in_any = min(1.0, 2.0 / size), min(1.0, 14.0 / size)
        curve.append(factor * (5.0 * in_l2 + 25.0 * (in_any - in_l2) + 100.0 * (1.0 - in_any)))

    levels = find_levels(sizes, curve, 2.0, 105.0)

    assert levels is not None
    assert (levels.llc_ns, levels.dram_ns, levels.cache_mib) == pytest.approx((25.0, 100.0, 14.0), rel=0.1)


def test_a_flat_curve_has_no_edge() -> None:
    """Noise is not taken for a cache: flat behind L2 is memory if the last size cannot be cached, else unknown."""
    sizes = [0.5, 1.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    curve = [5.0, 5.0, 90.0, 91.0, 90.0, 92.0, 90.0, 91.0]

    assert find_levels(sizes, curve, 2.0, 32.0) == CacheLevels(2.0, None, 90.5)
    assert find_levels(sizes, curve, 2.0, 105.0) is None
    assert find_levels(sizes, curve, 2.0, None) is None
    assert find_levels([4.0, 8.0], [5.0, 5.0], 2.0, 4.0) is None


def test_a_host_without_shared_cache_is_told_apart(host: Host) -> None:
    """Memory behind L2 is said in words, and the machine file has memory's latency and next to no shared cache."""
    bare = MemoryCurve((1.0, 256.0), (5.0, 150.0), 5.0, None, 150.0, 2.0, 30.0)

    machine, origins = machine_of(this_system(), bare)
    checks = diagnose(host(), measure=lambda *_: bare, watch=lambda *_: _moving(1.0, 1.0)).checks
    cache_check = next(check for check in checks if check.name == "effective cache")

    assert (machine.dram_local_ns, origins["dram_local_ns"]) == (150.0, "measured")
    assert machine.llc_mib <= 2.0
    assert "no shared cache" in cache_check.finding


def _moving(*cache_rates: float) -> MachineDrift:
    """Return a machine whose cache's program ran at these speeds."""
    return MachineDrift(tuple(Look({"cache": rate, "memory": 1.0, "stream": 2.0}) for rate in cache_rates))


def test_the_doctor_states_how_far_the_machine_moves(host: Host) -> None:
    """Steady is ok, a tenth or more between looks a warning; numbers as a dataset's `stability` states them."""
    for rates, status in (((1.0, 1.02, 0.99), Status.OK), ((1.0, 0.7, 1.0), Status.WARN)):
        diagnosis = diagnose(host(), measure=lambda *_: CURVE, watch=lambda *_, rates=rates: _moving(*rates))
        check = next(check for check in diagnosis.checks if check.name == "drift")
        assert check.status is status
        assert "3 looks" in check.finding
    assert diagnosis.to_dict()["drift"]["fastest_over_slowest"]["cache"] == pytest.approx(1.4286)
    assert diagnosis.to_dict()["drift"]["largest_change"] == pytest.approx(0.4286)


def test_a_machine_that_cannot_be_watched_is_a_warning(host: Host) -> None:
    """A sentinel that does not get its core leaves the rest of the diagnosis standing."""

    def busy(*_: object) -> MachineDrift:
        raise UnstableMeasurementError("'synthetic' got 40% of its cores", hint="end what else runs")

    diagnosis = diagnose(host(), measure=lambda *_: CURVE, watch=busy)
    assert diagnosis.drift is None
    assert diagnosis.checks[-1].remedy == "end what else runs"


def test_the_machine_written_is_one_the_simulator_takes(tmp_path: Path) -> None:
    """Measured values arrive, each line says where it is from, and the file loads."""
    machine, origins = machine_of(this_system(), CURVE, "mine")
    path = tmp_path / "mine.yaml"

    write_machine(path, machine, origins)
    loaded = load_machine(str(path))

    shared = 14.1 - (machine.l2_kib / 1024 if machine.llc_policy == "victim" else 0.0)
    assert loaded.llc_mib == pytest.approx(max(0.25, shared), abs=0.13)
    assert (loaded.l2_hit_ns, loaded.llc_hit_ns, loaded.dram_local_ns) == (5.0, 20.0, 101.3)
    assert loaded.usable_memory_gb_s == 25.0
    assert "dram_local_ns: 101.3  # measured" in path.read_text(encoding="utf-8")
    assert "measured: " in loaded.source
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_without_measurement_the_machine_says_typical() -> None:
    """Nothing that was not measured is called so."""
    machine, origins = machine_of(this_system(), None)

    assert "measured" not in origins.values()
    assert "dram_local_ns: 90.0  # typical, not measured" in machine_text(machine, origins)


def test_memory_is_measured_for_real_where_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped competitor chases and streams; a structure in L2 is quicker than one far beyond every cache."""
    if version_of(("cc", "--version")) is None:
        pytest.skip("no C compiler on this host")
    monkeypatch.setattr("slomo.testbed.host.doctor.memory._SIZES_MIB", (0.125, 64.0))
    monkeypatch.setattr("slomo.testbed.host.doctor.memory._LARGEST_MIB", 0.0)
    cores = this_system().cores

    curve = measure_memory(cores[:1], 0.4, None)

    assert curve.sizes_mib == (0.125, 64.0)
    assert curve.latencies_ns[0] < curve.latencies_ns[1]
    assert curve.read_gb_s is not None
    assert curve.read_gb_s > 0.1


def test_memory_that_cannot_be_measured_is_a_warning(host: Host) -> None:
    """Without a compiler the rest of the diagnosis stands."""

    def broken(*_: object) -> MemoryCurve:
        raise TestbedError("no compiler", hint="install one")

    diagnosis = diagnose(host(), measure=broken)

    assert diagnosis.curve is None
    assert diagnosis.checks[-1].remedy == "install one"


def test_a_home_that_cannot_be_written_to_is_a_warning(host: Host) -> None:
    """Neither does a folder without rights end the diagnosis."""

    def broken(*_: object) -> MemoryCurve:
        raise PermissionError(13, "Permission denied", "/home/none")

    assert "XDG_CACHE_HOME" in str(diagnose(host(), measure=broken).checks[-1].remedy)


def test_doctor_prints_json_and_ends_with_0_or_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed check is exit code 1; the document names every check."""
    for status, code in ((Status.FAIL, 1), (Status.WARN, 0)):
        diagnosis = Diagnosis((Check("equipment", "cores", status, "1", "more"),), None)
        monkeypatch.setattr(
            "slomo.testbed.host.doctor.diagnosis.diagnose", lambda *_, diagnosis=diagnosis, **__: diagnosis
        )

        assert main(["doctor", "--quick", "--json"]) == code
        document = json.loads(capsys.readouterr().out)
        assert document["status"] == str(status)
        assert document["checks"][0]["name"] == "cores"


def test_doctor_writes_a_machine_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is where it was asked for; stdout holds the findings, stderr the note."""
    path = tmp_path / "this.yaml"

    code = main(["doctor", "--quick", "--out", str(path)])

    shown = capsys.readouterr()
    assert code in (0, 1)
    assert load_machine(str(path)).name == "this"
    assert "perf_event_paranoid" in shown.out
    assert f"wrote {path}" in shown.err


@pytest.mark.parametrize("name", ["this.txt", "no/such/folder/this.yaml"])
def test_a_machine_file_that_cannot_be_is_a_usage_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told before anything is measured."""
    assert main(["doctor", "--out", str(tmp_path / name)]) == 2
    assert "ConfigurationError" in capsys.readouterr().err
