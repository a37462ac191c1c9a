"""Settings of a placer, the same for Python, workflows and the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from slomo.errors import InvalidValueError
from slomo.models.partition_profile import PartitionProfile
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Method

Fallback = Literal["refuse", "alone", "worst-case"]
#: Returns the throughput of every request [Mpps], given the placer.
Observe = Callable[[Any], Mapping[str, float]]


class DecisionOptions(TypedDict, total=False):
    """Settings of a placer that a command line or a file can state; meanings as in :class:`PlacerSettings`."""

    model: str
    confidence: float
    fallback: Fallback
    method: Method
    slo_grid: float
    reference_machine: str | None


@dataclass(frozen=True)
class PlacerSettings:
    """Settings of a `Placer`, such as confidence and prediction method."""

    model: str = DEFAULT_MODEL
    confidence: float = 0.95
    profiles: Sequence[PartitionProfile] = ()
    fallback: Fallback = "refuse"
    method: Method = DEFAULT_METHOD
    observe: Observe | None = None
    slo_grid: float = 0.01
    reference_machine: str | None = None
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fallback not in get_args(Fallback):
            choices = ", ".join(repr(name) for name in get_args(Fallback))
            raise InvalidValueError(f"fallback is {self.fallback!r}, needed one of {choices}")
        if not 0.0 <= self.slo_grid <= 0.2:
            raise InvalidValueError(f"slo_grid is {self.slo_grid}, needed 0 to 0.2 of solo throughput")
