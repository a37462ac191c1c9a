"""The trained responses of several NFs as common arrays; each NF's part is computed once and cached.

Used by `slomo.equilibrium.server`; the first axis of every table is the NF.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.contentiousness import ContentiousnessProfile, basis_size
from slomo.models.functions.compilation import code_for
from slomo.models.functions.monotone import MANY, MonotoneSensitivity, SideBySide, rows_of
from slomo.models.functions.monotone_kernel import lay_out_rows, leave_rows, weigh_rows
from slomo.models.responses.server_response import NOT_LEARNED, ServerResponse
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS, Kind

#: Metrics to which busy polling adds below full load, so that they are not proportional to served packets.
POLLED = frozenset({"IPC", "INST", "EXEC", "L2MPI", "L3MPI"})
#: Share of the half-saturation that is the reference for steps, if it is larger than the solo value.
COMPARED = 0.1
#: Rows are padded with zeros to a multiple of this number of columns, which a processor adds at once.
_WIDTH = 8
#: Writes throughputs [Mpps] of rows: the NF of each, its number of neighbours, the pressure on it, the result.
ComputeMpps = Callable[[NDArray[np.int64], Floats, Floats, Floats], None]
#: Compiled code of the networks, and number of rows per pass: the values of their units fit into the L2 cache.
_NETWORK = (lay_out_rows, weigh_rows, leave_rows)
_READ = 2_048
#: Largest number of NFs for which 16-bit indices are used, which numpy sorts in a sixth of the time.
_SHORT = 1 << 15


@dataclass(frozen=True, eq=False)
class Tables:
    """Coefficients of many NFs' trained responses, one row per NF: how pressure changes its counters and its speed."""

    #: Start, half-saturation and largest known of each pressure; low and high end of each answer; weights of the
    #: answers, term by term of `slomo.models.contentiousness.pressure_basis`; in the next two columns, as many weights
    #: of what the NF holds by age (`ServerResponse.holding`) and of what its card reads back (`read_back`), shape (NFs,
    #: numbers). Then the same for part load, with 1 for an NF profiled there, else 0, in place of the start.
    rows: Floats
    #: Number of pressures; a row has one more answer (speed), then occupancy by age, read-back traffic, and columns of
    #: 0.
    pressures: int

    @property
    def answers(self) -> int:
        """Number of functions per NF: counters, and speed."""
        return width_of(self.pressures)

    def _part(self, begin: int, count: int) -> Floats:
        return self.rows[:, begin : begin + count]

    @cached_property
    def part_load(self) -> "Tables | None":
        """The same arrays for NFs below full load; None if no NF was profiled below full load."""
        begin = self.rows.shape[1] // 2
        return Tables(self.rows[:, begin:], self.pressures) if self.rows[:, begin].any() else None

    @cached_property
    def start(self) -> Floats:
        """Counters of each NF alone, shape (NFs, pressures)."""
        return self._part(0, self.pressures)

    @cached_property
    def scale(self) -> Floats:
        """Pressure at which each effect reaches one half, shape (NFs, pressures)."""
        return self._part(self.pressures, self.pressures)

    @cached_property
    def reference(self) -> Floats:
        """Amount of each pressure with which steps are compared, shape (NFs, pressures)."""
        return np.maximum(self.start, COMPARED * self.scale)

    @cached_property
    def limit(self) -> Floats:
        """Largest pressures known, shape (NFs, pressures)."""
        return self._part(2 * self.pressures, self.pressures)

    @cached_property
    def low(self) -> Floats:
        """Lower limit of each function, shape (NFs, functions)."""
        return self._part(3 * self.pressures, self.answers)

    @cached_property
    def high(self) -> Floats:
        """Upper limit of each function, shape (NFs, functions)."""
        return self._part(3 * self.pressures + self.answers, self.answers)

    @cached_property
    def weight(self) -> Floats:
        """Weights of each function, shape (NFs, terms, functions)."""
        begin, terms = 3 * self.pressures + 2 * self.answers, basis_size(self.pressures)
        return self._part(begin, terms * self.answers).reshape(len(self.rows), terms, self.answers)


