"""Controllers of nodes and of CPU weights, in closed loop on the simulator, and from a configuration file."""

from dataclasses import replace
from pathlib import Path

import pytest

from slomo.control.cpu_shares import SharesController
from slomo.control.loop import ControlLoop, Step
from slomo.control.numa import NumaController, NumaTenant
from slomo.control.observation import MachineReading, Patience, TenantReading
from slomo.control.plants import PaidMoves, SharedCoresPlant, SimulatedPlant
from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores
from slomo.errors import ConfigurationError, InvalidValueError
from slomo.host.journal import open_receipts
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.chains.moves import MoveCost, Mover
from slomo.plugins import imported
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.control_file import CONTROLLERS, control_from, read_control_file

ROOM = "slomo.workflow.acting"
EXAMPLES = Path("docs/examples/control")
MACHINE = load_machine("e5-2620v4")
#: A stream: all of its throughput is limited by the memory, ways change nothing.
STREAM = Workload("synthetic", configuration={"data_size_mib": 64.0, "pattern": "sequential", "reads_per_packet": 1000})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def streams(count: int) -> tuple[SimulatedServer, NumaController]:
    """Return a server of streams, all on the NIC's node, and a controller that knows what memory they need."""
    server = SimulatedServer(MACHINE, [Occupant(f"s{n}", STREAM) for n in range(count)])
    bytes_per_packet = 64.0 * 1000
    response = PartitionResponse(
        "s", 0.158, (1.0, 20.0), (0.95, 0.95), (60.0, 60.0), (bytes_per_packet, bytes_per_packet)
    )
    tenants = {f"s{n}": NumaTenant(STREAM, response, n) for n in range(count)}
    one_node = MemoryTraffic((90.0, 150.0, 400.0), (0.0, 14.0, 18.5))
    return server, NumaController("s", MACHINE, tenants, one_node)


def test_streams_are_spread_over_the_nodes_once(tmp_path: Path) -> None:
    """Six that fight for one node's memory: half move, all together do more, and then nobody moves any more."""
    server, controller = streams(6)
    before = sum(t.throughput_mpps for t in server.simulate(5).tenants)
    first_knobs, steps = dict(server.knobs), []
    loop = ControlLoop(SimulatedPlant(server, {}), controller, Patience(1.0, 1.0), receipts=tmp_path)
    for _ in range(5):
        steps.append(loop.step())
        loop.plant.wait(1.0)
    sockets = [MACHINE.socket_of(int(server.knobs[f"core:s{n}"] or 0)) for n in range(6)]
    after = sum(t.throughput_mpps for t in server.simulate(5).tenants)
    loop.close()

    assert sorted(sockets) == [0, 0, 0, 1, 1, 1]
    assert after > 1.05 * before
    assert [bool(step.changes) for step in steps] == [True, False, False, False, False]
    assert server.knobs == first_knobs
    assert open_receipts(tmp_path) == ()


def test_nobody_moves_to_a_node_where_the_way_to_the_nic_costs_more() -> None:
    """A tenant that keeps a third of its throughput there stays; a server of one socket has nowhere to go."""
    server, controller = streams(2)
    controller.tenants = {name: replace(tenant, far=0.3) for name, tenant in controller.tenants.items()}
    seen = MachineReading(0.0, {name: TenantReading(1.0) for name in server.occupants})

    assert controller.decide(seen, None).plan is None
    with pytest.raises(InvalidValueError, match="1 socket,"):
        NumaController("s", replace(MACHINE, sockets=1), controller.tenants, controller.memory)


def test_every_tenant_has_room_for_a_core_of_its_own_on_its_node() -> None:
    """Nine on a socket of eight are refused by name; tenants without a reading keep their cores where others move."""
    server, controller = streams(8)
    tenth = {**controller.tenants, "s8": controller.tenants["s7"]}
    with pytest.raises(InvalidValueError, match=r"tenants 's7', 's8' share core 7, .* has 8 for 9 tenants"):
        NumaController("s", MACHINE, tenth, controller.memory)
    silent = {f"far{n}": replace(controller.tenants["s0"], core=8 + n) for n in range(7)}
    crowded = NumaController("s", MACHINE, {**controller.tenants, **silent}, controller.memory)
    seen = MachineReading(0.0, {name: TenantReading(0.1) for name in server.occupants})
    plan = crowded.decide(seen, None).plan
    assert plan is not None
    cores = [setting.cores for setting in plan.tenants]
    assert len({*cores}) == 15


def moved_by(lost_s: float, horizon_s: float) -> bool:
    """Return whether the controller moves any of six streams where a move costs each so much service."""
    server, free = streams(6)
    tenants = {name: replace(tenant, move_s=lost_s) for name, tenant in free.tenants.items()}
    controller = NumaController("s", MACHINE, tenants, free.memory, horizon_s=horizon_s)
    seen = MachineReading(0.0, {name: TenantReading(0.1) for name in server.occupants})
    decision = controller.decide(seen, None)
    if decision.plan is not None:
        assert "M packets lost" in decision.reasons[0]
    return decision.plan is not None


