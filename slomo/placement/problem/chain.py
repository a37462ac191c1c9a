"""A service chain with a traffic rate that changes over time (NUMASFP, COMSNETS'22)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slomo.errors import InvalidValueError
from slomo.placement.problem.request import Request
from slomo.vocabulary.wire import mpps_of_gbps, wire_gbps


@dataclass(frozen=True)
class RatedChain:
    """A service chain and its traffic rate over time."""

    #: The chain.
    request: Request
    #: Offered rate in each interval [Gbit/s].
    gbps: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.gbps or not all(math.isfinite(rate) and rate > 0.0 for rate in self.gbps):
            raise InvalidValueError(
                f"chain '{self.request.id}': rates are {list(self.gbps)} Gbit/s, needed one or more above 0",
                hint="give gbps: [...], one rate per interval, or an offered load",
            )

    @classmethod
    def at_mpps(cls, request: Request, mpps: float) -> "RatedChain":
        """Return a chain with one measured rate [Mpps]; a chain without packets has a packet per second."""
        return cls(request, (wire_gbps(request.chain[0].traffic.packet_size_b, max(mpps, 1e-6)),))

    def offered_mpps(self, interval: int) -> float:
        """Return the chain's offered rate in an interval [Mpps]."""
        return mpps_of_gbps(self.gbps[interval], self.request.chain[0].traffic.packet_size_b)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back: a request with rates."""
        return {**self.request.to_dict(), "gbps": list(self.gbps)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RatedChain":
        """Return the object that :meth:`to_dict` described; without rates, the traffic's offered load is the rate."""
        request = Request.from_dict({key: value for key, value in data.items() if key != "gbps"})
        traffic = request.chain[0].traffic
        rates = tuple(float(rate) for rate in data.get("gbps", ()))
        if not rates and traffic.offered_mpps is not None:
            rates = (wire_gbps(traffic.packet_size_b, traffic.offered_mpps),)
        return cls(request, rates)
