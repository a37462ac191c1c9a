"""A campaign over many hosts: Dask distributes runs, each host stores its own, the coordinator collects them.

Every host takes the next run when it is free. The dataset equals that of a single host: runs, seeds and repetitions
follow from the plan alone. The death of a worker loses its present run; that of the coordinator loses nothing: the same
command collects finished runs and continues.
"""

import os
import socket
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import IncompatibleMeasurementsError, SlomoError, StoreError, TestbedError
from slomo.extras import need
from slomo.files.stored import Stored
from slomo.fleet.functions import FunctionFolder, read_functions
from slomo.fleet.hosts import Fleet, FleetHost
from slomo.fleet.measuring import (
    RESOURCE,
    FleetWork,
    HostDescription,
    Taken,
    compare_on,
    describe_host,
    has_functions,
    measure_on,
    on_worker,
    own_resource,
    take_functions,
    take_host,
)
from slomo.fleet.spread import connected
from slomo.fleet.starting import START_S, Starter, free_port
from slomo.fleet.worker import MOST_DEATHS
from slomo.profiling.campaign.progress import Progress, Silent
from slomo.profiling.campaign.run import RunOutcome, campaign_dataset, run_batch
from slomo.profiling.campaign.schedule import Schedule, record_throughput
from slomo.profiling.campaign.store import CampaignStore, StaleTokenError
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
from slomo.vocabulary.network_function import NetworkFunction

if TYPE_CHECKING:
    from distributed import Client, Future

#: Silence of a worker after which its run is given to another one [s].
SILENT_S = 60.0
#: Interval of checks whether a host with a pending request still exists [s].
_LOOK_S = 1.0
#: Least number of hosts for comparing them with each other.
_LEAST_COMPARED = 3
#: Number of hosts shown by name while they measure; of more, those with fewest and most runs are shown.
_NAMED = 8
#: Number of competitions by which probed hosts are compared.
_COMPARED_BY = 8


@dataclass(frozen=True)
class HostShare(Stored):
    """What one host did.

    Attributes
    ----------
    name : str
        Host.
    runs : int
        Finished there in this campaign.
    busy_s : float
        Time spent in them [s].
    cost : float
        What that time costs.
    """

    name: str
    runs: int
    busy_s: float
    cost: float


