"""Set-associative caches with true LRU and way masks; tags and time stamps of all ways are compared at once.

A set is a row of tags followed by a row of stamps. A stamp is the set's own clock at the line's last use, with the way
in its low bits, so the smallest stamp identifies the least recently used way. A mask restricts which lines a new line
may replace (Intel CAT, DDIO); hits are allowed in any way, as on the hardware (Intel SDM volume 3B, section 17.19).
Sets are chosen by Fibonacci hashing, which spreads neighbouring lines evenly over any number of sets, like the
processor's slice hash.
"""

# Elements of arrays are Any to the type checker; numba gives them their types.
# mypy: disable-error-code="no-any-return"

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator.compilation import compiled, kernel
from slomo.simulator.hardware.lanes import oldest_32, way_of_32
from slomo.simulator.state import L2_LANES, LLC_LANES, NEVER_OLDEST, NO_LINE, WAY_BITS, WAY_MASK, Ints, Shorts


@compiled
def set_of(line: int, sets: int) -> int:
    """Return the set of a line: high bits of its product with 2**32 / golden ratio, scaled to the sets."""
    return (((line * 2654435769) & 0xFFFFFFFF) * sets) >> 32


@compiled
def llc_find(cache: Shorts, index: int, line: int) -> int:
    """Return the way of set `index` that holds `line`, or LLC_LANES."""
    return way_of_32(cache, index * (2 * LLC_LANES), line)


@compiled
def l2_find(cache: Shorts, index: int, line: int) -> int:
    """Return the way of set `index` that holds `line`, or L2_LANES."""
    return way_of_32(cache, index * (2 * L2_LANES), line)


@compiled
def llc_victim(cache: Shorts, index: int, mask: int) -> int:
    """Return the least recently used way of set `index` among those in `mask`."""
    return oldest_32(cache, index * (2 * LLC_LANES) + LLC_LANES, mask) & WAY_MASK


@compiled
def l2_victim(cache: Shorts, index: int, mask: int) -> int:
    """Return the least recently used way of set `index` among those in `mask`."""
    return oldest_32(cache, index * (2 * L2_LANES) + L2_LANES, mask) & WAY_MASK


@compiled
def touch(cache: Shorts, clocks: Shorts, index: int, way: int, lanes: int) -> None:
    """Make a way the most recently used of its set."""
    now = clocks[index] + 1
    clocks[index] = now
    cache[index * (2 * lanes) + lanes + way] = (now << WAY_BITS) | way


@compiled
def empty(cache: Shorts, index: int, way: int, lanes: int) -> None:
    """Remove the line in a way, which is then filled next."""
    cache[index * (2 * lanes) + way] = NO_LINE
    cache[index * (2 * lanes) + lanes + way] = way


def empty_cache(sets: int, ways: int, lanes: int) -> Shorts:
    """Return a cache without lines, shape ``(sets * 2 * lanes,)``.

    Examples
    --------
    >>> empty_cache(2, 4, 16).shape
    (64,)
    """
    if not 1 <= ways <= lanes:
        raise InvalidValueError(f"a cache of {ways} ways, needed 1 to {lanes}")
    stamps = np.where(np.arange(lanes) < ways, np.arange(lanes), NEVER_OLDEST)
    row = np.concatenate((np.full(lanes, NO_LINE), stamps)).astype(np.int32)
    return aligned(np.tile(row, sets))


def aligned(values: Shorts) -> Shorts:
    """Return a copy aligned to the processor's cache lines, so that no vector load crosses two."""
    room = np.empty(values.size + 16, dtype=values.dtype)
    first = -(room.ctypes.data // 4) % 16
    room[first : first + values.size] = values
    return room[first : first + values.size]


@kernel
def _misses(cache: Shorts, clocks: Shorts, ways: int, lines: Ints) -> int:
    sets, misses, mask = clocks.size, 0, (1 << ways) - 1
    for line in lines:
        index = line % sets
        way = llc_find(cache, index, line)
        if way == LLC_LANES:
            misses += 1
            way = llc_victim(cache, index, mask)
            cache[index * (2 * LLC_LANES) + way] = line
        touch(cache, clocks, index, way, LLC_LANES)
    return misses


def count_misses(lines: Ints, sets: int, ways: int) -> int:
    """Run a trace of line numbers through a plain LRU cache and return the number of misses.

    The set is ``line mod sets``, as in textbook caches and in pycachesim, so counts can be compared exactly.

    `lines`: the trace: line numbers of 0 to 2**31 - 1. `sets`, `ways`: shape of the cache, at most 32 ways.

    Examples
    --------
    >>> count_misses(np.array([0, 1, 0, 2, 1], dtype=np.int64), sets=1, ways=2)
    4
    """
    cache = empty_cache(sets, ways, LLC_LANES)
    lines = np.ascontiguousarray(lines, dtype=np.int64)
    return int(_misses(cache, np.zeros(sets, dtype=np.int32), ways, lines))
