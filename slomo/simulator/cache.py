"""Set-associative caches with true LRU, way masks and dirty lines, as move-to-front arrays.

Each set keeps its entries most recently used first, and every entry remembers its physical way: a hit is a short scan,
and the victim under a mask (Intel CAT, DDIO) is the last entry whose way the mask allows. Hits are allowed in any way,
as on the hardware (Intel SDM volume 3B, section 17.19). Sets are chosen by Fibonacci hashing, which spreads neighbouring
lines evenly over any number of sets, as the processor's slice hash does.
"""

import numpy as np

from slomo.simulator.compilation import compiled, kernel
from slomo.simulator.state import DIRTY, EMPTY_LINE, LINE_SHIFT, WAY_BITS, Ints


@compiled
def set_of(line: int, sets: int) -> int:
    """Return the set of a line: the top of its product with 2**32 / golden ratio, scaled to the number of sets."""
    return (((line * 2654435769) & 0xFFFFFFFF) * sets) >> 32


@compiled
def find(tags: Ints, first: int, ways: int, line: int) -> int:
    """Return the position of `line` in the set that starts at `first`, or -1."""
    for position in range(first, first + ways):
        if tags[position] >> LINE_SHIFT == line:
            return position
    return -1


@compiled
def promote(tags: Ints, first: int, position: int, entry: int) -> None:
    """Make `entry` the most recently used, taking over the place at `position`."""
    for place in range(position, first, -1):
        tags[place] = tags[place - 1]
    tags[first] = entry


@compiled
def victim(tags: Ints, first: int, ways: int, mask: int) -> int:
    """Return the position of the least recently used entry whose way is in `mask`."""
    for position in range(first + ways - 1, first, -1):
        if (mask >> (tags[position] & WAY_BITS)) & 1:
            return position
    return first


@compiled
def drop(tags: Ints, first: int, ways: int, position: int) -> None:
    """Empty the entry at `position`; its way becomes the next to be filled."""
    empty = (EMPTY_LINE << LINE_SHIFT) | (tags[position] & WAY_BITS)
    for place in range(position, first + ways - 1):
        tags[place] = tags[place + 1]
    tags[first + ways - 1] = empty


@compiled
def mark_dirty(tags: Ints, position: int) -> None:
    """Remember that the line at `position` differs from memory."""
    tags[position] |= DIRTY


def empty_cache(sets: int, ways: int) -> Ints:
    """Return a cache of `sets` x `ways` empty entries, shape ``(sets * ways,)``.

    Examples
    --------
    >>> empty_cache(2, 4).shape
    (8,)
    """
    return np.tile((EMPTY_LINE << LINE_SHIFT) | np.arange(ways, dtype=np.int64), sets)


@kernel
def count_misses(tags: Ints, sets: int, ways: int, lines: Ints) -> int:
    """Run a trace of line numbers through a plain LRU cache and return its misses.

    The set is ``line mod sets``, as in textbook caches and in pycachesim, so the counts can be compared exactly.

    Parameters
    ----------
    tags : ndarray of int64, shape (sets * ways,)
        The cache, from :func:`empty_cache`; it is changed.
    sets, ways : int
        Its shape.
    lines : ndarray of int64
        The trace.

    Examples
    --------
    >>> trace = np.array([0, 1, 0, 2, 1], dtype=np.int64)
    >>> count_misses(empty_cache(1, 2), 1, 2, trace)
    4
    """
    misses = 0
    for line in lines:
        first = (line % sets) * ways
        position = find(tags, first, ways, line)
        if position < 0:
            misses += 1
            position = first + ways - 1
            promote(tags, first, position, (line << LINE_SHIFT) | (tags[position] & WAY_BITS))
        else:
            promote(tags, first, position, tags[position])
    return misses
