"""Prove a bound on the distance from the iteration's end to an equilibrium, and that no other equilibrium is near.

Krawczyk's operator (Computing 4, 1969; Neumaier, Interval Methods for Systems of Equations, 1990, section 5.1): let x
be one Newton step from the iteration's end, J the slopes of the joint map F, C the inverse of 1 - J, and q the largest
|C| |J' - J| over all slopes J' in a box around x. If q is below 1 and r = |C (F(x) - x)| / (1 - q) stays inside the
box, the box contains exactly one fixed point, at most r away from x. The derivatives are known in closed form and are
piecewise monotone; at a kink, all slopes between those of its two sides are considered. The bound does not include
rounding errors, which are ten orders of magnitude smaller.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.rounds import TINY, Servers, answer, within_capacities
from slomo.models.base import Floats
from slomo.models.responses.server_response import packets_of_age

#: Size of the box, as a multiple of the first estimate of the distance; with this size, the proof needs q of at most
#: one half.
_BOX = 2.0
#: Replaces an infinite radius, since infinity times 0 is NaN.
_HOPELESS = 1e9
#: Number of Newton steps for an age that is nearly known, and error of its logarithm that rounding may leave.
_AGE_STEPS, _AGE_ROUNDING = 8, 1e-9


class _Slopes(NamedTuple):
    """Bounds on the values and derivatives of every NF's functions.

    The slopes of an NF's answers (its own pressures and speed) to the pressure on it have shape (servers, places,
    pressures, answers).
    """

    low: Floats
    high: Floats
    least: Floats
    most: Floats


class _Enclosed(NamedTuple):
    """Numbers known to lie within `radius` of `centre` (interval arithmetic)."""

    centre: Floats
    radius: Floats


def _between(low: Floats, high: Floats) -> _Enclosed:
    return _Enclosed(0.5 * (low + high), 0.5 * (high - low))


def _product(factor: _Enclosed, value: _Enclosed, times: Callable[[Floats, Floats], Floats] = np.matmul) -> _Enclosed:
    """Return bounds on the products of enclosed factors and values."""
    largest = np.abs(value.centre) + value.radius
    radius = times(np.abs(factor.centre), value.radius) + times(factor.radius, largest)
    return _Enclosed(times(factor.centre, value.centre), radius)


def proven_bound(servers: Servers, vector: Floats, age: Floats) -> Floats:
    """Return a bound on the distance between `vector` and the equilibrium, as a share of `Servers.reference`.

    `servers` are saturated; their rounds ended at `vector` and `age`. There is no proof if slopes vary too much nearby,
    if the box contains both full and other caches, or if the memory channel may be full, since the waiting time of
    requests is then another unknown.
    """
    reference = servers.reference
    here = _derivatives(servers, vector, age, reference, np.zeros(len(vector))).centre
    inverse = np.asarray(np.linalg.inv(np.eye(here.shape[1]) - here), dtype=np.float64)
    # after a Newton step, the point is so close that slopes around it hardly vary
    step, age = _left(servers, vector, age, reference, inverse)
    nearer = vector + step * reference
    step, age = _left(servers, nearer, age, reference, inverse)
    left = np.abs(step).max(axis=(1, 2))
    radius = _BOX * np.maximum(left, TINY)
    nearby = _derivatives(servers, nearer, age, reference, radius)
    varying = (np.abs(nearby.centre - here) + nearby.radius).sum(axis=2, keepdims=True)
    contraction = np.matmul(np.abs(inverse), varying)[:, :, 0].max(axis=1)
    bound = left / np.maximum(1.0 - contraction, TINY)
    fits = (contraction < 1.0) & (bound <= radius)
    stepped = (np.abs(nearer - vector) / reference).max(axis=(1, 2))
    return np.where(fits, stepped + bound, np.inf)


def _left(servers: Servers, vector: Floats, age: Floats, reference: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """Return the Newton step from `vector`, in units of `reference`, and the cache ages there.

    C, F and x are those of the module's docstring.
    """
    waiting = np.ones(len(vector))
    following, age, _ = answer(servers, vector, waiting, age)
    for _ in range(0 if servers.aged is None else _AGE_STEPS):
        following, age, _ = answer(servers, vector, waiting, age)
    within_capacities(servers, following)
    rest = ((following - vector) / reference).reshape(len(vector), -1, 1)
    left: Floats = np.matmul(inverse, rest).reshape(vector.shape)
    return left, age


def _derivatives(servers: Servers, vector: Floats, age: Floats, reference: Floats, radius: Floats) -> _Enclosed:
    """Return bounds on the derivatives of one round's map over a box around `vector`.

    The unknowns are pairs (place, pressure), in units of `reference`.
    """
    count, places, pressures = vector.shape
    slopes, speeds = _slopes(servers, vector, reference * radius[:, None, None])
    units = reference[:, :, :, None]
    apart = (1.0 - np.eye(places))[None, :, None, :, None]

    def over_all(slope: Floats) -> Floats:
        """Arrange derivatives as a matrix: (place, answer) x (other place, pressure)."""
        turned = (slope * units).transpose(0, 1, 3, 2)[:, :, :, None, :]
        whole: Floats = (turned * apart).reshape(count, -1, places * pressures)
        return whole

    ratio = 1.0 / reference[:, :, None, :]
    joint = _Enclosed(*(over_all(side * ratio) for side in _between(slopes.low, slopes.high)))
    by_unknowns = _Enclosed(*map(over_all, _between(speeds.low, speeds.high)))
    for column in np.flatnonzero(np.isfinite(servers.socket.caps) | servers.least.any(axis=(0, 1))).tolist():
        rows = np.arange(places) * pressures + column
        asked = _Enclosed(*(side[:, rows] for side in joint))
        given = _product(_shares(servers, slopes, column), asked)
        if column == servers.socket.held and servers.aged is not None:
            total = _Enclosed(*(side.sum(axis=1, keepdims=True) for side in asked))
            aged = _by_age(servers, (slopes, speeds, age), total, by_unknowns, reference[:, :, column, None])
            by_age = servers.aged[:, None, None]
            given = _Enclosed(*(np.where(by_age, *sides) for sides in zip(aged, given, strict=True)))
        for side, of_column in zip(joint, given, strict=True):
            side[:, rows] = of_column
    return joint


def _by_age(
    servers: Servers, at: tuple[_Slopes, _Slopes, Floats], asked: _Enclosed, by_unknowns: _Enclosed, unit: Floats
) -> _Enclosed:
    """Return bounds on the derivatives of occupancies of a full cache that is divided by the age of lines.

    Occupancy i is O_i(T s_i), where s are the speeds and T is the age at which the sum of all occupancies is F, the
    occupied part of the cache. With e_i the slope of O_i by log T and e the sum of these slopes, dO_i = e_i dlog(s_i) +
    e_i / e (dF - sum_j e_j dlog(s_j)).

    `at`: slopes of answers, slopes of log speeds, and ages. `asked`, `by_unknowns`: slopes of the total demand, and of
    log speeds, as rows over all unknowns. `unit`: the reference of occupancies, shape (servers, 1, 1).
    """
    (slopes, speeds, age), column = at, servers.socket.held
    demand = [side[:, :, column].sum(axis=1) for side in (slopes.least, slopes.most)]
    floor, ceiling = servers.least[:, 0, column], servers.socket.caps[column]
    low, high = (np.minimum(np.maximum(side, floor), ceiling) for side in demand)
    holds_demand, holds_constant = (low == demand[0]) & (high == demand[1]), low == high
    flattest, steepest, certain = _slopes_by_age(servers, speeds, age, (low, high))
    by_speed, by_total = _divided_slopes(flattest, steepest)
    from_speed = _product(_Enclosed(*(side / unit for side in by_speed)), by_unknowns)
    total = _Enclosed(*(np.where(holds_demand[:, None, None], side, 0.0) for side in asked))
    from_total = _product(by_total, total, np.multiply)
    proven = (certain & (holds_demand | holds_constant))[:, None, None]
    radius = np.where(proven, from_speed.radius + from_total.radius, _HOPELESS)
    return _Enclosed(from_speed.centre + from_total.centre, radius)


def _slopes_by_age(
    servers: Servers, speeds: _Slopes, age: Floats, held: tuple[Floats, Floats]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return bounds on each occupancy's derivative by the logarithm of the lines' age, and where the bounds are valid.

    The range of ages in the box is guessed: twice as wide as the first-order effect of speeds and of `held` on the age.
    The bounds are valid where the occupancies at both ends confirm the guess.
    """
    slowest, fastest = speeds.least[:, :, 0], speeds.most[:, :, 0]
    weight = servers.weight[:, :, :, servers.start.shape[2] + 1]
    always, weight, half = weight[:, :, 0].sum(axis=1), weight[:, :, 1:], packets_of_age(weight.shape[2])

    def shares(packets: Floats) -> Floats:
        """Return the share of each term that is still in the cache at an age of its lines [packets]."""
        share: Floats = packets[:, :, None] / (packets[:, :, None] + half)
        return share

    def occupied(packets: Floats) -> Floats:
        total: Floats = always + (weight * shares(packets)).sum(axis=(1, 2))
        return total

    here = shares(age[:, None] * slowest)
    slope = np.maximum((weight * here * (1.0 - here)).sum(axis=(1, 2)), TINY)
    speed_range = np.log(np.maximum(fastest, TINY) / np.maximum(slowest, TINY)).max(axis=1)
    reach = 2.0 * (speed_range + (held[1] - held[0]) / slope) + _AGE_ROUNDING
    youngest, oldest = (age * np.exp(-reach))[:, None], (age * np.exp(reach))[:, None]
    certain = (occupied(youngest * fastest) <= held[0]) & (occupied(oldest * slowest) >= held[1])
    least, most = shares(youngest * slowest), shares(oldest * fastest)
    ends = least * (1.0 - least), most * (1.0 - most)
    highest = np.where((least <= 0.5) & (most >= 0.5), 0.25, np.maximum(*ends))
    flattest, steepest = ((weight * side).sum(axis=2) for side in (np.minimum(*ends), highest))
    return flattest, steepest, certain


