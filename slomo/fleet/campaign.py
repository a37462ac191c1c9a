"""Measure a plan on many hosts: Dask distributes runs, each host stores its own, this process collects them.

Every host takes the next run when it is free. The dataset equals that of a single host: runs, seeds and repetitions
follow from the plan alone. The death of a worker loses its present run; that of the coordinator loses nothing: the same
command collects finished runs and continues.
"""

import os
import socket
import statistics
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from slomo.errors import IncompatibleMeasurementsError, TestbedError
from slomo.extras import need
from slomo.files.stored import Stored
from slomo.fleet.asking import ReachedHosts, lost_scheduler_told, reached, token_of
from slomo.fleet.functions import read_functions
from slomo.fleet.hosts import Fleet
from slomo.fleet.measuring import (
    RESOURCE,
    FleetWork,
    HostDescription,
    Taken,
    collect_runs,
    compare_on,
    describe_host,
    grouped,
    measure_on,
    on_worker,
    take_host,
)
from slomo.profiling.campaign.progress import Progress, Silent
from slomo.profiling.campaign.run import RunOutcome, campaign_dataset, run_batch
from slomo.profiling.campaign.schedule import Schedule, record_throughput
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.records.dataset import ProfileDataset
from slomo.records.host_effect import (
    FEWEST,
    MOST_MISFIT,
    HostEffect,
    calibration_of,
    host_effects,
    shared_environment,
)
from slomo.records.provenance import difference, versions
from slomo.records.run import RunRecord
from slomo.units import plural
from slomo.vocabulary.network_function import NetworkFunction

#: Number of hosts shown by name while they measure; of more, those with fewest and most runs are shown.
_NAMED = 8
#: Number of finished runs collected at a time.
_COLLECTED = 1_000


@dataclass(frozen=True)
class HostShare(Stored):
    """What one host has done in a campaign."""

    #: Host.
    name: str
    #: Finished there in this campaign.
    runs: int
    #: Time spent in them [s].
    busy_s: float
    #: What that time costs.
    cost: float


@dataclass(frozen=True)
class FleetOutcome:
    """The result of a campaign: dataset, what each host did, and excluded hosts with reasons."""

    dataset: ProfileDataset
    shares: tuple[HostShare, ...]
    collected: int
    left_out: dict[str, str]
    wall_s: float


def profile_on_hosts(
    plan: ExperimentPlan,
    fleet: Fleet,
    store: str | Path,
    *,
    scheduler: str | None = None,
    own: Iterable[NetworkFunction] = (),
    skip_missing: bool = False,
    progress: Progress | None = None,
) -> FleetOutcome:
    """Run a profiling plan on all hosts of a fleet.

    `plan` is of one machine's name, and all hosts are of that type. `store` keeps every collected run; the same call
    again goes on. `scheduler`: address of a Dask scheduler, with a worker ``--name HOST --nthreads 1 --resources
    "testbed=1 host-HOST=1"`` per host; by default one is started here, and a worker on each host over SSH. `own`:
    additional network functions. With `skip_missing` it goes on without hosts that cannot be used; the outcome names
    them.
    """
    need("distributed")
    started = time.monotonic()
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    functions = read_functions(fleet.functions) if fleet.functions else None
    digest = "" if functions is None else functions.digest
    work = FleetWork(plan.fingerprint, fleet.testbed, plan.machine, tuple(own), coordinator=name, functions=digest)
    with CampaignStore(store) as opened, reached(fleet, scheduler, skip_missing, opened) as hosts:
        if functions is not None:
            hosts.send(functions)
        described = hosts.ask(describe_host, work, plan)
        require_alike(described, plan, fleet.fingerprint)
        environment = shared_environment(next(iter(described.values())).environment)
        if digest:
            environment["settings"] = {**environment.get("settings", {}), "functions": digest}
        opened.bind(plan, environment)
        token = 1 + max(*(each.token for each in described.values()), token_of(opened))
        work = replace(work, token=token)
        opened.fence(token)
        taken: dict[str, Taken] = hosts.ask(take_host, work, compared_run(plan))
        collected = _collect(hosts, taken, work, plan, opened)
        made = {host: each.compared for host, each in taken.items() if each.compared and host in hosts.names}
        hosts.leave_out(outliers(hosts, work, plan, made))
        calibrated, strange = calibrations(hosts, work, plan, described, opened)
        hosts.leave_out(strange)
        hosts.client.retire_workers(names=[*hosts.left_out], close_workers=True)
        schedule = Schedule(plan, opened.records(), interleaved=fleet.testbed == "host")
        measure = partial(on_worker, measure_on, grouped({**dict.fromkeys(fleet.names), **hosts.names}), work)
        listener = HostProgress(progress or Silent(), opened, fleet)
        with (
            lost_scheduler_told(),
            # not by worker: a restarted one has another address
            hosts.client.get_executor(resources={RESOURCE: 1}, pure=False) as pool,  # type: ignore[no-untyped-call]
        ):
            failed = run_batch(opened, schedule, measure, len(hosts.names), listener, pool)
        dataset = campaign_dataset(plan, schedule, opened, failed, calibrated)
    return FleetOutcome(dataset, listener.shares, collected, hosts.left_out, time.monotonic() - started)