def test_streams_move_only_where_a_horizon_pays_for_it() -> None:
    """The longest pause worth its gain grows with the horizon: twice as long, twice the pause."""
    assert moved_by(0.0, 10.0)
    assert not moved_by(10.0, 10.0)
    worth_s = next(tenths / 10 for tenths in range(100, 0, -1) if moved_by(tenths / 10, 10.0))
    assert 0.0 < worth_s < 10.0
    assert moved_by(2 * worth_s, 20.0)
    assert not moved_by(2 * (worth_s + 0.1), 20.0)
    with pytest.raises(InvalidValueError, match="the horizon is 0 s"):
        moved_by(0.0, 0)


def test_a_tenant_that_moves_pays_for_it() -> None:
    """A pause of 0.1 s takes a tenth of a window of a second; pages that follow in 1.5 s cost that long."""
    server, _ = streams(2)
    free = SimulatedPlant(server, {})
    paid = SimulatedPlant(server, {}, moves=PaidMoves(server, {"s0": Mover(1500.0)}, MoveCost(0.1, 2**20 * 1e-6)))
    shares = []
    for second in range(4):
        if second == 1:
            server.knobs["core:s0"] = "8"
        here, there = (plant.observe().tenants["s0"].throughput_mpps for plant in (free, paid))
        shares.append(there / here)
        free.wait(1.0)
        paid.wait(1.0)
    server.knobs["node:s0"] = "0"
    remote = free.observe().tenants["s0"].throughput_mpps / here

    assert remote < 0.95
    assert shares[0] == shares[3] == 1.0
    assert shares[1] == pytest.approx(0.9 * remote, rel=0.03)
    assert shares[2] == pytest.approx(0.5 + 0.5 * remote, rel=0.03)
    assert server.knobs["core:s0"] == "8"


def jain(step: Step) -> float:
    """Return how fair output over input was."""
    assert step.observation is not None
    kept = [seen.throughput_mpps / (seen.offered_mpps or 0.0) for seen in step.observation.tenants.values()]
    return sum(kept) ** 2 / (len(kept) * sum(share**2 for share in kept))


def test_weights_follow_loads_and_costs(tmp_path: Path) -> None:
    """Three NFs of a core whose costs differ by ten lose alike once weighed, also after the loads changed."""
    system = read_control_file(EXAMPLES / "cpu-shares.yaml").system
    assert system is not None
    cores = SimulatedCores(system, duration_ms=50.0)
    other = replace(system, chains=(*system.chains[:2], replace(system.chains[2], mpps=0.4)))
    plant = SharedCoresPlant(cores, lambda time_s: other if time_s >= 3.0 else system)
    seats = {stage.name: (stage.core, stage.priority) for stage in system.stages}
    steps: list[Step] = []

    ControlLoop(plant, SharesController("s", seats), Patience(1.0, 1.0), receipts=tmp_path).run(6, steps.append)

    fairness = [jain(step) for step in steps]
    assert fairness[0] < 0.9
    assert min(fairness[1], fairness[2], fairness[5]) > 0.97
    assert steps[0].changes == 3
    assert [bool(step.changes) for step in steps[1:3]] == [False, False]
    assert any(step.changes for step in steps[3:])
    assert set(cores.knobs.values()) == {None}


@pytest.mark.parametrize("name", ["numa", "cpu-shares"])
def test_examples_are_configurations(name: str) -> None:
    """Each names its controller."""
    read = read_control_file(EXAMPLES / f"{name}.yaml")

    assert read.controller == name.replace("-", "_")
    assert (read.system is None) == bool(read.tenants)


def test_chains_are_for_weights_only() -> None:
    """Other controllers want tenants, and this one no tenants."""
    with pytest.raises(ConfigurationError, match="no list of tenants"):
        control_from({"controller": "numa"}, "c")
    with pytest.raises(ConfigurationError, match="unknown field 'tenants'"):
        control_from({"controller": "cpu_shares", "tenants": []}, "c")
    with pytest.raises(ConfigurationError, match="stages"):
        control_from({"controller": "cpu_shares"}, "c")


def test_two_tenants_of_one_name_are_refused() -> None:
    """One would stand for both."""
    twice = [{"workload": "lpm", "name": "a"}, {"workload": "nat", "name": "a"}]
    with pytest.raises(ConfigurationError, match="two tenants are named 'a'"):
        control_from({"tenants": twice}, "c")


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_every_controller_that_is_listed_is_there(kind: str) -> None:
    """Each row of the table names a function that builds the controller."""
    assert [name for name in CONTROLLERS[kind] if not callable(imported(f"{ROOM}.{kind}_loops:{name}"))] == []
