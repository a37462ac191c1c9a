"""Choose a reporter for each resource: the program that reacts to this resource and least to others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slomo.testbed.host.probe.reporters import Reporter

#: Least relative extra time beside the strongest competitor for its resource; 0.25 is a slowdown of 20 %.
ENOUGH = 0.25
#: Added to the extra time caused by other resources, since smaller differences are noise.
_FLOOR = 0.05
_SURE = 2.0  # standard errors by which extra time must exceed 0
_LEAST = 0.02


@dataclass(frozen=True)
class CandidateTrial:
    """How much one candidate program slows down beside each competitor."""

    #: The candidate program.
    reporter: Reporter
    #: Metric of the competitor's resource -> relative extra time beside that competitor.
    extra: Mapping[str, float]
    #: Standard errors of `extra`.
    error: Mapping[str, float]

    @property
    def own(self) -> float:
        """Relative extra time of the candidate beside the strongest competitor for its own resource."""
        return self.extra[self.reporter.metric]

    @property
    def others(self) -> float:
        """Largest relative extra time of the candidate beside a competitor for another resource."""
        return max((value for name, value in self.extra.items() if name != self.reporter.metric), default=0.0)

    @property
    def feels(self) -> bool:
        """Whether `own`, the extra time for the candidate's own resource, exceeds measurement noise."""
        return self.own > max(_LEAST, _SURE * self.error[self.reporter.metric])


def choose(trials: Sequence[CandidateTrial]) -> tuple[CandidateTrial, ...]:
    """Return the best candidate per metric; none for a metric without a sensitive candidate."""
    chosen = []
    for metric in dict.fromkeys(trial.reporter.metric for trial in trials):
        feeling = [trial for trial in trials if trial.reporter.metric == metric and trial.feels]
        strong = [trial for trial in feeling if trial.own >= ENOUGH]
        if strong:
            chosen.append(max(strong, key=lambda trial: trial.own / (max(trial.others, 0.0) + _FLOOR)))
        elif feeling:
            chosen.append(max(feeling, key=lambda trial: trial.own))
    return tuple(chosen)
