"""All tenants of a partitioned socket at once: ways they share, memory latency they make together.

The latency is where what the tenants ask for meets what the memory moves at that latency (bisection: demand falls with
latency, traffic rises). Ways that several may fill are divided as their misses fill them (damped fixed point).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.models.responses.partition import STEPS, MemoryTraffic, PartitionResponse

Floats = NDArray[np.float64]
_ROUNDS, _DAMPING, _HALVINGS = 20, 0.4, 16
_SETTLED_WAYS = 0.05


@dataclass(frozen=True)
class Part:
    """One tenant's part of a socket.

    Attributes
    ----------
    response : PartitionResponse
        What it does over ways, latency and throttle.
    mask : int
        Ways it may fill.
    bandwidth_percent : float
        Memory bandwidth throttle [%].
    offered_mpps : float or None
        Its load; None saturates it.
    """

    response: PartitionResponse
    mask: int
    bandwidth_percent: float = 100.0
    offered_mpps: float | None = None


@dataclass(frozen=True)
class Parted:
    """What the tenants of a partitioned socket do.

    Attributes
    ----------
    throughput_mpps : tuple of float
        By tenant.
    ways : tuple of float
        Cache ways that each holds.
    latency_ns : float
        Of memory.
    traffic_gb_s : float
        Of all.
    """

    throughput_mpps: tuple[float, ...]
    ways: tuple[float, ...]
    latency_ns: float
    traffic_gb_s: float


def solve_partition(parts: Sequence[Part], memory: MemoryTraffic) -> Parted:
    """Solve a partitioned socket.

    Examples
    --------
    >>> response = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    >>> memory = MemoryTraffic((80.0, 200.0), (0.0, 50.0))
    >>> done = solve_partition([Part(response, 0x1), Part(response, 0xFFFFE)], memory)
    >>> [round(mpps, 2) for mpps in done.throughput_mpps]
    [1.9, 4.61]
    """
    if not parts:
        return Parted((), (), memory.latency_ns[0], 0.0)
    most = max(part.mask.bit_length() for part in parts)
    tables = np.array([part.response.table(part.bandwidth_percent, most) for part in parts])
    offered = np.array([part.offered_mpps or np.inf for part in parts])
    inside = np.array([[part.mask >> bit & 1 for bit in range(most)] for part in parts], dtype=float)
    ways = _divide(inside, np.ones(len(parts)))
    shared = any(a.mask & b.mask for i, a in enumerate(parts) for b in parts[i + 1 :])
    costs = _costs(tables, offered, ways)
    latency = _latency(costs, memory)
    for _ in range(_ROUNDS if shared else 0):
        fresh = _DAMPING * ways + (1.0 - _DAMPING) * _filled(inside, costs, latency)
        moved = float(np.abs(fresh - ways).max())
        ways = fresh
        costs = _costs(tables, offered, ways)
        latency = _latency(costs, memory)
        if moved < _SETTLED_WAYS:
            break
    rates = costs.rates(latency)
    return Parted(tuple(map(float, rates)), tuple(map(float, ways)), latency, costs.traffic(latency))


@dataclass(frozen=True)
class _Costs:
    """Time per packet as start + slope x latency [us], traffic per packet [bytes] and offered load, by tenant."""

    start: Floats
    slope: Floats
    bytes_per_packet: Floats
    offered: Floats

    def rates(self, latency_ns: float) -> Floats:
        return np.minimum(1.0 / (self.start + self.slope * (latency_ns * 1e-3)), self.offered)

    def traffic(self, latency_ns: float) -> float:
        return float(self.rates(latency_ns) @ self.bytes_per_packet) * 1e-3


def _costs(tables: Floats, offered: Floats, ways: Floats) -> _Costs:
    """Interpolate every tenant's table at the ways it holds."""
    at = np.minimum(ways * STEPS, tables.shape[1] - 1.001)
    low = at.astype(int)
    share = (at - low)[:, None]
    rows = np.arange(len(ways))
    values = tables[rows, low] * (1.0 - share) + tables[rows, low + 1] * share
    return _Costs(values[:, 0], values[:, 1], values[:, 2], offered)


def _filled(inside: Floats, costs: _Costs, latency_ns: float) -> Floats:
    """Return the ways each holds where every way is filled as its tenants miss."""
    return _divide(inside, np.maximum(costs.rates(latency_ns) * costs.bytes_per_packet, 1e-6))


def _divide(inside: Floats, weight: Floats) -> Floats:
    """Divide every way among those who may fill it, by weight."""
    filling = weight[:, None] * inside
    total = filling.sum(axis=0)
    return np.asarray((filling / np.where(total > 0.0, total, 1.0)).sum(axis=1), dtype=float)


def _latency(costs: _Costs, memory: MemoryTraffic) -> float:
    low, high = memory.latency_ns[0], memory.latency_ns[-1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if costs.traffic(middle) > memory.traffic(middle) else (low, middle)
    return 0.5 * (low + high)


def bottleneck(part: Part, done: Parted, index: int, memory: MemoryTraffic) -> tuple[str, Mapping[str, float]]:
    """Return what a tenant loses most to, and the shares of its time by cause.

    Parameters
    ----------
    part, done, index
        The tenant, the solution, its place in it.
    memory : MemoryTraffic
        For the unloaded latency.

    Returns
    -------
    (str, mapping)
        ``"cache"``, ``"memory bandwidth"``, ``"throttle"`` or ``"nothing"``; shares of its solo throughput lost.
    """
    response, quiet = part.response, memory.latency_ns[0]
    steps = (
        ("cache", response.mpps(done.ways[index], quiet)),
        ("memory bandwidth", response.mpps(done.ways[index], done.latency_ns)),
        ("throttle", response.mpps(done.ways[index], done.latency_ns, part.bandwidth_percent)),
    )
    losses, before = {}, response.solo_mpps
    for cause, after in steps:
        losses[cause] = max(0.0, (before - after) / response.solo_mpps)
        before = after
    worst = max(losses, key=lambda cause: losses[cause])
    return (worst if losses[worst] > 0.01 else "nothing"), losses
