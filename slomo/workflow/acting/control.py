"""Run a control loop from a configuration file, and report its state."""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from msgspec import Meta, Struct

from slomo.control.guard import GuardController
from slomo.control.host_plant import HostPlant, OnProcesses
from slomo.control.loop import ControlLoop, Step
from slomo.control.max_min import MaxMinController
from slomo.control.observation import Controller, Patience
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
from slomo.errors import ConfigurationError, SlomoError, StoreError, TestbedError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.durable import write_durably
from slomo.files.json_text import Position
from slomo.files.opening import read_text
from slomo.files.ranges import ProcessId
from slomo.host.cores import assign_cores, available_cores
from slomo.host.journal import open_receipts
from slomo.host.places import cache_directory
from slomo.host.resctrl_facts import read_facts
from slomo.models.partition_profile import library_of, load_profiles
from slomo.models.responses.partition import memory_of
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.service_chains import ChainSystem, parse_chains
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

if TYPE_CHECKING:
    from slomo.enforce.backends.simulated import SimulatedServer

#: Kind of machine -> controllers that run on it; machine ``host`` is this one.
CONTROLLERS = {
    "simulated": ("guard", "max_min", "pools", "numa", "cpu_shares"),
    "host": ("throttle", "max_min", "guard", "pools"),
}
HOST, SHARES = "host", "cpu_shares"
#: Fields of a tenant for controller ``pools``, as RMD's workloads have them.
_WISHES = ("policy", "max_cache", "min_cache")
#: Fields of a service-chain file (docs/guides/chains.md), which controller `cpu_shares` reads instead of tenants.
_CHAIN_FIELDS = {"stages", "chains", "queue", "storage", "buffer_b", "memory_socket"}


GUIDE = "see docs/guides/live-control.md"
_Seconds = Annotated[float, Meta(ge=0.0, lt=1e9)]
_Count = Annotated[int, Meta(ge=0, lt=10**9)]


class TenantEntry(Struct, forbid_unknown_fields=True):
    """One tenant of the file, its promised share of solo throughput, and the resources it asks ``pools`` for."""

    workload: Annotated[str, Meta(description="{workload: lpm, slo: 0.9}")]
    name: str | None = None
    slo: Annotated[float, Meta(gt=0.0, le=1.0, description="share of solo throughput, such as 0.9")] | None = None
    policy: str | None = None
    max_cache: int | None = None
    min_cache: int | None = None


class ControlFile(Struct, forbid_unknown_fields=True):
    """The fields of a control loop's configuration file."""

    machine: str = "e5-2620v4"
    controller: str | None = None
    tenants: Annotated[list[TenantEntry], Meta(description=GUIDE)] = []
    period_s: _Seconds = Patience.period_s
    dwell_s: _Seconds = Patience.dwell_s
    cool_down_s: _Seconds = Patience.cool_down_s
    steps: _Count = 60
    seed: _Count = 0
    name: str | None = None
    partitions: str | None = None
    described: str | None = None
    pools: str | None = None
    policies: str | None = None


@dataclass(frozen=True)
class ControlConfiguration:
    """A control loop's configuration: the file's fields, and what the file names (machine, functions, RMD's files)."""

    file: ControlFile
    #: Name of the loop in `slomo control status`.
    name: str
    #: Simulated machine; None is this host.
    machine: Machine | None
    #: One of ``CONTROLLERS``.
    controller: str
    #: Name, workload, promised share of solo throughput.
    tenants: tuple[tuple[str, Workload, float | None], ...]
    #: Chains of NFs on shared cores, for ``cpu_shares``.
    system: ChainSystem | None = None
    #: For ``guard`` on this host: the host's description.
    described: Machine | None = None

    @property
    def settings(self) -> Patience:
        """How long the loop waits: after a change, and after a change that it undid."""
        return Patience(self.file.period_s, self.file.dwell_s, self.file.cool_down_s)


def read_control_file(path: str | Path) -> ControlConfiguration:
    """Read a control loop's configuration from a file.

    Raises ConfigurationError for an invalid configuration; UnknownNameError for an unknown controller or machine.
    """
    document = parse(read_text(path), str(path))
    return control_from(document.data, path, lambda: document.lines)


