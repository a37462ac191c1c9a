"""Build a control loop on simulated time: a simulated server, a controller and promised throughputs."""

from collections.abc import Callable, Mapping, Sequence

from slomo.control.cpu_shares import SharesController
from slomo.control.guard import GuardController
from slomo.control.loop import Plant
from slomo.control.max_min import MaxMinController
from slomo.control.moving import PaidMoves
from slomo.control.numa import NumaController, NumaTenant
from slomo.control.observation import Controller
from slomo.control.plants import SharedCoresPlant, SimulatedPlant
from slomo.control.situation import Situation
from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores
from slomo.models.partition_profile import PartitionProfile
from slomo.placement.chains.moves import MoveCost
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.service_chains import ChainSystem
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.partition_profile import profile_partitions
from slomo.workflow.chains.moving import mover_of

#: Name, workload, promised share of solo throughput.
Promised = tuple[str, Workload, float | None]


def simulated_loop(
    name: str,
    machine: Machine,
    controller: str | Callable[[SimulatedServer], Controller],
    tenants: Sequence[Promised] | ChainSystem,
    seed: int = 0,
) -> tuple[Plant, Controller, Mapping[str, float]]:
    """Return simulated server, controller, and the promised throughputs [Mpps].

    Raises SlomoError for more tenants than cores, or tenants that the controller does not support.

    `controller` may be a callable that makes one for a server. ``cpu_shares`` runs a `ChainSystem` instead of
    tenants.
    """
    if isinstance(tenants, ChainSystem):
        seats = {stage.name: (stage.core, stage.priority) for stage in tenants.stages}
        return SharedCoresPlant(SimulatedCores(tenants), seed=seed), SharesController(name, seats), {}
    server = SimulatedServer(machine, [Occupant(tenant, workload) for tenant, workload, _ in tenants])
    targets = {tenant: share * solo_mpps(machine, workload) for tenant, workload, share in tenants if share is not None}
    movers = {tenant: mover_of(machine, workload.saturated) for tenant, workload, _ in tenants if controller == "numa"}
    plant = SimulatedPlant(server, targets, seed=seed, moves=PaidMoves(server, movers))
    return plant, _controller(name, server, controller, seed, targets), targets


def solo_mpps(machine: Machine, workload: Workload, core: int | None = None) -> float:
    """Return a workload's saturated solo throughput on a simulated machine, with memory on its own node [Mpps]."""
    server = SimulatedServer(machine, [])
    server.add(Occupant("alone", workload.saturated), core)
    return server.simulate(1).tenants[0].throughput_mpps


def _controller(
    name: str,
    server: SimulatedServer,
    controller: str | Callable[[SimulatedServer], Controller],
    seed: int,
    targets_mpps: Mapping[str, float],
) -> Controller:
    if not isinstance(controller, str):
        return controller(server)
    machine = server.machine
    if controller == "max_min":
        return MaxMinController(name, machine.llc_ways, machine.llc_mib * 1024.0 / machine.llc_ways)
    saturated = {occupant.name: occupant.workload.saturated for occupant in server.occupants.values()}
    testbed = SimulatedTestbed(machine, scale=32, accesses=60_000)
    profile = profile_partitions(testbed, machine, list(saturated.values()), seed=seed)
    if controller == "numa":
        return _numa(name, server, saturated, profile)
    responses = {tenant: profile.responses[workload.key] for tenant, workload in saturated.items()}
    return GuardController(name, Situation(responses, profile.memory, machine.llc_ways, promised_mpps=targets_mpps))


def _numa(
    name: str, server: SimulatedServer, saturated: Mapping[str, Workload], profile: PartitionProfile
) -> NumaController:
    machine = server.machine
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
            MoveCost().lost_s(mover_of(machine, workload)),
        )
        for tenant, workload in saturated.items()
    }
    return NumaController(name, machine, tenants, profile.memory)
