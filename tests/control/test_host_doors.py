"""Max-min and the guard on a host: `slomo control run` makes them, a resctrl tree (emulated) takes what they want."""

from dataclasses import replace
from pathlib import Path

import pytest

from slomo.control.loop import ControlLoop
from slomo.control.observation import MachineReading, Patience, TenantReading
from slomo.control.plants import SimulatedTime
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.plan import TenantSetting
from slomo.errors import ConfigurationError, TestbedError, UnknownNameError
from slomo.host.resctrl_tree import ResctrlTree, parse_schemata
from slomo.models.partition_profile import PartitionProfile, save_profiles
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.control import control_loop
from slomo.workflow.acting.control_file import ControlConfiguration, control_from
from slomo.workflow.acting.host_loops import RunningTenants, host_controller
from tests.fake_resctrl.files import everything, fake_tree
from tests.fake_resctrl.model import Flavour

WAYS, MACHINE = 20, load_machine("e5-2620v4")
TASKS = {"victim": 101, "hog": 102}
TENANTS = [{"name": "victim", "workload": "lpm", "slo": 0.9}, {"name": "hog", "workload": "stats"}]
RMD = "[OSGroup]\ncacheways = 1\n[CachePool]\nguarantee = 10\nbesteffort = 6\nshared = 3\n"
SETTINGS = {name: TenantSetting(name, process_ids=(task,)) for name, task in TASKS.items()}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Tree(SimulatedTime):
    """A host whose victim does as well as the ways that its process has for itself let it."""

    def __init__(self, tree: ResctrlTree, folder: Path) -> None:
        super().__init__()
        self.tree, self.backend, self._looks = tree, ResctrlBackend(tree, folder), 0

    def mask(self, task: int) -> int:
        group = next((g for g in self.tree.control_groups() if str(task) in self.tree.read(f"{g}/tasks").split()), "")
        place = f"{group}/schemata" if group else "schemata"
        return int(parse_schemata(self.tree.read(place))["L3"][0], 16)

    def observe(self) -> MachineReading:
        self._looks += 1
        own = (self.mask(101) & ~self.mask(102)).bit_count()
        rate = min(5.0, 2.0 + 0.5 * own) + 1e-6 * self._looks
        return MachineReading(
            self.time_s, {"victim": TenantReading(rate, 4.5), "hog": TenantReading(1.0 + 1e-6 * self._looks)}
        )

    def probe(self) -> MachineReading:
        return replace(self.observe(), probed=True)


def learned(folder: Path) -> Path:
    """Return the file of a profile over the cache ways of this machine: the victim needs ways, the hog fills them."""
    victim = PartitionResponse(
        Workload("lpm").key, 5.0, (1.0, 10.0, 20.0), (0.2, 0.2, 0.2), (2.0, 0.5, 0.0), (640.0, 120.0, 0.0)
    )
    hog = PartitionResponse(Workload("stats").key, 1.0, (1.0, 20.0), (0.5, 0.5), (5.0, 5.0), (30000.0, 30000.0))
    profile = PartitionProfile(
        MACHINE.name, {each.workload: each for each in (victim, hog)}, MemoryTraffic((90.0, 400.0), (0.0, 40.0)),
        MACHINE.fingerprint, (0.0, 0.01), (0.0, 0.02),
    )  # fmt: skip
    save_profiles([profile], folder / "ways.json")
    return folder / "ways.json"


def configured(folder: Path, controller: str, **fields: object) -> ControlConfiguration:
    if controller == "pools":
        (folder / "rmd.toml").write_text(RMD)
        tenants = [{**TENANTS[0], "max_cache": 8, "min_cache": 8}, {**TENANTS[1], "policy": "bronze"}]
        fields = {"pools": str(folder / "rmd.toml"), "tenants": tenants, **fields}
    if controller == "guard":
        fields = {"partitions": str(learned(folder)), "described": MACHINE.name, **fields}
    told = {"machine": "host", "controller": controller, "tenants": TENANTS, **fields}
    return control_from(told, "loop.yaml")


