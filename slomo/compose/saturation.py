"""Limit combined counters to what the machine can reach.

Competitors profiled separately can together ask for more than the machine has: occupancies cannot exceed the cache, and
reads and writes share the memory channels. This limit is slomo's addition; the published composition (SLOMO,
SIGCOMM'20) has none.
"""

from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS, Cap

#: Groups of metrics that share one capacity.
SHARED: tuple[tuple[str, str], ...] = (("READ", "WRITE"),)


def saturate(
    values: NDArray[np.float64], names: tuple[str, ...], capacities: Capacities | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Limit a socket's counters to the machine's capacities.

    Metrics that share a capacity are scaled down together, keeping their proportion.

    `values`, shape (mixes, metrics): composed; NaN (not reported) stays NaN. Without `capacities` only shares are
    capped, at 1. Also returned is where a value had to be lowered.
    """
    limits, shared = limits_of(names, capacities)
    result = np.minimum(values, limits)
    for (first, second), limit in shared:
        # if a member is missing so is the sum, and the others are capped one by one
        demand = values[:, first] + values[:, second]
        if (demand > limit).any():
            scale = np.where(demand > limit, limit / np.maximum(demand, limit), 1.0)
            for column in (first, second):
                result[:, column] = np.minimum(values[:, column] * scale, limit)
    return result, result < values


def at_limit(vector: Mapping[str, float], capacities: Capacities | None) -> tuple[str, ...]:
    """Return the combined counters that are at their limit.

    >>> at_limit({"READ": 45.0, "WRITE": 15.0, "L3OCC": 9.0}, Capacities(cores=8, llc_kib=20480, memory_gb_s=60.0))
    ('READ', 'WRITE')
    """
    full = 1.0 - 1e-12  # scaling to a cap may end one rounding below it
    names, values = tuple(vector), list(vector.values())
    limits = limits_of(names, capacities)[0].tolist()
    at_cap = {name for name, value, limit in zip(names, values, limits, strict=True) if value >= full * limit}
    for group in SHARED:
        if sum(vector.get(name, 0.0) for name in group) >= full * _limit(group[0], capacities):
            at_cap |= {name for name in group if vector.get(name, 0.0) > 0.0}
    return tuple([name for name in names if name in at_cap])


@lru_cache(maxsize=1024)
def limits_of(
    names: tuple[str, ...], capacities: Capacities | None
) -> tuple[NDArray[np.float64], list[tuple[list[int], float]]]:
    """Return the limit of each metric, and the columns of the metrics that share one."""
    groups = [
        ([names.index(name) for name in group if name in names], _limit(group[0], capacities)) for group in SHARED
    ]
    shared = [(columns, limit) for columns, limit in groups if len(columns) > 1 and limit < np.inf]
    return np.array([_limit(name, capacities) for name in names]), shared


@cache
def _limit(name: str, capacities: Capacities | None) -> float:
    if capacities is None:
        return 1.0 if METRICS[name].cap is Cap.ONE else np.inf
    return capacities.limit(METRICS[name])
