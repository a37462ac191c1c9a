"""Predict the tenants of a socket with divided cache: the ways that they fill, and the memory latency that they cause.

For each memory node, the latency is the one at which the tenants' demand equals the memory's traffic. It is found by
bisection, since demand falls with latency and traffic rises. Under LRU, tenants with equal masks keep lines up to the
same age: the age at which their lines together fill the ways. If masks overlap in part, ways are divided in proportion
to misses. Shared cores are divided as by a fair scheduler (damped fixed point). Many settings are solved together.

This iterates ways and core shares, and tables give each tenant's time per packet; `slomo.equilibrium.rounds` iterates
counters, which ridges give over the neighbours' counters. With masks as data (ways outside a mask are occupied) those
rounds err by 2.2 % with own ways and 3.3 % with shared ones, these by 0.4 and 1.3 % (E5-2620 v4, 60 partitions).
The loop is not `rounds.iterate`: its state (counters, waiting, age), unit of steps and channel law (counters scaled to
the capacity) do not exist here, where bisection finds latency and age within each round. One loop for both would take
a function for each of these from each of the two, which is more than the eleven lines of the loop here.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slomo.compose.cores import CoreUser, core_shares
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import (
    AGE_HIGH,
    AGE_LOW,
    AGE_STEPS,
    STEPS,
    PartitionResponse,
)
from slomo.vocabulary.vector import Floats

#: Most rounds, share of the ways that stays in each, and bisection steps before the first round. Twice as many rounds
#: or steps, and half or twice of each other number here, change the mean error of 200 partitions by less than 0.02
#: points.
_ROUNDS, _DAMPING, _HALVINGS, _PACKET_HALVINGS = 16, 0.3, 14, 9
#: Number of bisection steps between two rounds, and half width of the brackets around the last latency (as a share) and
#: the last age (in decades) in the first round, and by what each round narrows both: rounds converge, and so do they.
_FEW_HALVINGS, _BRACKET, _AGE_BRACKET, _NARROWER = 5, 0.3, 0.2, 0.75
#: Change of ways in a round below which a setting has converged.
_SETTLED_WAYS = 0.01


@dataclass(frozen=True, eq=False)
class Partitions:
    """Settings of a socket's tenants: ways, throttles, loads, cores, memory nodes.

    Every array has the shape (settings, tenants), or one that numpy broadcasts to the shape of `masks`.
    """

    #: The responses to ways, latency and throttle that `tenants` numbers.
    responses: Sequence[PartitionResponse]
    #: Masks of the ways that each tenant may fill.
    masks: NDArray[np.int64]
    #: Index of each tenant's response; by default each tenant has the response of its own index.
    tenants: NDArray[np.int64] | None = None
    #: Memory bandwidth throttles [%].
    bandwidth_percent: ArrayLike = 100.0
    #: Offered loads; infinite saturates a tenant.
    offered_mpps: ArrayLike = np.inf
    #: Number of each tenant's core, shared by all tenants with the same number; -1 is a core of its own.
    cores: ArrayLike = -1
    #: CPU weights on shared cores.
    weights: ArrayLike = 1.0
    #: Latency added if the memory is on another node [ns]; 0 for the tenant's own node.
    remote_ns: ArrayLike = 0.0
    #: Number of each tenant's last-level cache: a mask names ways of this one.
    llcs: ArrayLike = 0

    @property
    def which(self) -> NDArray[np.int64]:
        """Index of each tenant's response, shape (settings, tenants)."""
        tenants = np.arange(len(self.responses)) if self.tenants is None else self.tenants
        return np.broadcast_to(tenants, self.masks.shape)

    @property
    def in_one_cache(self) -> NDArray[np.bool_]:
        """Which tenants have the same last-level cache, shape (settings, tenants, tenants)."""
        llcs = np.broadcast_to(self.llcs, self.masks.shape)
        return np.asarray(llcs[:, :, None] == llcs[:, None, :])

    @property
    def in_common(self) -> NDArray[np.bool_]:
        """Which tenants may fill a common way, shape (settings, tenants, tenants)."""
        return np.asarray((self.masks[:, :, None] & self.masks[:, None, :] != 0) & self.in_one_cache)

    def in_order(self) -> "tuple[Partitions, NDArray[np.int64]]":
        """Return the settings with tenants in one canonical order, and each tenant's place in that order."""
        names = [response.workload for response in self.responses]
        rank = np.array([sorted(set(names)).index(name) for name in names])
        settings = (self.bandwidth_percent, self.offered_mpps, self.cores, self.weights, self.remote_ns, self.llcs)
        columns = [self.which, self.masks, *(np.broadcast_to(each, self.masks.shape) for each in settings)]
        order = np.lexsort((*columns[:0:-1], rank[self.which]), axis=-1)
        which, masks, *rest = (np.take_along_axis(column, order, axis=1) for column in columns)
        return Partitions(self.responses, masks, which, *rest), np.argsort(order, axis=1)

    def beside(self, has_company: NDArray[np.bool_]) -> "Partitions":
        """Return the settings with the responses of shared ways for the tenants that share ways."""
        if not has_company.any():
            return self
        shared = [response.beside or response for response in self.responses]
        return replace(self, responses=[*self.responses, *shared], tenants=self.which + len(shared) * has_company)


