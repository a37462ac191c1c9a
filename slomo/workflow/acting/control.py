"""Run a control loop from a configuration file, and tell how it stands."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

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
from slomo.enforce.backends.simulated import SimulatedServer
from slomo.enforce.change import Backend
from slomo.enforce.plan import TenantSetting
from slomo.errors import ConfigurationError, SlomoError, StoreError, TestbedError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.durable import write_durably
from slomo.files.opening import read_text
from slomo.files.ranges import ProcessId
from slomo.host.cores import assign_cores, available_cores
from slomo.host.journal import open_receipts
from slomo.host.places import cache_directory
from slomo.host.resctrl_facts import read_facts
from slomo.models.responses.partition import memory_of
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.service_chains import ChainSystem, parse_chains
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.simulated_loops import simulated_loop
from slomo.workflow.acting.whatif import PartitionKnowledge

#: Where -> which controllers run there; machine ``host`` is this one.
CONTROLLERS = {
    "simulated": ("guard", "max_min", "pools", "numa", "cpu_shares"),
    "host": ("throttle", "max_min", "guard", "pools"),
}
HOST, SHARES = "host", "cpu_shares"
_FIELDS = {
    "machine", "controller", "tenants", "period_s", "dwell_s", "cool_down_s", "steps", "seed", "name", "partitions",
    "described", "pools", "policies",
}  # fmt: skip
#: Of a tenant, for ``pools``: fields of RMD's workloads.
_WISHES = ("policy", "max_cache", "min_cache")
#: Of a document of service chains (docs/guides/chains.md), which `cpu_shares` reads instead of tenants.
_CHAIN_FIELDS = {"stages", "chains", "queue", "storage", "buffer_b", "memory_socket"}


@dataclass(frozen=True)
class ControlConfiguration:
    """What a configuration file says."""

    #: Of the loop, for `slomo control status`.
    name: str
    #: Simulated machine; None is this host.
    machine: Machine | None
    #: One of ``CONTROLLERS``.
    controller: str
    #: Name, workload, promised share of solo throughput.
    tenants: tuple[tuple[str, Workload, float | None], ...]
    #: How patient the loop is.
    settings: Patience
    #: Rounds on simulated time.
    steps: int
    #: Of the simulations.
    seed: int
    #: Chains of NFs on shared cores, for ``cpu_shares``.
    system: ChainSystem | None = None
    #: For ``guard`` on this host: what was learned over its ways (`slomo whatif --profile`), and what describes it.
    partitions: Path | None = None
    described: Machine | None = None
    #: For ``pools``: RMD's configuration and policies, and tenant -> what it asks for.
    pools: tuple[Path, Path | None] | None = None
    wishes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_control_file(path: str | Path) -> ControlConfiguration:
    """Read a configuration.

    Raises ConfigurationError for what is none; UnknownNameError for a controller or machine there is not.
    """
    return control_from(parse(read_text(path), str(path)).data, path)


def control_from(data: Any, path: str | Path) -> ControlConfiguration:
    """Return the configuration in a mapping shaped as the file; `path` names it in errors, and the loop by its stem.

    Raises ConfigurationError for what is none; UnknownNameError for a controller or machine there is not.
    """
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{path}: is no mapping", hint="see docs/guides/live-control.md")
    machine = None if data.get("machine") == HOST else load_machine(str(data.get("machine", "e5-2620v4")))
    there = CONTROLLERS[HOST if machine is None else "simulated"]
    controller = str(data.get("controller", SHARES if "stages" in data and machine is not None else there[0]))
    if controller not in there:
        raise UnknownNameError("controller", controller, there)
    fields = (_FIELDS - {"tenants"}) | _CHAIN_FIELDS if controller == SHARES else _FIELDS
    unknown = sorted(set(data) - fields)
    if unknown:
        raise ConfigurationError(f"{path}: unknown field '{unknown[0]}'", hint=f"fields: {', '.join(sorted(fields))}")
    tenants = data.get("tenants", ())
    if controller != SHARES and not (isinstance(tenants, list) and tenants):
        raise ConfigurationError(f"{path}: has no list of tenants", hint="see docs/guides/live-control.md")
    settings = Patience(
        _number(path, data, "period_s", Patience.period_s),
        _number(path, data, "dwell_s", Patience.dwell_s),
        _number(path, data, "cool_down_s", Patience.cool_down_s),
    )
    read = tuple(_tenant(path, number, item) for number, item in enumerate(tenants))
    pools, wishes = _pools(path, data, controller, [name for name, _, _ in read])
    return ControlConfiguration(
        str(data.get("name", Path(path).stem)),
        machine,
        controller,
        read,
        settings,
        int(_number(path, data, "steps", 60)),
        int(_number(path, data, "seed", 0)),
        _system(path, data) if controller == SHARES else None,
        *_knowledge(path, data, controller if machine is None else ""),
        pools,
        wishes,
    )


def _pools(
    path: str | Path, data: Mapping[str, Any], controller: str, names: Sequence[str]
) -> tuple[tuple[Path, Path | None] | None, Mapping[str, Mapping[str, Any]]]:
    """Return RMD's files, and what each tenant asks for; who asks for nothing shares."""
    asked = [{key: item[key] for key in _WISHES if key in item} for item in data.get("tenants", ())]
    given = [name for name in ("pools", "policies") if name in data] + [key for wish in asked for key in wish]
    if controller != "pools":
        if given:
            raise ConfigurationError(f"{path}: '{given[0]}' is for controller pools")
        return None, {}
    pools, policies = data.get("pools"), data.get("policies")
    if not isinstance(pools, str) or not isinstance(policies, str | None):
        raise ConfigurationError(
            f"{path}: controller pools needs 'pools', the file of RMD's configuration",
            hint="pools: rmd.toml, policies: policy.yaml",
        )
    return (Path(pools), None if policies is None else Path(policies)), dict(zip(names, asked, strict=True))


