"""Find the equilibria of many servers by damped iteration, in arrays.

Used by `slomo.equilibrium.server`, which explains why the fixed point exists. If demand exceeds the memory channel,
network cards are slowed down first: their queues become short, and packets are sent before they leave the cache, so
that the cards no longer read them back from memory (`ServerResponse.read_back`). If demand still exceeds the channel,
requests wait until demand equals traffic. The waiting counts as additional traffic pressure on every NF
(`slomo.training.waiting`). A converged server is no longer changed while others still change, so its result equals that
of solving it alone, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.tables import SharedSocket
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.responses.server_response import packets_of_age

#: Convergence criterion: no value changes by more than this share of the largest :attr:`Tables.reference` on its
#: server.
TOLERANCE = 1e-3
#: Utilisation below which an NF's pressure on its neighbours is ignored.
LEAST_LOAD = 1e-3
TINY = 1e-12
#: Utilisation above which queues grow, so that an NF's vector approaches its vector at saturation linearly.
BUSY = 0.9
_UNTOUCHED = np.array([0.0, 0.0, np.nan, np.inf, np.nan])
#: Age before the first round, its range [us], and the largest factor by which one round changes it.
FIRST_AGE, LEAST_AGE, MOST_AGE, OLDER = 1e4, 1.0, 1e9, 3.0
#: Share of unconverged servers below which their arrays are compacted.
_SPARSE = 0.6
_PER_SERVER = ("status", "pace", "burden", "waiting", "age", "speed", "mpps")


@dataclass(frozen=True, eq=False)
class PartLoad:
    """Learned functions of NFs that are offered less than they can serve; arrays as in :class:`Servers`."""

    #: Whether the NF was profiled at part load, shape (servers, places, 1).
    known: NDArray[np.bool_]
    #: As in :class:`Servers`; for pressures that are rates, relative to the served throughput, which is a share of the
    #: largest one measured.
    scale: Floats
    limit: Floats
    weight: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Servers:
    """The NFs of many servers as arrays, by server and place."""

    #: Solo values, half-saturations, and largest known pressures, shape (servers, places, pressures).
    start: Floats
    scale: Floats
    limit: Floats
    #: Weights as in `slomo.equilibrium.tables.Tables`; for rates they give amounts per packet, shape (servers, places,
    #: terms, answers).
    weight: Floats
    #: Lower and upper limit of the answers (pressures, then speed), shape (servers, places, answers).
    low: Floats
    high: Floats
    #: Offered load [Mpps]; infinite for saturated NFs, shape (servers, places).
    offered: Floats
    #: The socket that they share.
    socket: SharedSocket
    #: Least total over all NFs: for the cache, the sum of solo occupancies, but at most a full cache; else 0, shape
    #: (servers, 1, pressures).
    least: Floats
    #: Throughput divided by its smooth estimate, shape (servers, places).
    pace: Floats
    #: Memory traffic per packet divided by its smooth estimate, shape (servers, places).
    burden: Floats
    #: Waiting above which no NF's answer changes, shape (servers,).
    most_waiting: Floats
    #: Reference for the size of steps: the largest solo value or, if larger, a share of a half-saturation, shape
    #: (servers, 1, pressures). NFs that fit into the cache have almost no solo traffic; relative to that, their traffic
    #: beside others would never converge.
    reference: Floats
    #: The same at part load; None if no NF was profiled at part load.
    part_load: PartLoad | None = None

    @cached_property
    def aged(self) -> NDArray[np.bool_] | None:
        """Mask of the servers that divide a full cache by the age of lines; None if there are none."""
        if self.socket.held is None or not self.start.shape[1]:
            return None
        weight = self.weight[:, :, :, self.start.shape[2] + 1]
        known: NDArray[np.bool_] = np.logical_and.reduce(weight.any(axis=2) | ~np.any(self.weight, axis=(2, 3)), axis=1)
        return known if known.any() else None

    def only(self, rows: NDArray[np.int64]) -> "Servers":
        """Return a selection of the servers, by row number."""
        part, whole = self.part_load, ("part_load", "socket")
        names = [name for name in Servers.__dataclass_fields__ if name not in whole]
        if part is not None:
            part = PartLoad(*(getattr(part, name)[rows] for name in PartLoad.__dataclass_fields__))
        return replace(self, part_load=part, **{name: getattr(self, name)[rows] for name in names})


@dataclass(eq=False)
class IterationState:
    """State of the iteration: counters, pressures, throughputs, and whether it has converged."""

    #: Each NF's vector, and the pressure of the others on it, shape (2, servers, places, pressures).
    vectors: Floats
    #: Whether the server converged, number of rounds, ratio of the last two steps, last step, largest relative change
    #: of a pressure since the first round, shape (servers, 5).
    status: Floats
    #: As in :class:`Servers`, shape (servers, places).
    pace: Floats
    burden: Floats
    #: Memory latency as a multiple of that of a channel that is just full; 1 if the channel is not full, shape
    #: (servers,).
    waiting: Floats
    #: Time after which an unused line leaves the cache [us]; it divides the caches of :attr:`Servers.aged`, shape
    #: (servers,).
    age: Floats
    #: Smooth speed under that pressure [Mpps]; 0 at an empty place, shape (servers, places).
    speed: Floats
    #: Throughput that the models predict under that pressure [Mpps]; NaN if not computed, shape (servers, places).
    mpps: Floats

    @classmethod
    def beginning(cls, begin: Floats) -> "IterationState":
        """Return the state of the iteration before its first round.

        `begin` has shape (servers, places, pressures).
        """
        servers, places, _ = begin.shape
        vectors = np.zeros((2, *begin.shape))
        vectors[0] = begin
        parts = [part.copy() if servers == 1 else np.repeat(part, servers, axis=0) for part in _before(places)]
        return cls(vectors, *parts)

    def rows(self, rows: NDArray[np.int64] | slice) -> "IterationState":
        """Return the state of some servers: views for a slice, copies for an array of rows."""
        # an indexed copy would be ordered by servers first, and the compiled loop be compiled again for that order
        vectors = self.vectors[:, rows] if isinstance(rows, slice) else self.vectors.take(rows, axis=1)
        return IterationState(vectors, *(getattr(self, name)[rows] for name in _PER_SERVER))

    def restart(self, pace: Floats) -> None:
        """Reset convergence and throughputs, and continue from the present counters with another `pace`."""
        self.pace[:], self.status[:], self.mpps[:] = pace, _UNTOUCHED, np.nan

    def put(self, rows: NDArray[np.int64], part: "IterationState") -> None:
        """Write `part`, the state of some servers, into the rows `rows`, one row per server."""
        self.vectors[:, rows] = part.vectors
        for name in _PER_SERVER:
            getattr(self, name)[rows] = getattr(part, name)

    @property
    def vector(self) -> Floats:
        """Counters of all NFs, shape (servers, places, pressures)."""
        vector: Floats = self.vectors[0]
        return vector

    @property
    def pressure(self) -> Floats:
        """Pressure on each NF: the others' traffic and the channel's waiting, shape (servers, places, pressures)."""
        pressure: Floats = self.vectors[1]
        return pressure

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Mask of the servers whose iteration has converged."""
        return self.status[:, 0] > 0.0

    @property
    def rounds(self) -> NDArray[np.int64]:
        """Number of rounds that each server took."""
        return self.status[:, 1].astype(np.int64)

    @property
    def ratio(self) -> Floats:
        """Size of each server's last step divided by that of the step before."""
        return self.status[:, 2]

    @property
    def step(self) -> Floats:
        """Size of each server's last step (change of pressures)."""
        return self.status[:, 3]

    @property
    def moved(self) -> Floats:
        """Largest change of a pressure by the rounds, as a share of its value before them."""
        return self.status[:, 4]

    @property
    def bound(self) -> Floats:
        """Bound on each result's distance from its equilibrium, estimated from the last two steps (Banach)."""
        return np.where(self.ratio < 1.0, self.step * self.ratio / np.maximum(1.0 - self.ratio, TINY), np.inf)


