"""Settings of a placer beside its policy: one value for Python, the workflow and the command line."""

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
    """The settings that texts and numbers can express; meanings as in :class:`PlacerSettings`."""

    model: str
    confidence: float
    fallback: Fallback
    method: str
    slo_grid: float
    reference_machine: str | None


@dataclass(frozen=True)
class PlacerSettings:
    """Settings by which a placer decides.

    Raises InvalidValueError for an unknown fallback, or a grid outside 0 to 0.2.
    """

    #: Sensitivity model for predictions; some policies require their own.
    model: str = DEFAULT_MODEL
    #: Probability with which all SLOs of a socket must hold, from 0.5 to below 1.
    confidence: float = 0.95
    #: Throughput over cache ways, latency over load; for policies that partition the cache, and for latency SLOs.
    profiles: Sequence[InstanceProfile] = ()
    #: Treatment of a network function without a model on a machine. "refuse": do not place it there. "alone": give it a
    #: socket for itself. "worst-case": assume that it is as contentious as the most contentious profile of the library
    #: and as sensitive as the most sensitive one. With "worst-case" only `min_share` can be promised; one of "refuse",
    #: "alone", "worst-case".
    fallback: Fallback = "refuse"
    #: "composed" predicts each tenant of a mix beside the vectors of the others, "equilibrium" all at their fixed
    #: point; "auto" takes the fixed point if the models support it. Policies with a model of their own use that; one of
    #: "auto", "composed", "equilibrium".
    method: str = DEFAULT_METHOD
    #: For policies that scale by observation: returns the throughput of every request [Mpps], given the placer; by
    #: default predictions.
    observe: Observe | None = None
    #: Promises are rounded up to multiples of this share of solo throughput, so that many different requests fall into
    #: few classes; 0 means no rounding. Rounding costs at most this share of solo throughput per request.
    slo_grid: float = 0.01
    #: Machine type whose solo throughput `min_share` refers to; None for the one where a request is placed.
    reference_machine: str | None = None
    #: Machine type -> workload -> correction factor of predictions, learned from outcomes.
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fallback not in get_args(Fallback):
            choices = ", ".join(repr(name) for name in get_args(Fallback))
            raise InvalidValueError(f"fallback is {self.fallback!r}, needed one of {choices}")
        if not 0.0 <= self.slo_grid <= 0.2:
            raise InvalidValueError(f"slo_grid is {self.slo_grid}, needed 0 to 0.2 of solo throughput")
