"""The rounds of `slomo.equilibrium.rounds` as one compiled loop, server by server: the same additions in that order.

Without fast-math no sum is reordered and no product fused, so that both ways give the same bits. Compiling takes
seconds the first time on a machine, loading what was compiled a tenth of a second: too long for one question, little
for many. So the loop is taken from the moment on when rounds in numpy have cost as much.
"""

import sys
from collections.abc import Callable

import numpy as np

from slomo.equilibrium.lanes import LEAST_SERVERS, settle_side_by_side
from slomo.models.functions.compilation import compiled

#: So many servers solved in numpy take as long as loading the loop; where numba was loaded already, far fewer do.
LOADING_SERVERS, LOADED_SERVERS = 1024, 64


class _Spent:
    """How many servers were solved in numpy since the process began."""

    servers = 0


def loop_for(servers: int, *, saturated: bool = False) -> Callable[..., None] | None:
    """Return the compiled loop where it pays for so many servers more; else None, and they are counted.

    Examples
    --------
    >>> loop_for(0) is None or callable(loop_for(0))
    True
    """
    _Spent.servers += servers
    if _Spent.servers < (LOADED_SERVERS if "numba" in sys.modules else LOADING_SERVERS):
        return None
    return compiled(settle_side_by_side if saturated and servers >= LEAST_SERVERS else _settle)


def _settle(  # type: ignore[no-untyped-def] # noqa: C901
    rows, members, offered, pace, socket, full_kib, tries, vectors, went
):
    """Bring every server to rest; `rows` as `slomo.equilibrium.tables.Tables`, `socket` as `ResponseTable.numbers`.

    `pace` is throughput over the smooth speed, shape (servers, places).

    Reads where to begin in `vectors` and writes vectors and what each NF feels there, shape
    (2, servers, places, pressures); and into `went`, shape (servers, 4),
    whether it converged, the rounds, the ratio of the last two steps and the last step. Empty places come last.
    Of an NF at part load three answers are read: at full load, at part load (`again` 1), and, where it was not profiled
    there, at full load beside faster neighbours.
    """
    tolerance, tiny, least_load, held, busy = socket[0], socket[1], socket[2], int(socket[3]), socket[4]
    pressures, places = vectors.shape[3], members.shape[1]
    terms = 1 + pressures + pressures * (pressures + 1) // 2
    half = rows.shape[1] // 2
    width = (half - 3 * pressures) // (terms + 2)
    caps, rates = socket[5 : 5 + pressures], socket[5 + pressures :]
    low, high, weight = 3 * pressures, 3 * pressures + width, 3 * pressures + 2 * width
    vector, following = np.zeros((places, pressures)), np.zeros((places, pressures))
    total, reference, least = np.zeros(pressures), np.zeros(pressures), np.zeros(pressures)
    felt, basis, answered, whole = np.zeros(pressures), np.zeros(terms), np.zeros(width), np.zeros(width)
    for server in range(members.shape[0]):
        count, reduced = 0, False
        while count < places and members[server, count] >= 0:
            reduced = reduced or offered[server, count] < np.inf
            count += 1
        reference[:] = tiny
        for i in range(count):
            for k in range(pressures):
                vector[i, k] = vectors[0, server, i, k]
                reference[k] = max(reference[k], rows[members[server, i], k])
        for k in range(pressures):
            everything, solo = vector[0, k], rows[members[server, 0], k]
            for i in range(1, count):
                everything += vector[i, k]
                solo += rows[members[server, i], k]
            least[k] = min(solo, full_kib[server]) if k == held else 0.0
            wanted = min(max(everything, least[k]), caps[k]) / max(everything, tiny)
            for i in range(count):
                vector[i, k] *= wanted
        step, taken, done = np.inf, 0, False
        for attempt in range(tries.shape[0]):
            damping, most = tries[attempt, 0], int(tries[attempt, 1])
            for number in range(1, most + 1):
                for k in range(pressures):
                    total[k] = vector[0, k]
                    for i in range(1, count):
                        total[k] += vector[i, k]
                for i in range(count):
                    who, load, share, at, possible = members[server, i], 1.0, 1.0, 0, 0.0
                    known = reduced and rows[members[server, i], half] > 0.0
                    for again in range(2):
                        for k in range(pressures):
                            felt[k] = total[k] - vector[i, k]
                            if again == 1 and rates[k] > 0.0:
                                felt[k] = felt[k] * (1.0 / share)
                            most_known = rows[who, at + 2 * pressures + k]
                            if at == 0:
                                most_known = min(most_known, caps[k])
                            kept = min(max(felt[k], 0.0), most_known)
                            felt[k] = kept / (kept + rows[who, at + pressures + k])
                        term = 1
                        basis[0] = 1.0
                        for k in range(pressures):
                            basis[term] = felt[k]
                            term += 1
                        for k in range(pressures):
                            for m in range(k + 1):
                                basis[term] = felt[k] * felt[m]
                                term += 1
                        for a in range(width):
                            answered[a] = basis[0] * rows[who, at + weight + a]
                        for t in range(1, terms):
                            for a in range(width):
                                answered[a] += basis[t] * rows[who, at + weight + t * width + a]
                        for a in range(pressures + 1):
                            answered[a] = min(max(answered[a], rows[who, at + low + a]), rows[who, at + high + a])
                        if again == 0:
                            possible = answered[pressures] * pace[server, i]
                        if again == 1 or not reduced:
                            break
                        load = min(max(offered[server, i] / max(possible, tiny), least_load), 1.0)
                        share = load
                        if known:
                            at = half
                            fastest = max(rows[who, high + pressures], tiny)
                            share = min(max(load * possible / fastest, least_load), 1.0)
                            for a in range(width):
                                whole[a] = answered[a]
                    full, served = max((load - busy) / (1.0 - busy), 0.0), load * possible
                    for k in range(pressures):
                        reached = full * whole[k] + (1.0 - full) * answered[k] if known else answered[k]
                        if rates[k] > 0.0:
                            reached = reached * served
                        following[i, k] = vector[i, k] + damping * (reached - vector[i, k])
                for k in range(pressures):
                    everything = following[0, k]
                    for i in range(1, count):
                        everything += following[i, k]
                    wanted = min(max(everything, least[k]), caps[k]) / max(everything, tiny)
                    for i in range(count):
                        following[i, k] *= wanted
                moved = 0.0
                for i in range(count):
                    for k in range(pressures):
                        moved = max(moved, abs(following[i, k] - vector[i, k]) / reference[k])
                        vector[i, k] = following[i, k]
                done = moved <= tolerance * damping
                if done or number == most:
                    went[server, 2] = min(moved / max(step, tiny), 1e9)
                    taken += number
                step = moved
                if done:
                    break
            if done:
                break
        went[server, 0], went[server, 1], went[server, 3] = done, taken, step
        for k in range(pressures):
            total[k] = vector[0, k]
            for i in range(1, count):
                total[k] += vector[i, k]
            for i in range(count):
                vectors[0, server, i, k] = vector[i, k]
                vectors[1, server, i, k] = max(total[k] - vector[i, k], 0.0)
