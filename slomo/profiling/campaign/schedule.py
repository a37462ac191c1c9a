"""Remaining runs of a campaign: the plan, less finished runs, plus repetitions of unstable ones.

The next repetition depends only on the throughputs of earlier ones, so a resumed campaign asks for the same runs.
"""

from collections.abc import Iterable

from slomo.profiling.campaign.stability import needs_another
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun, run_seed
from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation


class Schedule:
    """The open runs of a plan.

    Parameters
    ----------
    plan : ExperimentPlan
        What is to be measured.
    finished : iterable of ((str, int), RunRecord)
        Co-location key and replicate of every run there is, with its record.
    interleaved : bool
        Measure in blocks, each in a random order of its own: the first runs of everything, then the second ones.
        On a machine that drifts, runs in order make drift look like pressure.

    Examples
    --------
    >>> from slomo.vocabulary.workload import Workload
    >>> plan = ExperimentPlan("p", (Colocation("m", Workload("lpm")),), replicates=2)
    >>> [run.replicate for run in Schedule(plan, ()).pending()]
    [0, 1]
    """

    def __init__(
        self, plan: ExperimentPlan, finished: Iterable[tuple[tuple[str, int], RunRecord]], *, interleaved: bool = False
    ) -> None:
        self.plan, self.interleaved = plan, interleaved
        self._throughput: dict[str, dict[int, float]] = {colocation.key: {} for colocation in plan.colocations}
        for (key, replicate), record in finished:
            if key in self._throughput:
                self._throughput[key][replicate] = record_throughput(record)

    def pending(self) -> list[PlannedRun]:
        """Return the runs that can start now: in the plan's order, or in random order by blocks."""
        runs = [run for colocation in self.plan.colocations for run in self._missing(colocation)]
        return sorted(runs, key=self._place) if self.interleaved else runs

    def _place(self, run: PlannedRun) -> tuple[int, int, int]:
        """Return the sort key of a run: blocks in random order, and within them groups with the same competitors.

        A probe of a competition is most accurate for runs that follow immediately.
        """
        competitors = ",".join(sorted(workload.key for workload in run.colocation.competitors))
        together = competitors or run.colocation.key  # solo runs are spread over the block
        return run.replicate, run_seed(self.plan.seed, together, run.replicate), run.seed

    def finish(self, run: PlannedRun, record: RunRecord) -> list[PlannedRun]:
        """Record a finished run; return the runs that it makes necessary."""
        mpps_by_replicate = self._throughput[run.colocation.key]
        mpps_by_replicate[run.replicate] = record_throughput(record)
        if len(mpps_by_replicate) < self.plan.replicates or len(mpps_by_replicate) <= max(mpps_by_replicate):
            return []  # others of this co-location are still running
        return self._missing(run.colocation)

    def used(self, key: str) -> range:
        """Return the replicates of a co-location in the dataset."""
        mpps_by_replicate, count = self._throughput[key], 0
        while count in mpps_by_replicate and needs_another([mpps_by_replicate[n] for n in range(count)], self.plan):
            count += 1
        return range(count)

    def _missing(self, colocation: Colocation) -> list[PlannedRun]:
        mpps_by_replicate = self._throughput[colocation.key]
        first = [n for n in range(self.plan.replicates) if n not in mpps_by_replicate]
        if not first:
            following = len(self.used(colocation.key))
            ordered = [mpps_by_replicate[n] for n in range(following)]
            first = [following] if needs_another(ordered, self.plan) else []
        return [self.plan.run(colocation, replicate) for replicate in first]


def record_throughput(record: RunRecord) -> float:
    """Return the target's throughput [Mpps]; 0 for a run without target, which is never repeated for dispersion."""
    return record.target.throughput_mpps if record.beside is not None and record.colocation.target is not None else 0.0
