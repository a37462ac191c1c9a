"""Simulate set-associative caches with true LRU and way masks; all ways of a set are compared at once.

A stamp is the set's own clock at the line's last use, with the way in its low bits, so the smallest stamp identifies
the least recently used way. A mask restricts which lines a new line may replace (Intel CAT, DDIO); hits are allowed in
any way, as on the hardware (Intel SDM volume 3B, section 17.19). Sets are chosen by Fibonacci hashing, which spreads
neighbouring lines evenly over any number of sets, like the processor's slice hash.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError
from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner, kernel
from slomo.simulator.hardware.lanes import lowest, natural, oldest_16, oldest_32, ways_of_16, ways_of_32
from slomo.simulator.state import Ints, Shorts, Stamps

#: The clock's largest value: stamps have 16 bits.
_LATEST = (s.NEVER_OLDEST >> s.WAY_BITS) - 1


@compiled
def set_of(line: int, sets: int) -> int:
    """Return the set of a line: high bits of its product with 2**32 / golden ratio, scaled to the sets."""
    return natural((((line * 2654435769) & 0xFFFFFFFF) * sets) >> 32)


@compiled
def find(cache: Shorts, first: int, shift: int, line: int) -> int:
    """Return the slot that holds `line` in a set of ``1 << shift`` slots from `first` on; -1 if none does."""
    ways = ways_of_32(cache, first, line) if shift == s.WIDE_SHIFT else ways_of_16(cache, first, line)
    if ways == 0:
        return -1
    return natural(first + lowest(ways))


@compiled
def victim(stamps: Stamps, first: int, shift: int, mask: int) -> int:
    """Return the least recently used slot of a set among the ways in `mask`."""
    oldest = oldest_32(stamps, first, mask) if shift == s.WIDE_SHIFT else oldest_16(stamps, first, mask)
    return natural(first + (oldest & s.WAY_MASK))


@compiled
def touch(stamps: Stamps, clocks: Stamps, slot: int, shift: int) -> None:
    """Make a slot the most recently used of its set."""
    index = natural(slot >> shift)
    now = clocks[index] + 1
    if now > _LATEST:
        now = restart(stamps, index << shift, 1 << shift)
    clocks[index] = now
    stamps[slot] = (now << s.WAY_BITS) | (slot - (index << shift))


@inner
def restart(stamps: Stamps, first: int, slots: int) -> int:
    """Renumber the time stamps of a set in their order, as its clock would overflow; return the next stamp."""
    last, used = s.WAY_MASK, 0
    while last < s.NEVER_OLDEST:
        oldest, place = s.NEVER_OLDEST, -1
        for slot in range(first, first + slots):
            if last < stamps[slot] < oldest:
                oldest, place = stamps[slot], slot
        if place >= 0:
            used += 1
            stamps[place] = (used << s.WAY_BITS) | (place - first)
        last = oldest
    return used + 1


@compiled
def empty(cache: Shorts, stamps: Stamps, slot: int, shift: int) -> None:
    """Remove the line in a slot, and make the slot the next of its set to be filled."""
    cache[slot] = s.NO_LINE
    stamps[slot] = slot & ((1 << shift) - 1)


def shift_of(ways: int) -> int:
    """Return the power of two to which the number of a set's ways is padded."""
    if not 1 <= ways <= s.LANES:
        raise InvalidValueError(f"a cache of {ways} ways, needed 1 to {s.LANES}")
    return s.NARROW_SHIFT if ways <= 1 << s.NARROW_SHIFT else s.WIDE_SHIFT


def empty_cache(sets: int, ways: int) -> tuple[Shorts, Stamps, Stamps]:
    """Return a cache without lines: lines and stamps of all slots, and the sets' clocks."""
    lanes = np.arange(1 << shift_of(ways))
    stamps = np.where(lanes < ways, lanes, s.NEVER_OLDEST).astype(np.uint16)
    lines = np.full(sets * lanes.size, s.NO_LINE, dtype=np.int32)
    return aligned(lines), aligned(np.tile(stamps, sets)), np.zeros(sets, dtype=np.uint16)


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of an array, aligned to the cache lines of the processor that runs the simulator."""
    room = np.empty(values.nbytes + 64, dtype=np.uint8)
    first = -room.ctypes.data % 64
    copy = room[first : first + values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


@kernel
def _misses(cache: Shorts, stamps: Stamps, clocks: Stamps, ways: int, shift: int, lines: Ints) -> int:
    sets, misses, mask = clocks.size, 0, (1 << ways) - 1
    for line in lines:
        first = natural(line % sets << shift)
        slot = find(cache, first, shift, line)
        if slot < 0:
            misses += 1
            slot = victim(stamps, first, shift, mask)
            cache[slot] = line
        touch(stamps, clocks, slot, shift)
    return misses


def count_misses(lines: Ints, sets: int, ways: int) -> int:
    """Run a trace of line numbers through a plain LRU cache and return the number of misses.

    The set is ``line mod sets``, as in textbook caches and in pycachesim, so counts can be compared exactly.

    `lines`: line numbers of the trace, 0 to 2**31 - 1. `sets`, `ways`: shape of the cache, at most 32 ways.

    >>> count_misses(np.array([0, 1, 0, 2, 1], dtype=np.int64), sets=1, ways=2)
    4
    """
    return int(_misses(*empty_cache(sets, ways), ways, shift_of(ways), np.ascontiguousarray(lines, dtype=np.int64)))