def _knowledge(path: str | Path, data: Mapping[str, Any], controller: str) -> tuple[Path | None, Machine | None]:
    """Return what the guard needs to know of this host."""
    given = {name: data[name] for name in ("partitions", "described") if name in data}
    if controller != "guard":
        if given:
            raise ConfigurationError(f"{path}: '{next(iter(given))}' is for controller guard on machine host")
        return None, None
    missing = next((name for name in ("partitions", "described") if not isinstance(given.get(name), str)), None)
    if missing is not None:
        raise ConfigurationError(
            f"{path}: controller guard on this host needs '{missing}': the profile over cache ways, and the file that "
            "describes the machine it was measured on",
            hint="partitions: ways.json (slomo whatif NF... --profile ways.json), described: my-machine.yaml",
        )
    return Path(given["partitions"]), load_machine(given["described"])


def _system(path: str | Path, data: Mapping[str, Any]) -> ChainSystem:
    own = {name: data[name] for name in ("machine", *sorted(_CHAIN_FIELDS)) if name in data}
    return parse_chains(yaml.safe_dump(own), str(path))


def _number(path: str | Path, data: Mapping[str, Any], name: str, default: float = 0) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigurationError(f"{path}: {name} is {value!r}, needed a number from 0")
    return value


def _tenant(path: str | Path, number: int, item: Any) -> tuple[str, Workload, float | None]:
    if not isinstance(item, Mapping) or "workload" not in item:
        raise ConfigurationError(f"{path}: tenant {number} has no workload", hint="{workload: lpm, slo: 0.9}")
    share = item.get("slo")
    if share is not None and (not isinstance(share, int | float) or not 0.0 < share <= 1.0):
        raise ConfigurationError(f"{path}: tenant {number}: slo is {share!r}, needed above 0 and at most 1")
    workload = parse_workload(str(item["workload"]))
    return str(item.get("name", f"{number}:{workload.nf}")), workload, share


def run_control(
    configuration: ControlConfiguration, told: Callable[[Step], None] | None = None, *, receipts: Path | None = None
) -> dict[str, Any]:
    """Run the loop, on the simulator or on this host, and return a summary.

    Raises SlomoError: what the loop raises; the machine is given back before.

    Parameters
    ----------
    configuration : ControlConfiguration
        What to run.
    told : callable, optional
        Called after each round.
    receipts : path, optional
        Folder of receipts.
    """
    steps: list[Step] = []
    with control_loop(configuration, receipts) as (loop, targets):

        def note(step: Step) -> None:
            steps.append(step)
            _write_status(configuration, steps, loop)
            if told is not None:
                told(step)

        try:
            loop.run(configuration.steps, note)
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
    """Give the loop that a configuration describes, and the targets in it; NFs of this host run inside only.

    Raises SlomoError if the machine does not let it.
    """
    if configuration.machine is not None:
        made = partial(_simulated_pools, configuration) if configuration.pools else configuration.controller
        what = configuration.system or configuration.tenants
        plant, controller, targets = simulated_loop(
            configuration.name, configuration.machine, made, what, configuration.seed
        )
        yield ControlLoop(plant, controller, configuration.settings, receipts=receipts), targets
        return
    with Run() as run:
        yield _host_loop(configuration, run, receipts)