@dataclass(frozen=True)
class Parted:
    """Throughputs of the tenants of a socket with divided cache."""

    #: Served throughput by tenant.
    throughput_mpps: tuple[float, ...]
    #: Throughput that each tenant would reach beside the others if it were saturated.
    capacity_mpps: tuple[float, ...]
    #: Cache ways that each tenant occupies.
    ways: tuple[float, ...]
    #: Share of a core's time that each tenant has.
    shares: tuple[float, ...]
    #: Latency of the memory node that each tenant uses, without the additional latency of another node.
    latency_ns: tuple[float, ...]
    #: Memory traffic of all tenants.
    traffic_gb_s: float
    #: Whether the rounds converged.
    settled: bool = True


def solve_partitions(settings: Partitions, memory: MemoryTraffic) -> list[Parted]:
    """Predict the tenants of a socket with divided cache under many settings; the tenants' order does not matter.

    Examples
    --------
    >>> response = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    >>> memory = MemoryTraffic((80.0, 200.0), (0.0, 50.0))
    >>> (done,) = solve_partitions(Partitions([response, response], np.array([[0x1, 0xFFFFE]])), memory)
    >>> [round(mpps, 2) for mpps in done.throughput_mpps]
    [1.9, 4.61]
    """
    if not settings.masks.size:
        return [Parted((), (), (), (), (), 0.0)] * len(settings.masks)
    ordered, back = settings.in_order()
    used = [settings.responses[number] for number in np.unique(ordered.which)]
    most = max(int(ordered.masks.max()).bit_length(), *(round(response.ways[-1]) for response in used))
    cache = _Cache.of(ordered, most)
    board = _Board.of(ordered.beside(cache.has_company), most)
    curves = [(np.array(each.latency_ns), np.array(each.traffic_gb_s)) for each in (memory, memory.away or memory)]
    shares = np.ones(ordered.masks.shape)
    ways = cache.divided(shares)
    costs = board.costs(ways, shares)
    if board.written:
        cache = cache.without_packets(board, costs.rates(curves[0][0][:1]), ordered)
        ways = cache.divided(shares)
    unsettled = _settle(cache, board, curves, ways, shares)
    costs = board.costs(ways, shares)
    latency = _latencies(costs, board.remote_ns > 0.0, curves)
    costs = _within_channel(costs, board.remote_ns > 0.0, latency, memory.most_gb_s)
    by_tenant = costs.rates(latency), costs.capacity(latency), ways, shares, latency
    lists = (np.take_along_axis(values, back, axis=1).tolist() for values in by_tenant)
    return [
        Parted(tuple(mpps), tuple(most), tuple(held), tuple(share), tuple(ns), traffic, still)
        for mpps, most, held, share, ns, traffic, still in zip(
            *lists, costs.traffic(latency).tolist(), (~unsettled).tolist(), strict=True
        )
    ]


