"""Measure NUMASFP's lookup table: the resources that a network function needs to serve a traffic rate.

NUMASFP (COMSNETS'22), "VNF profiler": VNF x traffic rate -> cores, LLC ways, percent of memory bandwidth. The table has
the fewest ways and the least bandwidth that serve the rate. They are found by bisection, as more ways or more bandwidth
never lower throughput. For rates beyond one core's capacity there is also a row at that capacity, for stages limited to
one core.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slomo.errors import InvalidValueError
from slomo.placement.chains.allocation import MBA_STEP
from slomo.placement.chains.resource_table import ResourceRow
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.wire import wire_gbps
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    from slomo.records.run import Phase
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.machine import Machine

#: Share of a rate from which on it counts as served; random arrivals of a short run scatter by less.
SERVED = 0.97
#: Throttles to choose from [%].
THROTTLES = tuple(range(MBA_STEP, 101, MBA_STEP))


def resource_table(
    testbed: "Testbed", machine: "Machine", workloads: Sequence[Workload], rates_gbps: Sequence[float], *, seed: int = 0
) -> tuple[ResourceRow, ...]:
    """Measure what each network function needs at each rate.

    Raises InvalidValueError for a rate that is not above 0, or above line rate.

    The testbed must know cache ways and throttles, as the simulated one does; an offered load of a workload is
    replaced.

    Returns
    -------
    tuple of ResourceRow
        By network function, then by rate; where rates take several cores, with the most one core serves among them.
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
    measuring = _NeedsBench(testbed, machine, workload, seed)
    possible = measuring.served(None, measuring.most_ways, 100)
    per_mpps = wire_gbps(workload.traffic.packet_size_b, 1.0)
    rates = [(rate, rate / per_mpps) for rate in rates_gbps]
    if any(mpps > possible for _, mpps in rates):
        rates = sorted([*rates, (round(possible * per_mpps, 2), possible)])
    return [measuring.row(rate, mpps, max(1, math.ceil(mpps / possible))) for rate, mpps in rates]


@dataclass(frozen=True)
class _NeedsBench:
    """Measures one network function alone on a machine."""

    testbed: "Testbed"
    machine: "Machine"
    workload: Workload
    seed: int

    @property
    def most_ways(self) -> int:
        """Number of cache ways other than those of DDIO."""
        return self.machine.llc_ways - self.machine.ddio_ways

    def row(self, gbps: float, mpps: float, cores: int) -> ResourceRow:
        """Find the fewest ways, then the strongest throttle, with which every instance serves its part of the rate."""
        each = round(mpps / cores, 4)
        enough = SERVED * each
        ways = _least(range(1, self.most_ways + 1), lambda count: self.served(each, count, 100) >= enough)
        percent = _least(THROTTLES, lambda share: self.served(each, ways, share) >= enough)
        return ResourceRow(self.workload.key, gbps, mpps, cores, ways, percent, self._moved_gb_s(each, ways, percent))

    def served(self, offered: float | None, ways: int, percent: int) -> float:
        """Return the throughput with some ways and a throttle [Mpps]."""
        return self._run(offered, ways, percent).tenants[0].throughput_mpps

    def _moved_gb_s(self, offered: float, ways: int, percent: int) -> float:
        moved = self._run(offered, ways, percent).socket
        return round((moved.get("READ", 0.0) or 0.0) + (moved.get("WRITE", 0.0) or 0.0), 3)

    def _run(self, offered: float | None, ways: int, percent: int) -> "Phase":
        isolation = (Isolation((1 << ways) - 1, percent),)
        colocation = Colocation(self.machine.name, self.workload.offered(offered), (), isolation)
        phase = self.testbed.run(colocation, seed=self.seed).beside
        assert phase is not None, "BUG: a run of a target has a phase of its own"
        return phase


def _least(choices: Sequence[int], serves: Callable[[int], bool]) -> int:
    """Return the first choice that serves the rate, or the last one if none does; every choice after it serves too."""
    return choices[bisect.bisect_left(choices, True, hi=len(choices) - 1, key=serves)]
