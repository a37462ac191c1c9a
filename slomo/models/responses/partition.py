"""How an NF's time per packet depends on its cache ways, the memory latency and its throttle.

ResQ (NSDI'18, section 5.2) profiles throughput over cache ways, concave and monotone, and latency over load, convex and
monotone, and discounts for memory bandwidth; NUMASFP (COMSNETS'22) shows that bandwidth must be allocated too. Here the
time per packet is a part independent of memory plus a waiting part, which grows with the latency caused by all tenants'
traffic, and with the throttle. A response measured over ways alone leaves the rest empty.
"""

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.files.ranges import Count, PositiveCount, PositiveRate, Rate, Seconds, Share
from slomo.files.stored import Stored
from slomo.models.intervals import conformal_rank
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.units import plural
from slomo.vocabulary.vector import Floats

SCHEMA_VERSION = 3
#: Points per way of `PartitionResponse.table`.
STEPS = 32
#: Decimal logarithms of the ages of `PartitionResponse.held`, and points per decade.
AGE_LOW, AGE_HIGH, AGE_STEPS = -5.0, 5.0, 24
#: Relative discount of a promise against the measurement. It covers the interpolation error and memory bandwidth, which
#: cache allocation does not isolate; ResQ's published scheduler discounts utilisation by as much.
DISCOUNT = 0.03
#: Errors are taken as proportional to this plus the predicted loss. Chosen among 0.02 to 0.5 on mixes that judged no
#: published figure; not relative to the loss, 62 to 75 % of the 90 % intervals of tenants that lose half or more held.
ERROR_FLOOR = 0.15
#: Memory traffic per packet below which no cache lines are filled [bytes].
_NO_TRAFFIC = 1e-3


