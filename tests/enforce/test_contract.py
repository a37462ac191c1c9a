"""Every backend keeps the contract, on a machine that tests may change."""

import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slomo.enforce.backends.buffers import BuffersBackend
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.pqos import PqosBackend
from slomo.enforce.backends.rdt_class import NODE_FILE, RdtClassBackend
from slomo.enforce.backends.registry import Together
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.backends.scheduler import SchedulerBackend
from slomo.enforce.backends.simulated import Occupant, SimulatedBackend, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores, SimulatedCoresBackend
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import TestbedError
from slomo.host import pqos
from slomo.host.tool import Finished, run_tool
from slomo.testing.enforcer_contract import EnforcerContract
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.service_chains import parse_chains
from slomo.vocabulary.workload import Workload
from tests.enforce import fake_pqos
from tests.fake_resctrl.files import everything, fake_tree
from tests.fake_resctrl.model import Flavour


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep locks and receipts out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _plan(*tenants: TenantSetting, device: int | None = None) -> EnforcementPlan:
    return EnforcementPlan("s", tenants, device)


class TestSimulated(EnforcerContract):
    __test__ = True

    def make_backend(self) -> Backend:
        occupants = [Occupant("a", Workload("lpm")), Occupant("b", Workload("stats"))]
        return SimulatedBackend(SimulatedServer(load_machine("e5-2620v4"), occupants))

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        half = MemoryBandwidth(50)
        return (
            _plan(
                TenantSetting("a", llc_way_mask=0xF, exclusive=True, buffers=512),
                TenantSetting("b", llc_way_mask=0xF0, memory_bandwidth=half, cores=(9,), memory_node=1),
                device=0xC0000,
            ),
            _plan(TenantSetting("a", llc_way_mask=0xFF)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("a", llc_way_mask=0b101))


class TestSimulatedCores(EnforcerContract):
    __test__ = True

    def make_backend(self) -> Backend:
        text = "stages: {a: {cycles: 270, core: 0}, b: {cycles: 90, core: 0}}\nchains: {c: {stages: [a, b], mpps: 1}}"
        return SimulatedCoresBackend(SimulatedCores(parse_chains(text)))

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        return (
            _plan(TenantSetting("a", cpu_weight=0.5), TenantSetting("b", cpu_weight=1.5)),
            _plan(TenantSetting("a", cpu_weight=2.0)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("a", llc_way_mask=0b1))


class ResctrlContract(EnforcerContract):
    """The same facts for every flavour of resctrl."""

    flavour = Flavour()
    bandwidth = MemoryBandwidth(35)
    wrong_bandwidth = MemoryBandwidth(2, "GB/s")

    @pytest.fixture(autouse=True)
    def tree(self, tmp_path: Path) -> None:
        self.fake = fake_tree(tmp_path, self.flavour)
        # Somebody else's groups, one of which counts two cores.
        self.fake.make_group("theirs")
        self.fake.write("theirs/cpus_list", "1-2")
        self.fake.make_group("theirs/mon_groups/counted")
        self.fake.write("theirs/mon_groups/counted/cpus_list", "1")
        self.fake.make_group("mon_groups/pod")
        self.fake.write("mon_groups/pod/tasks", "103")
        self.configuration = tmp_path / "etc"

    def make_backend(self) -> Backend:
        return ResctrlBackend(self.fake, self.configuration)

    def state(self, backend: Backend) -> object:
        return everything(self.fake)

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        return (
            _plan(
                TenantSetting("victim", cores=(1,), llc_way_mask=0x3, exclusive=True),
                TenantSetting("noise", cores=(3,), llc_way_mask=0x7FC, memory_bandwidth=self.bandwidth),
                TenantSetting("pod", process_ids=(103,), llc_way_mask=0x7FC, memory_bandwidth=self.bandwidth),
                TenantSetting("task", process_ids=(101,), llc_way_mask=0x7C),
            ),
            _plan(TenantSetting("victim", cores=(1,), llc_way_mask=0xF)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("noise", cores=(3,), llc_way_mask=3, memory_bandwidth=self.wrong_bandwidth))


class TestResctrlPercent(ResctrlContract):
    __test__ = True


class TestResctrlMegabytes(ResctrlContract):
    __test__ = True
    flavour = Flavour(bandwidth="mbps")
    bandwidth = MemoryBandwidth(2500, "MB/s")
    wrong_bandwidth = MemoryBandwidth(50)


class TestResctrlAmd(ResctrlContract):
    __test__ = True
    flavour = Flavour(bandwidth="amd", slow_memory=True, sparse=True, io_alloc=True, unassigned=True)
    bandwidth = MemoryBandwidth(2, "GB/s")
    wrong_bandwidth = MemoryBandwidth(50)

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        slow = TenantSetting(
            "slow", cores=(0,), llc_way_mask=0b1010100, slow_memory_bandwidth=MemoryBandwidth(1.5, "GB/s")
        )
        first, second = super().plans()
        return _plan(*first.tenants, slow, device=0x600), second


class TestResctrlCodeAndData(ResctrlContract):
    __test__ = True
    flavour = Flavour(cdp=True)

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        first, second = super().plans()
        return _plan(*first.tenants, TenantSetting("c", cores=(0,), llc_way_mask=0xC, code_way_mask=0x3)), second


class TestResctrlClusters(ResctrlContract):
    __test__ = True
    flavour = Flavour(clusters=2, domains=(0, 1))


class TestCgroup(EnforcerContract):
    """On this host's own control groups, version 1 or 2, with a process of ours."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def sleeper(self) -> Iterator[None]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.process = process.pid
        yield
        process.kill()
        process.wait()

    def make_backend(self) -> Backend:
        return CgroupBackend()

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        core = min(os.sched_getaffinity(0))
        mine = (self.process,)
        return (
            _plan(TenantSetting("noise", process_ids=mine, cores=(core,), cpu_quota=0.25, memory_node=0)),
            _plan(TenantSetting("noise", process_ids=mine, cpu_weight=2.0)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("noise", process_ids=(self.process,), cores=(4095,)))


class TestScheduler(EnforcerContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def sleeper(self) -> Iterator[None]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.process = process.pid
        yield
        process.kill()
        process.wait()

    def make_backend(self) -> Backend:
        return SchedulerBackend()

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        core = min(os.sched_getaffinity(0))
        return (
            _plan(TenantSetting("noise", process_ids=(self.process,), scheduler="batch", cores=(core,))),
            _plan(TenantSetting("noise", process_ids=(self.process,), scheduler="idle")),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("noise", process_ids=(2**22 - 1,), scheduler="batch"))


class TestBuffers(EnforcerContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def function(self) -> Iterator[None]:
        values = {"pool.buffers": "2048"}

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"Click::ControlSocket/1.3\r\n")
                words = self.rfile.readline().decode().split()
                if not words:
                    return
                if words[1] not in values:
                    self.wfile.write(f"510 No element named '{words[1]}'\r\n".encode())
                elif words[0] == "READ":
                    data = values[words[1]]
                    self.wfile.write(f"200 Read handler OK\r\nDATA {len(data)}\r\n{data}".encode())
                else:
                    values[words[1]] = words[2]
                    self.wfile.write(b"200 Write handler OK\r\n")

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.address = f"127.0.0.1:{server.server_address[1]}/pool.buffers"
            yield
            server.shutdown()

    def make_backend(self) -> Backend:
        return BuffersBackend()

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        return (
            _plan(TenantSetting("a", buffers=512, control_socket=self.address)),
            _plan(TenantSetting("a", buffers=256, control_socket=self.address)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("a", buffers=512))


class TestRdtClass(EnforcerContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        self.files_folder = tmp_path / "rdt"

    def make_backend(self) -> Backend:
        return RdtClassBackend(self.files_folder, ways=11)

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        return (
            _plan(TenantSetting("a", pod="nfv/a", llc_way_mask=3, exclusive=True)),
            _plan(TenantSetting("a", pod="nfv/a", memory_bandwidth=MemoryBandwidth(50))),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("a", pod="nfv/a", memory_bandwidth=MemoryBandwidth(2, "GB/s")))

    @pytest.mark.parametrize(("ways", "start"), [(20, 35), (11, 64), (None, 64)])
    def test_best_effort_pods_begin_above_guaranteed_ways(
        self, ways: int | None, start: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Koordinator's percentages are of the cache's ways; without a tree those that the plan names are all."""
        monkeypatch.setattr("slomo.enforce.backends.rdt_class._ways_of_this_machine", lambda: None)
        plan = _plan(
            TenantSetting("a", pod="nfv/a", llc_way_mask=0x7F, exclusive=True),
            TenantSetting("b", pod="nfv/b", llc_way_mask=0x780),
        )
        backend = RdtClassBackend(self.files_folder, ways=ways)
        text = next(wish.value for wish in backend.wishes(plan) if wish.knob == f"file:{NODE_FILE}")

        assert f'"catRangeStartPercent": {start}' in str(text)

    def test_a_link_in_place_of_a_file_is_refused(self) -> None:
        """A file would replace it, and undo would not bring the link back."""
        self.files_folder.mkdir(exist_ok=True)
        there = self.files_folder.parent / "elsewhere"
        there.write_text("theirs")
        (self.files_folder / NODE_FILE).symlink_to(there)

        with pytest.raises(TestbedError, match="is a link"):
            apply(self.plans()[0], self.make_backend())
        assert (self.files_folder / NODE_FILE).is_symlink()
        assert there.read_text() == "theirs"


class TestPqos(EnforcerContract):
    """On a stand-in that keeps its classes in a file and speaks as pqos 4.5 does."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def stand_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the stand-in answer in this process: the contract asks it hundreds of times."""

        def answered(words: Sequence[str], limit_s: float) -> Finished:
            return Finished(tuple(words), 0, fake_pqos.answer(Path(words[2]), words[3:]), "")

        self.command = (sys.executable, fake_pqos.__file__, str(tmp_path / "classes.json"))
        monkeypatch.setattr(pqos, "run_tool", answered)

    def make_backend(self) -> Backend:
        return PqosBackend(self.command)

    def test_it_runs_as_a_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A plan is applied and undone by the command itself."""
        monkeypatch.setattr(pqos, "run_tool", run_tool)
        backend = self.make_backend()
        assert backend.available() == (True, "4 classes")
        before = {knob: backend.read(knob) for knob in backend.knobs()}

        receipt = apply(self.plans()[1], backend, receipts=tmp_path / "receipts")
        assert backend.read("llc@0:1") == "0xf"
        undo(receipt, backend)

        assert {knob: backend.read(knob) for knob in backend.knobs()} == before

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        return (
            _plan(
                TenantSetting("a", cores=(1,), llc_way_mask=3, exclusive=True),
                TenantSetting("b", cores=(2,), llc_way_mask=0x7FC, memory_bandwidth=MemoryBandwidth(50)),
            ),
            _plan(TenantSetting("a", cores=(1,), llc_way_mask=0xF)),
        )

    def refused_plan(self) -> EnforcementPlan:
        return _plan(TenantSetting("a", cores=(77,), llc_way_mask=3))


class TestTogether(ResctrlContract):
    """Several backends as one: resctrl by core, and the scheduler."""

    __test__ = True

    def make_backend(self) -> Backend:
        return Together([super().make_backend(), RdtClassBackend(self.configuration.parent / "rdt", ways=11)])

    def test_pools_see_what_resctrl_alone_can_do(self) -> None:
        """Joined backends set the rest's ways and name others' groups, as the one among them that can."""
        joined, alone = self.make_backend(), super().make_backend()

        assert joined.sets_the_rest
        assert joined.foreign_masks().keys() == alone.foreign_masks().keys() == {"theirs"}
        assert joined.resctrl_tree is not None
        assert alone.resctrl_tree is not None
        assert joined.resctrl_tree.root == alone.resctrl_tree.root
