"""The rounds of `slomo.equilibrium.rounds` for many saturated servers side by side: one server per lane of a vector.

The same additions in that order in every lane, so the same bits as one server after the other; the innermost loops run
over lanes, which lie side by side in memory, and compile to vector instructions. A lane whose server is at rest takes
the next one; where none waits, the last lane moves into its place. Servers at part load take
`slomo.equilibrium.compiled_rounds`.
"""

import numpy as np

#: Lanes: enough that loops over them pay, few enough that what they read stays in the second-level cache; an odd number
#: of cache lines, so that the numbers of one lane do not fall into the same few sets of the first-level cache.
LANES = 56
#: From so many servers on filling lanes pays.
LEAST_SERVERS = 4 * LANES


def settle_side_by_side(  # type: ignore[no-untyped-def] # noqa: C901
    rows, members, _, pace, socket, full_kib, tries, vectors, went
):
    """Bring saturated servers to rest; arguments and results as of `slomo.equilibrium.compiled_rounds`."""
    tolerance, tiny, held = socket[0], socket[1], int(socket[3])
    pressures, places = vectors.shape[3], members.shape[1]
    terms = 1 + pressures + pressures * (pressures + 1) // 2
    width = (rows.shape[1] // 2 - 3 * pressures) // (terms + 2)
    caps, rates = socket[5 : 5 + pressures], socket[5 + pressures :]
    low, high, weights = 3 * pressures, 3 * pressures + width, 3 * pressures + 2 * width
    weight = np.zeros((places, terms, pressures + 1, LANES))
    each = (places, pressures, LANES)  # taken apart from one array, these would not be known to lie side by side
    vector, following, scale, limit = np.zeros(each), np.zeros(each), np.zeros(each), np.zeros(each)
    answers = (places, pressures + 1, LANES)
    least_answer, most_answer, felt = np.zeros(answers), np.zeros(answers), np.zeros((pressures, LANES))
    paces, possible = np.ones((places, LANES)), np.zeros(LANES)
    total, least, reference = np.zeros((pressures, LANES)), np.zeros((pressures, LANES)), np.zeros((pressures, LANES))
    basis, answer = np.ones((terms, LANES)), np.zeros(LANES)
    damping, step, moved, wanted = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    server_of, number = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    attempt, taken = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    counts = np.zeros(members.shape[0], dtype=np.int64)
    for server in range(members.shape[0]):
        while counts[server] < places and members[server, counts[server]] >= 0:
            counts[server] += 1
        if counts[server] == 0:  # nobody moves
            went[server, 0], went[server, 1], went[server, 2], went[server, 3] = 1.0, 1.0, 0.0, 0.0
    for count in range(1, places + 1):
        waiting, active = 0, 0
        while True:
            while active < LANES:  # the next server that waits takes the first free lane
                while waiting < members.shape[0] and counts[waiting] != count:
                    waiting += 1
                if waiting == members.shape[0]:
                    break
                lane, server = active, waiting
                waiting, active = waiting + 1, active + 1
                server_of[lane], number[lane], attempt[lane], taken[lane] = server, 0, 0, 0
                damping[lane], step[lane] = tries[0, 0], np.inf
                for k in range(pressures):
                    reference[k, lane] = tiny
                    for i in range(count):
                        who = members[server, i]
                        vector[i, k, lane] = vectors[0, server, i, k]
                        reference[k, lane] = max(reference[k, lane], rows[who, k])
                        scale[i, k, lane] = rows[who, pressures + k]
                        limit[i, k, lane] = min(rows[who, 2 * pressures + k], caps[k])
                    everything, solo = vector[0, k, lane], rows[members[server, 0], k]
                    for i in range(1, count):
                        everything += vector[i, k, lane]
                        solo += rows[members[server, i], k]
                    least[k, lane] = min(solo, full_kib[server]) if k == held else 0.0
                    share = min(max(everything, least[k, lane]), caps[k]) / max(everything, tiny)
                    for i in range(count):
                        vector[i, k, lane] *= share
                for i in range(count):
                    who, paces[i, lane] = members[server, i], pace[server, i]
                    for a in range(pressures + 1):
                        least_answer[i, a, lane], most_answer[i, a, lane] = rows[who, low + a], rows[who, high + a]
                        for t in range(terms):
                            weight[i, t, a, lane] = rows[who, weights + t * width + a]
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
            for i in range(count):
                for k in range(pressures):
                    sums, one, most, half, part = total[k], vector[i, k], limit[i, k], scale[i, k], felt[k]
                    line = basis[1 + k]
                    for lane in range(active):
                        kept = min(max(sums[lane] - one[lane], 0.0), most[lane])
                        part[lane] = kept / (kept + half[lane])
                        line[lane] = part[lane]
                term = 1 + pressures
                for k in range(pressures):
                    for m in range(k + 1):
                        line, part, other = basis[term], felt[k], felt[m]
                        for lane in range(active):
                            line[lane] = part[lane] * other[lane]
                        term += 1
                for a in range(pressures, -1, -1):  # speed first: rates are what a packet moves times it
                    factor = weight[i, 0, a]
                    for lane in range(active):
                        answer[lane] = factor[lane]
                    for t in range(1, terms):
                        line, factor = basis[t], weight[i, t, a]
                        for lane in range(active):
                            answer[lane] += line[lane] * factor[lane]
                    bottom, top = least_answer[i, a], most_answer[i, a]
                    if a == pressures:
                        own = paces[i]
                        for lane in range(active):
                            possible[lane] = min(max(answer[lane], bottom[lane]), top[lane]) * own[lane]
                        continue
                    one, new = vector[i, a], following[i, a]
                    if rates[a] > 0.0:
                        for lane in range(active):
                            reached = min(max(answer[lane], bottom[lane]), top[lane]) * possible[lane]
                            new[lane] = one[lane] + damping[lane] * (reached - one[lane])
                    else:
                        for lane in range(active):
                            reached = min(max(answer[lane], bottom[lane]), top[lane])
                            new[lane] = one[lane] + damping[lane] * (reached - one[lane])
            for lane in range(active):
                moved[lane] = 0.0
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
            lane = 0
            while lane < active:
                number[lane] += 1
                done = moved[lane] <= tolerance * damping[lane]
                before, step[lane] = step[lane], moved[lane]
                if not done and number[lane] < int(tries[attempt[lane], 1]):
                    lane += 1
                    continue
                server = server_of[lane]
                went[server, 2] = min(moved[lane] / max(before, tiny), 1e9)
                taken[lane] += number[lane]
                number[lane], attempt[lane] = 0, attempt[lane] + 1
                if not done and attempt[lane] < tries.shape[0]:
                    damping[lane] = tries[attempt[lane], 0]
                    lane += 1
                    continue
                went[server, 0], went[server, 1], went[server, 3] = done, taken[lane], step[lane]
                for k in range(pressures):
                    everything = vector[0, k, lane]
                    for i in range(1, count):
                        everything += vector[i, k, lane]
                    for i in range(count):
                        vectors[0, server, i, k] = vector[i, k, lane]
                        vectors[1, server, i, k] = max(everything - vector[i, k, lane], 0.0)
                active -= 1  # the last lane moves here; it is looked at next
                server_of[lane], number[lane] = server_of[active], number[active]
                attempt[lane], taken[lane] = attempt[active], taken[active]
                damping[lane], step[lane], moved[lane] = damping[active], step[active], moved[active]
                for k in range(pressures):
                    least[k, lane], reference[k, lane] = least[k, active], reference[k, active]
                    for i in range(count):
                        vector[i, k, lane] = vector[i, k, active]
                        scale[i, k, lane], limit[i, k, lane] = scale[i, k, active], limit[i, k, active]
                for i in range(count):
                    paces[i, lane] = paces[i, active]
                    for a in range(pressures + 1):
                        least_answer[i, a, lane], most_answer[i, a, lane] = (
                            least_answer[i, a, active],
                            most_answer[i, a, active],
                        )
                        for t in range(terms):
                            weight[i, t, a, lane] = weight[i, t, a, active]
