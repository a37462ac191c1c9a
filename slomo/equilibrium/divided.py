"""All NFs of a socket whose cache is divided by way masks, from models that never saw a divided cache.

An NF behind a wall feels a cache that is full but for what it may fill: the occupancy it feels is the cache outside its
mask and, inside, what others hold of the ways they have in common. Everything else it feels from the others as ever
(`slomo.equilibrium.server`), so that the same damped rounds find where all come to rest. ResQ (NSDI'18, section 3)
shows that ways isolate the cache and not the memory; the memory's part is in the other pressures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.judgement import Standing, judged, moved_beside, moved_by_each
from slomo.equilibrium.settling import LaidOutNFs, laid_out_nfs
from slomo.equilibrium.tables import read_mpps
from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.applicability import Verdict
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.nf_model import NFModel

_ROUNDS, _DAMPING, _TOLERANCE = 80, 0.5, 1e-3


@dataclass(frozen=True, eq=False)
class Divided:
    """What the NFs of a socket with a divided cache do.

    Attributes
    ----------
    throughput_mpps : ndarray, shape (NFs,)
        Of each [Mpps].
    codes : ndarray of int, shape (NFs,)
        0, 1, 2: whether the pressure on it was measured (`slomo.models.applicability`).
    converged : bool
        Whether the rounds came to rest.
    """

    throughput_mpps: Floats
    codes: NDArray[np.int8]
    converged: bool


def solve_divided(models: Sequence[NFModel], masks: Sequence[int], ways: int) -> Divided:
    """Solve one socket.

    Parameters
    ----------
    models : sequence of NFModel
        One per core that is used, all with a `response`.
    masks : sequence of int
        Cache ways that each may fill.
    ways : int
        Of the cache.

    Raises
    ------
    InvalidValueError
        For masks that are none.
    MissingMetricError, ConfigurationError
        As `slomo.equilibrium.settling.responses_of`; where occupancy was not measured.
    """
    if len(masks) != len(models) or any(not 0 < mask < 1 << ways for mask in masks):
        raise InvalidValueError(
            f"{len(models)} network functions with the masks {', '.join(f'{mask:x}' for mask in masks)} of {ways} ways",
            hint="one mask each, of at least one way",
        )
    bench = laid_out_nfs(tuple(dict.fromkeys(models)))
    if bench.socket.held is None or not np.isfinite(bench.socket.llc_kib):
        raise MissingMetricError("who fills how much of the cache was not measured (L3OCC)", hint="profile with CMT")
    who = np.array([bench.models.index(model) for model in models])
    walls = _Walls(bench, who, _bits(masks, ways))
    vector = walls.inside(bench.table.start[who])
    scale = np.maximum(vector.max(axis=0), 1e-9)
    moved = np.inf
    for _ in range(_ROUNDS):
        following = walls.inside(vector + _DAMPING * (walls.answer(vector) - vector))
        moved, vector = float((np.abs(following - vector) / scale).max()), following
        if moved <= _TOLERANCE * _DAMPING:
            break
    felt = walls.felt(vector)
    mpps = read_mpps(bench.responses, who, felt, np.full(len(who), len(who) - 1.0))
    each = moved_by_each(bench.models, who[np.newaxis], Standing(felt[np.newaxis], np.ones((1, len(who)))))
    verdicts = [
        judged(bench.responses[w], felt[i], moved_beside(each, i)[0].tolist())[0] for i, w in enumerate(who.tolist())
    ]
    codes = np.array([list(Verdict).index(verdict) for verdict in verdicts], dtype=np.int8)
    return Divided(mpps, codes, moved <= _TOLERANCE * _DAMPING)


def _bits(masks: Sequence[int], ways: int) -> Floats:
    """Return who may fill which way, shape (NFs, ways)."""
    return ((np.array(masks, dtype=np.int64)[:, None] >> np.arange(ways)) & 1).astype(float)


class _Walls:
    """NFs behind walls: who may hold how much, and what each feels."""

    def __init__(self, bench: LaidOutNFs, who: NDArray[np.int64], bits: Floats) -> None:
        self._bench, self._who = bench, who
        self._room_kib = bits.sum(axis=1) * bench.socket.llc_kib / bits.shape[1]
        self._common = bits @ bits.T / bits.sum(axis=1)  # share of the other's ways (columns) that are one's own, too
        self._same = (bits[:, None, :] == bits[None, :, :]).all(axis=2).astype(float)
        solo_kib = bench.table.start[who, self._held]
        full = bench.full_kib(who[np.newaxis])[0] / bench.socket.llc_kib
        self._least_kib = np.minimum(self._same @ solo_kib, full * self._room_kib)

    @property
    def _held(self) -> int:
        return self._bench.socket.held or 0

    def inside(self, vector: Floats) -> Floats:
        """Scale what NFs of the same ways hold: no more than these, and no less than full ones hold."""
        total = self._same @ vector[:, self._held]
        wanted = np.minimum(np.maximum(total, self._least_kib), self._room_kib)
        kept = vector.copy()
        kept[:, self._held] *= wanted / np.maximum(total, 1e-9)
        return kept

    def felt(self, vector: Floats) -> Floats:
        """Return the pressure on each, shape (NFs, pressures)."""
        felt: Floats = vector.sum(axis=0) - vector
        held = vector[:, self._held]
        inside = self._common @ held - held
        felt[:, self._held] = self._bench.socket.llc_kib - self._room_kib + inside
        return np.maximum(felt, 0.0)

    def answer(self, vector: Floats) -> Floats:
        """Return each one's own vector under what it feels."""
        table, who = self._bench.table, self._who
        limit = np.minimum(table.limit[who], self._bench.socket.caps)
        basis = pressure_basis(self.felt(vector), table.scale[who], limit)
        every = np.matmul(basis[:, None, :], table.weight[who])[:, 0, :]
        answers: Floats = np.clip(every, table.low[who], table.high[who])[:, : vector.shape[1]]
        return answers
