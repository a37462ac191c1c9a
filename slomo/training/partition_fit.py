"""Fit an NF's response over ways, memory latency and throttles (`PartitionResponse`) to its runs on partitions.

ResQ (NSDI'18, section 5.2) interpolates measured throughputs; here the time per packet is a line over the memory
latency, fitted for each number of ways.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.models.responses.partition import PartitionResponse


@dataclass(frozen=True)
class PartitionRow:
    """One run of an NF with given ways, latency and throttle."""

    #: Number of cache ways that the NF may fill.
    ways: float
    #: Memory bandwidth throttle [%]; 100 is none.
    bandwidth_percent: float
    #: Mean memory latency on the socket [ns].
    latency_ns: float
    #: Throughput of the NF.
    throughput_mpps: float
    #: Memory traffic that the NF causes per packet [bytes].
    bytes_per_packet: float
    #: Bytes of cache lines that its misses fetch per packet: without write-backs, which need no room. None if unknown.
    fetched_bytes: float | None = None
    #: Number of ways that lines of the NF occupied; None if unknown.
    occupied_ways: float | None = None
    #: Whether others filled the same ways, too.
    shares_ways: bool = False


def fit_response(workload: str, rows: Sequence[PartitionRow]) -> PartitionResponse:
    """Fit the function of one workload to its runs.

    `workload`: workload key. `rows`: for each number of ways at least one run without throttle and noise; some with
    noise, some throttled, some in ways that others filled, too. Raises InvalidValueError for too few rows.
    """
    own, beside = ([row for row in rows if row.shares_ways == shared] for shared in (False, True))
    beside = [replace(row, ways=row.occupied_ways or row.ways) for row in beside]
    response = _over_ways(workload, own)
    crowded = None
    if beside:  # a cached line is hit, whoever may fill the ways: occupancy tells how much is missed
        occupied = {row.ways: row.occupied_ways or row.ways for row in reversed(own)}
        alike = [*beside, *(replace(row, ways=occupied[row.ways]) for row in own)]
        crowded = _never_slower(_over_ways(workload, alike))
    both = (response,) if crowded is None else (response, crowded)
    points: list[tuple[float, float]] = []
    shares: tuple[tuple[float, float], ...] = ((100.0, 0.0),)
    for each, measured in zip(both, (own, beside), strict=False):
        added = _added(each, measured)
        if added:
            points += [(1.0 / each.mpps(ways, each.idle_ns), us) for ways, us in added[min(added)].items()]
            shares = _throttle_shares(added) if each is response else shares
    if points:
        response, *others = (_with_throttle(each, sorted(points), shares) for each in both)
        crowded = others[0] if others else None
    return replace(_with_knees(response), beside=crowded and _with_knees(crowded))


def with_remote(response: PartitionResponse, rows: Sequence[PartitionRow]) -> PartitionResponse:
    """Return the function with what memory on another node adds: waiting and traffic of packets, beside longer misses.

    `rows`: runs with memory on another node; their latency is that node's. Packets are read from there instead of the
    cache, so that the time added grows with latency.
    """
    lines = [response.line(row.ways) for row in rows]
    pairs = list(zip(rows, lines, strict=True))
    added = [1.0 / row.throughput_mpps - busy - waits * row.latency_ns * 1e-3 for row, (busy, waits, _) in pairs]
    waits = sum(added) / sum(row.latency_ns * 1e-3 for row in rows)
    moved = float(np.mean([row.bytes_per_packet - before for row, (*_, before) in pairs]))
    return response.with_both(remote_waits=max(0.0, waits), remote_bytes=max(0.0, moved))


def _over_ways(workload: str, rows: Sequence[PartitionRow]) -> PartitionResponse:
    """Return the function over ways and latency, without throttles."""
    free = [row for row in rows if row.bandwidth_percent >= 100.0 and row.throughput_mpps > 0]
    grid = sorted({row.ways for row in free})
    if len(grid) < 2:
        raise InvalidValueError(f"'{workload}' was run with {len(grid)} numbers of cache ways, needed 2 or more")
    fitted = [_line([row for row in free if row.ways == ways]) for ways in grid]
    busy, waits = (np.array(column) for column in zip(*fitted, strict=True))
    last = len(grid) - 1
    if np.isnan(waits[last]):  # the whole cache leaves no way for noise
        waits[last] = np.nan_to_num(waits[last - 1])
    for number in reversed(range(last)):  # one latency only: less cache makes packets wait, not work
        if np.isnan(waits[number]):
            row = next(row for row in free if row.ways == grid[number])
            busy[number] = busy[number + 1]
            waits[number] = max(0.0, (1.0 / row.throughput_mpps - busy[number]) / (row.latency_ns * 1e-3))
    quiet = [min((row for row in free if row.ways == ways), key=lambda row: row.latency_ns) for ways in grid]
    for number, row in enumerate(quiet):  # the line passes through the run without noise
        waits[number] = min(waits[number], 1.0 / row.throughput_mpps * 1e3 / row.latency_ns)
        busy[number] = 1.0 / row.throughput_mpps - waits[number] * row.latency_ns * 1e-3
    by_ways = [[row for row in free if row.ways == ways] for ways in grid]
    fetched = [[row.fetched_bytes for row in rows if row.fetched_bytes is not None] for rows in by_ways]
    return PartitionResponse(
        workload,
        max(row.throughput_mpps for row in free),
        tuple(float(ways) for ways in grid),
        tuple(float(value) for value in busy),
        tuple(float(value) for value in waits),
        tuple(float(np.mean([row.bytes_per_packet for row in rows])) for rows in by_ways),
        fetched_bytes=tuple(float(np.mean(each)) for each in fetched) if all(fetched) else (),
        idle_ns=min(row.latency_ns for row in quiet),
    )


def _never_slower(response: PartitionResponse) -> PartitionResponse:
    """Return the function with more ways at least as fast as with fewer, since cached lines save time."""
    time = [1.0 / response.mpps(ways, response.idle_ns) for ways in response.ways]
    best = [time.index(min(time[: number + 1])) for number in range(len(time))]
    return _over(response, response.ways, lambda values: tuple(values[i] for i in best))


def _over(
    response: PartitionResponse, ways: tuple[float, ...], change: Callable[[Sequence[float]], tuple[float, ...]]
) -> PartitionResponse:
    """Return the function over other ways, with each of its columns changed alike."""
    names = ("busy_us", "waits", "bytes_per_packet", "throttled_us", "fetched_bytes")
    columns: dict[str, Any] = {name: change(values) for name in names if (values := getattr(response, name))}
    return replace(response, ways=ways, **columns)


def _line(rows: Sequence[PartitionRow]) -> tuple[float, float]:
    """Return the part of a packet's time without memory, and the number of latencies it waits for, by least squares."""
    latency = np.array([row.latency_ns for row in rows]) * 1e-3
    time = np.array([1.0 / row.throughput_mpps for row in rows])
    if len(rows) < 2 or float(np.ptp(latency)) < 1e-3:
        return float(time[0]), float("nan")
    slope, start = np.polyfit(latency, time, 1)
    slope = max(0.0, float(slope))
    return float(start), slope


