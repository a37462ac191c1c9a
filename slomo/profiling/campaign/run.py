"""Make the runs of a plan on a testbed: in parallel, each stored, with the same dataset after interruptions.

The offline profiling of SLOMO (SIGCOMM'20, section 4.1) is kept as an append-only log of runs, as ResQ and npf store
theirs. A campaign that is killed at any moment and started again ends with the same dataset.

Ctrl-C and SIGTERM end a campaign between two runs: the first requests the end, a second one interrupts at once.
Finished runs are in the store in both cases.
"""

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from slomo.errors import MeasurementError, TestbedError, UnstableMeasurementError, UsageError
from slomo.profiling.campaign.progress import Progress, Silent
from slomo.profiling.campaign.schedule import Schedule, record_throughput
from slomo.profiling.campaign.solo_reference import stability, with_common_solo
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.records.dataset import ProfileDataset
from slomo.records.host_effect import in_common_units, joined_environment, measured_by
from slomo.records.proved_zeros import with_proved_zeros
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation

_ATTEMPTS = 2
_UNSTABLE_IN_A_ROW = 5
_LOOK_UP_S = 0.2  # how long a signal may go unnoticed


class IncompleteCampaignError(TestbedError):
    """Some runs failed repeatedly; the others are stored."""

    #: What was measured; None if nothing was.
    dataset: ProfileDataset | None = None
    #: Labels of the runs that failed.
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run: a record or None, the errors, and the duration [s]."""

    record: RunRecord | None
    errors: tuple[Exception, ...]
    wall_s: float


def run_campaign(
    plan: ExperimentPlan,
    testbed: Testbed,
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> ProfileDataset:
    """Run the part of `plan` that is not yet in `store`, and return the dataset.

    Parameters
    ----------
    plan : ExperimentPlan
        The plan to measure.
    testbed : Testbed
        Testbed that makes the runs.
    store : path, optional
        File that keeps every finished run; the same call again goes on where the last one ended. Without it
        an interrupted campaign is lost.
    jobs : int, optional
        Runs at a time, 1 or more; as many as this process has cores if not given, 1 on an exclusive testbed.
        The dataset does not depend on it.
    progress : Progress, optional
        Listener.

    Raises
    ------
    StoreError
        If the store is in use, corrupt or cannot be written.
    IncompatibleMeasurementsError
        If the store belongs to another plan or environment.
    UsageError
        If the plan asks the testbed for something that does not exist; nothing else is run then.
    IncompleteCampaignError
        If some runs failed twice; all others have been run, and kept.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, once the runs under way are finished and kept; the message says how many.

    Examples
    --------
    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> dataset = run_campaign(toy_plan(), ToyTestbed())
    >>> len(dataset)
    4
    """
    with CampaignStore(store) as opened:
        opened.bind(plan, campaign_environment(plan, testbed))
        schedule = Schedule(plan, opened.records(), interleaved=testbed.exclusive)
        failed = run_batch(opened, schedule, partial(attempt, testbed), worker_count(testbed, jobs), progress)
        return campaign_dataset(plan, schedule, opened, failed)


def worker_count(testbed: Testbed, jobs: int | None) -> int:
    """Return the number of parallel runs. Raises UsageError for less than one."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs is {jobs}, needed 1 or more")
    if testbed.exclusive:
        return 1
    if jobs is not None:
        return jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_in_advance(colocations: Iterable[Colocation], testbed: Testbed) -> None:
    """Raise an error if the testbed cannot run some network functions of the plan."""
    check = getattr(testbed, "check", None)
    if check is not None:
        for colocation in colocations:
            check(colocation)


def campaign_environment(plan: ExperimentPlan, testbed: Testbed) -> dict[str, Any]:
    """Return the testbed's environment, with only the plan's network functions, and the seed.

    Raises UsageError if the testbed reports in advance that it cannot run the plan.
    """
    check_in_advance(plan.colocations, testbed)
    stated = {**testbed.environment(), "seed": plan.seed}
    functions = stated.get("network_functions", {})
    used = {workload.nf for colocation in plan.colocations for workload in colocation.tenants}
    if functions:
        stated["network_functions"] = {name: functions[name] for name in functions if name in used}
    return stated


@dataclass
class _Work:
    """Gives runs to worker threads and stores their results."""

    store: CampaignStore
    schedule: Schedule
    measure: Callable[[PlannedRun], RunOutcome]
    jobs: int
    progress: Progress
    pool: Executor | None = None
    failed: dict[str, Exception] = field(default_factory=dict)
    unstable_in_a_row: int = 0

    def run_all(self) -> None:
        """Make the runs that are not yet in the store, and store each one when it finishes."""
        if not (count := self.schedule.count()):
            return
        self.progress.start(count)
        try:
            own = nullcontext(self.pool) if self.pool is not None else _pool(min(self.jobs, count))
            with interruptible() as stop, own as pool:
                self._loop(pool, stop)
        finally:
            self.progress.finish()

    def _loop(self, pool: Executor, stop: threading.Event) -> None:
        running: dict[Future[RunOutcome], PlannedRun] = {}
        repetitions: deque[PlannedRun] = deque()
        pending = self.schedule.pending()
        try:
            while True:
                while len(running) < self.jobs and not stop.is_set():
                    run = next(pending, None) or (repetitions.popleft() if repetitions else None)
                    if run is None:
                        break
                    running[pool.submit(self.measure, run)] = run
                if not running:
                    break
                for future in wait(running, _LOOK_UP_S, FIRST_COMPLETED).done:
                    repetitions.extend(self._keep(running.pop(future), future.result()))
                if self.unstable_in_a_row >= _UNSTABLE_IN_A_ROW:
                    # a machine that does not settle: the rest would fail as well, each after minutes
                    pending = iter(())
                    repetitions.clear()
        except BaseException:
            self._keep_the_rest(running)
            raise
        if stop.is_set():
            raise KeyboardInterrupt(farewell(self.store, self.schedule.plan.least_runs))

    def _keep(self, run: PlannedRun, outcome: RunOutcome) -> list[PlannedRun]:
        for error in outcome.errors:
            self.store.add_failure(run, error)
        following: list[PlannedRun] = []
        if outcome.record is None:
            self.failed[run.label] = outcome.errors[-1]
            self.unstable_in_a_row += isinstance(outcome.errors[-1], UnstableMeasurementError)
        else:
            self.unstable_in_a_row = 0
            self.store.add(run, outcome.record, outcome.wall_s)
            following = self.schedule.finish(run, outcome.record)
        self.progress.advance(run)
        return following

    def _keep_the_rest(self, running: Mapping[Future[RunOutcome], PlannedRun]) -> None:
        """Store the runs in progress when another one stops the campaign."""
        for future in wait(running).done:
            if not future.cancelled() and future.exception() is None and (record := future.result().record) is not None:
                self.store.add(running[future], record, future.result().wall_s)