@dataclass(frozen=True)
class PartitionResponse(Stored, version=SCHEMA_VERSION):
    """The trained function of one workload on one machine: time per packet over ways, latency, throttle."""

    #: Workload key.
    workload: str
    #: Throughput alone with all ways, without throttle.
    solo_mpps: PositiveRate
    #: Cache ways profiled, ascending.
    ways: tuple[float, ...]
    #: Part of the time per packet independent of memory [us], by ways.
    busy_us: tuple[float, ...]
    #: Number of memory latencies that a packet waits for, by ways.
    waits: tuple[float, ...]
    #: Memory traffic per packet, by ways [bytes]; empty if it was not measured.
    bytes_per_packet: tuple[float, ...] = ()
    #: Time per packet added by the strongest profiled throttle at idle memory [us], by ways.
    throttled_us: tuple[float, ...] = ()
    #: Bandwidth throttle [%] -> share of that time that it adds, ascending in percent; 100 adds 0.
    throttle: tuple[tuple[float, float], ...] = ((100.0, 0.0),)
    #: Latency of idle memory [ns].
    idle_ns: float = 0.0
    #: With memory on another node: the number of further latencies that a packet waits for, and bytes that it moves,
    #: since cards write packets into that memory and not into the cache; 0 if not measured.
    remote_waits: Rate = 0.0
    remote_bytes: Rate = 0.0
    #: Load as a share of capacity -> p95 and p99 sojourn time [us], both ascending; empty if it was not measured.
    latency: tuple[tuple[Share, Seconds, Seconds], ...] = ()
    #: Number of packet buffers in the runs; the frame size is that of the workload. None for the machine's default.
    buffers: PositiveCount | None = None
    #: Bytes of cache lines fetched per packet, by ways; empty if unknown, then the memory traffic replaces them.
    fetched_bytes: tuple[float, ...] = ()
    #: The same function over the ways that its lines occupy, for ways that others fill, too: lines occupy less of a few
    #: ways of its own than these ways hold. None if not measured; then this function stands for it.
    beside: "PartitionResponse | None" = None
    #: Ways that its packet buffers fill alone, bytes that a card writes there per packet, and the mask of the ways into
    #: which cards write; 0 if not measured.
    buffer_ways: Rate = 0.0
    buffer_bytes: Count = 0
    buffer_mask: Count = 0
    #: Share of the packets entering taken places of ways of its own that displace a line which it uses again; 0 if not
    #: measured.
    displaced: Rate = 0.0
    #: Ways that as many lines as its private cache holds would fill, if the shared cache receives lines that leave
    #: private ones (victim cache), else 0; and bytes that a packet requests of the shared cache.
    private_ways: Rate = 0.0
    requested_bytes: Rate = 0.0

    def __post_init__(self) -> None:
        ascending = self.ways and list(self.ways) == sorted(set(self.ways))
        lengths = {len(self.busy_us), len(self.waits), len(self.bytes_per_packet or self.ways)}
        lengths |= {len(self.throttled_us or self.ways), len(self.fetched_bytes or self.ways)}
        times = (busy + wait for busy, wait in zip(self.busy_us, self.waits, strict=False))
        if not (self.solo_mpps > 0 and ascending and lengths == {len(self.ways)} and all(time > 0 for time in times)):
            raise InvalidValueError(f"response of '{self.workload}': needed ascending ways and rates above 0")

    @classmethod
    def over_ways(
        cls,
        workload: str,
        solo_mpps: float,
        curve: Sequence[tuple[float, float]],
        latency: tuple[tuple[float, float, float], ...] = (),
        buffers: int | None = None,
    ) -> "PartitionResponse":
        """Return the time per packet over ways of an NF measured alone; `curve` is its throughput by number of ways."""
        if not all(mpps > 0 for _, mpps in curve):
            raise InvalidValueError(f"response of '{workload}': needed ascending ways and rates above 0")
        busy = tuple(1.0 / mpps for _, mpps in curve)
        ways = tuple(float(ways) for ways, _ in curve)
        return cls(workload, solo_mpps, ways, busy, (0.0,) * len(busy), latency=latency, buffers=buffers)

    @cached_property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Numbers of ways that were profiled, and the throughput alone with each [Mpps]."""
        points = zip(self.ways, self.busy_us, self.waits, strict=True)
        rates = [(int(w), 1.0 / (busy + wait * self.idle_ns * 1e-3)) for w, busy, wait in points if w == int(w)]
        return tuple((ways, max(mpps for _, mpps in rates[: number + 1])) for number, (ways, _) in enumerate(rates))

    def alone_mpps(self, ways: float) -> float:
        """Return the throughput alone with `ways` ways [Mpps], interpolated; 0 below the fewest profiled."""
        steps, rates = zip(*self.curve, strict=True)
        return float(np.interp(ways, steps, rates)) if ways >= steps[0] else 0.0

    def promise_mpps(self, ways: int) -> float:
        """Return the throughput that may be promised with `ways` own ways [Mpps]."""
        return self.alone_mpps(ways) * (1.0 - DISCOUNT)

    def ways_for(self, mpps: float) -> int | None:
        """Return the fewest ways with which `mpps` may be promised; None if no number suffices."""
        possible = range(self.curve[0][0], self.curve[-1][0] + 1)
        return next((ways for ways in possible if self.promise_mpps(ways) >= mpps * (1 - 1e-9)), None)

    def load_for(self, p95_us: float | None, p99_us: float | None, speed: float = 1.0) -> float | None:
        """Return the highest load, as a share of capacity, that keeps both latency limits; None if none does.

        `p95_us`, `p99_us`: limits [us]. `speed`: capacity relative to solo; all times scale with its inverse.
        """
        limits = ((1, p95_us), (2, p99_us))
        loads = [self._load_at(column, limit * speed) for column, limit in limits if limit is not None]
        if not self.latency or None in loads:
            return None
        return min((load for load in loads if load is not None), default=self.latency[-1][0])

    def capacity_for(self, mpps: float, p95_us: float | None, p99_us: float | None) -> float | None:
        """Return the least throughput at full load that keeps both latency limits [Mpps].

        An instance slowed down by others takes longer for every packet, and has a higher utilisation at the same
        throughput.
        """
        if mpps >= self.solo_mpps or not self._in_time(mpps, 1.0, p95_us, p99_us):
            return None
        low, high = mpps / self.solo_mpps, 1.0
        while high - low > 1e-4:
            middle = 0.5 * (low + high)
            if self._in_time(mpps, middle, p95_us, p99_us):
                high = middle
            else:
                low = middle
        return high * self.solo_mpps

    def _in_time(self, mpps: float, speed: float, p95_us: float | None, p99_us: float | None) -> bool:
        load = self.load_for(p95_us, p99_us, speed)
        return load is not None and mpps <= load * speed * self.solo_mpps * (1.0 + 1e-9)

    def _load_at(self, column: int, limit_us: float) -> float | None:
        """Return the highest load at which a latency is within its limit, by linear interpolation."""
        loads, times = [row[0] for row in self.latency], [row[column] for row in self.latency]
        if not times or times[0] > limit_us:
            return None
        above = next((number for number, time in enumerate(times) if time > limit_us), None)
        if above is None:
            return loads[-1]
        share = (limit_us - times[above - 1]) / (times[above] - times[above - 1])
        return loads[above - 1] + share * (loads[above] - loads[above - 1])

    def mpps(self, ways: float, latency_ns: float, bandwidth_percent: float = 100.0) -> float:
        """Return the throughput with given ways, memory latency and throttle [Mpps].

        >>> response = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
        >>> round(response.mpps(1, 100.0), 3), response.mpps(20, 100.0)
        (1.667, 5.0)
        """
        start, slope, _ = self.line(ways, bandwidth_percent)
        return 1.0 / (start + slope * latency_ns * 1e-3)

    def line(self, ways: float, bandwidth_percent: float = 100.0) -> tuple[float, float, float]:
        """Return time per packet as start and slope over memory latency [us], and memory traffic [bytes].

        A throttle delays all requests that leave the private caches, including hits in the shared cache; its effect is
        measured at idle memory. It increases the latency added by others in the same proportion as it slows requests
        down.
        """
        busy, waits = self._at(ways, self.busy_us), self._at(ways, self.waits)
        moved = self._at(ways, self.bytes_per_packet)
        if bandwidth_percent >= 100.0 or not self.throttled_us:
            return busy, waits, moved
        slower = 100.0 / bandwidth_percent
        added = self._at(ways, self.throttled_us) * self.factor(bandwidth_percent)
        return busy + added - waits * self.idle_ns * 1e-3 * (slower - 1.0), waits * slower, moved

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - values, few of them
    def table(self, bandwidth_percent: float, ways: int) -> Floats:
        """Return :meth:`line` and the fetched bytes on the points of :func:`way_grid`, shape (points, 4)."""
        grid = way_grid(ways)
        names = ("busy_us", "waits", "bytes_per_packet", "throttled_us")
        busy, waits, moved, added = (np.interp(grid, self.ways, getattr(self, name) or self.waits) for name in names)
        fetched = np.interp(grid, self.ways, self.fetched_bytes) if self.fetched_bytes else moved
        if bandwidth_percent >= 100.0 or not self.throttled_us:
            return np.stack([busy, waits, moved, fetched], axis=1)
        slower = 100.0 / bandwidth_percent
        busy = busy + added * self.factor(bandwidth_percent) - waits * self.idle_ns * 1e-3 * (slower - 1.0)
        return np.stack([busy, waits * slower, moved, fetched], axis=1)

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - values, few of them
    def held(self, ways: int) -> Floats:
        """Return how many ways the NF fills if unused lines stay cached up to a given age, on a grid of ages.

        A line unused for an age T is evicted. Lines used since fill S ways, and S grows with T by misses: dS/dT =
        misses(S), so T is the integral of dS / misses(S) (footprint theory: Xiang et al., ASPLOS'13). Ages are in ways
        per byte fetched and packet; divided by the packet rate they are times.

        The grid's ages are 10**AGE_LOW to 10**AGE_HIGH, AGE_STEPS per decade; ways held never fall.
        """
        filled = way_grid(ways)
        fetched = np.maximum(np.interp(filled, self.ways, self.fetched_bytes or self.bytes_per_packet), _NO_TRAFFIC)
        slower = 0.5 * (1.0 / fetched[1:] + 1.0 / fetched[:-1]) * np.diff(filled)
        age = np.concatenate([[0.0], np.cumsum(slower)])
        points = round((AGE_HIGH - AGE_LOW) * AGE_STEPS) + 1
        return np.interp(10.0 ** np.linspace(AGE_LOW, AGE_HIGH, points), age, filled)

    def factor(self, bandwidth_percent: float) -> float:
        """Return the share of the strongest throttle's additional time that this throttle adds."""
        inverse = [1.0 / percent for percent, _ in reversed(self.throttle)]
        return _between(1.0 / bandwidth_percent, inverse, [share for _, share in reversed(self.throttle)])

    def _at(self, ways: float, values: Sequence[float]) -> float:
        return _between(ways, self.ways, values)

    def with_both(self, **fields: Any) -> "PartitionResponse":
        """Return the function with fields that it and its function of shared ways have in common."""
        return replace(self, beside=self.beside and replace(self.beside, **fields), **fields)


def way_grid(ways: int) -> Floats:
    """Return the numbers of ways at which tables have values: `STEPS` per way."""
    return np.arange(STEPS * ways + 1) / STEPS


def _between(x: float, grid: Sequence[float], values: Sequence[float]) -> float:
    """Interpolate linearly, ten times as fast as numpy for one number."""
    if x <= grid[0]:
        return values[0]
    if x >= grid[-1]:
        return values[-1]
    right = bisect.bisect_right(grid, x)
    share = (x - grid[right - 1]) / (grid[right] - grid[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


@dataclass(frozen=True)
class AllocationModel(Stored):
    """What was measured about one NF on partitions of cache and bandwidth: its response, memory latency, errors."""

    #: Response over ways, memory latency, throttle and memory node.
    response: PartitionResponse
    #: Latency over traffic of a socket of the machine.
    memory: MemoryTraffic
    #: Number of ways of the machine's cache.
    llc_ways: int
    #: Latency added by memory of another node [ns].
    remote_ns: float
    #: Predicted over measured throughput, less 1, on partitions that were not profiled: of tenants with exclusive ways,
    #: and of tenants that share ways; at least one each.
    errors: tuple[float, ...]
    shared_errors: tuple[float, ...]
    #: Last-level caches of a socket, among which its cores are divided evenly.
    llc_domains: PositiveCount = 1
    #: The same of tenants whose memory is on another node, beside others; empty if not measured.
    away_errors: tuple[float, ...] = ()
    #: Predicted loss as a share of solo throughput, of each of these errors in this order; empty if unknown.
    losses: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        every = self.errors + self.shared_errors + self.away_errors
        if not self.errors or not self.shared_errors or not all(map(math.isfinite, every + self.losses)):
            raise ConfigurationError("errors and losses on partitions must be finite, at least one of each kind")
        if len(self.losses) not in (0, len(every)):
            raise ConfigurationError(f"{len(self.losses)} losses of {len(every)} errors on partitions, needed as many")

    def half_width(self, loss: float, coverage: float = 0.9, *, shares_ways: bool = False, away: bool = False) -> float:
        """Return the half width of an interval as a share of the prediction.

        `loss`: predicted loss as a share of solo throughput; without `losses` the width does not depend on it.
        """
        scores = [abs(error) / size for error, size in self._errors(shares_ways, away=away)]
        return min(_ranked(scores, coverage) * (_size(loss) if self.losses else 1.0), 1.0)

    def is_enough(self, coverage: float, *, shares_ways: bool = False, away: bool = False) -> bool:
        """Return whether enough errors are known for an interval of this coverage."""
        count = len(self._errors(shares_ways, away=away))
        return conformal_rank(count, coverage) <= count

    def beyond(self, ways: int, bandwidth_percent: float, *, away: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return, as texts, which settings were never profiled, and which are outside the profiled range.

        >>> response = PartitionResponse("lpm", 5.0, (2.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
        >>> model = AllocationModel(response, MemoryTraffic((80.0,), (0.0,)), 20, 0.0, (0.01,), (0.01,))
        >>> model.beyond(1, 50.0, away=False)
        (('lpm was never profiled under a throttle',), ('lpm has 1 way, profiled are 2 to 20',))
        """
        name, response = self.response.workload, self.response
        never: list[str] = []
        outside: list[str] = []
        if bandwidth_percent < 100.0 and not response.throttled_us:
            never.append(f"{name} was never profiled under a throttle")
        elif bandwidth_percent < response.throttle[0][0]:
            outside.append(f"throttle of {name} {bandwidth_percent:g} %, profiled from {response.throttle[0][0]:g} %")
        if away and self.remote_ns <= 0.0:
            never.append(f"{name} was never profiled with its memory on another node")
        elif away and not self.away_errors:
            never.append(f"{name} never ran beside others with memory on another node; profile its partitions again")
        if ways < response.ways[0]:
            outside.append(
                f"{name} has {plural(ways, 'way')}, profiled are {response.ways[0]:g} to {response.ways[-1]:g}"
            )
        return tuple(never), tuple(outside)

    def excess(self, coverage: float, *, shares_ways: bool = False) -> float:
        """Return by which share of the measurement predictions are too high, at most, with probability `coverage`."""
        return max(0.0, _ranked([error for error, _ in self._errors(shares_ways)], coverage))

    def _errors(self, shares_ways: bool, *, away: bool = False) -> list[tuple[float, float]]:
        """Return the errors of one kind of tenants, and the size to which each is relative."""
        every = self.errors + self.shared_errors + self.away_errors
        own, here = len(self.errors), len(self.errors) + len(self.shared_errors)
        kind = slice(here, None) if away and self.away_errors else slice(own, here) if shares_ways else slice(own)
        sizes = [_size(loss) for loss in self.losses] or [1.0] * len(every)
        return list(zip(every[kind], sizes[kind], strict=True))


def _size(loss: float) -> float:
    """Return the size of errors at a predicted loss."""
    return ERROR_FLOOR + max(loss, 0.0)


def _ranked(errors: Sequence[float], coverage: float) -> float:
    """Return the error that a new one does not exceed with a given probability; infinite if too few are known."""
    rank = conformal_rank(len(errors), coverage)
    return sorted(errors)[rank - 1] if rank <= len(errors) else math.inf
