"""Make and store runs on a host, for one coordinator (the process that runs the campaign) at a time.

The host decides who may measure. The measuring process holds its lock, which the kernel releases when the process ends.
It carries its coordinator's token, which is compared when a run is written (Kleppmann, "How to do distributed locking",
2016; a scheduler's lease may outlive its holder).
"""

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from slomo.errors import StoreError, TestbedError
from slomo.files.documents import read
from slomo.files.durable import overwrite, write_durably
from slomo.fleet.functions import VARIABLE, FunctionFolder, checked_functions, publish_functions
from slomo.fleet.hosts import FleetHost
from slomo.fleet.room import FinishedRun, Room
from slomo.host.locks import MachineLock
from slomo.host.marker import boot_identity
from slomo.profiling.campaign.run import RunOutcome, attempt, campaign_environment
from slomo.profiling.campaign.store import CampaignStore, Key, StaleTokenError
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.records.host_effect import calibration_of
from slomo.records.provenance import versions
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.testbed.registry import make_testbed
from slomo.vocabulary.identity import stated_fingerprint
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import NetworkFunction

#: The one Dask resource of a worker: its host's testbed, used by one run at a time.
RESOURCE = "testbed"
#: Size of a claim with the longest host name: one sector, which a disk writes atomically [B].
_CLAIM_BYTES = 512
#: Polling interval while waiting for others [s].
_MOMENT_S = 0.1


@dataclass(frozen=True)
class FleetWork:
    """What a coordinator sends to a host with every run."""

    #: Fingerprint of the plan.
    plan: str
    #: Where runs are made there.
    testbed: str
    machine: str
    #: Additional network functions.
    own: tuple[NetworkFunction, ...] = ()
    #: Grows with every coordinator.
    token: int = 0
    #: Its identity; of two coordinators with the same token one is refused.
    coordinator: str = ""
    #: Digest of the native network functions that every host has.
    functions: str = ""


@dataclass(frozen=True)
class HostDescription:
    """What a host reports about itself before it measures.

    `kernel` is Linux's random boot id, which differs between machines. It is empty for a testbed whose runs may run
    concurrently on one machine.
    """

    name: str
    versions: dict[str, str]
    environment: dict[str, Any]
    fingerprint: str
    token: int
    kernel: str = ""


def describe_host(host: FleetHost, work: FleetWork, plan: ExperimentPlan) -> HostDescription:
    """Return a host's description. Raises TestbedError if another process uses the host."""
    hold(host)
    testbed = _testbed(host, work)
    environment = campaign_environment(plan, testbed)
    fingerprint = stated_fingerprint(environment, plan.machine)
    kernel = boot_identity() if testbed.exclusive else ""
    return HostDescription(host.name, versions(), environment, fingerprint, _claimed(host)[0], kernel)


def has_functions(host: FleetHost, digest: str) -> bool:
    """Return whether a host already has the native network functions. Raises TestbedError if its copy was changed."""
    hold(host)
    return (_functions(host) / digest).exists() and bool(checked_functions(_functions(host), digest))


def take_functions(host: FleetHost, functions: FunctionFolder) -> None:
    """Store native network functions on a host."""
    hold(host)
    publish_functions(functions, _functions(host))


def claim_host(host: FleetHost, work: FleetWork) -> None:
    """Reserve a host for a coordinator."""
    hold(host)
    token, coordinator = _claimed(host)
    if token > work.token or (token == work.token and coordinator != work.coordinator):
        raise _stale(host, work, token)
    _room(host).set_aside()
    _write_claim(_state(host) / "claim.json", json.dumps({"token": work.token, "coordinator": work.coordinator}))
    with _store(host, work) as store:
        try:
            store.fence(work.token)
        except StaleTokenError:
            raise
        except StoreError:
            return  # a full disk: no runs are written there, the coordinator keeps them


