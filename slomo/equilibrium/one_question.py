"""Compiled code for one question: verdict on one NF of a server, counters of one mix.

One call of each replaces many small numpy calls. The functions make the same additions in the same order, so results
are equal to the last bit; `slomo.models.functions.compilation` says when they are compiled.
"""

import numpy as np


def judge_one(  # type: ignore[no-untyped-def] # noqa: C901
    row, place, members, pressure, waiting, socket, moves, inside, errors, nearest
):
    """Return what the verdict on one NF of the server `row` reads (`slomo.equilibrium.judgement.VerdictInputs`).

    That is: whether a profile covers its pressure, mean and largest held-out error of the nearest mixes, the used share
    of the memory channel, and whether neighbours may move more than in its profile. Results equal those of
    `slomo.models.applicability`, `local_errors` and `slomo.equilibrium.judgement`. `pressure` and `waiting` are those
    of `slomo.equilibrium.server.FixedPoints`; `socket` as in `settle_servers`. `moves`, shape (2, NFs,
    kinds), has the largest amounts that each NF moves, and those that its neighbours moved. `inside`, shape (3 +
    pressures, pressures + 1), has low and high end, centre and rows of the precision; its last column begins with the
    farthest squared distance. `errors`, shape (1 + pressures, 1 + mixes), has the mixes' errors, then their pressures
    in units of the span, which is its first column. `nearest`: number of mixes whose errors count, at least 1.
    """
    here, channel, neighbours = pressure[row, place], int(socket[4]), 0
    pressures, mixes = len(here), errors.shape[1] - 1
    together, others = np.zeros(members.shape[1]), np.zeros(moves.shape[2])
    for i in range(members.shape[1]):
        who = members[row, i]
        if who < 0:
            break
        if i != place:
            neighbours += 1
            for kind in range(len(others)):
                others[kind] += moves[0, who, kind]
        if channel >= 0:  # in ascending order, so that the order of NFs does not matter
            value, at = pressure[row, i, channel] - socket[6 + channel] * (waiting[row] - 1.0), i
            while at > 0 and together[at - 1] > value:
                together[at] = together[at - 1]
                at -= 1
            together[at] = value
    load, more = 0.0, False
    if channel >= 0:
        for i in range(neighbours + 1):
            load += together[i]
        load = load / max(neighbours, 1) / socket[6 + channel]
    for kind in range(len(others)):
        more = more or others[kind] > moves[1, members[row, place], kind]
    covered, squared = True, 0.0
    for k in range(pressures):
        covered = covered and inside[0, k] <= here[k] <= inside[1, k]
        for m in range(pressures):
            squared += (here[k] - inside[2, k]) * inside[3 + k, m] * (here[m] - inside[2, m])
    covered = covered and squared <= inside[0, pressures]
    distances, least = np.zeros(mixes), np.full(nearest, np.inf)
    for n in range(mixes):
        for k in range(pressures):
            away = errors[1 + k, 1 + n] - here[k] / errors[1 + k, 0]
            distances[n] += away * away
        value, at = distances[n], nearest - 1
        if value < least[at]:
            while at > 0 and least[at - 1] > value:
                least[at] = least[at - 1]
                at -= 1
            least[at] = value
    total, largest, count = 0.0, 0.0, 0
    for n in range(mixes):
        if distances[n] <= least[nearest - 1]:
            total += errors[0, 1 + n]
            largest = max(largest, errors[0, 1 + n])
            count += 1
    return covered, total / max(count, 1), largest, load, more


def compose_one(rows, members, reading, pressure, limits, vectors, composed):  # type: ignore[no-untyped-def] # noqa: C901
    """Combine the counters of one mix; results equal those of `slomo.equilibrium.competition` to the last bit.

    `rows` are those of `settle_servers`; `members`: row of each competitor; `pressure` on each has shape
    (competitors, pressures). `reading`, shape (rows, 2 + terms, metrics), has low, high and weights of the metrics.
    `limits`, shape (3, metrics), has divisors, largest values, and two columns with the limit of their sum, or -1. The
    function sets `vectors`, shape (competitors, metrics), and `composed`.
    """
    count, metrics = vectors.shape
    pressures = pressure.shape[1]
    basis = np.ones(reading.shape[1] - 2)
    for i in range(count):
        who = members[i]
        for k in range(pressures):
            clamped = min(max(pressure[i, k], 0.0), rows[who, 2 * pressures + k])
            basis[1 + k] = clamped / (clamped + rows[who, pressures + k])
        term = 1 + pressures
        for k in range(pressures):
            for m in range(k + 1):
                basis[term] = basis[1 + k] * basis[1 + m]
                term += 1
        for a in range(metrics):
            vectors[i, a] = reading[who, 2, a]
        for t in range(1, len(basis)):
            for a in range(metrics):
                vectors[i, a] += basis[t] * reading[who, 2 + t, a]
        for a in range(metrics):
            vectors[i, a] = min(max(vectors[i, a], reading[who, 0, a]), reading[who, 1, a])
    values = np.zeros(count)
    for a in range(metrics):
        for i in range(count):  # in ascending order, so that the order of competitors does not matter
            value, at = vectors[i, a] / limits[0, a], i
            while at > 0 and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
        total = values[0]
        for i in range(1, count):
            total += values[i]
        composed[a] = total
    first, second, limit = int(limits[2, 0]), int(limits[2, 1]), limits[2, 2]
    demand = composed[first] + composed[second]
    if limit >= 0.0 and demand > limit:
        composed[first] *= limit / demand
        composed[second] *= limit / demand
    for a in range(metrics):
        if composed[a] > limits[1, a]:
            composed[a] = limits[1, a]
