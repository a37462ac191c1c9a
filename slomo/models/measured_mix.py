"""A measured mix: the throughput of one function beside given neighbours."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from slomo.files.stored import Stored


@dataclass(frozen=True)
class MeasuredMix(Stored):
    """Throughput of one function beside neighbours at full load."""

    #: Workload keys of the neighbours, in ascending order.
    competitors: tuple[str, ...]
    #: Mean throughput of each instance [Mpps].
    mpps: Annotated[float, Meta(ge=0.0)]
    #: Standard deviation of one further run around that mean [Mpps].
    error_mpps: Annotated[float, Meta(gt=0.0)]
    #: Degrees of freedom of the standard deviation: number of repeated runs behind it. 1, which gives the widest
    #: bounds, if unknown.
    freedom: Annotated[int, Meta(ge=1)] = 1