def control_from(
    data: Any, path: str | Path, lines: Callable[[], Mapping[Position, int]] = dict
) -> ControlConfiguration:
    """Return the configuration in a mapping that has the file's fields; errors name `path`.

    Raises ConfigurationError for an invalid configuration; UnknownNameError for an unknown controller or machine.
    """
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{path}: is no mapping", hint=GUIDE)
    own = {name: value for name, value in data.items() if name not in _CHAIN_FIELDS}
    told = convert(own, ControlFile, str(path), lines=lines)
    machine = None if told.machine == HOST else load_machine(told.machine)
    there = CONTROLLERS[HOST if machine is None else "simulated"]
    controller = told.controller or (SHARES if "stages" in data and machine is not None else there[0])
    if controller not in there:
        raise UnknownNameError("controller", controller, there)
    unread = {"tenants"} if controller == SHARES else _CHAIN_FIELDS
    if unknown := sorted(unread & set(data)):
        fields = sorted({*ControlFile.__struct_fields__, *_CHAIN_FIELDS} - unread)
        raise ConfigurationError(f"{path}: unknown field '{unknown[0]}'", hint=f"fields: {', '.join(fields)}")
    if controller != SHARES and not told.tenants:
        raise ConfigurationError(f"{path}: has no list of tenants", hint=GUIDE)
    workloads = [parse_workload(tenant.workload) for tenant in told.tenants]
    named = enumerate(zip(told.tenants, workloads, strict=True))
    tenants = tuple((each.name or f"{number}:{work.nf}", work, each.slo) for number, (each, work) in named)
    if twice := [name for name, count in Counter(name for name, _, _ in tenants).items() if count > 1]:
        raise ConfigurationError(f"{path}: two tenants are named '{twice[0]}'", hint="give each a name of its own")
    _check_pools(path, told, controller)
    described = _described(path, told, controller if machine is None else "")
    system = _system(path, data) if controller == SHARES else None
    name = told.name or Path(path).stem
    return ControlConfiguration(told, name, machine, controller, tenants, system, described)


def _there(told: Struct, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(told, name)) is not None}


def _check_pools(path: str | Path, told: ControlFile, controller: str) -> None:
    """Raise an error if RMD's files are missing for ``pools``, or given for another controller."""
    if controller != "pools":
        for name in [
            *_there(told, "pools", "policies"),
            *(key for each in told.tenants for key in _there(each, *_WISHES)),
        ]:
            raise ConfigurationError(f"{path}: '{name}' is for controller pools")
    elif told.pools is None:
        raise ConfigurationError(
            f"{path}: controller pools needs 'pools', the file of RMD's configuration",
            hint="pools: rmd.toml, policies: policy.yaml",
        )


def _described(path: str | Path, told: ControlFile, controller: str) -> Machine | None:
    """Return the description of this host's machine, which the controller ``guard`` needs."""
    stated = _there(told, "partitions", "described")
    if controller != "guard":
        if stated:
            raise ConfigurationError(f"{path}: '{next(iter(stated))}' is for controller guard on machine host")
        return None
    missing = next((name for name in ("partitions", "described") if name not in stated), None)
    if missing is not None:
        raise ConfigurationError(
            f"{path}: controller guard on this host needs '{missing}': the profile over cache ways, and the file that "
            "describes the machine it was measured on",
            hint="partitions: ways.json (slomo whatif NF... --profiles ways.json), described: my-machine.yaml",
        )
    return load_machine(stated["described"])


def _system(path: str | Path, data: Mapping[str, Any]) -> ChainSystem:
    own = {name: data[name] for name in ("machine", *sorted(_CHAIN_FIELDS)) if name in data}
    return parse_chains(yaml.safe_dump(own), str(path))


def run_control(
    configuration: ControlConfiguration, told: Callable[[Step], None] | None = None, *, receipts: Path | None = None
) -> dict[str, Any]:
    """Run a control loop, on the simulator or on this host, and return a summary.

    Raises any SlomoError of the loop, after the machine's settings are restored.

    `told`: called after each round. `receipts`: folder of receipts.
    """
    steps: list[Step] = []
    with control_loop(configuration, receipts) as (loop, targets):

        def note(step: Step) -> None:
            steps.append(step)
            _write_status(configuration, steps, loop)
            if told is not None:
                told(step)

        try:
            loop.run(configuration.file.steps, note)
        finally:
            _status_file(configuration.name).unlink(missing_ok=True)
    seen = [step for step in steps if step.observation is not None]
    broken = sum(bool(step.observation.broken) for step in seen if step.observation is not None)
    return {
        "name": configuration.name,
        "controller": configuration.controller,
        "rounds": len(steps),
        "rounds_with_a_broken_promise": broken,
        "changes": sum(bool(step.changes) for step in steps),
        "alarms": loop.alarms,
        "blind_rounds": loop.blind_rounds,
        "escalated": sorted({name for step in steps for name in step.decision.escalated}),
        "targets_mpps": dict(targets),
    }


@contextlib.contextmanager
def control_loop(
    configuration: ControlConfiguration, receipts: Path | None = None
) -> Iterator[tuple[ControlLoop, Mapping[str, float]]]:
    """Yield the loop that a configuration describes, and the promised throughputs.

    This host's network functions run only inside the context.

    Raises SlomoError if the machine does not allow it.
    """
    if configuration.machine is not None:
        from slomo.workflow.acting.simulated_loops import simulated_loop  # the simulator, which a host does not need

        made = partial(_simulated_pools, configuration) if configuration.file.pools else configuration.controller
        what = configuration.system or configuration.tenants
        plant, controller, targets = simulated_loop(
            configuration.name, configuration.machine, made, what, configuration.file.seed
        )
        yield ControlLoop(plant, controller, configuration.settings, receipts=receipts), targets
        return
    with Run() as run:
        yield _host_loop(configuration, run, receipts)


