"""Describe a campaign before it starts (`--dry-run`): runs and time.

npf and Optuna also show the size of an experiment first.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slomo.files.stored import Stored
from slomo.profiling.campaign.run import campaign_environment, check_in_advance, worker_count
from slomo.profiling.campaign.schedule import Schedule
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.base import Testbed
from slomo.units import plural


@dataclass(frozen=True)
class CampaignDescription(Stored):
    """How many runs a campaign makes, and how long they take."""

    #: Names.
    plan: str
    machine: str
    testbed: str
    #: Workload key of each target -> its co-locations.
    targets: Mapping[str, int]
    #: Runs needed in any case, those already stored, and the remaining ones.
    runs: int
    finished: int
    pending: int
    #: Failed attempts so far, each as run, kind of error and message, oldest first.
    failures: tuple[str, ...]
    #: Number of runs if every co-location needs its maximum of repetitions.
    most_runs: int
    #: Runs at a time.
    jobs: int
    #: Expected duration of one run, on average, and wall time of the remaining runs [s].
    run_s: float
    estimate_s: float

    def __str__(self) -> str:
        lines = [f"plan '{self.plan}' on {self.machine}, testbed {self.testbed}"]
        lines += [f"  {target}: {plural(count, 'co-location')}" for target, count in self.targets.items()]
        more = f" (up to {self.most_runs} if unstable)" if self.most_runs > self.runs else ""
        lines.append(
            f"  {plural(self.runs, 'run')}{more}, {self.finished} finished, {self.pending} left, {self.jobs} at a time"
        )
        if self.failures:
            lines.append(f"  {plural(len(self.failures), 'attempt')} failed so far, the last: {self.failures[-1]}")
        lines.append(f"  about {duration_text(self.estimate_s)}: {plural(self.pending, 'run')} of {self.run_s:.3g} s")
        return "\n".join(lines)

    def with_more_s(self, runs: int) -> float:
        """Return the expected wall time of the remaining runs and of `runs` more of average duration [s]."""
        return self.estimate_s + runs * self.run_s / self.jobs


def describe_campaign(
    plan: ExperimentPlan, testbed: Testbed, store: str | Path | None = None, jobs: int | None = None
) -> CampaignDescription:
    """Return a description of `run_campaign` with the same arguments, without running or writing anything.

    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> print(describe_campaign(toy_plan(), ToyTestbed(delay_s=30), jobs=2))
    plan 'toy' on toy, testbed toy
      lpm@64B,100000f: 4 co-locations
      4 runs, 0 finished, 4 left, 2 at a time
      about 1 min: 4 runs of 30 s
    """
    check_in_advance(plan.colocations, testbed)
    exists = store is not None and Path(store).exists()
    with CampaignStore(store if exists else None) as opened:
        if exists:  # only then: a testbed may have to calibrate before it can say what it is
            opened.bind(plan, campaign_environment(plan, testbed))
        schedule = Schedule(plan, opened.records())
        finished = len(opened)
        failures = tuple(f"{run}: {kind}: {message}" for run, kind, message in opened.failures())
    pending = schedule.count()
    workers = worker_count(testbed, jobs)
    busy_s = sum(testbed.estimate_s(run.colocation) for run in schedule.pending())
    return CampaignDescription(
        plan=plan.name,
        machine=plan.machine,
        testbed=testbed.name,
        targets=Counter(colocation.target.key for colocation in plan.colocations if colocation.target is not None),
        runs=plan.least_runs,
        finished=finished,
        pending=pending,
        failures=failures,
        most_runs=len(plan) * plan.most_replicates,
        jobs=workers,
        run_s=busy_s / max(pending, 1),
        estimate_s=busy_s / max(1, min(workers, pending)),
    )


def duration_text(seconds: float) -> str:
    """Return a duration as a short text, such as "2.5 h".

    >>> duration_text(0.4), duration_text(59), duration_text(61), duration_text(9000)
    ('1 s', '59 s', '1 min', '2.5 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