@pytest.mark.parametrize("controller", ["max_min", "guard", "pools"])
def test_a_host_is_kept_by_the_controllers_of_the_simulation(tmp_path: Path, controller: str) -> None:
    """The victim's process gets ways of its own until its promise holds; at the end the tree is as it was."""
    tree = fake_tree(tmp_path, Flavour(ways=WAYS))
    plant, before = Tree(tree, tmp_path), everything(tree)
    made = host_controller(RunningTenants(configured(tmp_path, controller), plant.backend, SETTINGS, {"victim": 4.0}))
    loop = ControlLoop(plant, made, Patience(1.0, 0.0, 0.0), receipts=tmp_path / "receipts")
    assert plant.observe().broken == ("victim",)
    seen = []
    loop.run(12, lambda step: seen.append((step, plant.mask(101), plant.mask(102))))
    last, victim, hog = seen[-1]
    assert last.observation is not None
    assert last.fault is None
    assert not last.observation.broken
    assert (victim & ~hog).bit_count() >= 5
    assert everything(tree) == before


def test_the_pool_gives_a_way_a_round_where_nobody_says_what_it_holds(tmp_path: Path) -> None:
    """On a host without occupancy the rest keeps all ways but one more each round, instead of one at once."""
    plant = Tree(fake_tree(tmp_path, Flavour(ways=WAYS)), tmp_path)
    made = host_controller(RunningTenants(configured(tmp_path, "max_min"), plant.backend, SETTINGS, {"victim": 4.0}))
    plan = made.decide(plant.observe(), None).plan
    assert plan is not None
    ways = {each.tenant: (each.llc_way_mask or 0).bit_count() for each in plan.tenants}
    assert ways == {"victim": 10, "hog": 10}  # what is fair
    assert [each.process_ids for each in plan.tenants] == [(101,), (102,)]


def test_what_the_guard_needs_to_know_of_a_host_is_asked_for(tmp_path: Path) -> None:
    """Without a profile over ways, with another machine's, or without a tenant's, the guard is refused by name."""
    with pytest.raises(ConfigurationError, match="needs 'partitions'"):
        control_from({"machine": "host", "controller": "guard", "tenants": TENANTS}, "loop.yaml")
    with pytest.raises(ConfigurationError, match="is for controller guard"):
        configured(tmp_path, "max_min", partitions="ways.json")
    tree = fake_tree(tmp_path, Flavour(ways=11))
    with pytest.raises(ConfigurationError, match="has 20 cache ways, this host 11"):
        host_controller(
            RunningTenants(configured(tmp_path, "guard"), ResctrlBackend(tree, tmp_path), SETTINGS, {"victim": 4.0})
        )
    other = [*TENANTS, {"name": "third", "workload": "snort"}]
    (tmp_path / "b").mkdir()
    whole = ResctrlBackend(fake_tree(tmp_path / "b", Flavour(ways=WAYS)), tmp_path)
    with pytest.raises(UnknownNameError, match="snort"):
        host_controller(RunningTenants(configured(tmp_path, "guard", tenants=other), whole, SETTINGS, {"victim": 4.0}))


def test_pools_are_told_what_is_asked_of_them(tmp_path: Path) -> None:
    """On simulated time as on a host; what is for pools is refused elsewhere; a full pool says so."""
    made = configured(tmp_path, "pools", machine=MACHINE.name, steps=2)
    members = "cpuset = '7'\ntasks = ['*']\n"  # of the operating system and a vSwitch, which are not simulated
    more = RMD.replace("[OSGroup]\n", f"[OSGroup]\n{members}") + f"[InfraGroup]\ncacheways = 11\n{members}"
    (tmp_path / "rmd.toml").write_text(more)
    with control_loop(made, tmp_path / "receipts") as (loop, _):
        assert loop.step().fault is None
        assert loop.plan is not None
        assert {each.tenant: each.llc_way_mask for each in loop.plan.tenants} == {"victim": 0x3FC00, "hog": 0xE}
        loop.close()
    with pytest.raises(ConfigurationError, match="'policy' is for controller pools"):
        configured(tmp_path, "max_min", tenants=[{**TENANTS[0], "policy": "gold"}])
    with pytest.raises(ConfigurationError, match="needs 'pools'"):
        control_from({"machine": "host", "controller": "pools", "tenants": TENANTS}, "loop.yaml")
    crowd = configured(tmp_path, "pools", tenants=[{**each, "max_cache": 8, "min_cache": 8} for each in TENANTS])
    backend = ResctrlBackend(fake_tree(tmp_path, Flavour(ways=WAYS)), tmp_path)
    with pytest.raises(TestbedError, match="no 8 adjacent ways left"):
        host_controller(RunningTenants(crowd, backend, SETTINGS, {"victim": 4.0}))