def _settle(
    cache: "_Cache", board: "_Board", curves: Sequence[tuple[Floats, Floats]], ways: Floats, shares: Floats
) -> NDArray[np.bool_]:
    """Iterate ways and core shares, in place, until they converge; return the settings that did not.

    A setting that has converged is left out of the next rounds, so that batches equal single calls.
    """
    rows = np.flatnonzero(cache.has_company.any(axis=1) | board.is_crowded)
    cache, board, age = cache.only(rows), board.only(rows), None
    costs = board.costs(ways[rows], shares[rows])
    latency = _latencies(costs, board.remote_ns > 0.0, curves)
    for number in range(_ROUNDS):
        if not len(rows):
            break
        width, before, apart = _NARROWER**number, ways[rows], shares[rows]
        filled, age = cache.filled(board, costs, latency, age, width)
        ways[rows] = _DAMPING * before + (1.0 - _DAMPING) * filled
        shares[rows] = board.shares(costs, latency, apart)
        moved = np.maximum(np.abs(ways[rows] - before), np.abs(shares[rows] - apart)).max(axis=1)
        left = moved >= _SETTLED_WAYS
        if not left.all():
            rows, cache, board, latency = rows[left], cache.only(left), board.only(left), latency[left]
            age = None if age is None else age[left]
        costs = board.costs(ways[rows], shares[rows])
        latency = _latencies(costs, board.remote_ns > 0.0, curves, latency, width)
    unsettled = np.zeros(len(ways), dtype=bool)
    unsettled[rows] = True
    return unsettled


def _within_channel(costs: "_Costs", remote: NDArray[np.bool_], latency: Floats, most_gb_s: float) -> "_Costs":
    """Slow packets down until no memory channel moves more than it can.

    This is needed if the measured latency curve ends before that limit is reached.
    """
    for away in (False, True):
        moved = np.where(remote == away, costs.rates(latency) * costs.bytes_per_packet, 0.0).sum(axis=1) * 1e-3
        over = np.maximum(moved / most_gb_s, 1.0)[:, None]
        if (over > 1.0).any():
            slower = np.where((remote == away) & (costs.bytes_per_packet > 0.0), over, 1.0)
            rates = costs.rates(latency) / slower
            cut = slower > 1.0
            added = np.where(cut, 1.0 / rates - 1.0 / costs.capacity(latency), 0.0)
            costs = replace(costs, start=costs.start + added)
    return costs