def _divided_slopes(flattest: Floats, steepest: Floats) -> tuple[_Enclosed, _Enclosed]:
    """Return bounds on the derivatives of occupancies by the NFs' speeds if the total occupancy is constant.

    These are e_i (e - e_i) / e for the NF's own speed, -e_i e_j / e for another's, and e_i / e, with every e_i between
    `flattest` and `steepest`.
    """
    bounds = flattest, steepest
    all_flat, all_steep = (np.maximum(side.sum(axis=1, keepdims=True), TINY) for side in bounds)
    low_part = flattest / np.maximum(flattest + all_steep - steepest, TINY)
    high_part = steepest / np.maximum(steepest + all_flat - flattest, TINY)
    others = all_flat - flattest, all_steep - steepest
    own = [side * other / np.maximum(side + other, TINY) for side, other in zip(bounds, others, strict=True)]
    cross = (
        -steepest[:, :, None] * steepest[:, None] / all_flat[:, None],
        -flattest[:, :, None] * flattest[:, None] / all_steep[:, None],
    )
    same = np.eye(flattest.shape[1], dtype=bool)
    low, high = (np.where(same, of_own[:, :, None], side) for of_own, side in zip(own, cross, strict=True))
    by_total = _between(low_part, high_part)
    return _between(low, high), _Enclosed(*(side[:, :, None] for side in by_total))


