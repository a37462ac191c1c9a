"""Compiled loops for large batches of mixes: the damped rounds of `slomo.equilibrium.competition`.

Results equal those of the numpy code: the same additions in the same order, without fast-math.
"""

import numpy as np
from numpy.typing import NDArray

from slomo.models.functions.compilation import compiled
from slomo.vocabulary.vector import Floats

#: Number of terms that a compiled sum adds per step; the loop below is unrolled accordingly.
_GROUP = 4
#: Number of mixes solved together: their data stay in the L2 cache.
_CHUNK_MIXES = 4096


def competition_rounds(
    members: NDArray[np.int64],
    inner: tuple[Floats, ...],
    caps: Floats,
    rounds: int,
    outer: tuple[Floats, ...],
    out: Floats,
) -> bool:
    """Run the rounds (see `slomo.equilibrium.competition`); return False without numba."""
    arrange, respond = compiled(_arrange), compiled(_respond)
    if arrange is None or respond is None:
        return False
    start, pressing = inner[0], (caps, *inner[1:3])
    within, final = ((_by_metric(tables[0]), *tables[1:]) for tables in (inner[3:], outer))
    for begin in range(0, len(members), _CHUNK_MIXES):
        part = members[begin : begin + _CHUNK_MIXES]
        vector, place, first = (
            np.zeros((start.shape[1], part.size)),
            np.zeros_like(part.ravel()),
            np.zeros(len(start) + 1, int),
        )
        arrange(part.ravel(), start, vector, place, first)
        answer, last = np.zeros_like(vector), np.zeros((out.shape[2], part.size))
        for _ in range(rounds):
            respond(place, first, vector, _totals(vector, part.shape[1]), pressing, within, answer)
            vector += answer
            vector *= 0.5
        respond(place, first, vector, _totals(vector, part.shape[1]), pressing, final, last)
        out[begin : begin + len(part)] = last.T.reshape(*part.shape, -1)
    return True


def _totals(vector: Floats, slots: int) -> Floats:
    """Add the places of each mix in order, shape ``(metrics, mixes * slots)`` -> ``(metrics, mixes)``."""
    total = vector[:, 0::slots].copy()
    for slot in range(1, slots):
        total += vector[:, slot::slots]
    return total


def _by_metric(weight: Floats) -> Floats:
    """Transpose weights (NF, term, metric) to (NF, metric, term), padded with weight 0 to whole groups."""
    return np.ascontiguousarray(np.pad(weight, [(0, 0), (0, -weight.shape[1] % _GROUP), (0, 0)]).transpose(0, 2, 1))


def _arrange(members, start, vector, place, first):  # type: ignore[no-untyped-def]
    """Sort occupied places by NF (NF w has place[first[w] : first[w + 1]]) and set its start vector at each."""
    cursor = np.zeros(len(first), dtype=np.int64)
    for at in range(len(members)):
        if members[at] >= 0:
            first[members[at] + 1] += 1
            for k in range(len(vector)):
                vector[k, at] = start[members[at], k]
    for who in range(len(first) - 1):
        first[who + 1] += first[who]
        cursor[who] = first[who]
    for at in range(len(members)):
        if members[at] >= 0:
            place[cursor[members[at]]] = at
            cursor[members[at]] += 1


def _respond(place, first, vector, total, pressing, tables, out):  # type: ignore[no-untyped-def] # noqa: C901
    """Compute every place's response; tables as in `competition._Stack`, but with weights by metric.

    Places are processed NF by NF, 64 at a time: they share weights, so the compiler can vectorise over them.
    """
    (caps, scale, limit), (weight, low, high) = pressing, tables
    metrics, terms, slots = len(vector), weight.shape[2], vector.shape[1] // total.shape[1]
    basis, answer = np.zeros((terms, 64)), np.zeros(64)
    basis[0] = 1.0
    for who in range(len(first) - 1):
        for block in range(first[who], first[who + 1], 64):
            size, term = min(64, first[who + 1] - block), 1 + metrics
            for k in range(metrics):
                most, half, share = min(caps[k], limit[who, k]), scale[who, k], basis[1 + k]
                for i in range(size):
                    at = place[block + i]
                    share[i] = total[k, at // slots] - vector[k, at]
                for i in range(64):
                    pressure = min(max(share[i], 0.0), most)
                    share[i] = pressure / (pressure + half)
            for k in range(metrics):
                for m in range(k + 1):
                    for i in range(64):
                        basis[term, i] = basis[1 + k, i] * basis[1 + m, i]
                    term += 1
            for k in range(len(out)):
                answer[:] = 0.0
                for t in range(0, terms, 4):
                    a, b, c, d = weight[who, k, t], weight[who, k, t + 1], weight[who, k, t + 2], weight[who, k, t + 3]
                    p, q, r, s = basis[t], basis[t + 1], basis[t + 2], basis[t + 3]
                    for i in range(64):
                        answer[i] += (a * p[i] + b * q[i]) + (c * r[i] + d * s[i])
                for i in range(size):
                    out[k, place[block + i]] = min(max(answer[i], low[who, k]), high[who, k])