class HostProgress:
    """Passes progress on to a listener, with a remark on hosts and cost.

    `listener`: listener; its ``remark(text)`` is called if it has one. `store`: knows which host made a run. `fleet`:
    knows what hosts cost.
    """

    def __init__(self, listener: Progress, store: CampaignStore, fleet: Fleet) -> None:
        self._listener, self._store, self._total, self._made = listener, store, 0, 0
        self._cost_per_s = {host.name: host.cost_per_h / 3600.0 for host in fleet.hosts}
        self._runs = dict.fromkeys(self._cost_per_s, 0)
        self._busy_s = dict.fromkeys(self._cost_per_s, 0.0)

    @property
    def shares(self) -> tuple[HostShare, ...]:
        """How many runs each host has made so far."""
        costs = self._cost_per_s.items()
        return tuple(HostShare(host, self._runs[host], s := self._busy_s[host], s * cost) for host, cost in costs)

    def start(self, total: int) -> None:
        """Pass the start on to the listener."""
        self._total = total
        self._listener.start(total)

    def advance(self, run: PlannedRun) -> None:
        """Pass progress on, with each host's number of runs and the cost of the remaining ones."""
        if (record := self._store.find((run.colocation.key, run.replicate))) is not None:
            host = str(record[0].provenance.get("fleet", {}).get("host"))
            self._runs[host] = self._runs.get(host, 0) + 1
            self._busy_s[host] = self._busy_s.get(host, 0.0) + record[1]
            self._made += 1
        often = max(1, len(self._runs) // _NAMED)  # the text of ten thousand hosts takes longer than their runs
        if (remark := getattr(self._listener, "remark", None)) and self._made % often == 0:
            remark(self._text())
        self._listener.advance(run)

    def finish(self) -> None:
        """Pass the end on to the listener."""
        self._listener.finish()

    def _text(self) -> str:
        order = sorted(self._runs, key=lambda host: self._runs[host])
        shown = self._runs if len(order) <= _NAMED else [order[0], order[-1]]
        runs = " ".join(f"{host}:{self._runs[host]}" for host in shown)
        cost = sum(self._busy_s[host] * each for host, each in self._cost_per_s.items())
        left = max(0, self._total - self._made) * cost / max(1, self._made)
        return f"{runs}, cost left {left:.2f}" if left else runs


@dataclass(frozen=True)
class FleetDescription(Stored):
    """Plan, hosts and cost of a campaign over hosts."""

    #: Hosts there are; runs the plan is sure to need, and those in the store.
    hosts: int
    runs: int
    finished: int
    #: Expected of what is left, from what a run is estimated to take [s].
    wall_s: float
    cost: float
    #: What each host would do of that.
    shares: tuple[HostShare, ...] = ()

    def __str__(self) -> str:
        ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + self.wall_s))
        return (
            f"{plural(self.runs, 'run')}, {self.finished} finished, on {plural(self.hosts, 'host')}: "
            f"about {self.wall_s:.0f} s, until {ends} if begun now, cost left {self.cost:.2f}"
        )


