"""A workload in a cache pool, converted to RMD's format and to a setting of the machine.

The rules are those of Intel's Resource Management Daemon. Guaranteed ways are adjacent and exclusive. Burstable
workloads divide the besteffort pool or, if shrinking is off, take its largest free block. A limited number of workloads
share the shared pool.

From the lowest way up: operating system, shared, besteffort, guarantee; the DDIO ways are the highest of the cache. The
infrastructure's group overlaps the pools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from slomo.control.pools.configuration import PoolConfiguration, require_fits
from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import MemoryBandwidth, TenantSetting
from slomo.errors import TestbedError
from slomo.vocabulary.way_masks import way_block

#: Processes of this host: id -> name.
Processes = Callable[[], Mapping[int, str]]


@dataclass(frozen=True)
class PoolLayout:
    """Way masks of the groups and pools of one cache."""

    #: Way masks; 0 for a group or pool that does not exist.
    system: int
    infrastructure: int
    shared: int
    besteffort: int
    guarantee: int


def lay_out(configuration: PoolConfiguration, cache_ways: int) -> PoolLayout:
    """Arrange the pools in a cache. Raises ConfigurationError if they need more ways than the cache has.

    >>> from slomo.control.pools.configuration import configuration_from
    >>> pools = {"guarantee": 5, "besteffort": 3, "shared": 3}
    >>> layout = lay_out(configuration_from({"OSGroup": {"cacheways": 9}, "CachePool": pools}), 20)
    >>> f"{layout.guarantee:05x} {layout.besteffort:05x} {layout.shared:05x} {layout.system:05x}"
    'f8000 07000 00e00 001ff'
    """
    require_fits(configuration, cache_ways)
    shared = configuration.system.ways
    besteffort = shared + configuration.shared
    guarantee = besteffort + configuration.besteffort
    infrastructure = configuration.infrastructure
    return PoolLayout(
        way_block(configuration.system.ways, 0),
        0 if infrastructure is None else way_block(infrastructure.ways, cache_ways - infrastructure.ways),
        way_block(configuration.shared, shared),
        way_block(configuration.besteffort, besteffort),
        way_block(configuration.guarantee, guarantee),
    )


def rest_mask(layout: PoolLayout, taken: Iterable[int], cache_ways: int) -> int:
    """Return the mask for processes outside pools: all ways below the lowest taken way, at least the system's ways.

    Intel's RMD sets the root group to these ways on every change of workloads (util/rdtpool/osgroup.go, `SetOSGroup`).
    RMD does so only on caches with a CPU of the system group; slomo does so on all caches, since processes outside
    pools may run on any CPU.

    >>> layout = PoolLayout(0x1, 0, 0x6, 0x3F8, 0xFFC00)
    >>> f"{rest_mask(layout, (), 20):x} {rest_mask(layout, (0xC00,), 20):x} {rest_mask(layout, (0xC00, 0x6), 20):x}"
    'fffff 3ff 1'
    """
    free = (1 << cache_ways) - 1 & ~reduce(or_, taken, 0) | layout.system
    return (free ^ (free + 1)) >> 1 & free


def free_block(pool: int, taken: Iterable[int], ways: int) -> int | None:
    """Return the lowest free block of so many adjacent ways in a pool; None if there is none.

    >>> hex(free_block(0xFF, [0x3, 0x30], 2)), free_block(0xFF, [0x3, 0x30], 4)
    ('0xc', None)
    """
    used = reduce(or_, taken, 0)
    for first in range(pool.bit_length()):
        candidate = way_block(ways, first)
        if candidate & pool == candidate and not candidate & used:
            return candidate
    return None


def share_out(pool: int, wishes: Iterable[tuple[str, int, int]]) -> dict[str, int] | None:
    """Divide a pool among burstable workloads: each gets its minimum, then one more way in turn up to its maximum.

    `pool`: mask of one block of ways. `wishes`: name, maximum and minimum of each workload, in order of arrival. Return
    masks by name; None if the minima do not fit.

    >>> {name: hex(mask) for name, mask in share_out(0xF, [("a", 4, 1), ("b", 2, 1)]).items()}
    {'a': '0x3', 'b': '0xc'}
    """
    listed = list(wishes)
    ways = {name: least for name, _, least in listed}
    left = pool.bit_count() - sum(ways.values())
    if left < 0:
        return None
    while left:
        hungry = [(name, most) for name, most, _ in listed if ways[name] < most]
        if not hungry:
            break
        poorest = min(hungry, key=lambda item: ways[item[0]])[0]
        ways[poorest] += 1
        left -= 1
    masks: dict[str, int] = {}
    first = (pool & -pool).bit_length() - 1 if pool else 0
    for name, count in ways.items():
        masks[name] = way_block(count, first)
        first += count
    return masks


@dataclass(frozen=True)
class PoolWorkload:
    """A workload that a pool has admitted."""

    #: Identifier and name, as in RMD.
    identifier: str
    uuid: str
    #: The request, completed by the policy's values.
    request: PoolRequest
    #: Mask of the workload's cache ways; 0 before they are assigned.
    mask: int = 0

    @property
    def pool(self) -> str:
        """The workload's pool; one of 'guarantee', 'besteffort', 'shared'."""
        return self.request.pool

    @property
    def class_name(self) -> str:
        """Name of the workload's resctrl class as in RMD: cores or tasks, and the pool."""
        members = self.request.core_ids or self.request.task_ids
        return f"{'_'.join(map(str, members))}-{self.pool}" if self.pool != "shared" else "shared"

    def to_dict(self) -> dict[str, Any]:
        """Return the workload as a mapping in RMD's format."""
        body = self.request.to_dict()
        return {
            "id": self.identifier,
            "uuid": self.uuid,
            **{name: body[name] for name in ("core_ids", "task_ids", "policy") if body.get(name)},
            "cos_name": self.class_name,
            "status": "Successful",
            "rdt": body["rdt"],
            "origin": "REST",
        }

    def setting(self, tenant: str) -> TenantSetting:
        """Return the workload's setting of the machine, under a tenant's name."""
        request = self.request
        bandwidth = request.memory_bandwidth
        return TenantSetting(
            tenant,
            cores=request.core_ids,
            process_ids=request.task_ids,
            llc_way_mask=self.mask,
            memory_bandwidth=None if bandwidth is None else MemoryBandwidth(bandwidth, request.bandwidth_unit),
        )