def _shares(servers: Servers, slopes: _Slopes, column: int) -> _Enclosed:
    """Return bounds on the derivatives of `within_capacities` over the box.

    Of a full cache (or channel) of size w, an NF with demand x gets w x / X, X the sum of all demands; the slopes are w
    / X (1 - x / X). If the cache is full in only a part of the box, the radius is `_HOPELESS`.
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
    full = _between(least, most)
    radius = np.where(mixed, _HOPELESS, np.where(free, 0.0, full.radius))
    return _Enclosed(np.where(free, same, full.centre), radius)


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


def _slopes(servers: Servers, vector: Floats, reach: Floats) -> tuple[_Slopes, _Slopes]:
    """Return bounds on the derivatives of each NF's functions for pressures at a distance of at most `reach`.

    Clipped answers have slope 0.
    """
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


def _of_rates(servers: Servers, packet: _Slopes) -> tuple[_Slopes, _Slopes]:
    """Return the derivatives and values of rates, and those of the logarithm of speed.

    Rates are per-packet amounts times speed.
    """
    rates, pace = servers.socket.rates, servers.pace[:, :, None]
    slower, faster = packet.least[..., -1:] * pace, packet.most[..., -1:] * pace
    falling, rising = packet.low[..., -1:] * pace[..., None], packet.high[..., -1:] * pace[..., None]
    low, high, least, most = (each[..., :-1] for each in packet)  # answers and speed are never negative

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
    inverse = 1.0 / np.maximum(faster, TINY), 1.0 / np.maximum(slower, TINY)
    logarithm = times((falling, rising), (inverse[0][:, :, None], inverse[1][:, :, None]))
    return moved, _Slopes(*logarithm, slower, faster)
