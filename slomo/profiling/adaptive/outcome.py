"""What an adaptive design is given (target error, most runs) and what it reports.

SLOMO (SIGCOMM'20, section 4.1) spends 588 runs on every network function.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.stored import stored
from slomo.profiling.adaptive.noise import Noise
from slomo.profiling.campaign.description import duration_text
from slomo.profiling.plans.designs import MOST_INSTANCES
from slomo.training.assessment import Assessment
from slomo.units import plural

DEFAULT_BUDGET = 60
DEFAULT_TARGET_ERROR = 0.02
#: Largest number of contradictory settings named in a report.
MOST_NAMED = 3


class Reason(StrEnum):
    """Why an adaptive design has stopped."""

    TARGET = "target error reached"
    FLOOR = "noise floor reached"
    BUDGET = "budget spent"
    EXHAUSTED = "no setting left"


@dataclass(frozen=True)
class AdaptiveSettings:
    """Target error and largest number of runs of an adaptive design.

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

    #: Mean held-out error to reach, as a share of solo throughput, above 0 and below 1.
    target_error: float = DEFAULT_TARGET_ERROR
    #: Most runs per network function, all included, 1 or more.
    budget: int = DEFAULT_BUDGET
    #: Seed of everything random.
    seed: int = 0
    #: Most synthetic competitors at a time.
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
    """How far an adaptive design is with one network function."""

    #: Workload key.
    target: str
    #: Recorded runs, and different settings among them.
    runs: int
    settings: int
    #: Held-out error of the present model; None with too few runs.
    assessment: Assessment | None
    #: What repeats disagree by.
    noise: Noise
    #: Reason for stopping; None if it has not stopped.
    reason: Reason | None
    #: Expected time of the recorded runs, and of the whole grid [s].
    spent_s: float
    grid_s: float
    #: Runs of the grid, including one alone.
    grid_runs: int
    #: What was asked for.
    target_error: float
    #: Settings that still contradict others after being measured again.
    contradictions: tuple[str, ...] = ()

    def __str__(self) -> str:
        error = "" if self.assessment is None else f"; held-out error {self.assessment.error:.1%}"
        error += "" if self.assessment is None else f" +- {self.assessment.uncertainty:.1%} of solo throughput"
        saved = 1.0 - self.runs / self.grid_runs
        runs = f"{plural(self.runs, 'run')} of {plural(self.settings, 'setting')}"
        text = f"{self.target}: {self.reason or 'under way'} after {runs}{error}"
        text += f"; {self.grid_runs - self.runs} of the grid's {self.grid_runs} runs saved ({saved:.0%}"
        text += (
            f", about {duration_text(self.grid_s - self.spent_s)} of run time)" if self.grid_s > self.spent_s else ")"
        )
        if self.below_floor:
            text += (
                f"; the target error of {100.0 * self.target_error:.2g} % is below the noise floor of "
                f"{100.0 * self.noise.floor:.2g} %: "
                "no model can be seen to be better than repeats of one run agree"
            )
        if named := self.contradictions[:MOST_NAMED]:
            more = len(self.contradictions) - MOST_NAMED
            text += "; contradictory, under more pressure than others and yet faster, measured again too: "
            text += "; ".join(named)
            text += f" and {more} more" if more > 0 else ""
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {
            "target": self.target,
            "runs": self.runs,
            "settings": self.settings,
            "reason": self.reason,
            "assessment": stored(self.assessment),
            "noise_floor": self.noise.floor,
            "target_error": self.target_error,
            "below_noise_floor": self.below_floor,
            "contradictions": list(self.contradictions),
            "grid_runs": self.grid_runs,
            "spent_s": self.spent_s,
            "grid_s": self.grid_s,
        }

    @property
    def below_floor(self) -> bool:
        """Whether the target error is below the error caused by noise alone."""
        return self.noise.floor > self.target_error
