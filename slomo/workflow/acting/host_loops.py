"""Build a control loop on this host: its network functions, their promised throughputs, and each controller."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slomo.control.guard import GuardController
from slomo.control.host_plant import HostPlant, OnProcesses
from slomo.control.loop import Plant
from slomo.control.max_min import MaxMinController, require_one_cache
from slomo.control.observation import Controller
from slomo.control.pools.configuration import read_rmd_toml
from slomo.control.pools.controller import PoolController
from slomo.control.pools.manager import PoolManager
from slomo.control.pools.workload import processes_of_this_host
from slomo.control.situation import Situation
from slomo.control.throttle import ThrottleController
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.change import Backend
from slomo.enforce.plan import TenantSetting
from slomo.errors import ConfigurationError, TestbedError, UnknownNameError
from slomo.host.cores import assign_cores, available_cores, llc_of
from slomo.host.resctrl_facts import read_facts
from slomo.models.partition_profile import library_of, load_profiles
from slomo.models.responses.memory_traffic import joined
from slomo.plugins import imported
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.workflow.acting.control_file import WISHES, ControlConfiguration, stated


@dataclass(frozen=True)
class RunningTenants:
    """Tenants that run on this host, and what a controller may set for them."""

    configuration: ControlConfiguration
    #: Control groups for controller ``throttle``, a resctrl tree for the others.
    backend: Backend
    #: Processes and cores of each tenant.
    settings: Mapping[str, TenantSetting]
    promised_mpps: Mapping[str, float]
    #: Number of each tenant's last-level cache; one for all if a tenant is missing here.
    llcs: Mapping[str, int] = field(default_factory=dict)

    @property
    def llc_ways(self) -> int:
        """Number of cache ways of this host. Raises TestbedError if the cache cannot be divided."""
        assert isinstance(self.backend, ResctrlBackend)
        return read_facts(self.backend.tree).full_mask.bit_count()


def host_loop(configuration: ControlConfiguration, run: Run) -> tuple[Plant, Controller, Mapping[str, float]]:
    """Start every NF on a core of its own; return the plant, the controller and the promised throughputs [Mpps]."""
    backend: Backend = CgroupBackend() if configuration.controller == "throttle" else ResctrlBackend()
    able, why = backend.available()
    if not able:
        what = "control groups" if configuration.controller == "throttle" else "cache ways"
        raise TestbedError(f"this host's {what} cannot be set: {why}", hint="see `slomo doctor`")
    cores = assign_cores(available_cores(), [1] * len(configuration.tenants), "the loop")
    running = {
        name: run.start(host_definition(workload.nf), workload, own_cores)
        for (name, workload, _), own_cores in zip(configuration.tenants, cores, strict=True)
    }
    alone = HostPlant(running, {}, backend)
    targets = {name: share * alone.solo_mpps(name) for name, _, share in configuration.tenants if share is not None}
    llcs = {name: llc_of(own_cores[0]) for name, own_cores in zip(running, cores, strict=True)}
    controller = host_controller(RunningTenants(configuration, backend, alone.settings(), targets, llcs))
    return HostPlant(running, targets, backend), controller, targets


def host_controller(running: RunningTenants) -> Controller:
    """Return the controller that the configuration names."""
    make = imported(f"slomo.workflow.acting.host_loops:{running.configuration.controller}")
    controller: Controller = make(running)
    return controller


def throttle(running: RunningTenants) -> Controller:
    """Return a controller that lowers the CPU weight of tenants without a promise."""
    others = {name: setting for name, setting in running.settings.items() if name not in running.promised_mpps}
    return ThrottleController(running.configuration.name, others)


def max_min(running: RunningTenants) -> Controller:
    """Return a controller that divides cache ways max-min fair, where no occupancy is known (ResQ)."""
    require_one_cache(running.llcs)
    return OnProcesses(MaxMinController(running.configuration.name, running.llc_ways, 1.0), running.settings)


def guard(running: RunningTenants) -> Controller:
    """Return a controller that keeps promises by the profile over cache ways that the configuration names."""
    configuration, ways, machine = running.configuration, running.llc_ways, running.configuration.described
    assert machine is not None
    assert configuration.file.partitions is not None
    learned = library_of(load_profiles(configuration.file.partitions), machine)
    known = {key: model.allocation for (_, key), model in learned.items() if model.allocation is not None}
    if machine.llc_ways != ways:
        raise ConfigurationError(
            f"'{machine.name}' has {machine.llc_ways} cache ways, this host {ways}", hint="describe this host"
        )
    missing = next((w.key for _, w, _ in configuration.tenants if w.key not in known), None)
    if missing is not None:
        raise UnknownNameError("workload in the profile over cache ways", missing, known)
    models = {name: known[workload.key] for name, workload, _ in configuration.tenants}
    responses = {name: model.response for name, model in models.items()}
    memory = joined(model.memory for model in models.values())
    situation = Situation(responses, memory, ways, promised_mpps=running.promised_mpps, llcs=running.llcs)
    return OnProcesses(GuardController(configuration.name, situation), running.settings)


def pools(running: RunningTenants) -> Controller:
    """Return a controller that assigns processes to RMD's pools."""
    members = {name: {"task_ids": [*map(str, tenant.process_ids)]} for name, tenant in running.settings.items()}
    return pool_controller(running.configuration, running.llc_ways, members, running.backend)


def pool_controller(
    configuration: ControlConfiguration, ways: int, members: Mapping[str, Mapping[str, Any]], backend: Backend | None
) -> PoolController:
    """Divide `ways` cache ways into RMD's pools, assign every tenant to a pool, and return the controller.

    `members` are each tenant's cores or processes, as RMD names them. The backend's tree is searched for groups
    that slomo did not make.
    """
    file, machine = configuration.file, configuration.machine
    assert file.pools is not None
    way_mib = None if machine is None else machine.llc_mib / machine.llc_ways
    known = read_rmd_toml(file.pools, file.policies, way_mib=way_mib, cache_ways=ways)
    if machine is not None:  # on a simulated server nothing runs but the tenants
        infrastructure = known.infrastructure and replace(known.infrastructure, cores=(), tasks=())
        system = replace(known.system, cores=(), tasks=())
        known = replace(known, system=system, infrastructure=infrastructure)
    running = {int(task): name for name, who in members.items() for task in who.get("task_ids", ())}
    manager = PoolManager(
        known, ways, backend=backend, processes=lambda: {**processes_of_this_host(), **running}, enforces=False
    )
    asked = {
        name: stated(tenant, *WISHES) for (name, _, _), tenant in zip(configuration.tenants, file.tenants, strict=True)
    }
    return PoolController(manager, {name: {**who, **asked[name]} for name, who in members.items()})