@lru_cache(maxsize=256)
def _before(places: int) -> tuple[Floats, ...]:
    """Return one server's arrays of :class:`IterationState` before the first round, in order, without its vectors."""
    speed, mpps = np.zeros((1, places)), np.full((1, places), np.nan)
    ones, waiting = np.ones((1, places)), np.ones(1)
    return _UNTOUCHED[np.newaxis], ones, ones, waiting, FIRST_AGE * waiting, speed, mpps


def in_order(values: Floats) -> Floats:
    """Return sums over the places, added always in the same order: ``(servers, places, n)`` -> ``(servers, 1, n)``."""
    if values.shape[1] == 0:
        return np.zeros((len(values), 1, values.shape[2]))
    return np.add.accumulate(values, axis=1)[:, -1:]


def iterate(
    servers: Servers, tries: Sequence[tuple[float, int]], state: IterationState, tolerance: float = TOLERANCE
) -> None:
    """Iterate until all servers converge, with stronger damping at each try.

    Each try has a damping factor and a limit of rounds, and continues with the servers that have not converged. The
    rounds start from `state` and write their results to it.
    """
    count, places, _ = servers.start.shape
    within_capacities(servers, state.vector)
    active = np.arange(count)
    if not places or not count:
        state.status[:, 0] = 1.0
        return
    for damping, rounds in tries:
        active = _iterate_damped(servers, state, active, (damping, rounds, tolerance))
        if not len(active):
            break
    before, size = state.pressure.copy(), state.pressure.shape[2]
    state.pressure[:] = np.maximum(in_order(state.vector) - state.vector, 0.0) + waited(servers.socket, state.waiting)
    state.speed[:] = under(servers, state.pressure)[:, :, size]
    moved = np.abs(state.pressure - before) / np.maximum(before, TINY) * (servers.high[:, :, [size]] > 0.0)
    state.status[:, 4] = moved.max(axis=(1, 2))