def describe_on_hosts(
    plan: ExperimentPlan, fleet: Fleet, store: str | Path, estimate_s: Callable[[Any], float]
) -> FleetDescription:
    """Describe what :func:`profile_on_hosts` would do, without starting anything or contacting hosts."""
    with CampaignStore(store if Path(store).exists() else None) as opened:
        finished = len(opened)
        schedule = Schedule(plan, opened.records())
    wall_s = sum(estimate_s(run.colocation) for run in schedule.pending()) / len(fleet.hosts)
    (each, more), hours = divmod(schedule.count(), len(fleet.hosts)), wall_s / 3600.0
    shares = tuple(
        HostShare(host.name, each + (at < more), wall_s, host.cost_per_h * hours) for at, host in enumerate(fleet.hosts)
    )
    cost = sum(share.cost for share in shares)
    return FleetDescription(len(fleet.hosts), plan.least_runs, finished, wall_s, cost, shares)


def _collect(
    hosts: ReachedHosts, taken: Mapping[str, Taken], work: FleetWork, plan: ExperimentPlan, store: CampaignStore
) -> int:
    """Collect from the hosts the finished runs that were not collected yet; return their number."""
    host_of = {key: host for host in reversed([*taken]) for key in taken[host].finished}
    missing, count = (key for key in host_of if store.find(key) is None), 0
    while some := list(islice(missing, _COLLECTED)):
        asked = dict.fromkeys(host_of[key] for key in some if host_of[key] in hosts.names)
        for host, runs in hosts.ask(collect_runs, work, some, of=asked).items():
            for run in (run for run in runs if host_of[run.key] == host):
                made = RunRecord.from_dict(run.record)
                store.add(plan.run(made.colocation, run.replicate), made, run.wall_s, work.token)
                count += 1
    return count


#: Least number of hosts for comparing them with each other.
_LEAST_COMPARED = 3
#: Number of competitions by which probed hosts are compared.
_COMPARED_BY = 8


def require_alike(described: Mapping[str, HostDescription], plan: ExperimentPlan, fingerprint: str) -> None:
    """Raise an error if hosts differ in slomo version, machine or settings, or if two are the same machine."""
    ours, first = versions(), next(iter(described.values()))
    kernels: dict[str, str] = {}
    for host, each in described.items():
        if each.versions.get("slomo") != ours.get("slomo"):
            raise TestbedError(
                f"host '{host}' has slomo {each.versions.get('slomo')}, this machine has {ours.get('slomo')}",
                hint="install the same version on all hosts",
            )
        expected = fingerprint or first.fingerprint
        if each.fingerprint != expected:
            raise TestbedError(
                f"host '{host}' is not the machine '{plan.machine}': fingerprint {each.fingerprint}, needed {expected}",
                hint="hosts of one fleet are of one type; make a file of hosts for each type",
            )
        if lines := difference(shared_environment(first.environment), shared_environment(each.environment)):
            raise TestbedError(
                f"hosts '{first.name}' and '{host}' do not measure alike (first | second):\n  " + "\n  ".join(lines),
                hint="give them the same settings and network functions",
            )
        if each.kernel and (other := kernels.setdefault(each.kernel, host)) != host:
            raise TestbedError(
                f"hosts '{other}' and '{host}' are the same machine (boot {each.kernel})",
                hint="name each machine once in the file of hosts",
            )


def compared_run(plan: ExperimentPlan) -> PlannedRun:
    """Return the run that all hosts make, so that their results can be compared."""
    return plan.run(next((each for each in plan.colocations if not each.competitors), plan.colocations[0]), 0)