@dataclass(frozen=True)
class FleetOutcome:
    """A campaign's dataset, each host's part in it, collected runs, and excluded hosts with reasons."""

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
    """Run a plan on all hosts of a fleet.

    Parameters
    ----------
    plan : ExperimentPlan
        What to measure, on one machine's name.
    fleet : Fleet
        Where; all hosts are of that machine.
    store : path
        Keeps every collected run; the same call again goes on.
    scheduler : str, optional
        Address of a Dask scheduler, with a worker ``--name HOST --nthreads 1 --resources "testbed=1 host-HOST=1"`` per
        host. By default one is started here, and a worker on each host over SSH.
    own : iterable of NetworkFunction
        Network functions of one's own.
    skip_missing : bool
        Go on without hosts that cannot be used; told in the outcome.
    progress : Progress, optional
        Listener.

    Raises
    ------
    TestbedError
        For a host that cannot be reached, that another process uses, or that is of another version or machine; for a
        scheduler that goes away.
    IncompatibleMeasurementsError
        For hosts whose probes follow something else.
    StoreError
        Where the store is in use; for a coordinator that a newer one has replaced.
    ConfigurationError
        For a folder of native network functions that is none.
    IncompleteCampaignError
        Where some runs failed.
    """
    need("distributed")
    started = time.monotonic()
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    functions = read_functions(fleet.functions) if fleet.functions else None
    digest = "" if functions is None else functions.digest
    work = FleetWork(plan.fingerprint, fleet.testbed, plan.machine, tuple(own), coordinator=name, functions=digest)
    with CampaignStore(store) as opened, _workers(fleet, scheduler, skip_missing, opened) as (client, left_out):
        hosts = {host: entry for host, entry in fleet.names.items() if host not in left_out}
        if functions is not None:
            _send(client, hosts, functions, left_out if skip_missing else None)
            hosts = {host: entry for host, entry in hosts.items() if host not in left_out}
        described = _ask(client, hosts, describe_host, work, plan, skip=left_out if skip_missing else None)
        _require_alike(described, plan, fleet.fingerprint)
        environment = shared_environment(next(iter(described.values())).environment)
        if digest:
            environment["settings"] = {**environment.get("settings", {}), "functions": digest}
        opened.bind(plan, environment)
        token = 1 + max(*(each.token for each in described.values()), _token_of(opened))
        work = replace(work, token=token)
        opened.fence(token)
        hosts = {host: hosts[host] for host in described}
        unusable = left_out if skip_missing else None
        compared_by = _compared_by(plan)
        taken: dict[str, Taken] = _ask(client, hosts, take_host, work, compared_by, skip=unusable)
        hosts = {host: hosts[host] for host in taken}
        collected = _collect(taken, work, plan, opened)
        left_out |= _outliers(client, hosts, work, plan, taken)
        hosts = {host: entry for host, entry in hosts.items() if host not in left_out}
        calibrated, strange = _calibrated(client, hosts, work, plan, described, opened)
        left_out |= strange
        hosts = {host: entry for host, entry in hosts.items() if host not in left_out}
        client.retire_workers(names=[*left_out], close_workers=True)
        schedule = Schedule(plan, opened.records(), interleaved=fleet.testbed == "host")
        measure = partial(on_worker, measure_on, {**dict.fromkeys(fleet.names), **hosts}, work)
        before = opened.finished()
        listener = HostProgress(progress, opened, fleet) if progress else Silent()
        with (
            _lost_scheduler_told(),
            # not by worker: a restarted one has another address
            client.get_executor(resources={RESOURCE: 1}, pure=False) as pool,  # type: ignore[no-untyped-call]
        ):
            failed = run_batch(opened, schedule, measure, len(hosts), listener, pool)
        shares = _shares(opened, before, fleet)
        dataset = campaign_dataset(plan, schedule, opened, failed, calibrated)
    return FleetOutcome(dataset, shares, collected, left_out, time.monotonic() - started)


class HostProgress:
    """Forwards progress, with a remark on hosts and cost for listeners that show remarks.

    Parameters
    ----------
    listener : Progress
        Who hears of it; its ``remark(text)`` is called where it has one.
    store : CampaignStore
        Knows which host made a run.
    fleet : Fleet
        Knows what hosts cost.
    """

    def __init__(self, listener: Progress, store: CampaignStore, fleet: Fleet) -> None:
        self._listener, self._store, self._total = listener, store, 0
        self._costs = {host.name: host.cost_per_h / 3600.0 for host in fleet.hosts}
        self._runs = dict.fromkeys(self._costs, 0)
        self._cost = 0.0

    def start(self, total: int) -> None:
        """Pass it on."""
        self._total = total
        self._listener.start(total)

    def advance(self, run: PlannedRun) -> None:
        """Forward progress, with each host's number of runs and the cost of the remaining ones."""
        if (found := self._store.find((run.colocation.key, run.replicate))) is not None:
            host = str(found[0].provenance.get("fleet", {}).get("host"))
            self._runs[host] = self._runs.get(host, 0) + 1
            self._cost += found[1] * self._costs.get(host, 0.0)
        if remark := getattr(self._listener, "remark", None):
            remark(self._text())
        self._listener.advance(run)

    def finish(self) -> None:
        """Pass it on."""
        self._listener.finish()

    def _text(self) -> str:
        order, made = sorted(self._runs, key=lambda host: self._runs[host]), sum(self._runs.values())
        shown = self._runs if len(order) <= _NAMED else [order[0], order[-1]]
        runs = " ".join(f"{host}:{self._runs[host]}" for host in shown)
        left = max(0, self._total - made) * self._cost / max(1, made)
        return f"{runs}, cost left {left:.2f}" if left else runs


