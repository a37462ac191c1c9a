"""Adaptive design: ask for the run that teaches most, tell what came of it, stop when the model is good enough.

SLOMO (SIGCOMM'20, section 4.1) sweeps a grid of 588 runs per network function. Here a committee of models fitted to the
runs so far (query by committee, Seung et al., COLT'92) says where it disagrees; a Sobol sequence covers the space
first, and a setting is repeated where noise hides more than a new setting would tell. The same runs, told in any order
within a batch, lead to the same questions: an interrupted campaign resumes with the design it would have had.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.assessment import Assessment, assess
from slomo.models.base import Floats
from slomo.models.committee import fit_committee
from slomo.profiling.description import duration_text
from slomo.profiling.designs import MOST_INSTANCES, RANGES, Design, Pressure, grid, sobol
from slomo.profiling.noise import Noise, estimate_noise
from slomo.profiling.plan import PlannedRun, run_seed
from slomo.profiling.schedule import record_throughput
from slomo.records.profile import ProfileDataset
from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.knobs import knob
from slomo.vocabulary.workload import Workload

DEFAULT_BUDGET = 60
DEFAULT_TARGET_ERROR = 0.02
#: Settings to choose from, the first of which fill the space.
POOL = 256
START = 16
BATCH = 4
#: Settings nearer to each other than this, in a space of unit sides, teach much the same.
APART = 0.5
#: Half width of a 90 % interval over the mean absolute error: 2.06 for normal errors, a little more for heavier tails.
WIDTH_PER_ERROR = 2.5
#: Where noise is all that is left, held-out error comes this close to it.
FLOOR_REACHED = 1.1
_FEWEST_JUDGED = 12


class Reason(StrEnum):
    """Why an adaptive design has stopped."""

    TARGET = "target error reached"
    FLOOR = "noise floor reached"
    BUDGET = "budget spent"
    EXHAUSTED = "no setting left"


@dataclass(frozen=True)
class AdaptiveSettings:
    """What an adaptive design is to reach, and with how much.

    Parameters
    ----------
    target_error : float
        Mean held-out error to reach, as a share of solo throughput, above 0 and below 1.
    budget : int
        Most runs per network function, all included, 1 or more.
    seed : int
        Seed of everything random.
    instances : int
        Most synthetic competitors at a time.

    Raises
    ------
    InvalidValueError
        For a budget of zero or a target out of range.

    Examples
    --------
    >>> AdaptiveSettings(budget=0)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: adaptive design: the budget is 0 runs, needed 1 or more
    hint: 60 runs usually do where the grid takes 588
    """

    target_error: float = DEFAULT_TARGET_ERROR
    budget: int = DEFAULT_BUDGET
    seed: int = 0
    instances: int = MOST_INSTANCES

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise InvalidValueError(
                f"adaptive design: the budget is {self.budget} runs, needed 1 or more",
                hint="60 runs usually do where the grid takes 588",
            )
        if not 0.0 < self.target_error < 1.0:
            raise InvalidValueError(
                f"adaptive design: the target error is {self.target_error:g}, needed above 0 and below 1",
                hint="0.02 is 2 % of solo throughput",
            )


@dataclass(frozen=True)
class AdaptiveOutcome:
    """How far an adaptive design has come with one network function.

    Attributes
    ----------
    target : str
        Workload key.
    runs, settings : int
        Runs told, and different settings among them.
    assessment : Assessment or None
        Held-out error of the model trained so far; None with too few runs to say.
    noise : Noise
        What repeats disagree by.
    reason : Reason or None
        Why it stopped; None while it goes on.
    spent_s, grid_s : float
        Expected time of the runs told, and of the grid [s].
    grid_runs : int
        Runs of the grid, once alone included.
    """

    target: str
    runs: int
    settings: int
    assessment: Assessment | None
    noise: Noise
    reason: Reason | None
    spent_s: float
    grid_s: float
    grid_runs: int
    target_error: float

    def __str__(self) -> str:
        error = "" if self.assessment is None else f"; held-out error {self.assessment.error:.1%}"
        error += "" if self.assessment is None else f" +- {self.assessment.uncertainty:.1%} of solo throughput"
        saved = 1.0 - self.runs / self.grid_runs
        text = f"{self.target}: {self.reason or 'under way'} after {self.runs} runs of {self.settings} settings{error}"
        text += f"; {self.grid_runs - self.runs} of the grid's {self.grid_runs} runs saved ({saved:.0%}"
        text += (
            f", about {duration_text(self.grid_s - self.spent_s)} of run time)" if self.grid_s > self.spent_s else ")"
        )
        if self.below_floor:
            text += (
                f"; the target error of {self.target_error:.2%} is below the noise floor of {self.noise.floor:.2%}: "
                "no model can be seen to be better than repeats of one run agree"
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            "target": self.target,
            "runs": self.runs,
            "settings": self.settings,
            "reason": self.reason,
            "assessment": None if self.assessment is None else self.assessment.to_dict(),
            "noise_floor": self.noise.floor,
            "target_error": self.target_error,
            "below_noise_floor": self.below_floor,
            "grid_runs": self.grid_runs,
            "spent_s": self.spent_s,
            "grid_s": self.grid_s,
        }

    @property
    def below_floor(self) -> bool:
        """Whether the target error asked for is less than noise alone makes."""
        return self.noise.floor > self.target_error


@dataclass
class AdaptiveDesign:
    """Ask and tell for one network function.

    Parameters
    ----------
    target : Workload
        Network function to profile.
    machine : str
        Name of the machine.
    settings : AdaptiveSettings
        Target error, budget, seed.
    cost_s : callable, optional
        Expected time of a co-location [s]; of two settings that teach the same the cheaper is asked for.
    pool : Design, optional
        Settings to choose from, space-filling in their order; a Sobol sequence by default.

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

    target: Workload
    machine: str
    settings: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    cost_s: Callable[[Colocation], float] | None = None
    pool: Design = ()

    def __post_init__(self) -> None:
        if not self.pool:
            self.pool = sobol(POOL, self.settings.seed, self.settings.instances)
        self._places = [Colocation(self.machine, self.target, point.competitors) for point in self.pool]
        self._coordinates = coordinates(self.pool)
        self._index = {place.key: number for number, place in enumerate(self._places)}
        self._records: dict[tuple[str, int], RunRecord] = {}
        self._asked: list[PlannedRun] = []
        self._assessed: tuple[int, Assessment | None] = (-1, None)

    @property
    def colocations(self) -> tuple[Colocation, ...]:
        """Settings asked for, in the order in which they were first."""
        return tuple(dict.fromkeys(run.colocation for run in self._asked))

    def ask(self) -> tuple[PlannedRun, ...]:
        """Return the runs to do next; nothing once the design has stopped.

        Runs asked for and not yet told are returned again.
        """
        if waiting := [run for run in self._asked if (run.colocation.key, run.replicate) not in self._records]:
            return tuple(waiting)
        if self.reason() is not None:
            return ()
        chosen = self.opening() if not self._asked else self._next()
        self._asked += chosen
        return tuple(chosen)

    def tell(self, run: PlannedRun, record: RunRecord) -> None:
        """Note what came of a run.

        Raises
        ------
        InvalidValueError
            For a run that was not asked for, or a record of another one.
        """
        if run not in self._asked or record.colocation != run.colocation:
            raise InvalidValueError(
                f"adaptive design of '{self.target.key}' was told of {record.colocation.label}, which it did not ask "
                f"for as {run.label}",
                hint="tell it the records of the runs that `ask` returned",
            )
        self._records[run.colocation.key, run.replicate] = record

    def records(self) -> list[RunRecord]:
        """Return all records told, in the order asked for, replicates together."""
        keys = [colocation.key for colocation in self.colocations]
        return [self._records[found] for key in keys for found in sorted(self._records) if found[0] == key]

    def opening(self) -> list[PlannedRun]:
        """Return the first batch, known beforehand: alone twice, settings that fill the space, one of them twice."""
        alone = Colocation(self.machine, self.target)
        first = self._places[:START]
        runs = [self._run(alone, 0), *(self._run(place, 0) for place in first)]
        runs[2:2] = [self._run(alone, 1), self._run(first[0], 1)]
        return runs[: self.settings.budget]

    def outcome(self) -> AdaptiveOutcome:
        """Return how far the design has come."""
        cost = self.cost_s or (lambda _: 0.0)
        whole = grid(instances=self.settings.instances)
        return AdaptiveOutcome(
            target=self.target.key,
            runs=len(self._records),
            settings=len({key for key, _ in self._records}),
            assessment=self._assessment(),
            noise=self._noise(),
            reason=self.reason(),
            spent_s=sum(cost(record.colocation) for record in self._records.values()),
            grid_s=sum(cost(Colocation(self.machine, self.target, point.competitors)) for point in whole),
            grid_runs=len(whole) + 1,
            target_error=self.settings.target_error,
        )

    def reason(self) -> Reason | None:
        """Return why the design has stopped, None while it goes on."""
        if len(self._records) < len(self._asked) or not self._asked:
            return None
        if (found := self._assessment()) is not None:
            floor, target = self._noise().floor, self.settings.target_error
            if found.error + found.uncertainty <= target and found.half_width <= WIDTH_PER_ERROR * target:
                return Reason.TARGET
            if floor > target and found.error <= FLOOR_REACHED * floor:
                return Reason.FLOOR
        if len(self._records) >= self.settings.budget:
            return Reason.BUDGET
        return Reason.EXHAUSTED if len(self.colocations) > len(self.pool) else None

    def _run(self, place: Colocation, replicate: int) -> PlannedRun:
        return PlannedRun(place, replicate, run_seed(self.settings.seed, place.key, replicate))

    def _next(self) -> list[PlannedRun]:
        """Return the next batch: new settings by disagreement, or repeats where noise exceeds it."""
        count = min(BATCH, self.settings.budget - len(self._records))
        known, shares = self._shares()
        committee = fit_committee(self._coordinates[known], shares, seed=self.settings.seed)
        spread = committee.spread(self._coordinates)
        value = spread / np.sqrt(self._relative_costs())
        taken, chosen = list(known), []
        doubt = self._noise().doubt(self._throughputs())
        for _ in range(count):
            best = _most_valuable(value, self._coordinates, taken)
            noisiest = max(doubt, key=lambda key: doubt[key], default=None)
            if best is None or (noisiest is not None and doubt[noisiest] > spread[best]):
                if noisiest is None:
                    break
                chosen.append(self._run(*self._again(noisiest)))
                del doubt[noisiest]
            else:
                chosen.append(self._run(self._places[best], 0))
                taken.append(best)
        return chosen

    def _again(self, key: str) -> tuple[Colocation, int]:
        place = next(run.colocation for run in self._asked if run.colocation.key == key)
        return place, sum(run.colocation.key == key for run in self._asked)

    def _throughputs(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for (key, _), record in sorted(self._records.items()):
            found.setdefault(key, []).append(record_throughput(record))
        return found

    def _shares(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the pool's points measured, and throughput there as a share of solo."""
        throughputs = self._throughputs()
        alone = Colocation(self.machine, self.target).key
        solo = float(np.median(throughputs[alone]))
        known = [number for key, number in self._index.items() if key in throughputs]
        means = [float(np.mean(throughputs[self._places[number].key])) for number in known]
        return np.array(known, dtype=np.int64), np.array(means) / solo

    def _noise(self) -> Noise:
        return estimate_noise(self._throughputs().values())

    def _relative_costs(self) -> Floats:
        if self.cost_s is None:
            return np.ones(len(self._places))
        costs = np.array([max(self.cost_s(place), 1e-9) for place in self._places])
        relative: Floats = costs / costs.mean()
        return relative

    def _assessment(self) -> Assessment | None:
        """Return the held-out error with all runs told, worked out once."""
        if self._assessed[0] != len(self._records):
            found = None
            if len({key for key, _ in self._records}) > _FEWEST_JUDGED:
                try:
                    dataset = ProfileDataset.from_records(self.records(), {})
                    found = assess(dataset, self.target.key, seed=self.settings.seed)
                except MissingMetricError:
                    found = None  # a testbed that reports no pressure: only the budget ends such a design
            self._assessed = (len(self._records), found)
        return self._assessed[1]


def coordinates(pool: Sequence[Pressure]) -> Floats:
    """Return knobs and instances of each point on logarithmic scales from 0 to 1, shape ``(len(pool), knobs + 1)``.

    Examples
    --------
    >>> coordinates(sobol(4)).shape
    (4, 7)
    """
    rows = []
    for point in pool:
        given = {**point.workload.configuration, "packet_size_b": point.workload.traffic.packet_size_b}
        row = [_level(name, float(given.get(name, knob(name).default))) for name in RANGES]
        rows.append([*row, math.log(point.instances) / math.log(MOST_INSTANCES)])
    return np.array(rows)


def _level(name: str, value: float) -> float:
    low, high = RANGES[name]
    if name == "rate_mpps" and value == 0.0:
        value = high  # no limit
    return math.log(max(value, low) / low) / math.log(high / low)


def _most_valuable(value: Floats, coordinates_: Floats, taken: Sequence[int]) -> int | None:
    """Return the point of most value that lies apart from those taken; None if all are."""
    if len(taken) >= len(value):
        return None
    away = coordinates_[:, None, :] - coordinates_[list(taken)][None, :, :]
    near = (away**2).sum(axis=2).min(axis=1)
    score = value * (1.0 - np.exp(-near / (2.0 * APART**2)))
    score[list(taken)] = -1.0
    return int(score.argmax())
