"""Prove that a fixed point lies near the end of the iteration, and that no other one is near.

Krawczyk's operator (Computing 4, 1969; Neumaier, Interval Methods for Systems of Equations, 1990, section 5.1): let x
be one Newton step from there, J the slopes of the joint map F, C the inverse of 1 - J, and q the largest |C| |J' - J|
over all slopes J' in a box around x. If q is below 1 and r = |C (F(x) - x)| / (1 - q) stays inside the box, the box
contains exactly one fixed point, at most r away from x. The derivatives are known in closed form and piecewise
monotone; a kink counts as all slopes between its two sides. Rounding errors are not enclosed; they are ten orders of
magnitude smaller.
"""

import math
from typing import NamedTuple

import numpy as np

from slomo.equilibrium.rounds import TINY, Servers, answer, within_capacities
from slomo.models.base import Floats

#: Size of the box, in multiples of the first estimate of the distance; the proof then needs q of at most one half.
_BOX = 2.0
#: Replaces an infinite radius, as infinity times 0 is NaN.
_HOPELESS = 1e9


class _Slopes(NamedTuple):
    """Bounds on the slopes and values of every NF's answers.

    The slopes of the answers to the pressure on the NF have shape (servers, places, pressures, answers).
    """

    low: Floats
    high: Floats
    least: Floats
    most: Floats


def proven_bound(servers: Servers, vector: Floats) -> Floats:
    """Return a bound on the distance to the fixed point, as a share of `Servers.reference`; infinite if unproven.

    Parameters
    ----------
    servers : Servers
        Saturated ones.
    vector : ndarray, shape (servers, places, pressures)
        Vectors at which the rounds ended.

    Returns
    -------
    ndarray, shape (servers,)
        Not proven where slopes vary too much nearby, where the box holds both full and other caches, or where the
        memory channel may be full: how long requests wait is then one more unknown.
    """
    reference = servers.reference
    here, _ = _derivatives(servers, vector, reference, np.zeros(len(vector)))
    inverse = np.asarray(np.linalg.inv(np.eye(here.shape[1]) - here), dtype=np.float64)
    # a Newton step leads so close that slopes hardly vary around it
    nearer = vector + _left(servers, vector, reference, inverse) * reference
    left = np.abs(_left(servers, nearer, reference, inverse)).max(axis=(1, 2))
    radius = _BOX * np.maximum(left, TINY)
    middle, spread = _derivatives(servers, nearer, reference, radius)
    varying = (np.abs(middle - here) + spread).sum(axis=2, keepdims=True)
    contraction = np.matmul(np.abs(inverse), varying)[:, :, 0].max(axis=1)
    bound = left / np.maximum(1.0 - contraction, TINY)
    fits = (contraction < 1.0) & (bound <= radius)
    stepped = (np.abs(nearer - vector) / reference).max(axis=(1, 2))
    return np.where(fits, stepped + bound, np.inf)


def _left(servers: Servers, vector: Floats, reference: Floats, inverse: Floats) -> Floats:
    """Return C (F(x) - x), the Newton step from `vector`, in units of `reference`.

    C, F and x are those of the module's docstring.
    """
    following = answer(servers, vector, np.ones(len(vector)))
    within_capacities(servers, following)
    rest = ((following - vector) / reference).reshape(len(vector), -1, 1)
    left: Floats = np.matmul(inverse, rest).reshape(vector.shape)
    return left