def _added(response: PartitionResponse, rows: Sequence[PartitionRow]) -> dict[float, dict[float, float]]:
    """Return the time per packet that each throttle adds at idle memory, by throttle and ways.

    A throttle increases the latency beyond idle memory's, too (:meth:`PartitionResponse.line`), which is not counted.
    """
    added: dict[float, dict[float, float]] = {}
    for row in rows:
        if row.bandwidth_percent < 100.0:
            busy, waits, _ = response.line(row.ways)
            longer_ns = response.idle_ns + (row.latency_ns - response.idle_ns) * 100.0 / row.bandwidth_percent
            rest = 1.0 / row.throughput_mpps - busy - waits * longer_ns * 1e-3
            added.setdefault(row.bandwidth_percent, {})[row.ways] = max(0.0, rest)
    return added


def _throttle_shares(added: dict[float, dict[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the shares of the strongest throttle's time that the others add."""
    strongest, shares = added[min(added)], [(100.0, 0.0)]
    for percent in sorted(added, reverse=True):
        both = [ways for ways in added[percent] if strongest.get(ways, 0.0) > 0.0]
        whole = sum(strongest[ways] for ways in both)
        shares.append((percent, sum(added[percent][ways] for ways in both) / whole if whole else 0.0))
    return tuple(sorted(shares))


def _with_throttle(
    response: PartitionResponse, points: Sequence[tuple[float, float]], shares: tuple[tuple[float, float], ...]
) -> PartitionResponse:
    """Return the function with throttles: what the strongest adds is interpolated over the time per packet without it.

    Both grow with the requests to cache and memory. `points`: that time and what the throttle adds, ascending.
    """
    idle_us = [1.0 / response.mpps(ways, response.idle_ns) for ways in response.ways]
    by_ways = np.interp(idle_us, [us for us, _ in points], [added for _, added in points])
    return replace(response, throttled_us=tuple(float(value) for value in by_ways), throttle=shares)


def _with_knees(response: PartitionResponse) -> PartitionResponse:
    """Return the function with a point between two numbers of ways wherever a working set ends there.

    Under LRU, the time falls in a line until the working set fits and is constant from there. The lines through the two
    points before and the two points after a gap therefore meet at that size. Below one way there is no such line.
    """
    ways = response.ways
    time = [1.0 / response.mpps(way, response.idle_ns) for way in ways]
    slope = [(time[i + 1] - time[i]) / (ways[i + 1] - ways[i]) for i in range(len(ways) - 1)]
    knees = []
    for i in range(1, len(ways) - 2):
        if ways[i - 1] >= 1.0 and slope[i - 1] < slope[i] < slope[i + 1] and time[i] > time[i + 1]:
            gap = ways[i + 1] - ways[i]
            after = (time[i + 1] - time[i] - slope[i + 1] * gap) / (slope[i - 1] - slope[i + 1])
            if ways[i] < ways[i] + after < ways[i + 1]:  # not so where rounding alone tells the slopes apart
                knees.append((i, ways[i] + after, min(slope[i - 1] * after / (time[i + 1] - time[i]), 1.0)))
    grid = np.array([*ways, *(at for _, at, _ in knees)])
    order = np.argsort(grid)

    def column(values: Sequence[float]) -> tuple[float, ...]:
        extra = [values[i] + share * (values[i + 1] - values[i]) for i, _, share in knees]
        return tuple(np.array([*values, *extra])[order].tolist())

    return _over(response, tuple(grid[order].tolist()), column)
