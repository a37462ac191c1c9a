"""Find the equilibria of servers, by compiled code if that saves time, else by numpy; the results are equal.

The constants of a set of NFs are computed once; those of the most recently used sets are cached.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.rounds import (
    BUSY,
    LEAST_AGE,
    LEAST_LOAD,
    MOST_AGE,
    OLDER,
    TINY,
    TOLERANCE,
    IterationState,
    PartLoad,
    Servers,
    in_order,
    iterate,
    least_traffic,
    under,
)
from slomo.equilibrium.tables import (
    COMPARED,
    ComputeMpps,
    SharedSocket,
    Tables,
    compiled_networks,
    reader,
    shared_socket,
    tables,
)
from slomo.errors import ConfigurationError, MissingMetricError
from slomo.models.base import Floats
from slomo.models.contentiousness import basis_size
from slomo.models.error_shape import ErrorShape
from slomo.models.functions.compilation import loop_for
from slomo.models.nf_model import NFModel
from slomo.models.responses.server_response import ServerResponse, packets_of_age

#: Servers of a group, by row number.
Rows = NDArray[np.int64] | slice
#: Damping factor and limit of rounds of each try: the first is for most servers (0.5 would take 1.5 times as many
#: rounds), the other two for servers that oscillate around their fixed point.
TRIES = ((0.8, 40), (0.4, 80), (0.15, 160))
#: The first pass ends when no value changes by more than this multiple of :data:`TOLERANCE`.
_LOOSE = 10.0
#: Largest relative difference between the throughputs of the networks and of the rounds; relative change of a pressure
#: by the correction above which this difference is checked; largest number of corrections.
_APART, _MOVED, _CORRECTIONS = 0.01, 0.03, 40
#: Utilisation of the memory channel above which the traffic per packet is learned from mixes and corrected.
LOADED = 0.7
#: Relative excess of summed occupancies over the cache size that is tolerated as counting error.
_ROUNDING = 0.02
#: Number of servers per pass of the numpy rounds, so that their data stay in a cache.
_LAID_OUT = 1_024
#: Number of mixes above which repeated sets of competitors are searched for, and share of distinct sets above which
#: that saves no time.
_REPEATING, _MANY = 1_024, 0.8
#: Number of servers below which plain numbers are faster than arrays.
_FEW = 32
#: Largest number of possible sets of competitors, per mix, for which a lookup table is used.
_TABLE = 32


class ServerGroup:
    """Servers that are solved together: functions of the NFs, socket, NFs by server and place, loads, full caches.

    `members`, shape (servers, places): rows of `table`, -1 for an empty place. `offered`, same shape: offered load
    [Mpps], infinite for saturated NFs; None if all are. `full_kib`, shape (servers,): least total occupancy of a full
    cache [KiB].
    """

    def __init__(
        self,
        table: Tables,
        socket: SharedSocket,
        members: NDArray[np.int64],
        offered: Floats | None,
        full_kib: Floats,
    ) -> None:
        self.table, self.socket = table, socket
        self.members, self.full_kib, self.is_reduced = members, full_kib, offered is not None
        if offered is None:
            offered = np.empty(members.shape)
            offered.fill(np.inf)
        self.offered = offered
        #: Whether this is a single server without empty places, as in most calls; `_here`: places with an NF, a slice
        #: if there are no others.
        self.is_one = len(members) == 1 and members.shape[1] > 0 and bool(members[0, -1] >= 0)  # empty places come last
        is_full = self.is_one or members.min(initial=0) >= 0
        self._here: NDArray[np.bool_] | slice = slice(None) if is_full else members >= 0
        self._read: Callable[[Floats], Floats] | None = None

    def only(self, rows: Rows) -> "ServerGroup":
        """Return the group of the servers in `rows`."""
        offered = self.offered[rows] if self.is_reduced else None
        return ServerGroup(self.table, self.socket, self.members[rows], offered, self.full_kib[rows])

    def laid_out(self, state: IterationState) -> Servers:
        """Return the servers as arrays for the numpy rounds, with the corrections in `state`."""
        table, members, socket = self.table, self.members, self.socket
        here = (members >= 0)[:, :, None]
        start = table.start[members] * here
        least = np.zeros((len(members), 1, table.pressures))
        if socket.held is not None:
            solo = in_order(start[:, :, [socket.held]])[:, 0, 0]
            least[:, 0, socket.held] = np.minimum(solo, self.full_kib)
        limit, most_waiting, part_load = table.limit[members], np.ones(len(members)), None
        if socket.channel is not None and members.shape[1]:
            most_waiting += (limit[:, :, socket.channel] * here[:, :, 0]).max(axis=1) / socket.caps[socket.channel]
        if (part := table.part_load) is not None and np.isfinite(self.offered).any():
            known = (part.start[members][:, :, :1] > 0.0) & here
            arrays = part.scale, part.limit, part.weight, part.low, part.high
            part_load = PartLoad(known, *(each[members] for each in arrays))
        return Servers(
            start,
            table.scale[members],
            limit,
            table.weight[members] * here[:, :, :, None],
            table.low[members] * here,
            table.high[members] * here,
            self.offered,
            socket,
            least,
            state.pace,
            state.burden,
            most_waiting,
            (table.reference[members] * here).max(axis=1, keepdims=True, initial=TINY),
            part_load,
        )

    def read(self, responses: tuple[ServerResponse, ...], state: IterationState, rows: Rows = slice(None)) -> None:
        """Compute the throughput of every NF in `rows` by its network at the pressures in `state`."""
        if isinstance(rows, slice):
            mpps = self._networks(responses)(state.pressure[self._here].reshape(-1, state.vectors.shape[3]))
            state.mpps[self._here] = mpps.reshape(self.members.shape) if isinstance(self._here, slice) else mpps
        else:
            part, here = self.only(rows), np.empty((len(rows), self.members.shape[1]))
            pressure = state.pressure[rows][part._here].reshape(-1, state.vectors.shape[3])
            here.fill(np.nan)
            here[part._here] = part._networks(responses)(pressure).reshape(here[part._here].shape)
            state.mpps[rows] = here

    def _networks(self, responses: tuple[ServerResponse, ...]) -> Callable[[Floats], Floats]:
        """Return the function that computes throughputs of all NFs of the group."""
        if self._read is None:
            who = self.members[self._here].reshape(-1)
            neighbours = np.empty(len(who))
            if isinstance(self._here, slice):
                neighbours.fill(self.members.shape[1] - 1.0)
            else:
                count = np.add.reduce(self._here, axis=1)
                neighbours[:] = np.repeat(count - 1.0, count)
            self._read = reader(responses, who, neighbours)
        return self._read

    def pace(self, responses: tuple[ServerResponse, ...], state: IterationState, rows: Rows = slice(None)) -> Floats:
        """Return the networks' throughput divided by the smooth approximation, shape (rows, places)."""
        self.read(responses, state, rows)
        pace: Floats = state.mpps[rows] / np.maximum(state.speed[rows], TINY)
        return pace if isinstance(self._here, slice) else np.where(self._here[rows], pace, 1.0)


