"""Fill the caches with the tenants' lines before a simulation, so that it warms up faster.

Structures are inserted as if each tenant had touched them once, from rarely to often used, alternating between tenants.
Where way masks overlap, the most used lines go to the ways with the fewest competitors, and the tenant with the wider
mask leaves the shared ways to the others. This content is only a starting point; the warm-up determines the result.
"""

import numpy as np

from slomo.simulator import state as s
from slomo.simulator.compilation import kernel
from slomo.simulator.hardware.cache import set_of

_ROUNDS = 64


def prefill(state: s.State) -> None:
    """Put the tenants' lines into the empty LLCs, each within its tenant's ways."""
    sets = int(state.machine[s.M_LLC_SETS])
    for domain in np.unique(state.tenants[:, s.T_DOMAIN]):
        inside = np.flatnonzero(state.tenants[:, s.T_DOMAIN] == domain)
        masks = state.tenants[inside, s.T_WAY_MASK]
        rivals = [int(((masks >> way) & 1).sum()) for way in range(s.LANES)]
        for mask in sorted({int(mask) for mask in masks}, key=lambda mask: (-mask.bit_count(), mask)):
            ways = [way for way in range(s.LANES) if (mask >> way) & 1]
            ways.sort(key=rivals.__getitem__)
            touched, filled = _touched(state, inside[masks == mask]), np.zeros(sets, dtype=np.int64)
            most = 2 * sets * int(state.machine[s.M_LLC_WAYS])
            steps = _ROUNDS * int(touched[:, 2].max(initial=-1) + 1)
            first = int(domain) * sets
            _lay_down(
                state.llc,
                state.llc_stamps,
                state.llc_owner,
                first,
                state.machine[s.M_LLC_SHIFT],
                np.array(ways),
                touched,
                filled,
                most,
                steps,
            )
            state.llc_clock[domain * sets : (domain + 1) * sets] = s.LANES
    held = state.llc_owner[state.llc_owner >= 0] >> 1
    state.occupancy[:] = np.bincount(held, minlength=state.occupancy.size)


def _touched(state: s.State, group: s.Ints) -> s.Ints:
    """Return for each structure of some tenants: first line, number of lines, number of structures after it, owner."""
    capacity = int(state.machine[s.M_LLC_SETS] * state.machine[s.M_LLC_WAYS])
    rows = []
    for tenant in group:
        last = state.tenants[tenant, s.T_LAST_STRUCTURE]
        for structure in range(state.tenants[tenant, s.T_FIRST_STRUCTURE], last):
            base, lines = state.structures[structure, [s.S_BASE, s.S_LINES]]
            rows.append([base, min(capacity, lines), last - 1 - structure, 2 * tenant + 1])
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


@kernel
def _lay_down(
    llc: s.Shorts,
    stamps: s.Stamps,
    owners: s.Owners,
    first: int,
    shift: int,
    ways: s.Ints,
    touched: s.Ints,
    filled: s.Ints,
    left: int,
    steps: int,
) -> None:
    """Put the `left` most recently used lines into the `ways` of the sets from `first` on."""
    for step in range(steps):
        place, turn = step // _ROUNDS, _ROUNDS - 1 - step % _ROUNDS
        for row in range(len(touched) - 1, -1, -1):
            if touched[row, 2] != place:
                continue
            lines = touched[row, 1]
            for number in range(-(-(turn + 1) * lines // _ROUNDS) - 1, -(-turn * lines // _ROUNDS) - 1, -1):
                if left == 0:
                    return
                left -= 1
                line = touched[row, 0] + lines - 1 - number
                index = set_of(line, filled.size)
                rank = filled[index]
                if rank == ways.size:
                    continue
                filled[index] = rank + 1
                slot = ((first + index) << shift) + ways[rank]
                llc[slot] = line
                stamps[slot] = ((ways.size - rank) << s.WAY_BITS) | ways[rank]
                owners[slot] = 2 * touched[row, 3]
