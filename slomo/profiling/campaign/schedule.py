"""Which runs of a campaign remain: those of the plan that are not finished, and repetitions of unstable ones.

The next repetition depends only on the throughputs of earlier ones, so a resumed campaign asks for the same runs.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence

from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun, run_seed
from slomo.records.measurement import dispersion
from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation


class Schedule:
    """The remaining runs of a plan, of which some are `finished`.

    `interleaved`: measure in blocks, each in a random order of its own: the first runs of everything, then the second
    ones. On a machine that drifts, runs in order make drift look like pressure.
    """

    def __init__(
        self, plan: ExperimentPlan, finished: Iterable[tuple[tuple[str, int], RunRecord]], *, interleaved: bool = False
    ) -> None:
        self.plan, self.interleaved = plan, interleaved
        self._throughput = {colocation.key: array("d") for colocation in plan.colocations}
        for (key, replicate), record in finished:
            if key in self._throughput:
                self._note(key, replicate, record)

    def count(self) -> int:
        """Return the number of runs that can start now."""
        return sum(len(self._missing(colocation.key)) for colocation in self.plan.colocations)

    def pending(self) -> Iterator[PlannedRun]:
        """Yield the runs that can start now, in the plan's order or in random blocks, without listing the plan."""
        if not self.interleaved:
            for colocation in self.plan.colocations:
                yield from self._runs(colocation, self._missing(colocation.key))
            return
        planned, colocations = range(self.plan.replicates), self.plan.colocations
        more = [(each, n) for each in colocations for n in self._missing(each.key) if n not in planned]
        for number in planned:
            block = [self.plan.run(each, number) for each in colocations if self._lacks(each.key, number)]
            yield from sorted(block, key=self._place)
        yield from sorted((self.plan.run(each, n) for each, n in more), key=self._place)

    def _place(self, run: PlannedRun) -> tuple[int, int, int]:
        """Return the key by which runs are ordered: random blocks, equal competitors together, close to their probe."""
        competitors = ",".join(sorted(workload.key for workload in run.colocation.competitors))
        together = competitors or run.colocation.key  # solo runs are spread over the block
        return run.replicate, run_seed(self.plan.seed, together, run.replicate), run.seed

    def finish(self, run: PlannedRun, record: RunRecord) -> list[PlannedRun]:
        """Record a finished run; return the runs that it makes necessary."""
        key = run.colocation.key
        self._note(key, run.replicate, record)
        mpps = self._throughput[key]
        if len(mpps) < self.plan.replicates or any(map(math.isnan, mpps)):
            return []  # others of this co-location are still running
        return self._runs(run.colocation, self._missing(key))

    def used(self, key: str) -> range:
        """Return which repetitions of a run enter the dataset."""
        mpps, count = self._throughput[key], 0
        while count < len(mpps) and not math.isnan(mpps[count]) and needs_another(mpps[:count], self.plan):
            count += 1
        return range(count)

    def _note(self, key: str, replicate: int, record: RunRecord) -> None:
        mpps = self._throughput[key]
        mpps.extend([math.nan] * (replicate + 1 - len(mpps)))
        mpps[replicate] = record_throughput(record)

    def _missing(self, key: str) -> list[int]:
        """Return which repetitions of a run can start now."""
        mpps = self._throughput[key]
        first = [n for n in range(self.plan.replicates) if self._lacks(key, n)]
        if not first:
            following = len(self.used(key))
            first = [following] if needs_another(mpps[:following], self.plan) else []
        return first

    def _lacks(self, key: str, replicate: int) -> bool:
        mpps = self._throughput[key]
        return replicate >= len(mpps) or math.isnan(mpps[replicate])

    def _runs(self, colocation: Colocation, numbers: Iterable[int]) -> list[PlannedRun]:
        return [self.plan.run(colocation, number) for number in numbers]


def record_throughput(record: RunRecord) -> float:
    """Return the target's throughput [Mpps]; 0 for a run without target, which is never repeated for dispersion."""
    return record.target.throughput_mpps if record.beside is not None and record.colocation.target is not None else 0.0


def needs_another(throughput_mpps: Sequence[float], plan: ExperimentPlan) -> bool:
    """Return whether a co-location must run again because its throughputs differ too much, or are too few."""
    count = len(throughput_mpps)
    if count < plan.replicates:
        return True
    return count < plan.most_replicates and dispersion(throughput_mpps) > plan.dispersion_limit