@dataclass(frozen=True, eq=False)
class ResponseTable:
    """The distinct NFs of some servers, with their trained functions as arrays."""

    #: One model per NF.
    models: tuple[NFModel, ...]
    #: Responses of the models.
    responses: tuple[ServerResponse, ...]
    #: The responses as arrays.
    table: Tables
    #: The socket that they share.
    socket: SharedSocket

    @cached_property
    def solo_mpps(self) -> Floats:
        """Solo throughput of each NF [Mpps]."""
        return np.array([model.solo_mpps for model in self.models])

    @cached_property
    def is_carried(self) -> NDArray[np.bool_]:
        """Mask of the NFs that were never measured alone on this machine."""
        return np.array([model.solo_is_carried for model in self.models], dtype=bool)

    @cached_property
    def shapes(self) -> tuple[ErrorShape, ...]:
        """Bias and size of each NF's errors."""
        return tuple(response.calibration.shape for response in self.responses)

    @cached_property
    def moves(self) -> Floats:
        """Largest amounts of `slomo.models.responses.moved.MOVED` that each NF moves, and that its neighbours moved."""
        both = ([item.moves_at_most, item.most_moved.limits] for item in self.responses)
        return np.array([*both]).swapaxes(0, 1).copy()

    @cached_property
    def begin(self) -> Floats:
        """Largest counters of each NF in its profile, with which the iteration begins.

        Traffic evicts packets, whose return is traffic. From solo counters, the iteration may therefore end in a state
        without traffic, which servers leave (docs/accuracy.md, "Two states of one server").
        """
        table, speed = self.table, self.table.pressures
        most = table.high[:, :speed] * np.where(self.socket.rates, table.high[:, [speed]], 1.0)
        return np.vstack([most, np.zeros(speed)])

    def full_kib(self, members: NDArray[np.integer]) -> Floats:
        """Return the total occupancy [KiB] at which the cache of each server counts as full, shape (servers,).

        It is the median over the different NFs of a server, and 0 if that exceeds the cache.
        """
        if self._same_kib is not None:
            full = np.empty(len(members))
            full.fill(self._same_kib)
            return full
        seen, most = [response.full_kib for response in self.responses], self._most_kib
        if len(members) < _FEW:  # several times as fast as arrays, with the same results
            every = [sorted(seen[nf] for nf in {*row} if nf >= 0) or [0.0] for row in members.tolist()]
            medians = [(known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2.0 for known in every]
            return np.array([median if median <= most else 0.0 for median in medians])
        ordered = np.sort(members, axis=1)
        ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1  # equal NFs count once
        ascending = np.sort(np.array([*seen, np.nan])[ordered], axis=1)
        count = (ordered >= 0).sum(axis=1, keepdims=True)
        pair = [np.take_along_axis(ascending, np.maximum(at, 0), axis=1)[:, 0] for at in ((count - 1) // 2, count // 2)]
        middle = np.nan_to_num((pair[0] + pair[1]) / 2.0)
        return np.where(middle <= most, middle, 0.0)

    @cached_property
    def _same_kib(self) -> float | None:
        """Total occupancy of a full cache [KiB], if it is the same in all NFs' profiles; else None."""
        seen = self.responses[0].full_kib
        if any(response.full_kib != seen for response in self.responses):
            return None
        return seen if seen <= self._most_kib else 0.0

    @cached_property
    def _most_kib(self) -> float:
        """Capacity of the cache, with a margin for rounding."""
        known = self.socket.capacities
        return np.inf if known is None else (1.0 + _ROUNDING) * known.llc_kib

    def group(self, members: NDArray[np.int64], offered: Floats | None = None) -> ServerGroup:
        """Return servers to be solved together, in canonical order; loads are None if all are saturated."""
        return ServerGroup(self.table, self.socket, members, offered, self.full_kib(members))

    def settle(self, group: ServerGroup) -> IterationState:
        """Find the equilibria of a group of servers.

        The smooth speed used in the rounds has errors of some percent for large losses. It is corrected to the
        networks' throughput at the result, and the rounds continue from there. If this changes a pressure by more than
        3 %, the correction is repeated until both throughputs agree within 1 %; if they never do, the server counts as
        not converged.
        """
        state = IterationState.beginning(self.begin.take(group.members, 0))
        if group.is_one and (compute := compiled_networks(self.responses)) is not None:
            if (pace := _settle_one(compute, group, state)) is not None:
                self._match_networks(group, state, np.zeros(1, dtype=np.int64), pace)
            return self._on_loaded_channels(group, state)
        run_rounds(group, state, _LOOSE * TOLERANCE)
        state.restart(group.pace(self.responses, state))
        run_rounds(group, state, TOLERANCE)
        self._match_networks(group, state, np.flatnonzero((state.moved > _MOVED) & state.converged))
        return self._on_loaded_channels(group, state)

    def _on_loaded_channels(self, group: ServerGroup, state: IterationState) -> IterationState:
        """Correct traffic per packet that was learned from mixes, on servers with a loaded memory channel."""
        if self.socket.channel is None or not self.corrects_traffic or not group.members.size:
            return state
        moved = in_order(state.vector[:, :, [self.socket.channel]])[:, 0, 0]
        loaded = np.flatnonzero(self.loads(moved) & state.converged)
        if len(loaded):
            state.mpps[loaded] = np.nan
            self._match_networks(group, state, loaded, traffic=True)
            self._within_channel(group, state, loaded[state.waiting[loaded] > 1.0])
        return state

    def _within_channel(self, group: ServerGroup, state: IterationState, waiting: NDArray[np.int64]) -> None:
        """Lower throughputs where NFs demand more than the channel carries even at the longest wait of their profiles.

        All NFs of such a server are slowed down by the same share. `waiting`: rows of servers whose requests wait.
        """
        if not len(waiting):
            return
        part, here = group.only(waiting), state.rows(waiting)
        servers = part.laid_out(here)
        served = np.minimum(np.nan_to_num(here.mpps), part.offered)
        demand = in_order((served * least_traffic(servers, here.pressure))[:, :, None])[:, 0, 0]
        share = np.minimum(self.socket.caps[self.socket.channel] / np.maximum(demand, TINY), 1.0)
        state.mpps[waiting] *= np.where(here.waiting >= servers.most_waiting, share, 1.0)[:, None]

    @cached_property
    def knows_age(self) -> NDArray[np.bool_]:
        """Mask of the NFs whose occupancy of a full cache was learned as a function of the age of lines."""
        return np.array([len(response.holding) > 0 for response in self.responses], dtype=bool)

    @cached_property
    def corrects_traffic(self) -> bool:
        """Whether any NF learned its packets' memory traffic from mixes."""
        return any(response.traffic is not None for response in self.responses)

    def loads(self, moved: Floats) -> NDArray[np.bool_]:
        """Return the servers on which the memory traffic `moved` loads the channel."""
        assert self.socket.channel is not None
        loaded: NDArray[np.bool_] = moved > LOADED * self.socket.caps[self.socket.channel]
        return loaded

    def _burden(self, group: ServerGroup, state: IterationState) -> Floats:
        """Return each NF's learned memory traffic per packet, divided by its smooth approximation."""
        members, count = group.members, np.add.reduce(group.members >= 0, axis=1, keepdims=True)
        smooth = under(group.laid_out(state), state.pressure)[:, :, self.socket.channel]
        burden = np.ones(members.shape)
        for number in np.unique(members[members >= 0]).tolist():
            response, mine = self.responses[number], (members == number) & np.isinf(group.offered)
            if response.traffic is None or not mine.any():
                continue
            neighbours = np.broadcast_to(count - 1.0, members.shape)[mine]
            learned = response.traffic.predict_mpps(response.inputs(state.pressure[mine], neighbours))
            burden[mine] = learned / np.maximum(smooth[mine], TINY)
        return burden

    def _match_networks(
        self,
        group: ServerGroup,
        state: IterationState,
        left: NDArray[np.int64],
        pace: Floats | None = None,
        *,
        traffic: bool = False,
    ) -> None:
        """Repeat the iteration until its throughputs agree with those of the networks.

        `left` are the rows of `state` to correct; `pace` is that of their networks, if known; `traffic` corrects their
        memory traffic, too.

        Each correction closes only a share of the difference, at first one half. The share is halved whenever the
        correction changes its sign, since near a full channel throughput falls with waiting more steeply than the
        rounds assume.
        """
        share, before = np.full((len(left), 1), 0.5), np.zeros((1, 1))
        for correction in range(_CORRECTIONS + 1):
            rows = slice(None) if len(left) == len(state.status) else left
            change = (group.pace(self.responses, state, rows) if pace is None else pace) / state.pace[rows] - 1.0
            pace = None
            if traffic:
                change = np.hstack(
                    [change, self._burden(group.only(rows), state.rows(rows)) / state.burden[rows] - 1.0]
                )
            apart = np.flatnonzero(np.logical_or.reduce(np.abs(change) > _APART, axis=1) | ~state.converged[rows])
            if correction == _CORRECTIONS:
                state.status[left[apart], 0] = 0.0
            if correction == _CORRECTIONS or not len(apart):
                return
            share[(change * before).sum(axis=1) < 0.0] *= 0.5
            left, share, before = left[apart], share[apart], change[apart]
            part = state.rows(left)
            if traffic:
                part.burden[:] *= 1.0 + share * before[:, before.shape[1] // 2 :]
            part.restart(part.pace * (1.0 + share * before[:, : part.pace.shape[1]]))
            run_rounds(group.only(left), part, TOLERANCE)
            state.put(left, part)


def _settle_one(compute: ComputeMpps, group: ServerGroup, state: IterationState) -> Floats | None:
    """Solve one server twice, with throughputs by the networks after each pass, as :meth:`ResponseTable.settle` does.

    Returns their last ratio to the smooth speeds; None if no correction is needed. One server takes few calls of numpy,
    each of which takes as long as a round.
    """
    who, pressure, mpps = group.members[0], state.pressure[0], state.mpps[0]
    neighbours, loop = _neighbours(len(who)), loop_for(1, rounds_of, pressure.shape[1])
    for tolerance in (_LOOSE * TOLERANCE, TOLERANCE):
        run_rounds(group, state, tolerance, loop=loop)
        compute(who, neighbours, pressure, mpps)
        if tolerance > TOLERANCE:
            np.divide(state.mpps, np.maximum(state.speed, TINY), out=state.pace)
    if state.status[0, 0] == 0.0 or state.status[0, 4] <= _MOVED:
        return None
    return state.mpps / np.maximum(state.speed, TINY)


@lru_cache(maxsize=256)
def _neighbours(places: int) -> Floats:
    return np.full(places, places - 1.0)


def rounds_of(pressures: int) -> Callable[..., None]:
    """Return the rounds for so many pressures, to be compiled; imports numba."""
    from slomo.equilibrium import kernel

    return kernel.rounds_of(pressures)


def run_rounds(
    group: ServerGroup,
    state: IterationState,
    tolerance: float,
    tries: Sequence[tuple[float, int]] | None = None,
    loop: Callable[..., Any] | None = None,
) -> None:
    """Iterate from `state` until steps are below `tolerance`; write the result into `state`.

    `loop`: compiled code; by default it is used if it saves time.
    """
    members, table, tries = group.members, group.table, tries or TRIES
    if loop is None:
        loop = loop_for(len(members), rounds_of, table.pressures)
        if loop is None or not members.size or (state.burden != 1.0).any():
            for begin in range(0, len(members), _LAID_OUT):
                part = slice(begin, begin + _LAID_OUT)
                rows = state.rows(part)
                iterate(group.only(part).laid_out(rows), tries, rows, tolerance)
            return
    servers = table.rows, members, group.offered, group.is_reduced, state.pace, socket_numbers(group.socket)
    how = tolerance, group.full_kib, _as_array(tuple(tries)), _ages(table.pressures)
    loop(*servers, *how, state.vectors, state.status, state.waiting, state.age, state.speed)


@lru_cache(maxsize=256)
def socket_numbers(socket: SharedSocket) -> Floats:
    """Return the constants of socket and iteration in the form that the compiled code takes."""
    held, channel = (-1 if column is None else column for column in (socket.held, socket.channel))
    return np.array([TINY, LEAST_LOAD, held, BUSY, channel, COMPARED, *socket.caps, *socket.rates])


@lru_cache(maxsize=16)
def _ages(pressures: int) -> Floats:
    """Return the limits of the ages of cache lines and their steps in the form that the compiled code takes."""
    return np.array([LEAST_AGE, MOST_AGE, OLDER, *packets_of_age(basis_size(pressures))])


@lru_cache(maxsize=16)
def _as_array(tries: tuple[tuple[float, int], ...]) -> Floats:
    return np.array(tries, dtype=float)


@lru_cache(maxsize=1024)
def response_table(models: tuple[NFModel, ...]) -> ResponseTable:
    """Arrange the trained functions of distinct NFs as arrays."""
    responses = responses_of(models)
    capacities = next((model.capacities for model in models if model.capacities is not None), None)
    return ResponseTable(models, responses, tables(responses), shared_socket(responses[0].pressure_names, capacities))


def responses_of(models: Sequence[NFModel]) -> tuple[ServerResponse, ...]:
    """Return the models' functions of running neighbours (`ServerResponse`)."""
    without = [model.workload.nf for model in models if model.response is None]
    if without:
        raise MissingMetricError(
            f"{', '.join(dict.fromkeys(without))} was profiled without the competition beside it",
            hint="profile and train again, or ask for method 'composed'",
        )
    responses = tuple(model.response for model in models if model.response is not None)
    one_set_of_pressures({response.pressure_names for response in responses})
    return responses


def one_set_of_pressures(every: Set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the pressure metrics to which several NFs respond. Raises ConfigurationError if NFs differ in them."""
    if len(every) > 1:
        shown = "; ".join(sorted(", ".join(names) for names in every))
        raise ConfigurationError(
            f"these NFs were profiled with different pressure metrics: {shown}",
            hint="train them from datasets that report the same metrics",
        )
    return next(iter(every), ())


def distinct_mixes(members: NDArray[np.int64], kinds: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return each distinct mix once, and its index for every row; None if hardly any mix occurs twice.

    Rows are in canonical order, with -1 for an empty place. Several targets can have the same competitors, whose V is
    measured before the target starts: 100 000 mixes of 4 out of 24 kinds have 17 550 distinct sets of competitors.
    """
    places, space = members.shape[1], (kinds + 1) ** members.shape[1]
    if len(members) < _REPEATING or space > 2**62:
        return members, None
    code = (members + 1) @ (kinds + 1) ** np.arange(places)
    if space > _TABLE * len(members):
        _, first, back = np.unique(code, return_index=True, return_inverse=True)
    else:  # few possible values: a lookup table is several times faster than sorting
        seen = np.full(space, -1, dtype=np.int64)
        seen[code] = np.arange(len(code))
        occurring = np.flatnonzero(seen >= 0)
        first = seen[occurring]
        seen[occurring] = np.arange(len(first))
        back = seen[code]
    return (members, None) if len(first) > _MANY * len(members) else (members[first], back)