def farewell(store: CampaignStore, total: int | None = None) -> str:
    """Return the message shown after an interrupt: which runs are stored."""
    runs = f"{len(store)}{'' if total is None else f' of {total}'} runs"
    if store.path is None:
        return f"stopped after {runs}; none is kept, because the campaign had no store"
    return f"{runs} are kept in '{store.name}'; the same command again goes on from there"


@contextmanager
def _pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    # threads, not processes: the simulator's kernel releases the GIL, so threads use all cores, share imports and the
    # compiled kernel, and none outlives a killed campaign
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="slomo-run")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def attempt(testbed: Testbed, run: PlannedRun) -> RunOutcome:
    """Make a run, once more if it failed."""
    errors: list[Exception] = []
    started = time.perf_counter()
    for _ in range(_ATTEMPTS):
        try:
            record = _usable(testbed.run(run.colocation, seed=run.seed), run)
        except UsageError:
            raise
        except Exception as error:  # a back end may fail in any way; one run must not end a night's campaign
            errors.append(error)
        else:
            return RunOutcome(record, tuple(errors), time.perf_counter() - started)
    return RunOutcome(None, tuple(errors), time.perf_counter() - started)


def _usable(record: RunRecord, run: PlannedRun) -> RunRecord:
    """Return a record if it may enter a dataset; an invalid one counts as a failed run."""
    if record.colocation != run.colocation:
        raise MeasurementError(f"{run.label}: the testbed reports another co-location: {record.colocation.label}")
    throughput = record_throughput(record)
    if not (math.isfinite(throughput) and throughput >= 0.0):
        raise MeasurementError(f"{run.label}: throughput is {throughput} Mpps, needed a number of 0 or more")
    return record


def campaign_dataset(
    plan: ExperimentPlan,
    schedule: Schedule,
    store: CampaignStore,
    failed: Mapping[str, Exception],
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
) -> ProfileDataset:
    """Return the dataset of a finished campaign. Raises IncompleteCampaignError if some runs failed.

    Readings of probed `hosts` (host -> calibration) are converted to common units (`slomo.records.host_effect`).
    """
    stored_records = dict(store.records())
    keys = [colocation.key for colocation in plan.colocations]
    raw = [stored_records[key, replicate] for key in keys for replicate in schedule.used(key)]
    environment = store.settings()["environment"]
    if hosts:
        raw = [in_common_units(record, hosts[measured_by(record)]["factors"]) for record in raw]
        environment = joined_environment(environment, hosts)
    records, steady = with_common_solo(with_proved_zeros(raw)), stability(raw)
    environment |= {"stability": steady} if steady else {}
    dataset = ProfileDataset.from_records(records, environment, limit=plan.dispersion_limit)
    if not failed:
        return dataset
    where = f"are kept in '{store.name}'" if store.path else "are in this error's `dataset`"
    error = incomplete(
        f"{len(failed)} of {plan.least_runs} runs of plan '{plan.name}' failed {_ATTEMPTS} times each; "
        f"the {len(store)} finished ones {where}",
        failed,
    )
    if all(isinstance(problem, MeasurementError) for problem in failed.values()):
        error.exit_code = MeasurementError.exit_code
    error.dataset = dataset if records else None
    raise error


def incomplete(problem: str, failed: Mapping[str, Exception]) -> IncompleteCampaignError:
    """Return the error of a campaign of which some runs failed; `problem` is the text that says how many."""
    label, first = next(iter(failed.items()))
    error = IncompleteCampaignError(
        f"{problem}. First: {label}: {type(first).__name__}: {getattr(first, 'message', first)}",
        hint="mend the cause and run the same command again: only the failed runs are repeated",
    )
    error.failed = tuple(failed)
    return error


def run_batch(
    store: CampaignStore,
    schedule: Schedule,
    measure: Callable[[PlannedRun], RunOutcome],
    jobs: int,
    progress: Progress | None,
    pool: Executor | None = None,
) -> dict[str, Exception]:
    """Make and store the open runs, here or by `pool`'s hosts; return label and error of every failed run."""
    work = _Work(store, schedule, measure, jobs, progress or Silent(), pool)
    work.run_all()
    return work.failed


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; outside the main thread, where Python delivers none, it never is."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (signal's signature)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    former = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
