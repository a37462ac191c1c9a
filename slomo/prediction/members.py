"""Convert the names in a batch of mixes to arrays of indices.

Predicting a mix takes three microseconds; looking up names one by one would double this time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from slomo.errors import InvalidValueError
from slomo.prediction.tenants import Named, TenantModel
from slomo.units import plural
from slomo.vocabulary.workload_text import each_instance, is_mix

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Members:
    """Target and competitors of each mix of a batch."""

    #: Tenants to which the indices refer.
    tenants: tuple[TenantModel, ...]
    #: Index of the target of each mix, shape (mixes,).
    target: Indices
    #: Indices of each mix's competitors, in any order; -1 for an empty place, shape (mixes, places).
    places: Indices


def from_indices(target: NDArray[np.integer], places: NDArray[np.integer], tenants: Sequence[TenantModel]) -> Members:
    """Check arrays of indices into `tenants`.

    Raises InvalidValueError for indices out of range or shapes that do not match.

    Examples
    --------
    >>> from_indices(np.array([0]), np.array([[3]]), [])
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: mix 0 is target 0 beside [3], but there are models of 0 workloads, counted from 0
    hint: -1 marks an empty place of a competitor
    """
    subject, beside = target.astype(np.int64), places.astype(np.int64)
    if subject.ndim != 1 or beside.ndim != 2 or len(subject) != len(beside):
        raise InvalidValueError(
            f"targets of shape {subject.shape} and mixes of shape {beside.shape} do not belong together",
            hint="needed: targets (mixes,) and competitors (mixes, places), -1 for an empty place",
        )
    wrong = (subject < 0) | (subject >= len(tenants)) | ((beside < -1) | (beside >= len(tenants))).any(axis=1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidValueError(
            f"mix {row} is target {subject[row]} beside {beside[row].tolist()}, "
            f"but there are models of {len(tenants)} workloads, counted from 0",
            hint="-1 marks an empty place of a competitor",
        )
    return Members(tuple(tenants), subject, beside)


def from_names(
    targets: Sequence[Named], mixes: Sequence[Sequence[Named]], find: Callable[[Named], TenantModel]
) -> Members:
    """Look up every name once. Raises InvalidValueError if the numbers of targets and mixes differ.

    Examples
    --------
    >>> from_names([], [], find=lambda name: None).places.shape
    (0, 0)
    """
    if len(targets) != len(mixes):
        raise InvalidValueError(
            f"{plural(len(targets), 'target')} for {plural(len(mixes), 'mix', 'mixes')}, needed one target per mix",
            hint="a mix without competitors is []",
        )
    if {str, dict} & {*map(type, mixes)}:  # faster than `isinstance` for each
        mixes = [each_instance(mix) for mix in mixes]
    named = [*targets, *chain.from_iterable(mixes)]
    # hashing a workload builds its key; its identity is cheaper, and unique while the list above keeps the object alive
    only_texts = {*map(type, named)} <= {str}  # faster than asking for each
    handles = named if only_texts else [name if isinstance(name, str) else id(name) for name in named]
    names = dict(zip(handles, named, strict=True))
    if any(map(is_mix, names.values())) and (instances := [each_instance(mix) for mix in mixes]) != mixes:
        return from_names(targets, instances, find)
    distinct = {handle: find(name) for handle, name in names.items()}
    # a model may have several names: NF name, key, workload
    kinds = {handle: (id(each.model), each.offered_mpps) for handle, each in distinct.items()}
    tenants = {kinds[handle]: each for handle, each in reversed(distinct.items())}
    number = {kind: i for i, kind in enumerate(tenants)}
    codes = {handle: number[kind] for handle, kind in kinds.items()}
    flat = np.fromiter(map(codes.__getitem__, handles), dtype=np.int64, count=len(handles))
    sizes = np.fromiter(map(len, mixes), dtype=np.int64, count=len(mixes))
    places = np.full((len(mixes), int(sizes.max(initial=0))), -1, dtype=np.int64)
    places[np.arange(places.shape[1]) < sizes[:, np.newaxis]] = flat[len(targets) :]
    return Members(tuple(tenants.values()), flat[: len(targets)], places)