def _host_loop(
    configuration: ControlConfiguration, run: Run, receipts: Path | None
) -> tuple[ControlLoop, Mapping[str, float]]:
    """Start every NF on a core of its own, and measure the solo throughput of tenants with a promise."""
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
    controller = host_controller(configuration, backend, alone.settings(), targets)
    plant = HostPlant(running, targets, backend)
    return ControlLoop(plant, controller, configuration.settings, receipts=receipts), targets


def host_controller(
    configuration: ControlConfiguration,
    backend: Backend,
    settings: Mapping[str, TenantSetting],
    promised_mpps: Mapping[str, float],
) -> Controller:
    """Return the controller that a configuration names, for this host.

    Raises TestbedError if the cache cannot be divided; ConfigurationError or UnsupportedPredictionError if the models
    are of another machine or lack a tenant.

    `backend` is control groups for ``throttle``, a resctrl tree for the others.
    """
    if configuration.controller == "throttle":
        return ThrottleController(configuration.name, {n: s for n, s in settings.items() if n not in promised_mpps})
    assert isinstance(backend, ResctrlBackend)
    ways = read_facts(backend.tree).full_mask.bit_count()
    if configuration.controller == "max_min":
        return OnProcesses(MaxMinController(configuration.name, ways, 1.0), settings)
    if configuration.controller == "pools":
        members = {name: {"task_ids": [*map(str, setting.process_ids)]} for name, setting in settings.items()}
        return pool_controller(configuration, ways, members, backend)
    machine = configuration.described
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
    situation = Situation(responses, memory_of(list(models.values())), ways, promised_mpps=promised_mpps)
    return OnProcesses(GuardController(configuration.name, situation), settings)


def pool_controller(
    configuration: ControlConfiguration, ways: int, members: Mapping[str, Mapping[str, Any]], backend: Backend | None
) -> PoolController:
    """Divide `ways` cache ways into RMD's pools, assign every tenant to a pool, and return the controller.

    Raises ConfigurationError for invalid RMD files; TestbedError if a pool is full; InvalidValueError for a request
    that no pool serves.

    `members` are each tenant's cores or processes, as RMD names them. The backend's tree is searched for groups
    that slomo did not make.
    """
    file, machine = configuration.file, configuration.machine
    assert file.pools is not None
    way_mib = None if machine is None else machine.llc_mib / machine.llc_ways
    known = read_rmd_toml(file.pools, file.policies, way_mib=way_mib, cache_ways=ways)
    running = {int(task): name for name, who in members.items() for task in who.get("task_ids", ())}
    manager = PoolManager(
        known, ways, backend=backend, processes=lambda: {**processes_of_this_host(), **running}, enforces=False
    )
    asked = {
        name: _there(each, *_WISHES) for (name, _, _), each in zip(configuration.tenants, file.tenants, strict=True)
    }
    return PoolController(manager, {name: {**who, **asked[name]} for name, who in members.items()})


def _simulated_pools(configuration: ControlConfiguration, server: "SimulatedServer") -> PoolController:
    members = {name: {"core_ids": [server.knobs[f"core:{name}"]]} for name in server.occupants}
    return pool_controller(configuration, server.machine.llc_ways, members, None)


def _status_file(name: str) -> Path:
    return cache_directory() / "control" / f"{name.replace(os.sep, '-')[:60]}.json"


def _write_status(configuration: ControlConfiguration, steps: Sequence[Step], loop: ControlLoop) -> None:
    last = steps[-1]
    observation = last.observation
    status = {
        "name": configuration.name,
        "controller": configuration.controller,
        "process": os.getpid(),
        "at": time.time(),
        "rounds": len(steps),
        "changes": sum(bool(step.changes) for step in steps),
        "broken": list(observation.broken) if observation else [],
        "throughput_mpps": {name: r.throughput_mpps for name, r in observation.tenants.items()} if observation else {},
        "reasons": list(last.decision.reasons),
        "fault": last.fault,
        "alarm": last.alarm,
        "alarms": loop.alarms,
        "blind_rounds": loop.blind_rounds,
        "receipt": None if loop.receipt is None else loop.receipt.identifier,
        "plan": None if loop.plan is None else loop.plan.to_dict(),
        "settings": asdict(configuration.settings),
    }
    with contextlib.suppress(StoreError):  # a full disk does not end a loop that keeps promises
        write_durably(_status_file(configuration.name), json.dumps(status))


def control_status() -> dict[str, Any]:
    """Return the loops that run or were killed, and the receipts (records of changes) not yet undone."""
    loops = []
    for path in sorted((cache_directory() / "control").glob("*.json")):
        with contextlib.suppress(SlomoError):
            loops.append(read_status(path))
    return {"loops": loops, "open_receipts": [receipt.identifier for receipt in open_receipts()]}


def read_status(path: Path) -> dict[str, Any]:
    """Return the status that a loop last wrote, and whether its process still lives.

    Raises ConfigurationError for a damaged file.
    """
    status = parse(read_text(path), str(path)).table()
    process = convert(status.get("process"), ProcessId, str(path))
    return {**status, "alive": Path(f"/proc/{process}").is_dir()}
