"""Classify neighbours by their number and by whether most run the same workload; prediction errors depend on both.

One neighbour causes little pressure, and few settings of the profile are that mild; neighbours that run the same
workload raise the same counters. Neighbours below full load (offered less, or behind a full port) have short queues,
and other models predict their pressure. Errors are counted separately for each kind of neighbourhood (Mondrian
conformal prediction; Vovk et al. 2005, section 4.5).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

#: Kinds of neighbourhood, in the order of every table over them.
NEIGHBOURHOODS = ("1", "2 unlike", "2 like", "3-4 unlike", "3-4 like", "5+ unlike", "5+ like", "part load", "unknown")
#: At least one neighbour is offered a load, its own or its share of a full port.
PART_LOAD = len(NEIGHBOURHOODS) - 2
#: The neighbours are not known: all errors count.
UNKNOWN = len(NEIGHBOURHOODS) - 1
#: Largest number of NFs for which 16-bit indices are used, which are compared in a quarter of the time.
_SHORT = 1 << 15
#: Number of servers below which Python's numbers are faster than numpy's arrays.
_FEW = 8

Kinds = NDArray[np.int64]


def neighbourhood(count: NDArray[np.integer], most: NDArray[np.integer]) -> Kinds:
    """Return the kind of each neighbourhood, as an index of :data:`NEIGHBOURHOODS`.

    `count`: neighbours; none count as unknown. `most`: neighbours of the commonest kind; with more than two thirds of
    them the neighbourhood counts as equal.

    >>> kinds = neighbourhood(np.array([0, 1, 2, 4, 7]), np.array([0, 1, 2, 1, 6]))
    >>> [NEIGHBOURHOODS[kind] for kind in kinds]
    ['unknown', '1', '2 like', '3-4 unlike', '5+ like']
    """
    size = np.searchsorted([1, 2, 3, 5], count, side="right")
    kind: Kinds = np.where(size < 2, 0, 2 * size - 3 + (3 * most > 2 * count))
    return np.where(size == 0, UNKNOWN, kind).astype(np.int64)


@lru_cache(maxsize=1024)
def kind_of(count: int, most: int) -> int:
    """Return the kind of neighbourhood that `count` NFs form, `most` of which are equal."""
    return int(neighbourhood(np.array([count]), np.array([most]))[0])


@lru_cache(maxsize=64)
def _kinds_up_to(places: int) -> Kinds:
    """Return the kind of every neighbourhood of at most so many NFs, by :func:`neighbourhood`'s arguments."""
    return neighbourhood(*np.indices((places + 1, places + 1)))


def beside(members: NDArray[np.integer]) -> Kinds:
    """Return the kind of neighbourhood that the competitors `members` form, -1 for an empty place.

    >>> [NEIGHBOURHOODS[kind] for kind in beside(np.array([[3, 3, -1], [3, 4, -1], [0, -1, -1]]))]
    ['2 like', '2 unlike', '1']
    """
    if len(members) < _FEW:
        here = [[nf for nf in row if nf >= 0] for row in members.tolist()]
        return np.array([kind_of(len(row), max(map(row.count, row), default=0)) for row in here], dtype=np.int64)
    places = members.shape[1]
    if places == 0:
        return np.full(len(members), UNKNOWN, dtype=np.int64)
    count = (members >= 0).sum(axis=1)
    # a majority value is the median of the sorted values
    middle = np.minimum(places - count + count // 2, places - 1)
    candidate = np.take_along_axis(np.sort(members, axis=1), middle[:, None], axis=1)
    return neighbourhood(count, (members == candidate).sum(axis=1))


def within(members: NDArray[np.integer]) -> Kinds:
    """Return the kind of neighbourhood of every NF on the servers `members`, -1 for an empty place."""
    if len(members) < _FEW:
        return np.array([kinds_in(tuple(row)) for row in members.tolist()], dtype=np.int64).reshape(members.shape)
    places = members.shape[1]
    if members.max(initial=0) < _SHORT:
        members = members.astype(np.int16)
    present, alike, most = members >= 0, np.zeros(members.shape, np.int16), np.zeros(members.shape, np.int16)
    columns = np.split(members, places, axis=1) if members.size else []
    for one in columns:
        alike += members == one
    for place, one in enumerate(columns):  # NFs of that kind, without the target
        np.maximum(most, alike[:, [place]] - (members == one), out=most, where=one >= 0)
    count = np.maximum(present.sum(axis=1, keepdims=True, dtype=np.int16) - 1, 0)
    return np.where(present, _kinds_up_to(places)[count, most], UNKNOWN)


def beside_loads(kinds: Kinds, is_loaded: NDArray[np.bool_]) -> Kinds:
    """Return the kinds of :func:`within`, :data:`PART_LOAD` beside a neighbour that is offered a load.

    `is_loaded`, shape of `kinds`: which NFs are offered a load.

    >>> saturated = within(np.array([[3, 3, 5]]))
    >>> [NEIGHBOURHOODS[kind] for kind in beside_loads(saturated, np.array([[True, False, False]]))[0]]
    ['2 unlike', 'part load', 'part load']
    """
    others = is_loaded.sum(axis=-1, keepdims=True) - is_loaded
    return np.where((others > 0) & (kinds != UNKNOWN), PART_LOAD, kinds)


@lru_cache(maxsize=4096)
def kinds_in(row: tuple[int, ...]) -> tuple[int, ...]:
    """Return the kind of neighbourhood of every NF of one server, as :func:`within` does."""
    here = [nf for nf in row if nf >= 0]
    alike = {nf: here.count(nf) for nf in here}
    second, most = sorted((0, 0, *alike.values()))[-2:]
    # beside one of the only commonest kind there is one less of it
    mosts = {nf: max(most - 1, second) if count == most else most for nf, count in alike.items()}
    return tuple(kind_of(len(here) - 1, mosts[nf]) if nf >= 0 else UNKNOWN for nf in row)
