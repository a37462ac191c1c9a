"""The damped rounds in which the NFs of many servers come to rest, in arrays.

Serves `slomo.equilibrium.server`, which says why there is a fixed point. A server that has come to rest is put aside,
so that its numbers are those it has when solved alone, to the last bit, whoever else is still moving.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.tables import Tables, kinds
from slomo.models.base import Floats

#: Converged once no value moves by more than this share of the largest solo value beside it.
TOLERANCE = 1e-3
#: An NF that serves less than this share of what it could is nothing to its neighbours.
LEAST_LOAD = 1e-3
TINY = 1e-12
#: Servers still moving are laid out anew where they are fewer than this share of those laid out.
_SPARSE = 0.6


@dataclass(frozen=True, eq=False)
class Servers:
    """NFs place by place; an empty place answers 0 to everything.

    Attributes
    ----------
    start, scale, limit : ndarray, shape (servers, places, pressures)
        Solo values, half-saturations and largest pressures known.
    weight : ndarray, shape (servers, places, (1 + pressures) ** 2, answers)
        As `slomo.equilibrium.tables.tables` lays it out.
    low, high : ndarray, shape (servers, places, answers)
        Range of the answers: pressures and, at reduced load, speed.
    offered : ndarray, shape (servers, places)
        Offered load [Mpps]; infinite where saturated.
    rates : ndarray of bool, shape (pressures,)
        Pressures that scale with served packets.
    held : int or None
        Column of the cache's occupancy.
    llc_kib : float
        Size of the cache [KiB].
    full_kib : ndarray, shape (servers, 1)
        What the NFs hold together at the least [KiB]: what they hold solo, up to what a full cache holds.
    """

    start: Floats
    scale: Floats
    limit: Floats
    weight: Floats
    low: Floats
    high: Floats
    offered: Floats
    rates: NDArray[np.bool_]
    held: int | None
    llc_kib: float
    full_kib: Floats

    def only(self, rows: NDArray[np.int64]) -> "Servers":
        """Return the servers `rows`."""
        names = ("start", "scale", "limit", "weight", "low", "high", "offered", "full_kib")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


@dataclass(frozen=True, eq=False)
class Rest:
    """Where the rounds ended: vectors, shape (servers, places, pressures), and per server how they went."""

    vector: Floats
    converged: NDArray[np.bool_]
    rounds: NDArray[np.int64]
    ratio: Floats
    step: Floats


def laid_out(
    table: Tables,
    members: NDArray[np.int64],
    offered: Floats,
    names: tuple[str, ...],
    caps: Floats,
    llc_kib: float,
    full_kib: float = 0.0,
) -> Servers:
    """Lay out the servers `members`, shape (servers, places), -1 for an empty place.

    Parameters
    ----------
    table : Tables
        Of the distinct NFs.
    offered : ndarray, shape (servers, places)
        Offered load [Mpps]; NaN where saturated. The speeds are left out where nobody is offered less.
    names : tuple of str
        The pressures.
    caps : ndarray, shape (pressures,)
        What the machine has of each.
    llc_kib : float
        Size of the cache [KiB].
    full_kib : float
        What it holds at the least when it is full [KiB].
    """
    held = names.index("L3OCC") if "L3OCC" in names else None
    here = (members >= 0)[:, :, None]
    answers = len(names) + bool(np.isfinite(offered).any())
    start = table.start[members] * here
    return Servers(
        start,
        table.scale[members],
        np.minimum(table.limit[members], caps),
        table.weight[:, :, :answers][members] * here[:, :, :, None],
        table.low[:, :answers][members] * here,
        table.high[:, :answers][members] * here,
        np.where(np.isfinite(offered), offered, np.inf),
        kinds(names)[0],
        held,
        llc_kib,
        np.minimum(start[:, :, [0 if held is None else held]].sum(axis=1), full_kib),
    )


def come_to_rest(servers: Servers, tries: Sequence[tuple[float, int]]) -> Rest:
    """Run the tries, each a damping and its most rounds, on the servers that have not come to rest before."""
    count, places, _ = servers.start.shape
    rest = Rest(
        within_cache(servers, servers.start.copy()),
        np.zeros(count, dtype=bool),
        np.zeros(count, dtype=np.int64),
        np.full(count, np.nan),
        np.full(count, np.inf),
    )
    active = np.arange(count)
    reference = np.maximum(servers.start.max(axis=1, initial=0.0), TINY)[:, None, :]
    if not places or not count:
        rest.converged[:] = True
        return rest
    for damping, rounds in tries:
        active = _tried(servers, reference, rest, active, damping, rounds)
        if not len(active):
            break
    return rest


def _tried(
    servers: Servers, reference: Floats, rest: Rest, active: NDArray[np.int64], damping: float, rounds: int
) -> NDArray[np.int64]:
    """Run one try on the servers `active`, write into `rest`, and return those still moving."""
    every = len(active) == len(servers.start)
    part, scale = (servers, reference) if every else (servers.only(active), reference[active])
    vector, step = rest.vector[active], rest.step[active]
    still, before = np.ones(len(active), dtype=bool), rest.rounds[active]
    for number in range(1, rounds + 1):
        following = within_cache(part, vector + damping * (answer(part, vector) - vector))
        moved = (np.abs(following - vector) / scale).max(axis=(1, 2))
        done = still & (moved <= TOLERANCE * damping)
        last = number == rounds
        if last or done.any():
            for leaving, converged in ((done, True), (still & ~done, False)) if last else ((done, True),):
                at = active[leaving]
                rest.vector[at], rest.converged[at] = following[leaving], converged
                rest.rounds[at] = before[leaving] + number
                rest.ratio[at] = np.minimum(moved[leaving] / np.maximum(step[leaving], TINY), 1e9)
                rest.step[at] = moved[leaving]
            still = still & ~done
            if last or not still.any():
                break
            if still.mean() < _SPARSE:
                kept = np.flatnonzero(still)
                part, scale, active, before = part.only(kept), scale[kept], active[kept], before[kept]
                following, moved, still = following[kept], moved[kept], still[kept]
        vector, step = following, moved
    return active[still]


def within_cache(servers: Servers, vector: Floats) -> Floats:
    """Scale occupancy, in place, so that all NFs together hold no more than the cache and no less than a full one."""
    if servers.held is not None:
        total = vector[:, :, servers.held].sum(axis=1, keepdims=True)
        wanted = np.minimum(np.maximum(total, servers.full_kib), servers.llc_kib)
        vector[:, :, servers.held] *= wanted / np.maximum(total, TINY)
    return vector


def answer(servers: Servers, vector: Floats) -> Floats:
    """Return everybody's answer to everybody else."""
    pressure = vector.sum(axis=1, keepdims=True) - vector
    found = _under(servers, pressure)
    if found.shape[2] == vector.shape[2]:
        return found
    load = load_of(servers.offered, found[:, :, -1])[:, :, None]
    faster = _under(servers, pressure * np.where(servers.rates, 1.0 / load, 1.0))
    scaled: Floats = faster[:, :, :-1] * np.where(servers.rates, load, 1.0)
    return scaled


def load_of(offered: Floats, possible_mpps: Floats) -> Floats:
    """Return the share of what is possible that is offered, `LEAST_LOAD` to 1."""
    return np.minimum(np.maximum(offered / np.maximum(possible_mpps, TINY), LEAST_LOAD), 1.0)


def _under(servers: Servers, pressure: Floats) -> Floats:
    kept = np.minimum(np.maximum(pressure, 0.0), servers.limit)
    terms = np.empty((*kept.shape[:2], kept.shape[2] + 1))
    terms[:, :, 0] = 1.0
    np.divide(kept, kept + servers.scale, out=terms[:, :, 1:])
    basis = (terms[:, :, :, None] * terms[:, :, None, :]).reshape(*kept.shape[:2], 1, -1)
    found: Floats = np.matmul(basis, servers.weight)[:, :, 0, :]
    return np.minimum(np.maximum(found, servers.low), servers.high)
