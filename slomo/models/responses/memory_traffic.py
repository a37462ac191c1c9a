"""Memory latency of a socket over its traffic, as profiles over partitions measure it under noise.

ResQ (NSDI'18) and NUMASFP (COMSNETS'22) treat memory bandwidth as a budget; here its latency slows packets down.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.models.functions.regression import rising


@dataclass(frozen=True)
class MemoryTraffic(Stored):
    """Memory latency of a socket as a function of its traffic."""

    #: Memory latencies [ns], ascending.
    latency_ns: tuple[float, ...]
    #: Traffic of the socket at these latencies, non-decreasing.
    traffic_gb_s: tuple[float, ...]
    #: Largest traffic of the socket's channel; infinite if unknown.
    most_gb_s: float = math.inf
    #: The same for memory on another node, its latencies shorter by what idle memory there takes longer; if None (not
    #: measured), the curve of the own node stands for it.
    away: "MemoryTraffic | None" = None

    def __post_init__(self) -> None:
        if len(self.latency_ns) != len(self.traffic_gb_s):
            raise InvalidValueError("memory curve: needed as many latencies as traffic values")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back, without an unknown channel limit."""
        return {name: value for name, value in super().to_dict().items() if value != math.inf}


def fit_memory(latency_ns: Sequence[float], traffic_gb_s: Sequence[float]) -> MemoryTraffic:
    """Fit a machine's memory curve: traffic as a non-decreasing function of latency (pool adjacent violators).

    >>> fit_memory([80, 100, 120], [0, 30, 20]).traffic_gb_s
    (0.0, 25.0, 25.0)
    """
    order = np.argsort(latency_ns)
    latency = np.asarray(latency_ns, dtype=float)[order]
    traffic = rising(np.asarray(traffic_gb_s, dtype=float)[order])
    return MemoryTraffic(tuple(latency.tolist()), tuple(traffic.tolist()))


def joined(curves: Iterable[MemoryTraffic]) -> MemoryTraffic:
    """Return the one curve of several measurements of one machine's memory."""
    distinct = sorted(set(curves), key=lambda curve: (curve.latency_ns, curve.traffic_gb_s))
    if len(distinct) == 1:
        return distinct[0]
    together = fit_memory(
        [latency for curve in distinct for latency in curve.latency_ns],
        [traffic for curve in distinct for traffic in curve.traffic_gb_s],
    )
    away = {curve.away for curve in distinct if curve.away is not None}
    return replace(together, most_gb_s=min(curve.most_gb_s for curve in distinct), away=joined(away) if away else None)