def _iterate_damped(
    servers: Servers, state: IterationState, active: NDArray[np.int64], how: tuple[float, int, float]
) -> NDArray[np.int64]:
    """Iterate with one damping factor, and return the servers that did not converge."""
    damping, rounds, tolerance = how
    part = servers if len(active) == len(servers.start) else servers.only(active)
    vector, step, waiting, age = state.vector[active], state.step[active], state.waiting[active], state.age[active]
    still, before = np.ones(len(active), dtype=bool), state.rounds[active]
    for number in range(1, rounds + 1):
        answered, older, read_back = answer(part, vector, waiting, age)
        following = vector + damping * (answered - vector)
        longer = within_capacities(part, following, waiting, read_back)
        moved = np.maximum((np.abs(following - vector) / part.reference).max(axis=(1, 2)), np.abs(longer - waiting))
        done = still & (moved <= tolerance * damping)
        last = number == rounds
        if last or done.any():
            for leaving, converged in ((done, True), (still & ~done, False)) if last else ((done, True),):
                at = active[leaving]
                ratio = np.minimum(moved[leaving] / np.maximum(step[leaving], TINY), 1e9)
                state.vector[at], state.waiting[at], state.age[at] = following[leaving], longer[leaving], older[leaving]
                state.status[at, 0] = converged
                state.status[at, 1:4] = np.column_stack([before[leaving] + number, ratio, moved[leaving]])
            still = still & ~done
            if last or not still.any():
                break
            if still.mean() < _SPARSE:
                live = np.flatnonzero(still)
                part, active, before = part.only(live), active[live], before[live]
                following, moved, still, longer = following[live], moved[live], still[live], longer[live]
                older = older[live]
        vector, step, waiting, age = following, moved, longer, older
    return active[still]


def within_capacities(
    servers: Servers, vector: Floats, waiting: Floats | None = None, read_back: Floats | None = None
) -> Floats:
    """Scale counters, in place, so that their sums fit into the cache and the memory channel.

    NFs occupy and move no more than these capacities, and together fill a full cache. Traffic above the channel's
    capacity is first subtracted from `read_back`, shape (servers, places), the traffic that cards read back from memory
    because their queues are long.

    Returns the next waiting time, which is longer if the demand on the memory channel still exceeds its capacity.
    """
    channel = servers.socket.channel
    if channel is not None and read_back is not None:  # all cards read back less by the same share
        traffic = vector[:, :, channel]
        excess = in_order(traffic[:, :, None])[:, 0, 0] - servers.socket.caps[channel]
        share = np.minimum(np.maximum(excess, 0.0) / np.maximum(in_order(read_back[:, :, None])[:, 0, 0], TINY), 1.0)
        vector[:, :, channel] = np.maximum(traffic - share[:, None] * read_back, 0.0)
    total = in_order(vector)
    capped = np.minimum(np.maximum(total, servers.least), servers.socket.caps)
    vector *= capped / np.maximum(total, TINY)
    waiting = np.ones(len(vector)) if waiting is None else waiting
    if channel is None:
        return waiting
    longer = np.maximum(waiting * (total[:, 0, channel] / servers.socket.caps[channel]), 1.0)
    following: Floats = np.minimum(longer, servers.most_waiting)
    return following


def waited(socket: SharedSocket, waiting: Floats) -> Floats:
    """Return the pressure that waiting for a full memory channel adds on every NF."""
    added = np.zeros((len(waiting), 1, len(socket.caps)))
    if socket.channel is not None:
        added[:, 0, socket.channel] = socket.caps[socket.channel] * (waiting - 1.0)
    return added


