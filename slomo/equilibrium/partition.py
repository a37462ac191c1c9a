"""All tenants of a partitioned socket at once: ways they share, memory latency they make together.

The latency is where what the tenants ask for meets what the memory moves at that latency (bisection: demand falls with
latency, traffic rises). Ways that several may fill are divided as their misses fill them (damped fixed point). Many
settings of the same tenants are solved together, as arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.models.responses.partition import STEPS, MemoryTraffic, PartitionResponse

Floats = NDArray[np.float64]
_ROUNDS, _DAMPING, _HALVINGS = 12, 0.3, 14
#: Halvings between two rounds, in a bracket around the last latency, and its width as a share.
_FEW_HALVINGS, _BRACKET = 5, 0.3
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
    return solve_partitions([parts], memory)[0]


def solve_partitions(settings: Sequence[Sequence[Part]], memory: MemoryTraffic) -> list[Parted]:
    """Solve many settings of as many tenants each."""
    if not settings or not settings[0]:
        return [Parted((), (), memory.latency_ns[0], 0.0) for _ in settings]
    most = max(part.mask.bit_length() for parts in settings for part in parts)
    masks = np.array([[part.mask for part in parts] for parts in settings], dtype=np.int64)
    inside = ((masks[:, :, None] >> np.arange(most)) & 1).astype(float)
    offered = np.array([[part.offered_mpps or np.inf for part in parts] for parts in settings])
    tables, which = _tables(settings, most)
    curve = np.array(memory.latency_ns), np.array(memory.traffic_gb_s)
    ways = _divide(inside, np.ones(masks.shape))
    costs = _costs(tables, which, offered, ways)
    latency = _latency(costs, curve)
    shared = bool((inside.sum(axis=1) > 1.0).any())
    for _ in range(_ROUNDS if shared else 0):
        filled = _divide(inside, np.maximum(costs.rates(latency) * costs.bytes_per_packet, 1e-6))
        fresh = _DAMPING * ways + (1.0 - _DAMPING) * filled
        moved = float(np.abs(fresh - ways).max())
        ways = fresh
        costs = _costs(tables, which, offered, ways)
        latency = _latency(costs, curve, latency)
        if moved < _SETTLED_WAYS:
            break
    latency = _latency(costs, curve)
    rates, traffic = costs.rates(latency), costs.traffic(latency)
    return [
        Parted(tuple(mpps), tuple(held), ns, moved)
        for mpps, held, ns, moved in zip(rates.tolist(), ways.tolist(), latency.tolist(), traffic.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class _Costs:
    """Time per packet as start + slope x latency [us], traffic per packet [bytes], load; shape (settings, tenants)."""

    start: Floats
    slope: Floats
    bytes_per_packet: Floats
    offered: Floats

    def rates(self, latency_ns: Floats) -> Floats:
        return np.asarray(np.minimum(1.0 / (self.start + self.slope * (latency_ns[:, None] * 1e-3)), self.offered))

    def traffic(self, latency_ns: Floats) -> Floats:
        return np.asarray((self.rates(latency_ns) * self.bytes_per_packet).sum(axis=1) * 1e-3)


def _tables(settings: Sequence[Sequence[Part]], most: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the tables there are and which of them each tenant of each setting uses."""
    number: dict[tuple[int, float], int] = {}
    tables: list[Floats] = []
    rows = []
    for parts in settings:
        row = []
        for part in parts:
            key = (id(part.response), part.bandwidth_percent)
            if key not in number:
                number[key] = len(tables)
                tables.append(part.response.table(part.bandwidth_percent, most))
            row.append(number[key])
        rows.append(row)
    return np.array(tables), np.array(rows, dtype=np.int64)


def _costs(tables: Floats, which: NDArray[np.int64], offered: Floats, ways: Floats) -> _Costs:
    """Interpolate every tenant's table at the ways it holds."""
    at = np.minimum(ways * STEPS, tables.shape[1] - 1.001)
    low = at.astype(np.int64)
    share = (at - low)[..., None]
    values = tables[which, low] * (1.0 - share) + tables[which, low + 1] * share
    return _Costs(values[..., 0], values[..., 1], values[..., 2], offered)


def _divide(inside: Floats, weight: Floats) -> Floats:
    """Divide every way among those who may fill it, by weight."""
    total = np.einsum("ct,ctw->cw", weight, inside)
    return np.asarray(weight * np.einsum("ctw,cw->ct", inside, 1.0 / np.where(total > 0.0, total, 1.0)))


def _latency(costs: _Costs, curve: tuple[Floats, Floats], last: Floats | None = None) -> Floats:
    """Bisect, within a bracket around the last latencies where they are given."""
    count = costs.start.shape[0]
    low, high = np.full(count, curve[0][0]), np.full(count, curve[0][-1])
    if last is not None:
        low, high = np.maximum(low, last * (1.0 - _BRACKET)), np.minimum(high, last * (1.0 + _BRACKET))
    for _ in range(_HALVINGS if last is None else _FEW_HALVINGS):
        middle = 0.5 * (low + high)
        more = costs.traffic(middle) > np.interp(middle, *curve)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(0.5 * (low + high))


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
