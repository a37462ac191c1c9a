"""Measure adaptively on a testbed; every run is stored, and an interrupted campaign can be resumed.

Each batch of runs depends only on the seed and on the batches before. A resumed campaign therefore requests the same
runs again, finds the results of finished ones in its store, and continues. ResQ and npf store finished runs too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slomo.errors import UsageError
from slomo.profiling.adaptive.design import AdaptiveDesign
from slomo.profiling.adaptive.outcome import AdaptiveOutcome, AdaptiveSettings
from slomo.profiling.campaign.progress import Progress
from slomo.profiling.campaign.run import (
    attempt,
    campaign_environment,
    check_in_advance,
    farewell,
    incomplete,
    run_batch,
    worker_count,
)
from slomo.profiling.campaign.schedule import Schedule
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.designs import MOST_INSTANCES, Design
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.profiling.plans.sources import sources
from slomo.records.dataset import ProfileDataset
from slomo.records.proved_zeros import with_proved_zeros
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.units import plural
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.workload import Workload

#: Number of settings of design `sources` among which the adaptive design chooses.
POOL = 240


@dataclass(frozen=True)
class AdaptivePlan:
    """Which network functions to profile adaptively, on which machine, how well."""

    #: Network functions, all different.
    targets: tuple[Workload, ...]
    #: Name of the machine.
    machine: str
    #: For each of them.
    settings: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    #: Settings to choose from; by default those of the grid.
    pool: Design = ()

    def sure(self) -> ExperimentPlan:
        """Return the runs that are made whatever earlier runs measure; with its name, they identify the store."""
        settings = self.settings
        name = f"adaptive to {100.0 * settings.target_error:g} % with at most {settings.budget} runs "
        name += f"beside up to {settings.instances}"
        runs = [run for target in self.targets for run in self.design(target).opening()]
        places = dict.fromkeys(run.colocation for run in runs)
        return ExperimentPlan(name, tuple(places), seed=settings.seed)

    def design(self, target: Workload, testbed: Testbed | None = None) -> AdaptiveDesign:
        """Return the adaptive design of one network function."""
        cost_s = None if testbed is None else testbed.estimate_s
        return AdaptiveDesign(target, self.machine, self.settings, cost_s, self.pool)


def adaptive_plan(
    targets: Sequence[Workload],
    machine: Machine,
    *,
    target_error: float | None = None,
    budget: int | None = None,
    replicates: int = 1,
    seed: int = 0,
) -> AdaptivePlan:
    """Return the plan for a machine, with defaults; UsageError for replicates, since the design repeats runs itself."""
    if replicates != 1:
        raise UsageError(
            f"replicates is {replicates}, but an adaptive design repeats where noise is high by itself",
            hint="leave out --replicates, or use --design sobol",
        )
    stated: dict[str, Any] = {"target_error": target_error, "budget": budget}
    settings = AdaptiveSettings(
        seed=seed,
        instances=min(MOST_INSTANCES, machine.cores_per_socket - 1),
        **{name: value for name, value in stated.items() if value is not None},
    )
    pool = sources(machine, max(POOL, settings.budget), seed, settings.instances)
    return AdaptivePlan(tuple(dict.fromkeys(targets)), machine.name, settings, pool)


@dataclass(frozen=True)
class AdaptiveResult:
    """Result of an adaptive campaign: the dataset, and how each function fared."""

    #: As of any campaign.
    dataset: ProfileDataset
    #: One per network function: why it stopped, its error, the saved runs.
    outcomes: tuple[AdaptiveOutcome, ...]


def run_adaptive(
    plan: AdaptivePlan,
    testbed: Testbed,
    store: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> AdaptiveResult:
    """Profile every network function of a plan until its model is good enough; arguments and errors as `run_campaign`.

    A failed run ends the campaign, because later questions depend on it.
    """
    sure = plan.sure()
    with CampaignStore(store) as opened:
        opened.bind(sure, campaign_environment(sure, testbed))
        campaign = _Campaign(plan, sure, opened, testbed, worker_count(testbed, jobs), progress)
        try:
            designs = [campaign.profile(target) for target in plan.targets]
            records = [record for design in designs for record in design.records()]
        except KeyboardInterrupt:  # during a run or between two, while the next ones are chosen
            raise KeyboardInterrupt(farewell(opened)) from None
        dataset = ProfileDataset.from_records(
            with_proved_zeros(records), opened.settings()["environment"], limit=sure.dispersion_limit
        )
        return AdaptiveResult(dataset, tuple(design.outcome() for design in designs))


class _Batch(Schedule):
    """Runs that a design has chosen, with their results."""

    def __init__(self, plan: ExperimentPlan, runs: Sequence[PlannedRun]) -> None:
        super().__init__(plan, ())
        self._chosen = list(runs)
        self.records: dict[tuple[str, int], RunRecord] = {}

    def count(self) -> int:
        return len(self._chosen)

    def pending(self) -> Iterator[PlannedRun]:
        return iter(self._chosen)

    def finish(self, run: PlannedRun, record: RunRecord) -> list[PlannedRun]:
        self.records[run.colocation.key, run.replicate] = record
        return []


@dataclass
class _Campaign:
    """Makes each run that a design asks for, unless the store has it."""

    plan: AdaptivePlan
    sure: ExperimentPlan
    store: CampaignStore
    testbed: Testbed
    jobs: int
    progress: Progress | None

    def __post_init__(self) -> None:
        self._found = dict(self.store.records())

    def profile(self, target: Workload) -> AdaptiveDesign:
        design = self.plan.design(target, self.testbed)
        while runs := design.ask():
            check_in_advance((run.colocation for run in runs), self.testbed)
            for run, record in zip(runs, self._answers(runs), strict=True):
                design.tell(run, record)
        return design

    def _answers(self, runs: Sequence[PlannedRun]) -> list[RunRecord]:
        keys = [(run.colocation.key, run.replicate) for run in runs]
        missing = [run for run, key in zip(runs, keys, strict=True) if key not in self._found]
        batch = _Batch(self.sure, missing)
        failed = run_batch(self.store, batch, partial(attempt, self.testbed), self.jobs, self.progress)
        self._found |= batch.records
        if failed:
            stored = f"the {len(self._found)} finished ones are kept in '{self.store.name}'"
            failures = f"{plural(len(failed), 'run')} of an adaptive campaign failed"
            raise incomplete(f"{failures}, and what to run next depends on them; {stored}", failed)
        return [self._found[key] for key in keys]