def outliers(
    hosts: ReachedHosts, work: FleetWork, plan: ExperimentPlan, made: Mapping[str, RunOutcome]
) -> dict[str, str]:
    """Compare all hosts by one run; return those that differ from the median by more than twice the plan's limit.

    `made`: results of hosts that an earlier coordinator compared.
    """
    if len(hosts.names) < _LEAST_COMPARED:
        return {}
    run, missing = compared_run(plan), [name for name in hosts.names if name not in made]
    by_host = {**made, **hosts.ask(compare_on, work, run, of=missing, needed=True)}
    if suspects := _far(by_host, run.colocation.label, plan.dispersion_limit):
        by_host |= hosts.ask(compare_on, work, run, True, of=suspects, needed=True)
    return _far(by_host, run.colocation.label, plan.dispersion_limit)


def _far(made: Mapping[str, RunOutcome], label: str, limit: float) -> dict[str, str]:
    """Return the hosts whose run failed or differs from the median by more than a limit, with reasons."""
    mpps = {host: record_throughput(each.record) for host, each in made.items() if each.record is not None}
    failed = {host: f"its first run failed: {each.errors[-1]}" for host, each in made.items() if host not in mpps}
    middle = statistics.median(mpps.values()) if mpps else 0.0
    return failed | {
        host: f"{label}: {100 * (value / middle - 1.0):+.1f} % from the median of {len(mpps)} hosts, "
        f"limit {100 * limit:g} %"
        for host, value in mpps.items()
        if middle > 0.0 and abs(value / middle - 1.0) > limit
    }


def calibrations(
    hosts: ReachedHosts,
    work: FleetWork,
    plan: ExperimentPlan,
    described: Mapping[str, HostDescription],
    store: CampaignStore,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the factors that convert each host's probe readings, and hosts that measure something else.

    If calibrations differ, every host first probes the same competitions.
    """
    known: dict[str, dict[str, Any]] = store.settings().get("calibrations", {})
    own = {host: calibration_of(described[host].environment) for host in hosts.names}
    for host, calibration in own.items():
        reporters = described[host].environment.get("settings", {}).get("reporters", {})
        if calibration:
            known.setdefault(calibration, {"host": host, "reporters": reporters, "readings": []})
    if len(known) > 1:
        made = [hosts.ask(compare_on, work, run, needed=True) for run in _competitions(plan)]
        for host, calibration in own.items():
            runs = [each[host] for each in made]
            if failed := next((run for run in runs if run.record is None), None):
                raise TestbedError(f"host '{host}': a run that hosts are compared by failed: {failed.errors[-1]}")
            known[calibration]["readings"] = [dict(run.record.alone.socket) for run in runs]
    store.note("calibrations", known)
    readings = {calibration: each["readings"] for calibration, each in known.items() if each["readings"]}
    effects = host_effects(readings) if len(readings) > 1 else {}
    strange = {
        known[calibration]["host"]: f"its reporters follow something else than those of the other hosts: "
        f"{100 * effect.misfit:.0f} % off, limit {100 * MOST_MISFIT:g} %"
        for calibration, effect in effects.items()
        if effect.misfit > MOST_MISFIT
    }
    if strange and len(effects) < _LEAST_COMPARED:
        host, why = next(iter(strange.items()))
        raise IncompatibleMeasurementsError(
            f"host '{host}': {why}", hint="which of two hosts is wrong cannot be told: calibrate both again, or use one"
        )
    alone = HostEffect({}, 0.0)
    return {
        calibration: {"host": each["host"], "reporters": each["reporters"], **asdict(effects.get(calibration, alone))}
        for calibration, each in known.items()
        if each["host"] not in strange
    }, {host: why for host, why in strange.items() if host in hosts.names}


def _competitions(plan: ExperimentPlan) -> list[PlannedRun]:
    """Return runs with different sets of competitors, for comparing hosts."""
    first = {each.competitors: each for each in reversed(plan.colocations) if each.competitors}
    if len(first) < FEWEST:
        raise IncompatibleMeasurementsError(
            f"the hosts' probes are calibrated differently, and the plan has {len(first)} competitions to compare them "
            f"by, needed {FEWEST}",
            hint="plan more competitions, or measure on one host",
        )
    chosen = list(first.values())[:: max(1, len(first) // _COMPARED_BY)][:_COMPARED_BY]
    return [plan.run(each, 0) for each in chosen]