def answer(servers: Servers, vector: Floats, waiting: Floats, age: Floats) -> tuple[Floats, Floats, Floats | None]:
    """Return every NF's counters under the pressure of the others, the next cache age, and cards' read-back traffic.

    Rates are amounts per packet times packets served. The read-back traffic has shape (servers, places); None if it is
    unknown for all NFs.
    """
    size = vector.shape[2]
    beside, added = in_order(vector) - vector, waited(servers.socket, waiting)
    answers, rates = under(servers, beside + added), servers.socket.rates
    served = busy_mpps = answers[:, :, size] * servers.pace
    moved = answers[:, :, :size]
    if np.isfinite(servers.offered).any():
        load = load_of(servers.offered, served)[:, :, None]
        served, busy = load[:, :, 0] * served, busy_part(load)
        busy_mpps = served * busy[:, :, 0]
        moved = under(servers, beside * np.where(rates, 1.0 / load, 1.0) + added)[:, :, :size]
        if (idle := servers.part_load) is not None:
            part = served_part(served, servers.high[:, :, size])[:, :, None]
            there = under(idle, beside * np.where(rates, 1.0 / part, 1.0) + added)[:, :, :size]
            moved = np.where(idle.known, busy * answers[:, :, :size] + (1.0 - busy) * there, moved)
    moved = moved * np.where(rates, served[:, :, None], 1.0)
    if servers.socket.channel is not None:
        moved[:, :, servers.socket.channel] *= servers.burden
    return moved, _by_age(servers, moved, served, age), _read_back(servers, answers, busy_mpps)


def _by_age(servers: Servers, moved: Floats, served_mpps: Floats, age: Floats) -> Floats:
    """Divide every cache so that all NFs' lines are evicted at one age; return a better estimate of the age.

    The occupancies are written into `moved`.

    An LRU cache evicts every line unused for the same time, whoever owns it (Che et al., IEEE JSAC 20, 2002). Their
    total is that of the NFs' answers; the next age is a Newton step towards this total.
    """
    if servers.aged is None:
        return age
    held, column = servers.socket.held, moved.shape[2] + 1
    assert held is not None
    weight, packets = servers.weight[:, :, :, column], (age[:, None] * served_mpps)[:, :, None]
    held_share = packets / (packets + packets_of_age(weight.shape[2]))
    parts = np.zeros((*weight.shape, 2))
    parts[:, :, 0, 0] = weight[:, :, 0]
    parts[:, :, 1:, 0] = held_share * weight[:, :, 1:]
    parts[:, :, 1:, 1] = held_share * (1.0 - held_share) * weight[:, :, 1:]
    holds = np.add.reduce(parts, axis=2)
    (total, slope), whole = in_order(holds)[:, 0].T, in_order(moved[:, :, [held]])[:, 0, 0]
    room = np.minimum(np.maximum(whole, servers.least[:, 0, held]), servers.socket.caps[held])
    divided = holds[:, :, 0] * (whole / np.maximum(total, TINY))[:, None]
    moved[:, :, held] = np.where(servers.aged[:, None], divided, moved[:, :, held])
    factor = np.minimum(np.maximum(1.0 + (room - total) / np.maximum(slope, TINY), 1.0 / OLDER), OLDER)
    return np.where(servers.aged, np.minimum(np.maximum(age * factor, LEAST_AGE), MOST_AGE), age)


def _read_back(servers: Servers, answers: Floats, busy_mpps: Floats) -> Floats | None:
    column = servers.start.shape[2] + 2
    if servers.socket.channel is None or not servers.high[:, :, column].any():
        return None
    return answers[:, :, column] * busy_mpps


def least_traffic(servers: Servers, pressure: Floats) -> Floats:
    """Return each NF's memory traffic per packet if its card reads nothing back, shape (servers, places)."""
    answers, size = under(servers, pressure), servers.start.shape[2]
    moved = answers[:, :, servers.socket.channel] * servers.burden - answers[:, :, size + 2]
    return np.maximum(moved, 0.0)


def served_part(served_mpps: Floats, fastest_mpps: Floats) -> Floats:
    """Return throughput as a share of the NF's largest throughput, between `LEAST_LOAD` and 1."""
    return np.minimum(np.maximum(served_mpps / np.maximum(fastest_mpps, TINY), LEAST_LOAD), 1.0)


def busy_part(load: Floats) -> Floats:
    """Return the weight of an NF's full-load behaviour, 0 to 1, which rises with load.

    Examples
    --------
    >>> busy_part(np.array([0.5, 0.95, 1.0])).round(6).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.maximum((load - BUSY) / (1.0 - BUSY), 0.0)


def load_of(offered: Floats, possible_mpps: Floats) -> Floats:
    """Return offered load divided by the throughput that the NF can reach, between `LEAST_LOAD` and 1."""
    return np.minimum(np.maximum(offered / np.maximum(possible_mpps, TINY), LEAST_LOAD), 1.0)


def under(servers: Servers | PartLoad, pressure: Floats) -> Floats:
    """Return every NF's smooth answers (counters per packet, speed) at a pressure, shape (servers, places, answers)."""
    basis = pressure_basis(pressure, servers.scale, servers.limit)
    # terms of several columns are added one by one as in the compiled rounds; a matrix product uses another order
    answers: Floats = np.add.reduce(basis[:, :, :, None] * servers.weight, axis=2)
    return np.minimum(np.maximum(answers, servers.low), servers.high)
