"""Cache equilibria by mix, since a cluster has few distinct mixes.

The key is a server's NFs and their offered loads in canonical order. The values are the arrays of
`slomo.equilibrium.server.Joint`, so a batch takes one look-up per server and one gather operation per array.
"""

import threading
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.server import Joint, canonical, check_servers, placed_back, ranks, solve_joint
from slomo.errors import InvalidValueError
from slomo.models.base import Floats
from slomo.models.nf_model import NFModel


class JointMemo:
    """Finds the equilibria of many servers, and computes each distinct mix only once.

    `models`: the distinct NFs, all with a `response`; members are indices into them. `coverage`: as in
    `slomo.equilibrium.server.solve_joint`. `most`: largest number of cached servers; above it, all but those of the
    present call are dropped.

    Examples
    --------
    >>> len(JointMemo([]))
    0
    """

    def __init__(self, models: Sequence[NFModel], *, coverage: float = 0.9, most: int = 500_000) -> None:
        if most < 1:
            raise InvalidValueError(f"a memo of {most} servers, needed at least 1", hint="500 000 take about 100 MB")
        self.models = tuple(models)
        self.coverage, self.most = coverage, most
        self._rank = ranks(self.models)
        self._kept: dict[int, _Kept] = {}
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return sum(len(memo.at) for memo in self._kept.values())

    def solve(self, members: NDArray[np.integer], offered_mpps: Floats | None = None) -> Joint:
        """Return the result of `solve_joint`; servers solved before are looked up.

        Raises the errors of `solve_joint`, whose arrays these are.
        """
        check_servers(self.models, members, offered_mpps)
        order, sorted_members, offered = canonical(self._rank, members, offered_mpps)
        keys = _signatures(self._rank[sorted_members], None if offered_mpps is None else offered)
        memo = self._kept.setdefault(sorted_members.shape[1], _Kept())
        rows = memo.rows(keys)
        if (rows < 0).any():
            if len(self) + int((rows < 0).sum()) > self.most:
                self._kept = {sorted_members.shape[1]: (memo := _Kept())}
                rows = memo.rows(keys)
            fresh = {keys[row]: row for row in np.flatnonzero(rows < 0)[::-1].tolist()}
            new = list(fresh.values())
            loads = None if offered_mpps is None else offered[new]
            fresh_joint = solve_joint(self.models, sorted_members[new], loads, coverage=self.coverage)
            with (
                self._adding
            ):  # threads may solve the same servers; they add results one after the other, and readers never wait
                memo.add(list(fresh), fresh_joint)
            rows = memo.rows(keys)
        if not len(rows):  # no server, of which the memo may have no arrays yet
            return solve_joint(self.models, sorted_members, coverage=self.coverage)
        return placed_back(memo.joint(rows), order)


class _Kept:
    """Cached servers with one number of places."""

    def __init__(self) -> None:
        self.at: dict[bytes, int] = {}
        self.arrays: dict[str, NDArray[Any]] = {}

    def rows(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """Return the row of each cached server; -1 for an unknown server."""
        return np.fromiter(map(self.at.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))

    def add(self, keys: Sequence[bytes], joint: Joint) -> None:
        """Add servers to the cache, except those that another thread has added meanwhile."""
        missing = [row for row, key in enumerate(keys) if key not in self.at]
        if len(missing) < len(keys):
            keys = [keys[row] for row in missing]
            joint = joint.only(missing)
        begin, end = len(self.at), len(self.at) + len(keys)
        for name in Joint.__dataclass_fields__:
            part = getattr(joint, name)
            whole = self.arrays.get(name, part[:0])
            if end > len(whole):
                room = np.empty((max(end, 2 * len(whole)) - len(whole), *part.shape[1:]), dtype=part.dtype)
                whole = self.arrays[name] = np.concatenate([whole, room])
            whole[begin:end] = part
        self.at.update(zip(keys, range(begin, end), strict=True))

    def joint(self, rows: NDArray[np.int64]) -> Joint:
        """Return the cached predictions in `rows`."""
        return Joint(**{name: np.take(part, rows, axis=0) for name, part in self.arrays.items()})


def _signatures(ranked: NDArray[np.int64], offered: Floats | None) -> list[bytes]:
    """Return a key for each server; equal mixes have equal keys."""
    parts = [np.ascontiguousarray(ranked, dtype=np.uint32).view(np.uint8)]
    if offered is not None:
        parts.append(offered.view(np.uint8))
    whole = np.ascontiguousarray(np.concatenate(parts, axis=1))
    if not whole.size:
        return [b""] * len(whole)
    keys: list[bytes] = whole.view(f"V{whole.shape[1]}")[:, 0].tolist()
    return keys