@dataclass(frozen=True)
class FleetDescription(Stored):
    """Description of a campaign over hosts.

    Attributes
    ----------
    hosts, runs, finished : int
        Hosts there are; runs the plan is sure to need, and those in the store.
    wall_s, cost : float
        Expected of what is left, from what a run is estimated to take [s].
    shares : tuple of HostShare
        What each host would do of that.
    """

    hosts: int
    runs: int
    finished: int
    wall_s: float
    cost: float
    shares: tuple[HostShare, ...] = ()

    def __str__(self) -> str:
        ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + self.wall_s))
        return (
            f"{self.runs} runs, {self.finished} finished, on {self.hosts} hosts: about {self.wall_s:.0f} s, "
            f"until {ends} if begun now, cost left {self.cost:.2f}"
        )


def describe_on_hosts(
    plan: ExperimentPlan, fleet: Fleet, store: str | Path, estimate_s: Callable[[Any], float]
) -> FleetDescription:
    """Return a description of :func:`profile_on_hosts` without starting anything or contacting hosts."""
    with CampaignStore(store if Path(store).exists() else None) as opened:
        finished = len(opened)
        pending = Schedule(plan, opened.records()).pending()
    wall_s = sum(estimate_s(run.colocation) for run in pending) / len(fleet.hosts)
    more, hours = len(pending) % len(fleet.hosts), wall_s / 3600.0
    shares = tuple(
        HostShare(host.name, len(pending) // len(fleet.hosts) + (at < more), wall_s, host.cost_per_h * hours)
        for at, host in enumerate(fleet.hosts)
    )
    cost = sum(share.cost for share in shares)
    return FleetDescription(len(fleet.hosts), len(plan.runs()), finished, wall_s, cost, shares)


@contextmanager
def _workers(
    fleet: Fleet, scheduler: str | None, skip_missing: bool, store: CampaignStore
) -> "Iterator[tuple[Client, dict[str, str]]]":
    """Yield a client whose workers are the hosts, and the missing hosts with reasons."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slomo-fleet-")))
        starter = Starter(fleet, folder, returning=_token_of(store) > 0)
        stack.callback(starter.end)
        address = scheduler or stack.enter_context(_listening(fleet, store))
        client = stack.enter_context(connected(address))
        present = partial(_present, client)

        left_out = starter.start(address, present) if scheduler is None else _awaited(present, fleet)
        if left_out and (not skip_missing or len(left_out) == len(fleet.hosts)):
            host, why = next(iter(left_out.items()))
            raise TestbedError(
                f"{len(left_out)} of {len(fleet.hosts)} hosts cannot be used; '{host}': {why}",
                hint="mend it, or leave such hosts out with --skip-missing",
            )
        if scheduler is None:
            stack.enter_context(starter.keeping_up(client))
        yield client, left_out


@contextmanager
def _listening(fleet: Fleet, store: CampaignStore) -> Iterator[str]:
    """Start a scheduler, at the address of this store's last one, so that its workers reconnect."""
    import dask
    from distributed import LocalCluster

    settings = {
        # a run that kills its worker is tried on another one; the testbed reports what is wrong with it
        "distributed.scheduler.allowed-failures": MOST_DEATHS,
        "distributed.scheduler.worker-ttl": f"{SILENT_S:g} s",
        "distributed.comm.timeouts.tcp": "300 s",  # on a machine that is very busy
        "distributed.comm.timeouts.connect": "60 s",
    }
    made: Any = LocalCluster
    port = free_port(fleet.listen, int(store.settings().get("port", 0)))
    with (
        dask.config.set(settings),
        made(
            n_workers=0, host=fleet.listen, scheduler_port=port, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
    ):
        store.note("port", int(cluster.scheduler_address.rsplit(":", 1)[1]))
        yield str(cluster.scheduler_address)


def _awaited(present: Callable[[], set[str]], fleet: Fleet) -> dict[str, str]:
    """Wait for workers that others start; return the missing hosts."""
    deadline = time.monotonic() + START_S
    while (missing := fleet.names.keys() - present()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return dict.fromkeys(sorted(missing), f"its worker did not come within {START_S:g} s")


def _ask(
    client: "Client",
    hosts: Mapping[str, FleetHost],
    function: Callable[..., Any],
    *arguments: Any,
    skip: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return every host's answer; failures go into `skip` if that is given."""
    with _lost_scheduler_told():
        asked = {
            host: client.submit(
                on_worker, function, dict(hosts), *arguments, pure=False, resources={RESOURCE: 1, own_resource(host): 1}
            )
            for host in hosts
        }
        answers = {}
        for host, future in asked.items():
            try:
                answers[host] = _answer(client, host, future)
            except SlomoError as error:
                if skip is None or isinstance(error, StaleTokenError):
                    raise
                skip[host] = error.message
                refused = error
        if not answers and hosts:
            raise refused
        return answers


def _answer(client: "Client", host: str, future: "Future[Any]") -> Any:
    """Return a host's answer; TestbedError if its worker is gone and does not return."""
    seen = time.monotonic()
    while True:
        with suppress(TimeoutError):
            return future.result(timeout=_LOOK_S)
        if host in _present(client):
            seen = time.monotonic()
        elif time.monotonic() > seen + START_S:
            raise TestbedError(
                f"host '{host}' is gone: its worker did not come back within {START_S:g} s",
                hint="mend it, or leave such hosts out with --skip-missing",
            )


def _present(client: "Client") -> set[str]:
    """Return the hosts with connected workers."""
    return {str(each["name"]) for each in client.scheduler_info(n_workers=-1)["workers"].values()}


def _send(
    client: "Client", hosts: Mapping[str, FleetHost], functions: FunctionFolder, skip: dict[str, str] | None
) -> None:
    """Send native network functions to hosts that lack them, one by one, since the scheduler keeps copies."""
    there: dict[str, bool] = _ask(client, hosts, has_functions, functions.digest, skip=skip)
    for host in (host for host, has in there.items() if not has):
        try:
            _ask(client, {host: hosts[host]}, take_functions, functions)
        except (StoreError, TestbedError) as error:
            if skip is None:
                raise
            skip[host] = error.message


@contextmanager
def _lost_scheduler_told() -> Iterator[None]:
    """Turn Dask's errors about a lost scheduler or lost workers into a TestbedError."""
    from distributed import CancelledError as DaskCancelled
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CancelledError, DaskCancelled, KilledWorker, CommClosedError) as error:
        raise TestbedError(
            f"scheduler or workers of the fleet are gone ({type(error).__name__}: {error})",
            hint="the same command again collects what the hosts have finished, and goes on",
        ) from None


def _require_alike(described: Mapping[str, HostDescription], plan: ExperimentPlan, fingerprint: str) -> None:
    """Refuse hosts with another slomo version, machine or settings, or that are the same machine."""
    ours, first = versions(), next(iter(described.values()))
    kernels: dict[str, str] = {}
    for host, each in described.items():
        if each.versions.get("slomo") != ours.get("slomo"):
            raise TestbedError(
                f"host '{host}' has slomo {each.versions.get('slomo')}, this machine has {ours.get('slomo')}",
                hint="install the same version on all hosts",
            )
        wanted = fingerprint or first.fingerprint
        if each.fingerprint != wanted:
            raise TestbedError(
                f"host '{host}' is not the machine '{plan.machine}': fingerprint {each.fingerprint}, needed {wanted}",
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


def _token_of(store: CampaignStore) -> int:
    return int(store.settings().get("token", 0))


def _collect(taken: Mapping[str, Taken], work: FleetWork, plan: ExperimentPlan, store: CampaignStore) -> int:
    """Collect finished runs that no coordinator has yet; return their number."""
    there, count = store.finished(), 0
    for run in (run for each in taken.values() for run in each.runs):
        if (key := (run.colocation, run.replicate)) not in there:
            made = RunRecord.from_dict(run.record)
            store.add(plan.run(made.colocation, run.replicate), made, run.wall_s, work.token)
            there.add(key)
            count += 1
    return count


def _compared_by(plan: ExperimentPlan) -> PlannedRun:
    """Return the run by which all hosts are compared."""
    return plan.run(next((each for each in plan.colocations if not each.competitors), plan.colocations[0]), 0)


def _outliers(
    client: "Client",
    hosts: Mapping[str, FleetHost],
    work: FleetWork,
    plan: ExperimentPlan,
    taken: Mapping[str, Taken],
) -> dict[str, str]:
    """Compare all hosts by one run; return those twice farther from the median than the plan's limit."""
    if len(hosts) < _LEAST_COMPARED:
        return {}
    run = _compared_by(plan)
    made = {host: kept for host in hosts if (kept := taken[host].compared) is not None}
    made |= _ask(client, {host: hosts[host] for host in hosts if host not in made}, compare_on, work, run)
    if suspects := _far(made, run.colocation.label, plan.dispersion_limit):
        again = {host: hosts[host] for host in suspects}
        made |= _ask(client, again, compare_on, work, run, True)
    return _far(made, run.colocation.label, plan.dispersion_limit)


def _far(made: Mapping[str, RunOutcome], label: str, limit: float) -> dict[str, str]:
    """Return hosts whose run failed or differs from the median by more than a limit, with reasons."""
    mpps = {host: record_throughput(each.record) for host, each in made.items() if each.record is not None}
    failed = {host: f"its first run failed: {each.errors[-1]}" for host, each in made.items() if host not in mpps}
    middle = statistics.median(mpps.values()) if mpps else 0.0
    return failed | {
        host: f"{label}: {100 * (value / middle - 1.0):+.1f} % from the median of {len(mpps)} hosts, "
        f"limit {100 * limit:g} %"
        for host, value in mpps.items()
        if middle > 0.0 and abs(value / middle - 1.0) > limit
    }


def _calibrated(
    client: "Client",
    hosts: Mapping[str, FleetHost],
    work: FleetWork,
    plan: ExperimentPlan,
    described: Mapping[str, HostDescription],
    store: CampaignStore,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the effect of every probed host by calibration, and hosts whose reporters measure something else.

    If calibrations differ, every host first probes the same competitions.
    """
    known: dict[str, dict[str, Any]] = store.settings().get("calibrations", {})
    own = {host: calibration_of(described[host].environment) for host in hosts}
    for host, calibration in own.items():
        reporters = described[host].environment.get("settings", {}).get("reporters", {})
        if calibration:
            known.setdefault(calibration, {"host": host, "reporters": reporters, "felt": []})
    if len(known) > 1:
        made = [_ask(client, hosts, compare_on, work, run) for run in _competitions(plan)]
        for host, calibration in own.items():
            runs = [each[host] for each in made]
            if failed := next((run for run in runs if run.record is None), None):
                raise TestbedError(f"host '{host}': a run that hosts are compared by failed: {failed.errors[-1]}")
            known[calibration]["felt"] = [dict(run.record.alone.socket) for run in runs]
    store.note("calibrations", known)
    felt = {calibration: each["felt"] for calibration, each in known.items() if each["felt"]}
    effects = host_effects(felt) if len(felt) > 1 else {}
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
    }, {host: why for host, why in strange.items() if host in hosts}


def _competitions(plan: ExperimentPlan) -> list[PlannedRun]:
    """Return runs with different competitions, evenly spread over the plan, by which probed hosts are compared."""
    first = {each.competitors: each for each in reversed(plan.colocations) if each.competitors}
    if len(first) < FEWEST:
        raise IncompatibleMeasurementsError(
            f"the hosts' probes are calibrated differently, and the plan has {len(first)} competitions to compare them "
            f"by, needed {FEWEST}",
            hint="plan more competitions, or measure on one host",
        )
    chosen = list(first.values())[:: max(1, len(first) // _COMPARED_BY)][:_COMPARED_BY]
    return [plan.run(each, 0) for each in chosen]


def _shares(store: CampaignStore, before: set[tuple[str, int]], fleet: Fleet) -> tuple[HostShare, ...]:
    """Return each host's part since the campaign was resumed."""
    walls: dict[str, list[float]] = defaultdict(list)
    for run in filter(None, map(store.find, sorted(store.finished() - before))):
        walls[str(run[0].provenance.get("fleet", {}).get("host"))].append(run[1])
    costs = {host.name: host.cost_per_h / 3600.0 for host in fleet.hosts}
    return tuple(HostShare(h, len(walls[h]), sum(walls[h]), sum(walls[h]) * costs[h]) for h in costs)