def processes_of_this_host() -> Mapping[int, str]:
    """Return the names of this host's processes by id."""
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            names[int(folder.name)] = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
    return names


def placed(
    layout: PoolLayout,
    configuration: PoolConfiguration,
    others: Mapping[str, PoolWorkload],
    newcomer: PoolWorkload,
) -> dict[str, PoolWorkload]:
    """Return all workloads with their ways, a new one included; TestbedError if the new workload's pool is full."""
    request, identifier = newcomer.request, newcomer.identifier
    if request.pool == "guarantee":
        taken = [workload.mask for workload in others.values() if workload.pool == "guarantee"]
        mask = free_block(layout.guarantee, taken, request.max_ways)
        if mask is None:
            raise _no_room(request, layout.guarantee, taken)
        return {**others, identifier: replace(newcomer, mask=mask)}
    if request.pool == "shared":
        sharing, most = sum(workload.pool == "shared" for workload in others.values()), configuration.max_allowed_shared
        if not layout.shared or sharing >= most:
            raise TestbedError(
                f"{sharing} workloads share {layout.shared.bit_count()} ways, at most {most} may",
                hint="ask for ways of its own, or another host",
            )
        return {**others, identifier: replace(newcomer, mask=layout.shared)}
    workloads = {**others, identifier: newcomer}
    bursting = {key: workload for key, workload in workloads.items() if workload.pool == "besteffort"}
    if configuration.shrink:
        wishes = [(key, w.request.max_ways, w.request.min_ways) for key, w in bursting.items()]
        masks = share_out(layout.besteffort, wishes)
    else:
        masks = _beside(layout, bursting)
    if masks is None:
        raise _no_room(request, layout.besteffort, [w.mask for w in bursting.values()])
    return {key: replace(w, mask=masks[key]) if key in masks else w for key, w in workloads.items()}


def _beside(layout: PoolLayout, bursting: Mapping[str, PoolWorkload]) -> dict[str, int] | None:
    """Return burstable workloads' ways without shrinking any; a new one gets the largest free block it may have."""
    masks = {key: workload.mask for key, workload in bursting.items() if workload.mask}
    for key, workload in bursting.items():
        if workload.mask:
            continue
        sizes = range(workload.request.max_ways, workload.request.min_ways - 1, -1)
        blocks = (free_block(layout.besteffort, masks.values(), ways) for ways in sizes)
        mask = next((candidate for candidate in blocks if candidate is not None), None)
        if mask is None:
            return None
        masks[key] = mask
    return masks


def _no_room(request: PoolRequest, pool: int, taken: Sequence[int]) -> TestbedError:
    used = sum(mask.bit_count() for mask in taken)
    return TestbedError(
        f"pool {request.pool} has no {request.min_ways} adjacent ways left: {used} of {pool.bit_count()} are taken",
        hint="remove a workload, ask for fewer ways, or for another pool",
    )