def _derivatives(servers: Servers, vector: Floats, reference: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """Return centre and radius of J, the slopes of the joint map, over a box around `vector`.

    The unknowns are pairs (place, pressure), in units of `reference`.
    """
    count, places, pressures = vector.shape
    slopes = _slopes(servers, vector, reference * radius[:, None, None])
    ratio = reference[:, :, :, None] / reference[:, :, None, :]
    apart = (1.0 - np.eye(places))[None, :, None, :, None]

    def over_all(slope: Floats) -> Floats:
        """Arrange slopes (place, pressure, answer) as a matrix (place, answer) x (other place, pressure)."""
        turned = (slope * ratio).transpose(0, 1, 3, 2)[:, :, :, None, :]
        whole: Floats = (turned * apart).reshape(count, places * pressures, places * pressures)
        return whole

    middle, spread = over_all(0.5 * (slopes.low + slopes.high)), over_all(0.5 * (slopes.high - slopes.low))
    for column in np.flatnonzero(np.isfinite(servers.socket.caps) | servers.least.any(axis=(0, 1))).tolist():
        rows = np.arange(places) * pressures + column
        share, wide = _shares(servers, slopes, column)
        least = np.abs(middle[:, rows]) + spread[:, rows]
        spread[:, rows] = np.matmul(np.abs(share), spread[:, rows]) + np.matmul(wide, least)
        middle[:, rows] = np.matmul(share, middle[:, rows])
    return middle, spread


def _shares(servers: Servers, slopes: _Slopes, column: int) -> tuple[Floats, Floats]:
    """Return centre and radius of the slopes of `within_capacities`, shape (servers, places, places), over the box.

    The part of a full cache (or channel) of size w with demands x is w x / X, X the sum of x; its slopes are w / X (1 -
    x / X). If the cache is full in only a part of the box, the radius is `_HOPELESS`.
    """
    low, high = slopes.least[:, :, column], slopes.most[:, :, column]
    lowest, highest = (np.maximum(side.sum(axis=1), TINY)[:, None, None] for side in (low, high))
    floor, ceiling = servers.least[:, :, column, None], servers.socket.caps[column]
    sides = [np.minimum(np.maximum(side, floor), ceiling) for side in (lowest, highest)]
    same = np.eye(low.shape[1])
    part = [same - (high / lowest[..., 0])[:, :, None], same - (low / highest[..., 0])[:, :, None]]
    scale = [sides[0] / highest, sides[0] / lowest]
    ends = [each * size for each in part for size in scale]
    least, most = np.minimum.reduce(ends), np.maximum.reduce(ends)
    free = (sides[0] == lowest) & (sides[1] == highest)
    mixed = ~free & ((sides[0] != sides[1]) | (column == servers.socket.channel))
    middle = np.where(free, same, 0.5 * (least + most))
    return middle, np.where(mixed, _HOPELESS, np.where(free, 0.0, 0.5 * (most - least)))


def _bilinear(weight: Floats) -> Floats:
    """Return weights over 1, u and u u' (`pressure_basis`), axis -2, as weights over pairs of (1, u).

    Examples
    --------
    >>> _bilinear(np.array([[7.0], [2.0], [3.0]])).tolist()
    [[[7.0], [0.0]], [[2.0], [3.0]]]
    """
    *outer, terms, answers = weight.shape
    size = int((math.isqrt(1 + 8 * terms) - 3) // 2)
    table = np.zeros((*outer, 1 + size, 1 + size, answers))
    row, column = np.tril_indices(size)
    table[..., 0, 0, :], table[..., 1:, 0, :] = weight[..., 0, :], weight[..., 1 : 1 + size, :]
    table[..., row + 1, column + 1, :] = weight[..., 1 + size :, :]
    return table


def _slopes(servers: Servers, vector: Floats, reach: Floats) -> _Slopes:
    """Enclose the derivatives over vectors at most `reach` away; clipped answers have slope 0."""
    size = vector.shape[2]
    pressure = vector.sum(axis=1, keepdims=True) - vector
    beside = np.maximum((servers.start.any(axis=2)).sum(axis=1) - 1, 0)[:, None, None] * reach
    low, high = (np.clip(pressure + side, 0.0, servers.limit) for side in (-beside, beside))
    moves = (pressure + beside > 0.0) & (pressure - beside < servers.limit)
    always = (pressure - beside >= 0.0) & (pressure + beside <= servers.limit)
    steepest = np.where(moves, servers.scale / (low + servers.scale) ** 2, 0.0)[..., None]
    flattest = np.where(always, servers.scale / (high + servers.scale) ** 2, 0.0)[..., None]
    shares = [np.concatenate([np.ones((*p.shape[:2], 1)), p / (p + servers.scale)], axis=2) for p in (low, high)]
    table = _bilinear(servers.weight[..., : size + 1])
    both = (table + table.swapaxes(2, 3))[:, :, 1:]
    middle = np.einsum("spjkm,spk->spjm", both, 0.5 * (shares[0] + shares[1]))
    spread = np.einsum("spjkm,spk->spjm", np.abs(both), 0.5 * (shares[1] - shares[0]))
    least, most = middle - spread, middle + spread
    lowest, highest = np.minimum(least * flattest, least * steepest), np.maximum(most * flattest, most * steepest)
    here = np.clip(pressure, 0.0, servers.limit)
    terms = np.concatenate([np.ones((*here.shape[:2], 1)), here / (here + servers.scale)], axis=2)
    raw = np.einsum("spjkm,spj,spk->spm", table, terms, terms)
    away = (np.maximum(np.abs(lowest), np.abs(highest)) * beside[..., None]).sum(axis=2)
    floor, ceiling = servers.low[..., : size + 1], servers.high[..., : size + 1]
    flat = ((raw + away <= floor) | (raw - away >= ceiling))[:, :, None, :]
    kinked = ((raw - away < floor) | (raw + away > ceiling))[:, :, None, :]
    lowest = np.where(flat, 0.0, np.where(kinked, np.minimum(lowest, 0.0), lowest))
    highest = np.where(flat, 0.0, np.where(kinked, np.maximum(highest, 0.0), highest))
    ends = (np.clip(raw - away, floor, ceiling), np.clip(raw + away, floor, ceiling))
    return _of_rates(servers, _Slopes(lowest, highest, *ends))


def _of_rates(servers: Servers, packet: _Slopes) -> _Slopes:
    """Return slopes and answers of rates: per-packet amounts times the speed, the last of `packet`'s answers."""
    rates, pace = servers.socket.rates, servers.pace[:, :, None]
    slower, faster = packet.least[..., -1:] * pace, packet.most[..., -1:] * pace
    falling, rising = packet.low[..., -1:] * pace[..., None], packet.high[..., -1:] * pace[..., None]
    low, high, least, most = (each[..., :-1] for each in packet)  # answers and speed are 0 or more

    def times(sides: tuple[Floats, Floats], factors: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        ends = [side * factor for side in sides for factor in factors]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    own = times((low, high), (slower[:, :, None], faster[:, :, None]))
    speed = times((falling, rising), (least[:, :, None], most[:, :, None]))
    moved = _Slopes(
        np.where(rates, own[0] + speed[0], low),
        np.where(rates, own[1] + speed[1], high),
        np.where(rates, least * slower, least),
        np.where(rates, most * faster, most),
    )
    if (channel := servers.socket.channel) is not None:
        for slopes in moved:
            slopes[..., channel] *= (
                servers.burden if slopes.ndim == servers.burden.ndim + 1 else servers.burden[..., None]
            )
    return moved
