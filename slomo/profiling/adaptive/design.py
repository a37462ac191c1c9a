"""An adaptive design: it says which run to make next, records results, and stops when the model is good enough.

SLOMO (SIGCOMM'20, section 4.1) sweeps a grid of 588 runs per network function. Here settings are taken in the order of
a Sobol sequence, of which any number of points fills the space. Settings farthest from all measured ones (Kennard and
Stone, 1969) lie at the ends of the ranges and tell little about those between; settings on which models disagree (query
by committee) were much worse in one draw. A setting is repeated if its noise exceeds the model's error. The next
requests do not depend on the order of results within a batch, so an interrupted campaign resumes identically.

More pressure never speeds a network function up; in SLOMO (SIGCOMM'20, figure 4) and ResQ (NSDI'18, section 3),
throughput falls with every metric measured there. A contradiction larger than noise means that a measurement was
disturbed or mixed up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.base import Floats
from slomo.profiling.adaptive.noise import Noise, estimate_noise
from slomo.profiling.adaptive.outcome import AdaptiveOutcome, AdaptiveSettings, Reason
from slomo.profiling.campaign.schedule import record_throughput
from slomo.profiling.plans.designs import Design, Pressure, grid
from slomo.profiling.plans.plan import PlannedRun, run_seed
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.training.assessment import Assessment, assess
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload

#: Number of space-filling runs at the start, of which the first is repeated.
START = 16
BATCH = 4
#: Number of new settings per batch whatever the noise; only the last run may be a repeat.
NEW_SETTINGS = 3
#: Half-width of a 90 % interval over the mean absolute error: 2.06 for normal errors, slightly more for heavier tails.
WIDTH_PER_ERROR = 2.5
#: Factor over the noise floor at which the held-out error counts as noise only.
FLOOR_REACHED = 1.1
_FEWEST_JUDGED = 12


@dataclass
class AdaptiveDesign:
    """Chooses the runs of one network function: `ask` for the next ones, `tell` their results.

    Examples
    --------
    >>> from slomo.testing.builders import TOY_MACHINE, ToyTestbed
    >>> toy = ToyTestbed()
    >>> design = AdaptiveDesign(Workload("lpm"), TOY_MACHINE, AdaptiveSettings(0.05, budget=30))
    >>> while questions := design.ask():
    ...     for run in questions:
    ...         design.tell(run, toy.run(run.colocation, seed=run.seed))
    >>> design.outcome().reason
    <Reason.TARGET: 'target error reached'>
    """

    #: Network function to profile.
    target: Workload
    #: Name of the machine.
    machine: str
    #: Target error, budget, seed.
    settings: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    #: Expected time of a co-location [s].
    cost_s: Callable[[Colocation], float] | None = None
    #: Settings, of which any number from the first fills the space; those of the grid in random order by default.
    #: Campaigns give those of design `sources`, whose pressure is spread evenly from gentle to saturating.
    pool: Design = ()

    def __post_init__(self) -> None:
        if not self.pool:
            points = grid(instances=self.settings.instances)
            order = np.random.default_rng(self.settings.seed).permutation(len(points))
            self.pool = tuple(points[number] for number in order)
        self._records: dict[tuple[str, int], RunRecord] = {}
        self._asked: list[PlannedRun] = []
        self._assessed: tuple[int, Assessment | None] = (-1, None)
        self._exhausted = False

    @property
    def colocations(self) -> tuple[Colocation, ...]:
        """Settings asked for, in order of first request."""
        return tuple(dict.fromkeys(run.colocation for run in self._asked))

    def ask(self) -> tuple[PlannedRun, ...]:
        """Return the next runs; empty once the design has stopped.

        Requested runs without a result are returned again.
        """
        if waiting := [run for run in self._asked if (run.colocation.key, run.replicate) not in self._records]:
            return tuple(waiting)
        if self.reason() is not None:
            return ()
        chosen = self.opening() if not self._asked else self._next()
        self._asked += chosen
        self._exhausted = not chosen
        return tuple(chosen)

    def tell(self, run: PlannedRun, record: RunRecord) -> None:
        """Record a run's result; InvalidValueError for a run that was not requested, or a record of another one."""
        if run not in self._asked or record.colocation != run.colocation:
            raise InvalidValueError(
                f"adaptive design of '{self.target.key}' got a run of {record.colocation.label}, which it did not ask "
                f"for as {run.label}",
                hint="tell it the records of the runs that `ask` returned",
            )
        self._records[run.colocation.key, run.replicate] = record

    def records(self) -> list[RunRecord]:
        """Return all records in the order of requests, replicates together."""
        keys = [colocation.key for colocation in self.colocations]
        return [self._records[run_key] for key in keys for run_key in sorted(self._records) if run_key[0] == key]

    def opening(self) -> list[PlannedRun]:
        """Return the first batch of runs: alone twice, and the first settings, one of them twice."""
        alone = Colocation(self.machine, self.target)
        first = [self._place(point) for point in self.pool[:START]]
        runs = [self._run(alone, 0), *(self._run(place, 0) for place in first)]
        runs[2:2] = [self._run(alone, 1), self._run(first[0], 1)]
        return runs[: self.settings.budget]

    def outcome(self) -> AdaptiveOutcome:
        """Return the number of runs so far, the model's error after them, and the reason if the design has stopped."""
        cost = self.cost_s or (lambda _: 0.0)
        whole = grid(instances=self.settings.instances)
        again = {run.colocation.key for run in self._asked if run.replicate > 0}
        labels = {colocation.key: colocation.label for colocation in self.colocations}
        return AdaptiveOutcome(
            target=self.target.key,
            runs=len(self._records),
            settings=len({key for key, _ in self._records}),
            assessment=self._assessment(),
            noise=self._noise(),
            reason=self.reason(),
            spent_s=sum(cost(record.colocation) for record in self._records.values()),
            grid_s=sum(cost(self._place(point)) for point in whole),
            grid_runs=len(whole) + 1,
            target_error=self.settings.target_error,
            contradictions=tuple(labels[key] for key in self._contradictory() if key in again),
        )

    def reason(self) -> Reason | None:
        """Return why the design has stopped, None if it has not."""
        if len(self._records) < len(self._asked) or not self._asked:
            return None
        if (assessment := self._assessment()) is not None:
            floor, target = self._noise().floor, self.settings.target_error
            if (
                assessment.error + assessment.uncertainty <= target
                and assessment.half_width <= WIDTH_PER_ERROR * target
            ):
                return Reason.TARGET
            if floor > target and assessment.error <= FLOOR_REACHED * floor:
                return Reason.FLOOR
        if len(self._records) >= self.settings.budget:
            return Reason.BUDGET
        return Reason.EXHAUSTED if self._exhausted else None

    def _place(self, point: Pressure) -> Colocation:
        return Colocation(self.machine, self.target, point.competitors)

    def _run(self, place: Colocation, replicate: int) -> PlannedRun:
        return PlannedRun(place, replicate, run_seed(self.settings.seed, place.key, replicate))

    def _next(self) -> list[PlannedRun]:
        """Return the next batch: contradictory settings again, then new ones, or a repeated one."""
        count = min(BATCH, self.settings.budget - len(self._records))
        once = [key for key in self._contradictory() if len(self._throughputs()[key]) == 1]
        chosen = [self._again(key) for key in once[:count]]
        doubt = {key: share for key, share in self._noise().doubt(self._throughputs()).items() if key not in once}
        taken = set(self.colocations)
        new = iter([place for place in map(self._place, self.pool) if place not in taken])
        while len(chosen) < count:
            noisiest = max(doubt, key=lambda key: doubt[key], default=None)
            repeats = (
                len(chosen) % BATCH >= NEW_SETTINGS and noisiest is not None and doubt[noisiest] > self._model_error()
            )
            if not repeats and (place := next(new, None)) is not None:
                chosen.append(self._run(place, 0))
            elif noisiest is not None:
                chosen.append(self._again(noisiest))
                del doubt[noisiest]
            else:
                break
        return chosen

    def _model_error(self) -> float:
        """Return the held-out error without the part that noise alone causes; infinite if it is unknown."""
        if (assessment := self._assessment()) is None:
            return math.inf
        return math.sqrt(max(assessment.error**2 - self._noise().floor ** 2, 0.0))

    def _again(self, key: str) -> PlannedRun:
        place = next(run.colocation for run in self._asked if run.colocation.key == key)
        return self._run(place, sum(run.colocation.key == key for run in self._asked))

    def _throughputs(self) -> dict[str, list[float]]:
        throughputs: dict[str, list[float]] = {}
        for (key, _), record in sorted(self._records.items()):
            throughputs.setdefault(key, []).append(record_throughput(record))
        return throughputs

    def _contradictory(self) -> list[str]:
        """Return the keys of contradictory settings; none if the testbed reports no pressure."""
        first = {key: record for (key, replicate), record in self._records.items() if replicate == 0 and record.alone}
        vectors = {key: record.alone.socket for key, record in first.items() if record.alone is not None}
        names = [name for name in RESOURCES if all(name in vector for vector in vectors.values())]
        if not names or not vectors:
            return []
        pressures = np.array([[vector[name] for name in names] for vector in vectors.values()])
        throughputs = self._throughputs()
        solo_mpps = float(np.median(throughputs[Colocation(self.machine, self.target).key]))
        shares = np.array([float(np.median(throughputs[key])) for key in vectors]) / solo_mpps
        return [list(vectors)[row] for row in contradictions(pressures, shares, self._noise().relative)]

    def _noise(self) -> Noise:
        return estimate_noise(self._throughputs().values())

    def _assessment(self) -> Assessment | None:
        """Return the held-out error over all results so far."""
        if self._assessed[0] != len(self._records):
            assessment = None
            if len({key for key, _ in self._records}) > _FEWEST_JUDGED:
                try:
                    dataset = ProfileDataset.from_records(self.records(), {})
                    assessment = assess(dataset, self.target.key, seed=self.settings.seed)
                except MissingMetricError:
                    assessment = None  # a testbed that reports no pressure: only the budget ends such a design
            self._assessed = (len(self._records), assessment)
        return self._assessed[1]


