"""Find the sizes of a core's usable caches from the latency of accesses over growing sizes of data.

The method is lmbench's lat_mem_rd (McVoy and Staelin, USENIX ATC'96, section 6.2): random accesses to data larger than
a cache miss in proportion to the part that does not fit. The kernel reports the size of the chip's last-level cache. In
a virtual machine and under CAT only a part of it is usable, on a busy host nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LEAST_RISE = 1.25  # least ratio of memory latency to cache latency; a smaller rise is noise
_BEYOND = 1.2  # times the size of a cache: a footprint that certainly does not fit


@dataclass(frozen=True)
class CacheLevels:
    """The cache levels beyond a core's private cache, as measured latency shows them."""

    #: Footprint up to which accesses hit a cache [MiB]; equal to L2 if no shared cache is visible.
    cache_mib: float
    #: Time per access that hits the last-level cache [ns]; None if it is not visible.
    llc_ns: float | None
    #: Time per access that goes to memory [ns]; None if no footprint exceeded the caches.
    dram_ns: float | None


def find_levels(
    sizes_mib: Sequence[float], latencies_ns: Sequence[float], l2_mib: float, stated_llc_mib: float | None
) -> CacheLevels | None:
    """Find the cache levels beyond L2 in measured latencies, and where the first one ends.

    The curve needs at least four sizes beyond L2, whose size is `l2_mib`, and one well inside L2. `stated_llc_mib`:
    size of the last-level cache according to the kernel; it decides whether a curve that is flat beyond L2 shows a
    cache or memory. Return None if the curve has too few sizes, or is flat up to a size that may still be cached.

    Of the accesses to a footprint S, the share min(1, C/S) hits in caches of C bytes in total, and min(1, L2/S) in L2.
    The two unknown latencies (LLC, memory) enter linearly and follow from least squares of relative errors; C is found
    by search.

    >>> sizes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    >>> curve = [5.0, 5.0, 12.5, 16.25] + [5 * 2 / s + 20 * (14 - 2) / s + 100 * (1 - 14 / s) for s in sizes[4:]]
    >>> found = find_levels(sizes, curve, 2.0, 105.0)
    >>> round(found.cache_mib), round(found.llc_ns), round(found.dram_ns)
    (14, 20, 100)
    """
    sizes, latencies = np.asarray(sizes_mib, dtype=np.float64), np.asarray(latencies_ns, dtype=np.float64)
    behind = sizes > _BEYOND * l2_mib
    inside = latencies[(sizes <= 0.6 * l2_mib) & (sizes >= 0.2 * l2_mib)]
    if behind.sum() < 4 or not inside.size:
        return None
    edge = _best_edge(sizes[behind], latencies[behind], l2_mib, float(inside.min()))
    if edge is not None:
        return edge
    if stated_llc_mib is not None and sizes.max() > _BEYOND * stated_llc_mib:
        return CacheLevels(l2_mib, None, float(np.median(latencies[behind])))
    return None


def _best_edge(
    sizes: NDArray[np.float64], latencies: NDArray[np.float64], l2_mib: float, l2_ns: float
) -> CacheLevels | None:
    best, least = None, np.inf
    for edge in np.geomspace(1.5 * l2_mib, sizes[-1] / 1.5, 200):
        in_l2, in_any = np.minimum(1.0, l2_mib / sizes), np.minimum(1.0, edge / sizes)
        columns = np.stack([in_any - in_l2, 1.0 - in_any], axis=1) / latencies[:, None]
        hit_rate = 1.0 - l2_ns * in_l2 / latencies
        (llc_ns, dram_ns), *_ = np.linalg.lstsq(columns, hit_rate, rcond=None)
        error = float(np.sum((columns @ (llc_ns, dram_ns) - hit_rate) ** 2))
        if llc_ns >= l2_ns and dram_ns >= _LEAST_RISE * llc_ns and error < least:
            best, least = CacheLevels(float(edge), float(llc_ns), float(dram_ns)), error
    return best