def collect_runs(host: FleetHost, work: FleetWork, keys: Collection[Key]) -> list[FinishedRun]:
    """Return those of a plan's runs `keys` that a host has finished and still stores."""
    stored = {run.key: run for run in _room(host).runs(work.plan)}
    with _store(host, work) as store:
        for key in keys:
            if key not in stored and (run := store.find(key)) is not None:
                stored[key] = FinishedRun(*key, run[0].to_dict(), run[1])
    return [stored[key] for key in keys if key in stored]


@dataclass(frozen=True)
class Taken:
    """The finished runs of a reserved host that its coordinator lacks, and the run by which hosts are compared."""

    finished: list[Key]
    compared: RunOutcome | None


def take_host(host: FleetHost, work: FleetWork, compared_by: PlannedRun) -> Taken:
    """Reserve a host and list its finished runs in one call."""
    claim_host(host, work)
    stored = _kept_run(host, _apart(host, work), compared_by)
    with _store(host, work) as store:
        finished = store.finished() | {run.key for run in _room(host).runs(work.plan)}
    return Taken(sorted(finished), RunOutcome(stored[0], (), stored[1]) if stored else None)


def measure_on(host: FleetHost, work: FleetWork, run: PlannedRun, again: bool = False) -> RunOutcome:
    """Make one run on a host, or return it if it is stored there; store a new run before returning it.

    If the disk is full, the run is kept in reserved space until the coordinator has it. The run is returned with that
    error.
    """
    hold(host)
    _require_claim(host, work)
    if not again and (there := _kept_run(host, work, run)):
        return RunOutcome(there[0], (), there[1])
    outcome = attempt(_testbed(host, work), run)
    if outcome.record is None:
        return outcome
    by = {"host": host.name, "token": work.token}
    if calibration := calibration_of(_testbed(host, work).environment()):
        by["calibration"] = calibration
    record = replace(outcome.record, provenance={**outcome.record.provenance, "fleet": by})
    _require_claim(host, work)
    try:
        with _store(host, work) as store:
            store.add(run, record, outcome.wall_s, work.token)
    except StaleTokenError:
        raise
    except StoreError as error:
        finished = FinishedRun(run.colocation.key, run.replicate, record.to_dict(), outcome.wall_s)
        errors: tuple[Exception, ...] = (*outcome.errors, error)
        try:
            _room(host).keep(work.plan, finished)
        except StoreError as other:
            errors = (*errors, other)
        return replace(outcome, record=record, errors=errors)
    return replace(outcome, record=record)


def _kept_run(host: FleetHost, work: FleetWork, run: PlannedRun) -> tuple[RunRecord, float] | None:
    key = (run.colocation.key, run.replicate)
    for stored in _room(host).runs(work.plan):
        if stored.key == key:
            return RunRecord.from_dict(stored.record), stored.wall_s
    try:
        with _store(host, work) as store:
            return store.find(key)
    except StoreError:
        return None  # it is made again


def compare_on(host: FleetHost, work: FleetWork, run: PlannedRun, again: bool = False) -> RunOutcome:
    """Make the run by which hosts are compared; it is stored apart from the dataset's runs."""
    return measure_on(host, _apart(host, work), run, again)


def _apart(host: FleetHost, work: FleetWork) -> FleetWork:
    calibration = calibration_of(_testbed(host, work).environment()) or "compared"
    return replace(work, plan=f"{work.plan}-{calibration}")


def own_resource(host: str) -> str:
    """Return the name of the Dask resource that only this host's worker has."""
    return f"host-{host}"


def grouped(hosts: Mapping[str, FleetHost | None]) -> dict[FleetHost | None, str]:
    """Return hosts' names grouped by what a run must know of a host; excluded hosts map to None."""
    groups: dict[FleetHost | None, list[str]] = {}
    for name, host in hosts.items():
        groups.setdefault(host and FleetHost("", state=host.state, host_file=host.host_file), []).append(name)
    return {host: " ".join(names) for host, names in groups.items()}


