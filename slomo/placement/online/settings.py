"""By what a placer decides, beside its policy: one value for Python, the workflow and the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from slomo.errors import InvalidValueError
from slomo.placement.problem.way_profiles import InstanceProfile
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL

Fallback = Literal["refuse", "alone", "worst-case"]
#: Returns the throughput of every request [Mpps], given the placer.
Observe = Callable[[Any], Mapping[str, float]]


class DecisionOptions(TypedDict, total=False):
    """What texts and numbers say by name; the meanings are those of :class:`PlacerSettings`."""

    model: str
    confidence: float
    fallback: Fallback
    method: str
    slo_grid: float
    reference_machine: str | None


@dataclass(frozen=True)
class PlacerSettings:
    """By what a placer decides.

    Raises InvalidValueError for another fallback, or a grid outside 0 to 0.2.
    """

    #: Sensitivity model to ask; some policies insist on their own.
    model: str = DEFAULT_MODEL
    #: Probability with which all SLOs of a socket must hold, 0.5 up to below 1.
    confidence: float = 0.95
    #: Throughput over cache ways, latency over load; for policies that partition the cache, and for latency SLOs.
    profiles: Sequence[InstanceProfile] = ()
    #: What to do with a network function that has no model on a machine: refuse it there, give it a socket for itself,
    #: or take it for the worst neighbour there is: it presses others like the most contentious profile of the library
    #: and suffers like the most sensitive one. Then only `min_share` can be promised; one of "refuse", "alone",
    #: "worst-case".
    fallback: Fallback = "refuse"
    #: Predict each tenant of a mix beside the vectors of the others, or all at their fixed point; "auto" takes the
    #: fixed point where the models know it. Policies with a model of their own ask that; one of "auto", "composed",
    #: "equilibrium".
    method: str = DEFAULT_METHOD
    #: For policies that scale by what they see: returns the throughput of every request [Mpps], given the placer;
    #: predictions stand in by default.
    observe: Observe | None = None
    #: What is promised is rounded up to multiples of this share of solo throughput, so that requests that all differ
    #: are planned in few classes; 0 rounds nothing. It costs at most this share of solo per request.
    slo_grid: float = 0.01
    #: Machine type whose solo throughput `min_share` is a share of; None for the one where a request ends up.
    reference_machine: str | None = None
    #: Machine type -> workload -> what predictions are multiplied by, as outcomes taught.
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fallback not in get_args(Fallback):
            choices = ", ".join(repr(name) for name in get_args(Fallback))
            raise InvalidValueError(f"fallback is {self.fallback!r}, needed one of {choices}")
        if not 0.0 <= self.slo_grid <= 0.2:
            raise InvalidValueError(f"slo_grid is {self.slo_grid}, needed 0 to 0.2 of solo throughput")
