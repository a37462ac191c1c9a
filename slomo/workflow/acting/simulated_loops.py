"""Build control loops on simulated time: a simulated server, each controller, and the promised throughputs."""

from collections.abc import Mapping

from slomo.control.cpu_shares import SharesController
from slomo.control.guard import GuardController
from slomo.control.loop import Plant
from slomo.control.max_min import MaxMinController, require_one_cache
from slomo.control.numa import NumaController, NumaTenant
from slomo.control.observation import Controller
from slomo.control.plants import PaidMoves, SharedCoresPlant, SimulatedPlant
from slomo.control.situation import Situation
from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores
from slomo.models.partition_profile import PartitionProfile
from slomo.placement.chains.moves import MoveCost
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.control_file import ControlConfiguration
from slomo.workflow.acting.host_loops import pool_controller
from slomo.workflow.acting.partition_profile import profile_partitions
from slomo.workflow.chains.node_costs import mover_of
from slomo.workflow.chains.simulate import require_held

#: Simulated server, controller, and the promised throughputs [Mpps].
Loop = tuple[Plant, Controller, Mapping[str, float]]


def guard(configuration: ControlConfiguration) -> Loop:
    """Return a loop that keeps promises by profiles over cache ways, which it simulates first."""
    server, targets = _server(configuration)
    profile = _profile(configuration, server)
    responses = {tenant: profile.responses[work.saturated.key] for tenant, work, _ in configuration.tenants}
    ways = server.machine.llc_ways
    situation = Situation(responses, profile.memory, ways, promised_mpps=targets, llcs=server.llcs)
    plant = SimulatedPlant(server, targets, seed=configuration.file.seed)
    return plant, GuardController(configuration.name, situation), targets


def max_min(configuration: ControlConfiguration) -> Loop:
    """Return a loop that divides cache ways max-min fair (ResQ)."""
    server, targets = _server(configuration)
    require_one_cache(server.llcs)
    machine = server.machine
    controller = MaxMinController(configuration.name, machine.llc_ways, machine.llc_mib * 1024.0 / machine.llc_ways)
    return SimulatedPlant(server, targets, seed=configuration.file.seed), controller, targets


def pools(configuration: ControlConfiguration) -> Loop:
    """Return a loop that assigns cores to RMD's pools."""
    server, targets = _server(configuration)
    members = {name: {"core_ids": [server.knobs[f"core:{name}"]]} for name in server.occupants}
    controller = pool_controller(configuration, server.machine.llc_ways, members, None)
    return SimulatedPlant(server, targets, seed=configuration.file.seed), controller, targets


def numa(configuration: ControlConfiguration) -> Loop:
    """Return a loop that moves tenants between memory nodes, and pays for the moves (NUMASFP)."""
    server, targets = _server(configuration)
    machine, profile = server.machine, _profile(configuration, server)
    saturated = {tenant: workload.saturated for tenant, workload, _ in configuration.tenants}
    movers = {tenant: mover_of(machine, workload) for tenant, workload in saturated.items()}
    other = next((s for s in range(machine.sockets) if s != machine.nic_socket), machine.nic_socket)
    far = {
        workload.key: min(
            1.0, solo_mpps(machine, workload, other * machine.cores_per_socket) / solo_mpps(machine, workload)
        )
        for workload in dict.fromkeys(saturated.values())
    }
    tenants = {
        tenant: NumaTenant(
            workload,
            profile.responses[workload.key],
            int(server.knobs[f"core:{tenant}"] or 0),
            far[workload.key],
            MoveCost().lost_s(movers[tenant]),
        )
        for tenant, workload in saturated.items()
    }
    plant = SimulatedPlant(server, targets, seed=configuration.file.seed, moves=PaidMoves(server, movers))
    return plant, NumaController(configuration.name, machine, tenants, profile.memory), targets


def cpu_shares(configuration: ControlConfiguration) -> Loop:
    """Return a loop that weighs the stages of chains on shared cores (NFVnice); nothing is promised."""
    assert configuration.system is not None
    require_held(configuration.system, configuration.name)
    seats = {stage.name: (stage.core, stage.priority) for stage in configuration.system.stages}
    plant = SharedCoresPlant(SimulatedCores(configuration.system), seed=configuration.file.seed)
    return plant, SharesController(configuration.name, seats), {}


def solo_mpps(machine: Machine, workload: Workload, core: int | None = None) -> float:
    """Return a workload's saturated solo throughput on a simulated machine, with memory on its own node [Mpps]."""
    server = SimulatedServer(machine, [])
    server.add(Occupant("alone", workload.saturated), core)
    return server.simulate(1).tenants[0].throughput_mpps


def _server(configuration: ControlConfiguration) -> tuple[SimulatedServer, dict[str, float]]:
    """Return the simulated server and promised throughputs. Raises InvalidValueError for more tenants than cores."""
    machine, tenants = configuration.machine, configuration.tenants
    assert machine is not None
    server = SimulatedServer(machine, [Occupant(name, workload) for name, workload, _ in tenants])
    return server, {name: share * solo_mpps(machine, work) for name, work, share in tenants if share is not None}


def _profile(configuration: ControlConfiguration, server: SimulatedServer) -> PartitionProfile:
    """Simulate every tenant's profile over cache ways and memory traffic."""
    testbed = SimulatedTestbed(server.machine, scale=32, accesses=60_000)
    workloads = [workload.saturated for _, workload, _ in configuration.tenants]
    return profile_partitions(testbed, server.machine, workloads, seed=configuration.file.seed)