def on_worker(function: Callable[..., Any], hosts: Mapping[FleetHost | None, str], *arguments: Any) -> Any:
    """Run a function on the Dask worker of a host, with that host as its first argument.

    Raises TestbedError for an unknown worker; `distributed.Reschedule` on an excluded host.
    """
    from distributed import Reschedule, get_worker

    name = str(get_worker().name)
    for host, names in hosts.items():
        if name in names.split():
            if host is not None:
                return function(replace(host, name=name), *arguments)
            time.sleep(_MOMENT_S)
            raise Reschedule
    raise TestbedError(f"worker '{name}' is no host of this fleet", hint="start workers with --name HOST")


def _state(host: FleetHost) -> Path:
    return Path(host.state).expanduser() / host.name


def _store(host: FleetHost, work: FleetWork) -> CampaignStore:
    return CampaignStore(_state(host) / f"{work.plan}.sqlite", alone=True)


class _Claim(Struct):
    """The coordinator that has reserved a host, with its token."""

    token: Annotated[int, Meta(ge=0)]
    coordinator: str


def _room(host: FleetHost) -> Room:
    return Room(_state(host) / "room")


def _write_claim(place: Path, claim: str) -> None:
    """Write which coordinator has reserved the host, also if the disk is full."""
    padded = claim.ljust(_CLAIM_BYTES).encode()
    try:
        write_durably(place, padded)
    except StoreError:
        if not place.exists() or place.stat().st_size != len(padded):
            raise
        overwrite(place, padded)


def _claimed(host: FleetHost) -> tuple[int, str]:
    place = _state(host) / "claim.json"
    if not place.exists():
        return 0, ""
    claim = read(place, _Claim, hint="remove it, where no coordinator runs")
    return claim.token, claim.coordinator


def _require_claim(host: FleetHost, work: FleetWork) -> None:
    token, coordinator = _claimed(host)
    if (token, coordinator) != (work.token, work.coordinator):
        raise _stale(host, work, token)


def _stale(host: FleetHost, work: FleetWork, token: int) -> StaleTokenError:
    return StaleTokenError(
        f"host '{host.name}' serves a coordinator with token {token}, this one has {work.token}",
        hint="two coordinators want the same hosts: end one, then start the other again",
    )


@lru_cache(maxsize=64)  # of this process, for as long as it lives
def _machine_lock(state: Path) -> MachineLock:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"host '{state.name}': folder {state} cannot be made: {error.strerror}", hint="name another `state`"
        ) from None
    return MachineLock(f"host '{state.name}'", state / "lock", 0o666)


def hold(host: FleetHost, wait_s: float = 0.0) -> None:
    """Hold a host's lock until this process ends. Raises TestbedError if another process keeps the lock too long."""
    lock, until = _machine_lock(_state(host)), time.monotonic() + wait_s
    while not lock.held:
        try:
            lock.acquire()
        except TestbedError:
            if time.monotonic() >= until:
                raise
            time.sleep(_MOMENT_S)


@lru_cache(maxsize=8)
def _opened_testbed(testbed: str, machine: str, host_file: str | None, own: tuple[NetworkFunction, ...]) -> Testbed:
    described: str | Machine = machine if testbed == "host" else load_machine(machine)
    if testbed == "host" and host_file is not None:
        from slomo.testbed.host.host_file import load_host

        return load_host(host_file, machine, own)
    return make_testbed(testbed, described, own)


def _functions(host: FleetHost) -> Path:
    return _state(host) / "functions"


@lru_cache(maxsize=8)
def _checked_once(under: Path, digest: str) -> str:
    return str(checked_functions(under, digest))


def _testbed(host: FleetHost, work: FleetWork) -> Testbed:
    if work.functions:
        os.environ[VARIABLE] = _checked_once(_functions(host), work.functions)
    return _opened_testbed(work.testbed, work.machine, host.host_file, work.own)
