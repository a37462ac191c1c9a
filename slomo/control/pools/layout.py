"""Compute the cache ways of each pool and their division among workloads.

From the lowest way up: operating system, shared, besteffort, guarantee; the DDIO ways are the highest of the cache. The
infrastructure's group overlaps the pools.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from slomo.control.pools.configuration import PoolConfiguration, require_fits
from slomo.vocabulary.way_masks import way_block


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