@dataclass(frozen=True)
class _Board:
    """Constants while settings are solved: tables, loads, cores, memory nodes; most have the shape (settings, tenants).

    `tables`, `held`: of each distinct response and throttle; `which`: index of each tenant's. `buffer_ways`,
    `buffer_bytes`: ways that its packet buffers fill, and what a card writes there per packet; `displaced`: share of
    packets that displace lines; `private_ways`: lines of its private cache; `requested_bytes`: of the shared cache per
    packet; `written`: the ways into which cards write.
    `groups`: by setting, the tenants of each shared core and their weights; empty if none is shared.
    """

    tables: Floats
    held: Floats
    which: NDArray[np.int64]
    buffer_ways: Floats
    buffer_bytes: Floats
    displaced: Floats
    private_ways: Floats
    requested_bytes: Floats
    written: int
    offered: Floats
    remote_ns: Floats
    remote_waits: Floats
    remote_bytes: Floats
    groups: list[list[dict[int, float]]]

    @classmethod
    def of(cls, settings: Partitions, most: int) -> "_Board":
        """Read the constants of settings in canonical order."""
        names = ("remote_waits", "remote_bytes", "buffer_ways", "buffer_bytes", "displaced", "private_ways")
        columns = np.array([[getattr(r, name) for name in (*names, "requested_bytes")] for r in settings.responses])
        waits, moved, buffers, *packets = np.moveaxis(columns[settings.which], -1, 0)
        written, displaced, private_ways, requested = packets
        offered, remote_ns = np.asarray(settings.offered_mpps), np.asarray(settings.remote_ns)
        slower, is_away = 100.0 / np.asarray(settings.bandwidth_percent), remote_ns > 0.0
        cores, weights = np.asarray(settings.cores), np.asarray(settings.weights)
        alone = (cores < 0).all()
        return cls(
            *_tables(settings, most),
            np.where(is_away, 0.0, buffers),
            written,
            displaced,
            private_ways,
            requested,
            functools.reduce(operator.or_, (each.buffer_mask for each in settings.responses)),
            np.where(offered == 0.0, np.inf, offered),
            remote_ns,
            np.where(is_away, waits * slower, 0.0),
            np.where(is_away, moved, 0.0),
            [] if alone else [_groups(*row) for row in zip(cores.tolist(), weights.tolist(), strict=True)],
        )

    @property
    def is_crowded(self) -> NDArray[np.bool_]:
        """Settings in which tenants share a core."""
        return np.array([bool(groups) for groups in self.groups] or [False] * len(self.which))

    def only(self, rows: NDArray[Any]) -> "_Board":
        """Return the constants of some of the settings."""
        return replace(
            self,
            which=self.which[rows],
            buffer_ways=self.buffer_ways[rows],
            buffer_bytes=self.buffer_bytes[rows],
            displaced=self.displaced[rows],
            private_ways=self.private_ways[rows],
            requested_bytes=self.requested_bytes[rows],
            offered=self.offered[rows],
            remote_ns=self.remote_ns[rows],
            remote_waits=self.remote_waits[rows],
            remote_bytes=self.remote_bytes[rows],
            groups=[self.groups[row] for row in np.arange(len(self.which))[rows]] if self.groups else [],
        )

    def costs(self, ways: Floats, shares: Floats) -> "_Costs":
        """Return every tenant's time (over its share of a core) and traffic per packet with the ways that it fills."""
        at = np.minimum(ways * STEPS, self.tables.shape[1] - 1.001)  # as `way_grid` numbers them
        low = at.astype(np.int64)
        share = (at - low)[..., None]
        rows, place = self.tables.reshape(-1, self.tables.shape[2]), self.which * self.tables.shape[1] + low
        values = rows.take(place, axis=0) * (1.0 - share) + rows.take(place + 1, axis=0) * share
        slope = values[..., 1] + self.remote_waits
        start, moved = values[..., 0] + slope * self.remote_ns * 1e-3, values[..., 2] + self.remote_bytes
        return _Costs(start / shares, slope / shares, moved, values[..., 3], self.offered)

    def ways_at(self, age: Floats) -> Floats:
        """Return the number of ways that each tenant's lines fill if they stay cached up to an age."""
        points = self.held.shape[1]
        at = np.minimum(np.maximum((age - AGE_LOW) * AGE_STEPS, 0.0), points - 1.001)
        low = at.astype(np.int64)
        place = self.which * points + low
        below = self.held.ravel().take(place)
        return np.asarray(below + (self.held.ravel().take(place + 1) - below) * (at - low))

    def shares(self, costs: "_Costs", latency_ns: Floats, shares: Floats) -> Floats:
        """Return each tenant's share of its core, as a fair scheduler divides it."""
        if not any(self.groups):
            return shares
        whole_us = shares / costs.capacity(latency_ns)
        fresh = np.ones_like(shares)
        for row, groups in enumerate(self.groups):
            for members in groups:
                loads = [None if np.isinf(load) else float(load) for load in self.offered[row, list(members)]]
                times = whole_us[row, list(members)] * 1e3
                users = [
                    CoreUser(float(ns), load, w) for ns, load, w in zip(times, loads, members.values(), strict=True)
                ]
                fair = core_shares(users)  # includes time that the others leave unused
                fresh[row, list(members)] = np.maximum([max(each, 1.0 - sum(fair) + each) for each in fair], 1e-6)
        return fresh