#: One metric per resource: cache accesses, cache occupancy, memory read and write bandwidth.
RESOURCES = ("L2MISS", "L3OCC", "READ", "WRITE")
#: Required increase in one of them, and tolerated decrease in the others.
MORE = 1.5
#: Gains below this share of solo throughput, or this many standard deviations of noise, are no contradiction. Of some
#: 600 000 pairs with more pressure in each of the two shipped datasets, none gains a tenth.
LEAST_GAIN = 0.1
DEVIATIONS = 4.0


def contradictions(pressures: Floats, shares: Floats, noise: float) -> list[int]:
    """Return the numbers of the fewest rows without which no others contradict each other, found greedily.

    `pressures`: :data:`RESOURCES` of the competition, as reported. `shares`: throughput as a share of solo. `noise`:
    relative standard deviation of one run.
    """
    contradicting: list[int] = []
    gain = max(LEAST_GAIN, DEVIATIONS * noise)
    more = (pressures[:, None, :] >= pressures[None, :, :]).all(axis=2)
    more &= (pressures[:, None, :] > MORE * pressures[None, :, :]).any(axis=2)
    against = more & (shares[:, None] > shares[None, :] + gain)  # row i has more pressure than row j and is faster
    against = against | against.T
    while against.any():
        worst = int(against.sum(axis=1).argmax())
        contradicting.append(worst)
        against[worst, :] = against[:, worst] = False
    return contradicting