def width_of(pressures: int) -> int:
    """Return the number of columns of a function's terms."""
    return -(-(pressures + 3) // _WIDTH) * _WIDTH


def tables(responses: Sequence[ServerResponse]) -> Tables:
    """Return the arrays that the iteration needs."""
    rows = np.concatenate([_row(response) for response in responses])
    return Tables(rows.reshape(len(responses), -1), len(responses[0].pressure_names))


@lru_cache(maxsize=4096)
def _row(response: ServerResponse) -> Floats:
    profile, part, names = response.profile, response.part_load, response.pressure_names
    speed = response.speed, response.slowest_mpps, response.fastest_mpps
    learned = response.holding, response.read_back
    whole = _half(profile, names, profile.solo.to_array(names), speed, learned)
    if part is None:
        return _without_part_load(whole, len(names))
    return np.concatenate([whole, _half(part, names, np.ones(len(names)), (np.zeros(len(response.speed)), 0.0, 0.0))])


@lru_cache(maxsize=4096)
def competitor_row(profile: ContentiousnessProfile, pressures: tuple[str, ...], socket: "SharedSocket") -> Floats:
    """Return a row of :class:`Tables` for an NF for which only its pressure on others is known.

    Pressures that the NF does not report are 0; a solo profile does not respond to pressure. No pressure exceeds the
    machine's capacity.
    """
    start, count = np.nan_to_num(profile.solo.to_array(pressures)), len(pressures)
    row = _without_part_load(_half(profile, pressures, start, (np.zeros(basis_size(count)), 0.0, 0.0)), count)
    row[2 * count : 3 * count] = np.minimum(row[2 * count : 3 * count], socket.caps)
    return row


def _without_part_load(whole: Floats, pressures: int) -> Floats:
    unknown = np.zeros(len(whole))
    unknown[pressures : 2 * pressures] = 1.0  # half-saturations are divisors
    return np.concatenate([whole, unknown])


def _half(
    profile: ContentiousnessProfile,
    names: tuple[str, ...],
    start: Floats,
    speed: tuple[Floats, float, float],
    learned: tuple[Floats, Floats] = (NOT_LEARNED, NOT_LEARNED),
) -> Floats:
    """Return half of a row: solo values and pressures, then weights and limits of all functions.

    `learned`: weights of the NF's occupancy by age, and of its card's read-back traffic.
    """
    weights, lowest, highest = (np.nan_to_num(each) for each in columns(profile, names, len(names)))
    scale = profile.scale if profile.pressure_names else np.ones(len(names))
    limit = profile.limit if profile.pressure_names else np.zeros(len(names))
    spare = np.zeros(width_of(len(names)) - len(names) - 1)
    weight = np.column_stack([weights, speed[0], np.zeros((len(weights), len(spare)))])
    for column, answer in enumerate(learned, len(names) + 1):
        weight[: len(answer), column] = answer
    low, high = np.concatenate([lowest, [speed[1]], spare]), np.concatenate([highest, [speed[2]], spare])
    if len(learned[1]):
        high[len(names) + 2] = np.finfo(float).max
    return np.concatenate([start, scale, limit, low, high, weight.ravel()])


@lru_cache(maxsize=4096)
def columns(profile: ContentiousnessProfile, names: tuple[str, ...], pressures: int) -> tuple[Floats, Floats, Floats]:
    """Return weights and limits of the counters `names`; NaN for a counter that was not reported."""
    table = np.zeros((basis_size(pressures) + 2, len(profile.metric_names) + 1))
    table[: len(profile.weights), :-1], table[:, -1] = profile.weights, np.nan
    table[-2, :-1], table[-1, :-1] = profile.low, profile.high
    at = [profile.metric_names.index(name) if name in profile.metric_names else -1 for name in names]
    return table[:-2, at], table[-2, at], table[-1, at]


@dataclass(frozen=True, eq=False)
class SharedSocket:
    """Resources that NFs on one socket share (cache, DDIO ways, memory channel), with their capacities."""

    #: Capacity of the machine for each pressure, shape (pressures,).
    caps: Floats
    #: Mask of the pressures that scale with served packets, shape (pressures,).
    rates: NDArray[np.bool_]
    #: Column of cache occupancy.
    held: int | None
    #: Column of the memory channel's traffic, if the machine's bandwidth is known.
    channel: int | None
    #: The capacities by metric.
    capacities: Capacities | None


@lru_cache(maxsize=256)
def shared_socket(names: tuple[str, ...], capacities: Capacities | None) -> SharedSocket:
    """Return a machine's capacities for the pressures `names`; infinite if unknown."""
    caps = np.array([np.inf if capacities is None else capacities.limit(METRICS[name]) for name in names])
    held = names.index("L3OCC") if "L3OCC" in names else None
    channel = names.index("LMB") if "LMB" in names and np.isfinite(caps[names.index("LMB")]) else None
    return SharedSocket(caps, flows_and_polled(names)[0], held, channel, capacities)


@lru_cache(maxsize=128)
def vector_tables(
    responses: tuple[ServerResponse, ...], names: tuple[str, ...], *, part_load: bool = False
) -> tuple[Floats, ...]:
    """Return solo values, weights and limits of the counters `names`; at part load as profiled, or at full load."""
    rows = []
    for response in responses:
        profile = response.part_load if part_load and response.part_load is not None else response.profile
        weight, low, high = columns(profile, names, len(response.pressure_names))
        rows.append((np.where(np.isnan(low), np.nan, profile.solo.to_array(names)), weight, low, high))
    return tuple(np.array(each) for each in zip(*rows, strict=True))


@lru_cache(maxsize=256)
def flows_and_polled(names: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the counters that grow with served packets, and of those to which polling adds.

    Examples
    --------
    >>> rates, polled = flows_and_polled(("L2MISS", "L3OCC", "INST"))
    >>> rates.tolist(), polled.tolist()
    ([True, False, False], [False, False, True])
    """
    flows = {Kind.RATE, Kind.BANDWIDTH}
    return (
        np.array([METRICS[name].kind in flows and name not in POLLED for name in names], dtype=bool),
        np.array([name in POLLED for name in names], dtype=bool),
    )


def reader(
    responses: tuple[ServerResponse, ...], who: NDArray[np.int64], neighbours: Floats
) -> Callable[[Floats], Floats]:
    """Return a function that computes throughputs [Mpps] by the NFs' networks.

    The i-th throughput is that of NF `who[i]` under `pressure[i]` with `neighbours[i]` neighbours.
    """
    if (compute := compiled_networks(responses)) is not None:

        def read_compiled(pressure: Floats) -> Floats:
            mpps = np.empty(len(who))
            for begin in range(0, len(who), _READ):
                part = slice(begin, begin + _READ)
                compute(who[part], neighbours[part], pressure[part], mpps[part])
            return mpps

        return read_compiled
    together = _side_by_side(responses) if len(who) < MANY else None
    if together is not None:
        rows = together.rows(who)
        inputs = responses[0].inputs(np.zeros((len(who), len(responses[0].pressure_names))), neighbours)

        def read_together(pressure: Floats) -> Floats:
            inputs[:, : pressure.shape[1]] = pressure
            return rows.predict_mpps(inputs)

        return read_together
    order = np.argsort(who.astype(np.int16) if len(responses) < _SHORT else who, kind="stable")
    numbers, starts = np.unique(who[order], return_index=True)
    every = [*zip(numbers.tolist(), np.split(order, starts[1:]) if len(who) else (), strict=True)]

    def read(pressure: Floats) -> Floats:
        mpps = np.zeros(len(who))
        for number, mine in every:
            mpps[mine] = responses[number].rows_mpps(pressure[mine], neighbours[mine])
        return mpps

    return read


def compiled_networks(responses: tuple[ServerResponse, ...]) -> ComputeMpps | None:
    """Return compiled code for the throughputs of rows; None if it is not compiled, or networks differ in shape.

    It takes the NF of each row, its number of neighbours and the pressure on it, and writes throughputs [Mpps].
    """
    code = code_for(_NETWORK)
    return None if code is None else _computing(responses, *code)


@lru_cache(maxsize=1024)
def _computing(responses: tuple[ServerResponse, ...], *code: Callable[..., Any]) -> ComputeMpps | None:
    if (networks := rows_of([response.sensitivity for response in responses])) is None:
        return None
    (lay_out, weigh, leave), (limits, weights) = code, networks
    features = limits.shape[1] // 3
    units = weights.shape[1] // (features + 2)

    def compute(who: NDArray[np.int64], neighbours: Floats, pressure: Floats, mpps: Floats) -> None:
        inputs, sums = np.empty((len(who), features), dtype=np.float32), np.empty((len(who), units), dtype=np.float32)
        lay_out(limits, who, neighbours, pressure, inputs)
        np.log(inputs, out=inputs)
        weigh(weights, who, inputs, sums)
        np.tanh(sums, out=sums)
        leave(limits, weights, who, sums, mpps)

    return compute


@lru_cache(maxsize=256)
def _side_by_side(responses: tuple[ServerResponse, ...]) -> SideBySide | None:
    """Return the networks of all NFs as one object; None if one model is of another kind."""
    functions = [response.sensitivity for response in responses]
    every = [each for each in functions if isinstance(each, MonotoneSensitivity)]
    return SideBySide.of(every) if len(every) == len(functions) else None