def _groups(cores: Sequence[int], weights: Sequence[float]) -> list[dict[int, float]]:
    """Return, for each shared core, which tenants run on it and their weights."""
    groups: dict[int, dict[int, float]] = {}
    for place, (core, weight) in enumerate(zip(cores, weights, strict=True)):
        if core >= 0:
            groups.setdefault(core, {})[place] = weight
    return [members for members in groups.values() if len(members) > 1]


@dataclass(frozen=True)
class _Costs:
    """Time per packet as a function of memory latency, traffic per packet and load, by setting and tenant."""

    start: Floats
    slope: Floats
    bytes_per_packet: Floats
    fetched_bytes: Floats
    offered: Floats

    def capacity(self, latency_ns: Floats) -> Floats:
        return np.asarray(1.0 / (self.start + self.slope * (latency_ns * 1e-3)))

    def rates(self, latency_ns: Floats) -> Floats:
        return np.asarray(np.minimum(self.capacity(latency_ns), self.offered))

    def traffic(self, latency_ns: Floats) -> Floats:
        return np.asarray((self.rates(latency_ns) * self.bytes_per_packet).sum(axis=1) * 1e-3)


def _tables(settings: Partitions, most: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the distinct tables of times and occupancies, and the index of each tenant's table."""
    percents, throttle = np.unique(np.asarray(settings.bandwidth_percent), return_inverse=True)
    pairs = settings.which * len(percents) + throttle.reshape(settings.masks.shape)
    used = np.flatnonzero(np.bincount(pairs.ravel()))
    each = [
        (settings.responses[pair // len(percents)], float(percents[pair % len(percents)])) for pair in used.tolist()
    ]
    tables = np.array([response.table(percent, most) for response, percent in each])
    return tables, np.array([response.held(most) for response, _ in each]), np.searchsorted(used, pairs)


@dataclass(frozen=True)
class _Cache:
    """The cache ways that each tenant may fill.

    `inside`, shape (settings, tenants, ways of all caches): share of a way that a tenant's lines may fill. `together`,
    shape (settings, tenants, tenants): which masks are equal and of one cache. `size`: ways of each mask that lines may
    fill. `is_apart`: settings whose masks are pairwise equal or disjoint. `has_company`: tenants that share a way with
    another.
    """

    inside: Floats
    together: Floats
    size: Floats
    is_apart: NDArray[np.bool_]
    has_company: NDArray[np.bool_]

    @classmethod
    def of(cls, settings: Partitions, most: int) -> "_Cache":
        masks, common = settings.masks, settings.in_common
        inside = ((masks[:, :, None] >> np.arange(most)) & 1).astype(float)
        if count := int(np.max(settings.llcs)):
            here = np.asarray(settings.llcs)[:, :, None] == np.arange(count + 1)
            inside = (here[..., None] * inside[:, :, None, :]).reshape(*masks.shape, -1)
        together = (masks[:, :, None] == masks[:, None, :]) & common
        is_apart = (together | ~common).all(axis=(1, 2))
        return cls(inside, together.astype(float), inside.sum(axis=2), is_apart, common.sum(axis=2) > 1)

    def only(self, rows: NDArray[Any]) -> "_Cache":
        """Return the caches of some of the settings."""
        return _Cache(*(getattr(self, name)[rows] for name in _Cache.__dataclass_fields__))

    def without_packets(self, board: _Board, rates: Floats, settings: Partitions) -> "_Cache":
        """Return the cache that packets leave to lines, at given packet rates [Mpps].

        Cards write the packets of a cache's tenants into the same few ways, whoever owns them. Under LRU, packets stay
        there until their buffers are written again, or as long as the lines around them.
        """
        inside = (settings.masks & board.written)[..., None] >> np.arange(board.written.bit_length()) & 1
        written = inside.sum(axis=2) / board.written.bit_count()
        each = np.stack([board.buffer_ways, rates * board.buffer_bytes], axis=2)
        most, per_age = np.moveaxis(np.matmul(settings.in_one_cache, each), 2, 0)
        rate = np.log10(np.maximum(rates, 1e-6))
        low, high = np.full(rates.shape, AGE_LOW), np.full(rates.shape, AGE_HIGH)
        for _ in range(_PACKET_HALVINGS):
            middle = 0.5 * (low + high)
            lines = np.matmul(self.together, board.ways_at(middle + rate)[..., None])[..., 0]
            too_old = lines + written * np.minimum(per_age * 10.0**middle, most) > self.size
            low, high = np.where(too_old, low, middle), np.where(too_old, middle, high)
        size = np.maximum(self.size - written * np.minimum(per_age * 10.0**low, most), 0.0)
        if board.displaced.any() and not self.has_company.all():
            size = np.where(self.has_company, size, self._left_by_packets(board, rates, size, written * per_age))
        return replace(self, inside=self.inside * (size / self.size)[..., None], size=size)

    def _left_by_packets(self, board: _Board, rates: Floats, size: Floats, entering: Floats) -> Floats:
        """Return the number of `size` ways that a tenant's lines fill where packets displace some of them.

        In a victim cache, a packet leaves its place empty when a core reads it. A line takes the place (`taken`), or
        the next packet does; a packet that finds places taken displaces a line. The line returns by a miss and fills
        an empty place, so that more places are empty the more packets enter in the time of a miss. `entering`: bytes
        of packets that enter the tenant's ways [MB/s].
        """
        taken = rates * np.maximum(board.requested_bytes - board.buffer_bytes, 1e-6)
        lines = board.displaced * entering * taken / (taken + entering + 1e-6)
        low, high, shares = np.zeros_like(size), size, np.ones_like(size)
        for _ in range(_PACKET_HALVINGS):
            middle = 0.5 * (low + high)
            fetched = np.maximum(rates * board.costs(middle, shares).fetched_bytes, 1e-6)
            too_many = middle + lines / fetched > size
            low, high = np.where(too_many, low, middle), np.where(too_many, middle, high)
        return high

    def filled(
        self, board: _Board, costs: "_Costs", latency: Floats, last: Floats | None, width: float
    ) -> tuple[Floats, Floats | None]:
        """Return the number of ways that each tenant fills at given speeds, and the age of its oldest line."""
        rates = np.maximum(costs.rates(latency), 1e-6)
        size = np.maximum(self.size - self._empty(board, costs, rates), 1.0 / STEPS)
        age = self._age(board, np.log10(rates), size, last, width) if self.is_apart.any() else None
        aged = rates if age is None else np.minimum(board.ways_at(age + np.log10(rates)), size)
        if self.is_apart.all():
            return aged, age
        divided = self.divided(np.maximum(rates * costs.bytes_per_packet, 1e-6))
        return np.where(self.is_apart[:, None], aged, divided), age

    def _empty(self, board: _Board, costs: "_Costs", rates: Floats) -> Floats:
        """Return the number of ways of each mask with company that a victim cache has empty.

        A hit moves a line to a private cache and leaves its place empty until the line returns, or before it a line of
        any tenant that was missed and enters the same set.
        """
        if not board.private_ways.any():
            return np.zeros_like(rates)
        requested, fetched = rates * board.requested_bytes, rates * costs.fetched_bytes
        entering = np.matmul(self.together, fetched[..., None])[..., 0]
        left = np.maximum(requested - fetched, 0.0)
        each = left / np.maximum(requested / np.maximum(board.private_ways, 1e-6) + entering, 1e-6)
        return np.where(self.has_company, np.matmul(self.together, each[..., None])[..., 0], 0.0)

    def _age(self, board: _Board, rate: Floats, size: Floats, last: Floats | None, width: float) -> Floats:
        """Find the age of the oldest cache line by bisection; infinite if all lines fit."""
        if last is None:
            low, high, halvings = np.full(rate.shape, AGE_LOW - 3.0), np.full(rate.shape, AGE_HIGH + 3.0), _HALVINGS
        else:
            low, high, halvings = last - width * _AGE_BRACKET, last + width * _AGE_BRACKET, _FEW_HALVINGS
        for _ in range(halvings):
            middle = 0.5 * (low + high)
            total = np.matmul(self.together, board.ways_at(middle + rate)[..., None])[..., 0]
            too_old = total > size
            low, high = np.where(too_old, low, middle), np.where(too_old, middle, high)
        return low

    def divided(self, weight: Floats) -> Floats:
        """Divide every way among the tenants whose masks contain it, by weight."""
        total = np.einsum("ct,ctw->cw", weight, self.inside > 0.0)
        each = 1.0 / np.where(total > 0.0, total, 1.0)
        return np.asarray(weight * np.einsum("ctw,cw->ct", self.inside, each))


def _latencies(
    costs: _Costs,
    remote: NDArray[np.bool_],
    curves: Sequence[tuple[Floats, Floats]],
    last: Floats | None = None,
    width: float = 1.0,
) -> Floats:
    """Return the memory latency of each tenant, shape (settings, tenants), one per memory node."""
    latency = np.zeros(remote.shape)
    for away in (False, True) if remote.any() else (False,):
        here = remote == away
        of_node = (
            replace(costs, bytes_per_packet=np.where(here, costs.bytes_per_packet, 0.0)) if remote.any() else costs
        )
        before = None if last is None else np.where(here, last, 0.0).max(axis=1)
        latency = np.where(here, _latency(of_node, curves[away], before, width)[:, None], latency)
    return latency


def _latency(costs: _Costs, curve: tuple[Floats, Floats], last: Floats | None, width: float) -> Floats:
    """Find the memory latency by bisection, starting near the last latency."""
    count = costs.start.shape[0]
    low, high = np.full(count, curve[0][0]), np.full(count, curve[0][-1])
    if last is not None:
        near = width * _BRACKET
        low, high = np.maximum(low, last * (1.0 - near)), np.minimum(high, last * (1.0 + near))
    for _ in range(_HALVINGS if last is None else _FEW_HALVINGS):
        middle = 0.5 * (low + high)
        more = costs.traffic(middle[:, None]) > np.interp(middle, *curve)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(0.5 * (low + high))


def bottleneck(
    settings: Partitions, done: Parted, index: int, memory: MemoryTraffic
) -> tuple[str, Mapping[str, float]]:
    """Return the main cause of a tenant's loss, and the lost time per packet by cause.

    The cause is ``"cache"``, ``"memory bandwidth"``, ``"throttle"``, ``"remote memory"``, ``"shared core"`` or
    ``"nothing"``. `index`: index of the tenant in the solution `done` of the first of the `settings`.
    """
    response = settings.responses[settings.which[0, index]]
    if settings.in_common[0, index].sum() > 1:
        response = response.beside or response
    percent, remote_ns = (
        float(np.broadcast_to(each, settings.masks.shape)[0, index])
        for each in (settings.bandwidth_percent, settings.remote_ns)
    )
    quiet, ways, latency = memory.latency_ns[0], done.ways[index], done.latency_ns[index]
    throttled = response.mpps(ways, latency, percent)
    away = response.mpps(ways, latency + remote_ns, percent)
    if remote_ns > 0.0:
        away = 1.0 / (1.0 / away + response.remote_waits * (latency + remote_ns) * 0.1 / percent)
    steps = (
        ("cache", response.mpps(ways, quiet)),
        ("memory bandwidth", response.mpps(ways, latency)),
        ("throttle", throttled),
        ("remote memory", away),
        ("shared core", done.shares[index] * away),
    )
    losses, before = {}, response.solo_mpps
    for cause, after in steps:
        losses[cause] = max(0.0, (before - after) / response.solo_mpps)
        before = after
    worst = max(losses, key=lambda cause: losses[cause])
    return (worst if losses[worst] > 0.01 else "nothing"), losses