def _host_loop(
    configuration: ControlConfiguration, run: Run, receipts: Path | None
) -> tuple[ControlLoop, Mapping[str, float]]:
    """Start every NF on a core of its own, and measure alone who was promised something."""
    backend: Backend = CgroupBackend() if configuration.controller == "throttle" else ResctrlBackend()
    able, why = backend.available()
    if not able:
        what = "control groups" if configuration.controller == "throttle" else "cache ways"
        raise TestbedError(f"this host's {what} cannot be set: {why}", hint="see `slomo doctor`")
    cores = assign_cores(available_cores(), [1] * len(configuration.tenants), "the loop")
    running = {
        name: run.start(host_definition(workload.nf), workload, given)
        for (name, workload, _), given in zip(configuration.tenants, cores, strict=True)
    }
    alone = HostPlant(running, {}, backend)
    targets = {name: share * alone.solo_mpps(name) for name, _, share in configuration.tenants if share is not None}
    controller = host_controller(configuration, backend, alone.settings(), tuple(targets))
    plant = HostPlant(running, targets, backend)
    return ControlLoop(plant, controller, configuration.settings, receipts=receipts), targets


def host_controller(
    configuration: ControlConfiguration,
    backend: Backend,
    settings: Mapping[str, TenantSetting],
    promised: Sequence[str],
) -> Controller:
    """Return who decides on this host.

    Raises TestbedError where the cache cannot be divided; ConfigurationError, UnsupportedPredictionError for what was
    learned on another machine, or not of a tenant.

    Parameters
    ----------
    configuration : ControlConfiguration
        What to run.
    backend : Backend
        Control groups for ``throttle``, a resctrl tree for the others.
    settings : mapping of str to TenantSetting
        Tenant -> its processes.
    promised : sequence of str
        Who was promised something.
    """
    if configuration.controller == "throttle":
        return ThrottleController(configuration.name, {n: s for n, s in settings.items() if n not in promised})
    assert isinstance(backend, ResctrlBackend)
    ways = read_facts(backend.tree).full_mask.bit_count()
    if configuration.controller == "max_min":
        return OnProcesses(MaxMinController(configuration.name, ways, 1.0), settings)
    if configuration.controller == "pools":
        members = {name: {"task_ids": [*setting.process_ids]} for name, setting in settings.items()}
        return pool_controller(configuration, ways, members, backend)
    machine = configuration.described
    assert machine is not None
    assert configuration.partitions is not None
    known = PartitionKnowledge.load(configuration.partitions).models(machine)
    if machine.llc_ways != ways:
        raise ConfigurationError(
            f"'{machine.name}' has {machine.llc_ways} cache ways, this host {ways}", hint="describe this host"
        )
    missing = next((w.key for _, w, _ in configuration.tenants if w.key not in known), None)
    if missing is not None:
        raise UnknownNameError("workload in the profile over cache ways", missing, known)
    models = {name: known[workload.key] for name, workload, _ in configuration.tenants}
    responses = {name: model.response for name, model in models.items()}
    situation = Situation(responses, memory_of(list(models.values())), ways)
    return OnProcesses(GuardController(configuration.name, situation), settings)


def pool_controller(
    configuration: ControlConfiguration, ways: int, members: Mapping[str, Mapping[str, Any]], backend: Backend | None
) -> PoolController:
    """Return RMD's pools of a cache of so many ways, with all tenants in them.

    Raises ConfigurationError for files that are none of RMD's; TestbedError where a pool has no room; InvalidValueError
    for what no pool gives.

    Parameters
    ----------
    configuration : ControlConfiguration
        What to run.
    ways : int
        Of the cache.
    members : mapping of str to mapping
        Tenant -> its cores or processes, as RMD names them.
    backend : Backend or None
        Whose tree is looked at for groups of others.
    """
    assert configuration.pools is not None
    machine = configuration.machine
    way_mib = None if machine is None else machine.llc_mib / machine.llc_ways
    known = read_rmd_toml(*configuration.pools, way_mib=way_mib, cache_ways=ways)
    running = {task: name for name, who in members.items() for task in who.get("task_ids", ())}
    manager = PoolManager(
        known, ways, backend=backend, processes=lambda: {**processes_of_this_host(), **running}, enforces=False
    )
    return PoolController(manager, {name: {**who, **configuration.wishes[name]} for name, who in members.items()})


def _simulated_pools(configuration: ControlConfiguration, server: SimulatedServer) -> PoolController:
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
    """Return the loops that run (or were killed), and the receipts that are open."""
    loops = []
    for path in sorted((cache_directory() / "control").glob("*.json")):
        with contextlib.suppress(SlomoError):
            loops.append(read_status(path))
    return {"loops": loops, "open_receipts": [receipt.identifier for receipt in open_receipts()]}


def read_status(path: Path) -> dict[str, Any]:
    """Return what a loop said of itself last, and whether it is alive; ConfigurationError for a damaged file."""
    status = parse(read_text(path), str(path)).table()
    process = convert(status.get("process"), ProcessId, str(path))
    return {**status, "alive": Path(f"/proc/{process}").is_dir()}
