"""NUMASFP's lookup table, measured: what a network function needs to serve a traffic rate.

NUMASFP (COMSNETS'22), "VNF profiler": VNF x traffic rate -> cores, LLC ways, percent of memory bandwidth. Ways and
percent are the least with which the rate is served, each found by bisection, for more of either never serves less.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from slomo.errors import InvalidValueError
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.machine import Machine

#: A rate counts as served from this share of it on: arrivals of a short run scatter.
SERVED = 0.97
#: Steps of Intel's memory bandwidth allocation [%] (Intel SDM 3B, 17.19.7).
THROTTLES = tuple(range(10, 101, 10))


@dataclass(frozen=True)
class ResourceRow:
    """What one network function needs at one rate.

    Attributes
    ----------
    workload : str
        Workload key.
    gbps, mpps : float
        The rate, with preamble and gap [Gbit/s], and in packets [Mpps].
    cores : int
        Instances, each with a core and the same part of the rate.
    ways : int
        LLC ways of each.
    memory_percent : int
        Memory bandwidth throttle of each (MBA) [%].
    """

    workload: str
    gbps: float
    mpps: float
    cores: int
    ways: int
    memory_percent: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return asdict(self)


def resource_table(
    testbed: "Testbed", machine: "Machine", workloads: Sequence[Workload], rates_gbps: Sequence[float], *, seed: int = 0
) -> tuple[ResourceRow, ...]:
    """Measure what each network function needs at each rate.

    Parameters
    ----------
    testbed : Testbed
        Must know cache ways and throttles, as the simulated one does.
    machine : Machine
        What it is.
    workloads : sequence of Workload
        Network functions with their traffic; an offered load of theirs is replaced.
    rates_gbps : sequence of float
        Rates, above 0 [Gbit/s].
    seed : int
        Of the runs.

    Returns
    -------
    tuple of ResourceRow
        By network function, then by rate.

    Raises
    ------
    InvalidValueError
        For a rate that is not above 0, or beyond the line.
    """
    for rate in rates_gbps:
        if not 0.0 < rate <= machine.nic_gbps:
            raise InvalidValueError(f"rate of {rate:g} Gbit/s, needed above 0 and at most {machine.nic_gbps:g}")
    return tuple(
        row for workload in workloads for row in _rows(testbed, machine, workload, sorted(set(rates_gbps)), seed)
    )


def _rows(
    testbed: "Testbed", machine: "Machine", workload: Workload, rates_gbps: Sequence[float], seed: int
) -> list[ResourceRow]:
    def served(offered: float | None, ways: int, percent: int) -> float:
        loaded = workload.offered(offered)
        isolation = (Isolation((1 << ways) - 1, percent),)
        record = testbed.run(Colocation(machine.name, loaded, (), isolation), seed=seed)
        assert record.beside is not None
        return record.beside.tenants[0].throughput_mpps

    most = machine.llc_ways - machine.ddio_ways
    possible = served(None, most, 100)
    rows = []
    for rate in rates_gbps:
        mpps = rate * 1e3 / (8.0 * (workload.traffic.packet_size_b + 20))
        cores = max(1, math.ceil(mpps / possible))
        each = round(mpps / cores, 4)
        enough = SERVED * each
        ways = _least(range(1, most + 1), lambda count: served(each, count, 100) >= enough)  # noqa: B023 - used at once
        percent = _least(THROTTLES, lambda share: served(each, ways, share) >= enough)  # noqa: B023
        rows.append(ResourceRow(workload.key, rate, mpps, cores, ways, percent))
    return rows


def _least(choices: Sequence[int], serves: Callable[[int], bool]) -> int:
    """Return the least choice that serves, the last where none does; more never serves less."""
    low, high = 0, len(choices) - 1
    while low < high:
        middle = (low + high) // 2
        if serves(choices[middle]):
            high = middle
        else:
            low = middle + 1
    return choices[low]
