"""Fill the last-level caches with what the tenants use, so that warming up starts near the truth.

Structures are laid down as if each tenant had touched them once, the rarely used first and the busiest last, tenants in
turn. Where way masks overlap, the busiest lines go to the ways with the fewest rivals, and the wider mask gives way: a
tenant beside fast ones keeps what only it may evict. What the caches then hold is only a start: the warm-up decides.
"""

import numpy as np

from slomo.simulator import state as s

_ROUNDS = 64


def prefill(state: s.State) -> None:
    """Put lines into the empty LLCs of `state`, within each tenant's ways."""
    for domain in np.unique(state.tenants[:, s.T_DOMAIN]):
        inside = np.flatnonzero(state.tenants[:, s.T_DOMAIN] == domain)
        masks = state.tenants[inside, s.T_WAY_MASK]
        rivals = [int(((masks >> way) & 1).sum()) for way in range(s.LLC_LANES)]
        for mask in sorted({int(mask) for mask in masks}, key=lambda mask: (-mask.bit_count(), mask)):
            ways = [way for way in range(s.LLC_LANES) if (mask >> way) & 1]
            ways.sort(key=rivals.__getitem__)
            _lay_down(state, int(domain), np.array(ways), *_touched(state, inside[masks == mask]))
    held = state.llc_owner[state.llc_owner >= 0]
    state.occupancy[:] = np.bincount(held, minlength=state.occupancy.size)


def _touched(state: s.State, group: s.Ints) -> tuple[s.Ints, s.Ints]:
    """Return the lines the tenants of a group touch, in order, and the tenant of each."""
    capacity = int(state.machine[s.M_LLC_SETS] * state.machine[s.M_LLC_WAYS])
    lines, owners, order = [], [], []
    for tenant in group:
        first, last = state.tenants[tenant, s.T_FIRST_STRUCTURE], state.tenants[tenant, s.T_LAST_STRUCTURE]
        for structure in range(first, last):
            count = min(capacity, int(state.structures[structure, s.S_LINES]))
            lines.append(state.structures[structure, s.S_BASE] + np.arange(count)[::-1])
            owners.append(np.full(count, 2 * tenant + 1))
            rank = (structure - last) * _ROUNDS
            order.append((rank + np.arange(count) * _ROUNDS // count).astype(np.int16))  # short keys sort faster
    if not lines:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    turn = np.argsort(np.concatenate(order), kind="stable")[-2 * capacity :]
    return np.concatenate(lines)[turn], np.concatenate(owners)[turn]


def _lay_down(state: s.State, domain: int, ways: s.Ints, lines: s.Ints, owners: s.Ints) -> None:
    """Put the last lines of each set into `ways`, the latest into the first."""
    sets, lanes = int(state.machine[s.M_LLC_SETS]), s.LLC_LANES
    index = ((lines * 2654435769 & 0xFFFFFFFF) * sets) >> 32
    short = np.uint16 if sets <= 2**16 else np.int64
    by_set = np.argsort(index.astype(short), kind="stable")[::-1]  # latest first within a set
    chosen = index[by_set]
    starts = np.flatnonzero(np.r_[True, chosen[1:] != chosen[:-1]]) if chosen.size else np.zeros(0, dtype=np.int64)
    rank = np.arange(chosen.size) - np.repeat(starts, np.diff(np.r_[starts, chosen.size]))
    kept = rank < ways.size
    row, way = domain * sets + chosen[kept], ways[rank[kept]]
    state.llc[row * 2 * lanes + way] = lines[by_set][kept]
    age = ways.size - rank[kept]
    state.llc[row * 2 * lanes + lanes + way] = (age << s.WAY_BITS) | way
    state.llc_owner[row * lanes + way] = owners[by_set][kept]
    state.llc_clock[domain * sets : (domain + 1) * sets] = lanes
