"""Measure one network function alone over numbers of cache ways and over load, with few runs.

ResQ (NSDI'18) section 5.2: throughput is concave in cache ways, latency convex in load. Both ends and the middle are
measured and intervals split until interpolation is within 1 %: 8 to 12 measurements instead of 400.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slomo.models.functions.regression import rising
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.partition import PartitionResponse
from slomo.profiling.plans.refinement import TOLERANCE, MidpointRefinement, Shape, refine
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.packet_buffers import MOST_BUFFERS, buffers_per_nf
from slomo.vocabulary.workload import Workload

#: Range of loads over which latency is profiled, as shares of solo throughput.
LOADS = (0.2, 0.95)
#: Largest relative interpolation error of a latency curve, and its largest number of points.
LATENCY_TOLERANCE, _MOST_LOADS = 0.03, 12
#: Number of runs of a point: initial and maximal.
_FEW, _MOST = 3, 7
#: Stored latency is the mean of repeats plus this many standard deviations.
_DEVIATIONS = 2.0


def profile_ways(
    testbed: Testbed,
    machine: Machine,
    workloads: Iterable[Workload],
    *,
    cores: int | None = None,
    latency: bool = True,
    seed: int = 0,
) -> PartitionProfile:
    """Measure throughput over cache ways, and latency over load, of network functions that run alone.

    If repeated runs at the ends differ, every point is the median of enough runs to bring its error below the
    tolerance. A latency is the mean of its repeats plus two standard deviations. Latency is measured with the fewest
    ways that give the highest throughput. If the NIC's line rate limits throughput, fewer ways can add queueing delay
    that throughput does not show.

    `cores`: cores of a socket for network functions, all by default, which decide how many packet buffers each may
    have. `latency`: measure latencies, too. `seed`: of the first run of each point; repeats count on from it.
    """
    made: dict[str, PartitionResponse] = {}
    for workload in workloads:
        share = buffers_per_nf(machine, cores or machine.cores_per_socket, workload.traffic.packet_size_b)
        measuring = _Bench(testbed, machine, workload, None if share is None or share >= MOST_BUFFERS else share, seed)
        curve = measuring.over_ways()
        solo = measuring.median(None, measuring.repeats)
        enough = next(ways for ways, mpps in curve if mpps >= (1.0 - TOLERANCE) * curve[-1][1])
        loads = measuring.over_load(solo, enough) if latency else ()
        made[workload.key] = PartitionResponse.over_ways(workload.key, solo, curve, loads, share)
    return PartitionProfile(machine.name, made, fingerprint=machine.fingerprint)


@dataclass
class _Bench:
    """Measures one network function alone on a machine, with its packet buffers."""

    bed: Testbed
    host: Machine
    workload: Workload
    buffers: int | None
    seed: int
    repeats: int = 1

    def over_ways(self) -> tuple[tuple[int, float], ...]:
        """Return the throughput for each number of cache ways, made monotone [Mpps]."""
        most = self.host.llc_ways - self.host.ddio_ways
        self.repeats = max(self._repeats_for(ways) for ways in (1, most))
        if most == 1:
            return ((1, self.median(1, self.repeats)),)
        refinement = MidpointRefinement(1, most, step=1, shape=Shape.CONCAVE)
        refine(lambda ways: self.median(int(ways), self.repeats), refinement)
        steps = sorted(refinement.points)
        rates = rising([refinement.points[way] for way in steps]).tolist()
        return tuple((int(way), rate) for way, rate in zip(steps, rates, strict=True))

    def over_load(self, solo_mpps: float, ways: int) -> tuple[tuple[float, float, float], ...]:
        """Return the 95th and 99th percentile of latency over load [us]; empty without latencies."""
        seen: dict[float, tuple[float, float]] = {}
        if self._latencies(LOADS[0], solo_mpps, ways) is None:
            return ()

        def p95(load: float) -> float:
            seen[load] = self._latencies(load, solo_mpps, ways) or (math.inf, math.inf)
            return seen[load][0]

        refine(p95, MidpointRefinement(*LOADS, shape=Shape.CONVEX, tolerance=LATENCY_TOLERANCE, budget=_MOST_LOADS))
        loads = sorted(load for load in seen if math.isfinite(seen[load][0]))
        slow, slower = (rising([seen[load][part] for load in loads]).tolist() for part in (0, 1))
        return tuple(zip(loads, slow, slower, strict=True))

    def median(self, ways: int | None, repeats: int) -> float:
        """Return the median throughput of several runs [Mpps]; None stands for the whole cache."""
        return float(np.median(self._mpps(ways, repeats)))

    def _repeats_for(self, ways: int) -> int:
        """Return how many runs per point make the error much smaller than the interpolation tolerance."""
        rates = self._mpps(ways, _FEW)
        repeats = (2.0 * float(np.std(rates, ddof=1)) / (0.5 * TOLERANCE * float(np.mean(rates)))) ** 2
        return min(max(math.ceil(repeats), 1), _MOST)

    def _mpps(self, ways: int | None, repeats: int) -> list[float]:
        return [self._run(self.workload, ways, number).target.throughput_mpps for number in range(repeats)]

    def _latencies(self, load: float, solo_mpps: float, ways: int) -> tuple[float, float] | None:
        offered = self.workload.offered(round(load * solo_mpps, 6))
        samples = [self._run(offered, ways, number).target for number in range(_FEW)]
        pairs = [(s.latency_p95_us, s.latency_p99_us) for s in samples if s.latency_p95_us and s.latency_p99_us]
        if not pairs:
            return None
        times = np.array(pairs)
        spread = times.std(axis=0, ddof=1) if len(times) > 1 else np.zeros(2)
        p95, p99 = (times.mean(axis=0) + _DEVIATIONS * spread).tolist()
        return p95, p99

    def _run(self, workload: Workload, ways: int | None, number: int) -> RunRecord:
        mask = None if ways is None else (1 << ways) - 1
        part = Isolation(mask, None, self.buffers)
        isolation = None if part == Isolation() else (part,)
        return self.bed.run(Colocation(self.host.name, workload, (), isolation), seed=self.seed + number)
