"""The iteration of `slomo.equilibrium.rounds` as compiled code, for many servers at once.

A lane solves one server. It makes the same additions in the same order as the numpy code, without fast-math, so results
are equal to the last bit. The innermost loops run over lanes, which are adjacent in memory, and compile to vector
instructions. Once half of the lanes have converged, they take the next servers; if no server is left, the last lanes
move to their places.

Compiling takes seconds the first time on a machine, and loading the compiled code takes a tenth of a second. Both are
too long for one server but short for many. The compiled loop is therefore used once the rounds in numpy have taken as
long.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from slomo.models.functions.compilation import compiled

#: Number of lanes: enough for vector loops, and few enough that their data stay in the L2 cache. A row is an odd number
#: of cache lines, so that the values of one lane do not map to the same few L1 sets.
LANES = 56
#: Number of servers whose solution in numpy takes as long as loading the compiled loop: first if numba must be
#: imported, then if it already is.
LOADING_SERVERS, LOADED_SERVERS = 1024, 64


class _Spent:
    """State of this process: number of servers solved in numpy, compiled functions, and a setting of each thread.

    The setting says that the thread never waits for the compiler (:func:`never_compiling`).
    """

    servers = 0
    loops: ClassVar[dict[Callable[..., Any], Callable[..., Any] | None]] = {}
    ready: ClassVar[dict[tuple[Callable[..., Any], ...], list[Callable[..., Any]]]] = {}
    thread = threading.local()


@contextmanager
def never_compiling() -> Iterator[None]:
    """Solve in numpy in this thread until another thread has compiled the code, so that this thread never waits."""
    outside = getattr(_Spent.thread, "never_compiling", False)
    _Spent.thread.never_compiling = True
    try:
        yield
    finally:
        _Spent.thread.never_compiling = outside


def loop_for(servers: int, function: Callable[..., Any] | None = None) -> Callable[..., Any] | None:
    """Count these servers as solved, and return the compiled code; None if numpy should be used.

    numpy should be used if too few servers were counted for compiling to save time, or if the code is not compiled and
    this thread never compiles. `function`: by default :func:`settle_side_by_side`.
    """
    _Spent.servers += servers
    if _is_early():
        return None
    function = function or settle_side_by_side
    loop = _Spent.loops.get(function)
    if getattr(_Spent.thread, "never_compiling", False):
        return loop if getattr(loop, "signatures", None) else None
    if loop is None:
        loop = _Spent.loops[function] = compiled(function)
    return loop


def _is_early() -> bool:
    """Return whether so few servers were solved so far that compiling would not save time."""
    return _Spent.servers < (LOADED_SERVERS if "numba" in sys.modules else LOADING_SERVERS)


def code_for(functions: tuple[Callable[..., Any], ...]) -> list[Callable[..., Any]] | None:
    """Return the compiled code of several functions; None if one of them is not compiled."""
    if _is_early():
        return None
    code = _Spent.ready.get(functions)
    if code is None:
        loops = [loop_for(0, each) for each in functions]
        code = [each for each in loops if each is not None]
        if len(code) < len(functions):
            return None
        if all(getattr(each, "signatures", None) for each in code):  # no function waits for the compiler any more
            _Spent.ready[functions] = code
    return code


def settle_side_by_side(  # type: ignore[no-untyped-def] # noqa: C901
    rows,
    members,
    offered,
    reduced,
    pace,
    socket,
    tolerance,
    full_kib,
    tries,
    ages,
    vectors,
    status,
    waiting,
    age,
    speeds,
):
    """Find the equilibrium of every server; the arguments are those in `settling`.

    Empty places come last. `reduced`: whether some NF is offered less than it could serve. `vectors`, shape (2,
    servers, places, pressures), `waiting` and `age` hold the initial values and afterwards the results: counters and
    the pressure on each NF. `speeds` is set to the smooth speed under that pressure. `status`, shape (servers, 5), is
    set as in `IterationState`. For an NF at part load, two answers are computed:
    at full load, and (`table` 1) at part load. Without a part-load profile, the second one is at full load beside
    faster neighbours.
    """
    tiny, least_load, held, busy = socket[0], socket[1], int(socket[2]), socket[3]
    channel, compared = int(socket[4]), socket[5]
    pressures, places = vectors.shape[3], members.shape[1]
    terms = 1 + pressures + pressures * (pressures + 1) // 2
    part_at = rows.shape[1] // 2
    width = (part_at - 3 * pressures) // (terms + 2)
    caps, rates = socket[6 : 6 + pressures], socket[6 + pressures :]
    low, high, weights = 3 * pressures, 3 * pressures + width, 3 * pressures + 2 * width
    lanes, answers = min(LANES, members.shape[0]), pressures + 1
    tables = 2 if reduced else 1
    # few allocations, each of several arrays: for a single server, thirty would take as long as two rounds
    vectors_of_lanes = np.zeros((2, places, pressures, lanes))
    vector, following = vectors_of_lanes[0], vectors_of_lanes[1]
    of_place = np.zeros((3, places, lanes))
    paces, loads, known = of_place[0], of_place[1], of_place[2]
    basis = np.ones((terms, lanes))
    both_answers = np.zeros((2, answers, lanes))
    answered, saturated = both_answers[0], both_answers[1]
    of_pressure = np.zeros((3, pressures, lanes))
    total, least, reference = of_pressure[0], of_pressure[1], of_pressure[2]
    of_lane = np.zeros((15, lanes))
    served, full, stretch, wait, most_wait = of_lane[0], of_lane[1], of_lane[2], of_lane[3], of_lane[4]
    added, damping, step, moved, wanted = of_lane[5], of_lane[6], of_lane[7], of_lane[8], of_lane[9]
    aged, age_us, held_sum, slope, held_one = of_lane[10], of_lane[11], of_lane[12], of_lane[13], of_lane[14]
    holding_at, by_age = weights + pressures + 1, 0
    for who in range(rows.shape[0] if held >= 0 else 0):
        for t in range(terms):
            if rows[who, holding_at + t * width] > 0.0:
                by_age = 1
    reads_back = 0
    for who in range(rows.shape[0] if channel >= 0 else 0):
        if rows[who, high + pressures + 2] > 0.0:
            reads_back = 1
    # constants of the NFs in the order of `rows`, without solo values and columns that nobody reads
    wide, lowest = answers + 2 * max(by_age, reads_back), 2 * pressures
    weighed = lowest + 2 * wide
    constant = np.zeros((tables, places, weighed + terms * wide, lanes))
    back = np.zeros((reads_back * places, lanes))
    least_age, most_age, older = ages[0], ages[1], ages[2]
    holds, asked = np.zeros((by_age * places, lanes)), np.zeros((by_age * places, lanes))
    numbers, of_filled = rows.reshape(-1), np.zeros((2, lanes), dtype=np.uintp)
    filled, begin = of_filled[0], of_filled[1]
    counters = np.zeros((4, lanes), dtype=np.int64)
    server_of, number, attempt, taken = counters[0], counters[1], counters[2], counters[3]
    counts = np.zeros(members.shape[0], dtype=np.int64)
    for server in range(members.shape[0]):
        while counts[server] < places and members[server, counts[server]] >= 0:
            counts[server] += 1
        if counts[server] == 0:  # an empty server
            status[server, 0], status[server, 1], status[server, 2], status[server, 3:] = 1.0, 1.0, 0.0, 0.0
    for count in range(1, places + 1):
        waiting_server, active = 0, lanes
        server_of[:] = -1
        while True:
            empty = 0
            for lane in range(active):
                empty += server_of[lane] < 0
            lane, fresh = (0 if 2 * empty >= active else active), 0
            while lane < active:
                if server_of[lane] >= 0:
                    lane += 1
                    continue
                while waiting_server < members.shape[0] and counts[waiting_server] != count:
                    waiting_server += 1
                if waiting_server == members.shape[0]:  # no server waits: the last lane moves here
                    active -= 1
                    if server_of[active] >= 0:
                        counters[:, lane], of_lane[:, lane] = counters[:, active], of_lane[:, active]
                        of_pressure[:, :, lane] = of_pressure[:, :, active]
                        of_place[:, :count, lane] = of_place[:, :count, active]
                        vector[:count, :, lane] = vector[:count, :, active]
                        constant[:, :count, :, lane] = constant[:, :count, :, active]
                        server_of[active] = -1
                    continue
                server = waiting_server
                waiting_server += 1
                filled[fresh] = lane
                fresh += 1
                server_of[lane], number[lane], attempt[lane], taken[lane] = server, 0, 0, 0
                damping[lane], step[lane], wait[lane], most_wait[lane] = tries[0, 0], np.inf, waiting[server], 1.0
                for k in range(pressures):
                    reference[k, lane] = tiny
                    for i in range(count):
                        vector[i, k, lane] = vectors[0, server, i, k]
                        who = members[server, i]
                        reference[k, lane] = max(reference[k, lane], rows[who, k], compared * rows[who, pressures + k])
                    everything, solo = vector[0, k, lane], rows[members[server, 0], k]
                    for i in range(1, count):
                        everything += vector[i, k, lane]
                        solo += rows[members[server, i], k]
                    least[k, lane] = min(solo, full_kib[server]) if k == held else 0.0
                    share = min(max(everything, least[k, lane]), caps[k]) / max(everything, tiny)
                    for i in range(count):
                        vector[i, k, lane] *= share
                furthest, aged[lane], age_us[lane] = 0.0, by_age, age[server]
                for i in range(count):
                    who, known_one = members[server, i], 0.0
                    paces[i, lane], loads[i, lane] = pace[server, i], offered[server, i]
                    known[i, lane] = 1.0 if rows[who, part_at] > 0.0 else 0.0
                    if channel >= 0:
                        furthest = max(furthest, rows[who, 2 * pressures + channel])
                    for t in range(by_age * terms):
                        known_one = max(known_one, rows[who, holding_at + t * width])
                    if known_one == 0.0:
                        aged[lane] = 0.0
                if channel >= 0:
                    most_wait[lane] = 1.0 + furthest / caps[channel]
                lane += 1
            for i in range(count if fresh else 0):
                for table in range(tables):
                    for j in range(fresh):
                        lane = filled[j]
                        at = part_at if table == 1 and known[i, lane] > 0.0 else 0
                        begin[j] = members[server_of[lane], i] * rows.shape[1] + at
                    for k in range(2 * pressures):
                        for j in range(fresh):
                            constant[table, i, k, filled[j]] = numbers[begin[j] + np.uintp(pressures + k)]
                    for t in range(terms + 2):
                        for a in range(wide):
                            line, column = constant[table, i, lowest + t * wide + a], np.uintp(low + t * width + a)
                            for j in range(fresh):
                                line[filled[j]] = numbers[begin[j] + column]
            if active == 0:
                break
            for k in range(pressures):
                sums, one = total[k], vector[0, k]
                for lane in range(active):
                    sums[lane] = one[lane]
                for i in range(1, count):
                    one = vector[i, k]
                    for lane in range(active):
                        sums[lane] += one[lane]
            if channel >= 0:
                for lane in range(active):
                    added[lane] = caps[channel] * (wait[lane] - 1.0)
            for i in range(count):
                for table in range(tables):
                    for k in range(pressures):
                        sums, one, part = total[k], vector[i, k], basis[1 + k]
                        half, most = constant[table, i, k], constant[table, i, pressures + k]
                        for lane in range(active):
                            part[lane] = sums[lane] - one[lane]
                        if table == 1 and rates[k] > 0.0:
                            for lane in range(active):
                                part[lane] *= stretch[lane]
                        if k == channel:
                            for lane in range(active):
                                part[lane] += added[lane]
                        for lane in range(active):
                            clamped = min(max(part[lane], 0.0), most[lane])
                            part[lane] = clamped / (clamped + half[lane])
                    term = 1 + pressures
                    for k in range(pressures):
                        for m in range(k + 1):
                            line, part, other = basis[term], basis[1 + k], basis[1 + m]
                            for lane in range(active):
                                line[lane] = part[lane] * other[lane]
                            term += 1
                    read = answers if table == 0 else pressures
                    if lanes == 1:  # one server: with its answers adjacent in memory, the loop is twice as fast
                        for a in range(read):
                            answered[a, 0] = constant[table, i, weighed + a, 0]
                        for t in range(1, terms):
                            for a in range(read):
                                answered[a, 0] += basis[t, 0] * constant[table, i, weighed + t * wide + a, 0]
                    for a in range(read if lanes > 1 else 0):
                        answer, factor = answered[a], constant[table, i, weighed + a]
                        for lane in range(active):
                            answer[lane] = factor[lane]
                        for t in range(1, terms):
                            line, factor = basis[t], constant[table, i, weighed + t * wide + a]
                            for lane in range(active):
                                answer[lane] += line[lane] * factor[lane]
                    for a in range(read):
                        answer, least_answer, most_answer = (
                            answered[a],
                            constant[table, i, lowest + a],
                            constant[table, i, lowest + wide + a],
                        )
                        for lane in range(active):
                            answer[lane] = min(max(answer[lane], least_answer[lane]), most_answer[lane])
                    if table == 1:
                        break
                    own, speed = paces[i], answered[pressures]
                    if reads_back:
                        answer, factor = back[i], constant[0, i, weighed + answers + 1]
                        for lane in range(active):
                            answer[lane] = factor[lane]
                        for t in range(1, terms):
                            line, factor = basis[t], constant[0, i, weighed + answers + 1 + t * wide]
                            for lane in range(active):
                                answer[lane] += line[lane] * factor[lane]
                        for lane in range(active):
                            answer[lane] = max(answer[lane], 0.0)
                    if tables == 1:
                        for lane in range(active):
                            served[lane] = speed[lane] * own[lane]
                        if reads_back:
                            for lane in range(active):
                                back[i, lane] *= served[lane]
                        continue
                    fastest = constant[0, i, lowest + wide + pressures]
                    for lane in range(active):
                        possible = speed[lane] * own[lane]
                        load = min(max(loads[i, lane] / max(possible, tiny), least_load), 1.0)
                        share, served[lane] = load, load * possible
                        if known[i, lane] > 0.0:
                            share = min(max(served[lane] / max(fastest[lane], tiny), least_load), 1.0)
                        stretch[lane] = 1.0 / share
                        full[lane] = max((load - busy) / (1.0 - busy), 0.0)
                    if reads_back:
                        for lane in range(active):
                            back[i, lane] *= served[lane] * full[lane]
                    for a in range(pressures):
                        whole, answer = saturated[a], answered[a]
                        for lane in range(active):
                            whole[lane] = answer[lane]
                for k in range(pressures):
                    one, new, answer, whole = vector[i, k], following[i, k], answered[k], saturated[k]
                    if tables == 2:
                        for lane in range(active):
                            if known[i, lane] > 0.0:
                                answer[lane] = full[lane] * whole[lane] + (1.0 - full[lane]) * answer[lane]
                    if rates[k] > 0.0:
                        for lane in range(active):
                            answer[lane] *= served[lane]
                    if by_age and k == held:
                        for lane in range(active):
                            asked[i, lane] = answer[lane]
                    for lane in range(active):
                        new[lane] = one[lane] + damping[lane] * (answer[lane] - one[lane])
                if by_age:
                    one = holds[i]
                    for lane in range(active):
                        one[lane], held_one[lane] = constant[0, i, weighed + answers, lane], 0.0
                    for t in range(1, terms):
                        factor, packets = constant[0, i, weighed + answers + t * wide], ages[2 + t]
                        for lane in range(active):
                            held_share = age_us[lane] * served[lane] / (age_us[lane] * served[lane] + packets)
                            one[lane] += held_share * factor[lane]
                            held_one[lane] += held_share * (1.0 - held_share) * factor[lane]
                    for lane in range(active):
                        held_sum[lane] = one[lane] if i == 0 else held_sum[lane] + one[lane]
                        slope[lane] = held_one[lane] if i == 0 else slope[lane] + held_one[lane]
                        wanted[lane] = asked[i, lane] if i == 0 else wanted[lane] + asked[i, lane]
            if by_age:
                for i in range(count):
                    for lane in range(active):
                        if aged[lane] > 0.0:
                            share = holds[i, lane] * (wanted[lane] / max(held_sum[lane], tiny))
                            following[i, held, lane] = vector[i, held, lane] + damping[lane] * (
                                share - vector[i, held, lane]
                            )
                for lane in range(active):
                    if aged[lane] > 0.0:
                        room = min(max(wanted[lane], least[held, lane]), caps[held])
                        share = min(max(1.0 + (room - held_sum[lane]) / max(slope[lane], tiny), 1.0 / older), older)
                        age_us[lane] = min(max(age_us[lane] * share, least_age), most_age)
            for lane in range(active):
                moved[lane] = 0.0
            if reads_back:
                for lane in range(active):
                    everything, saved = following[0, channel, lane], back[0, lane]
                    for i in range(1, count):
                        everything += following[i, channel, lane]
                        saved += back[i, lane]
                    share = min(max(everything - caps[channel], 0.0) / max(saved, tiny), 1.0)
                    for i in range(count):
                        value = following[i, channel, lane] - share * back[i, lane]
                        following[i, channel, lane] = max(value, 0.0)
            for k in range(pressures):
                sums, new = total[k], following[0, k]
                for lane in range(active):
                    sums[lane] = new[lane]
                for i in range(1, count):
                    new = following[i, k]
                    for lane in range(active):
                        sums[lane] += new[lane]
                fewest, cap, scaled_by = least[k], caps[k], reference[k]
                for lane in range(active):
                    wanted[lane] = min(max(sums[lane], fewest[lane]), cap) / max(sums[lane], tiny)
                for i in range(count):
                    one, new = vector[i, k], following[i, k]
                    for lane in range(active):
                        value = new[lane] * wanted[lane]
                        moved[lane] = max(moved[lane], abs(value - one[lane]) / scaled_by[lane])
                        one[lane] = value
                if k == channel:
                    for lane in range(active):
                        longer = min(max(wait[lane] * (sums[lane] / cap), 1.0), most_wait[lane])
                        moved[lane] = max(moved[lane], abs(longer - wait[lane]))
                        wait[lane] = longer
            for lane in range(active):
                if server_of[lane] < 0:
                    continue
                number[lane] += 1
                done = moved[lane] <= tolerance * damping[lane]
                before, step[lane] = step[lane], moved[lane]
                if not done and number[lane] < int(tries[attempt[lane], 1]):
                    continue
                server = server_of[lane]
                status[server, 2] = min(moved[lane] / max(before, tiny), 1e9)
                taken[lane] += number[lane]
                number[lane], attempt[lane] = 0, attempt[lane] + 1
                if not done and attempt[lane] < tries.shape[0]:
                    damping[lane] = tries[attempt[lane], 0]
                    continue
                status[server, 0], status[server, 1], status[server, 3] = done, taken[lane], step[lane]
                waiting[server], age[server], server_of[lane] = wait[lane], age_us[lane], -1
                status[server, 4] = 0.0
                for k in range(pressures):
                    everything = vector[0, k, lane]
                    for i in range(1, count):
                        everything += vector[i, k, lane]
                    for i in range(count):
                        before, after = vectors[1, server, i, k], max(everything - vector[i, k, lane], 0.0)
                        if k == channel:
                            after += caps[channel] * (wait[lane] - 1.0)
                        vectors[0, server, i, k], vectors[1, server, i, k] = vector[i, k, lane], after
                        status[server, 4] = max(status[server, 4], abs(after - before) / max(before, tiny))
    for first in range(0, members.shape[0], lanes):  # the smooth speed under the pressure found
        some = min(lanes, members.shape[0] - first)
        for i in range(places):
            for j in range(some):
                begin[j] = max(members[first + j, i], 0) * rows.shape[1]
            for k in range(pressures):
                for j in range(some):
                    who = max(members[first + j, i], 0)
                    clamped = min(max(vectors[1, first + j, i, k], 0.0), rows[who, 2 * pressures + k])
                    basis[1 + k, j] = clamped / (clamped + rows[who, pressures + k])
            term, fast = 1 + pressures, answered[0]
            for k in range(pressures):
                for m in range(k + 1):
                    line, part, other = basis[term], basis[1 + k], basis[1 + m]
                    for j in range(some):
                        line[j] = part[j] * other[j]
                    term += 1
            fast[:] = 0.0
            for t in range(terms):
                line, column = basis[t], np.uintp(weights + t * width + pressures)
                for j in range(some):
                    fast[j] += line[j] * numbers[begin[j] + column]
            for j in range(some):
                who = members[first + j, i]
                if who >= 0:
                    speeds[first + j, i] = min(max(fast[j], rows[who, low + pressures]), rows[who, high + pressures])
