"""All NFs of a server at once: the fixed point of everybody's answer to everybody else, for many servers in arrays.

Beyond SLOMO (SIGCOMM'20) section 6, which composes vectors averaged over past pressure. Each NF's vector is a
continuous function of the others' summed vectors, clipped to what was measured; so the joint map sends a box into
itself and has a fixed point (Brouwer). A damped round turns an eigenvalue q of the joint map into 1 - d + d q, below 1
in size for 1 - 2 / d < q < 1: NFs that all yield together have negative ones, two that push each other out of the cache
positive ones. What is left after the last step is bounded by step * r / (1 - r), r the ratio of steps (Banach).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError, InvalidValueError, MissingMetricError
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.joint_tables import kinds, read_mpps, tables, vector_tables
from slomo.models.nf_model import NFModel
from slomo.models.server_response import ServerResponse
from slomo.vocabulary.metrics import METRICS

#: Share of the way to the answer that a round goes, and most rounds: a usual try, one for servers that creep towards
#: their fixed point, and one for those that swing around it.
TRIES = ((0.5, 40), (0.9, 60), (0.15, 160))
#: Converged once no value moves by more than this share of the largest solo value beside it.
TOLERANCE = 1e-3
_CHUNK = 1024
_TINY = 1e-12
#: An NF that serves less than this share of what it could is nothing to its neighbours.
_LEAST_LOAD = 1e-3


@dataclass(frozen=True, eq=False)
class Joint:
    """Fixed points of many servers; an empty place holds 0.

    Attributes
    ----------
    pressure : ndarray, shape (servers, places, pressures)
        What each NF feels from the others.
    load : ndarray, shape (servers, places)
        Share of its possible throughput that an NF serves; 1 where it is saturated.
    throughput_mpps, half_width_mpps : ndarray, shape (servers, places)
        Served throughput, and half the width of its interval [Mpps].
    converged : ndarray of bool, shape (servers,)
        Whether the rounds came to rest.
    rounds : ndarray of int, shape (servers,)
        Rounds taken.
    ratio : ndarray, shape (servers,)
        Size of the last step over that of the step before.
    bound : ndarray, shape (servers,)
        Bound on what is left, as a share of the largest solo value.
    """

    pressure: Floats
    load: Floats
    throughput_mpps: Floats
    half_width_mpps: Floats
    converged: NDArray[np.bool_]
    rounds: NDArray[np.int64]
    ratio: Floats
    bound: Floats


def responses_of(models: Sequence[NFModel]) -> tuple[ServerResponse, ...]:
    """Return the models' server responses.

    Raises
    ------
    MissingMetricError
        Where a model was trained without the competition beside it.
    ConfigurationError
        Where models answer to different pressures.
    """
    without = [model.workload.nf for model in models if model.response is None]
    if without:
        raise MissingMetricError(
            f"{', '.join(dict.fromkeys(without))} was profiled without the competition beside it",
            hint="profile and train again, or ask for method 'slomo'",
        )
    found = tuple(model.response for model in models if model.response is not None)
    kinds = {response.pressure_names for response in found}
    if len(kinds) > 1:
        shown = "; ".join(sorted(", ".join(names) for names in kinds))
        raise ConfigurationError(
            f"these NFs were profiled with different pressure metrics: {shown}",
            hint="train them from datasets that report the same metrics",
        )
    return found


def solve_joint(
    models: Sequence[NFModel],
    members: NDArray[np.int64],
    offered_mpps: Floats | None = None,
    *,
    coverage: float = 0.9,
    tries: Sequence[tuple[float, int]] = TRIES,
) -> Joint:
    """Solve many servers (sockets) at once.

    Parameters
    ----------
    models : sequence of NFModel
        The distinct NFs, all with a `response`.
    members : ndarray of int, shape (servers, places)
        Index into `models` per place, -1 for an empty place; the order of places does not matter, to the last bit.
    offered_mpps : ndarray, shape (servers, places), optional
        Offered load [Mpps]; NaN (and everything, by default) saturates an NF.
    coverage : float
        Coverage of the intervals.
    tries : sequence of (float, int)
        Damping and most rounds, one try after the other for servers that did not converge.

    Returns
    -------
    Joint

    Raises
    ------
    MissingMetricError, ConfigurationError
        As :func:`responses_of`.
    InvalidValueError
        For arrays that do not belong together.
    """
    _check(models, members, offered_mpps)
    members = np.array(members, dtype=np.int64)
    offered = np.full(members.shape, np.nan) if offered_mpps is None else np.asarray(offered_mpps, dtype=float)
    rank = np.empty(len(models) + 1, dtype=np.int64)
    ranked = sorted(range(len(models)), key=lambda number: models[number].workload.key)
    rank[ranked], rank[-1] = np.arange(len(models)), len(models)
    order = np.lexsort((np.nan_to_num(offered, nan=np.inf), rank[members]), axis=-1)
    sorted_members = np.take_along_axis(members, order, axis=1)
    sorted_offered = np.take_along_axis(offered, order, axis=1)
    parts = [
        _Solver(models, sorted_members[at : at + _CHUNK], sorted_offered[at : at + _CHUNK]).solve(tries, coverage)
        for at in range(0, max(len(members), 1), _CHUNK)
    ]
    back = np.argsort(order, axis=1)
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in Joint.__dataclass_fields__]
    placed = [np.take_along_axis(joined[0], back[:, :, None], axis=1)]
    placed += [np.take_along_axis(part, back, axis=1) for part in joined[1:4]]
    return Joint(*placed, *joined[4:])


def _check(models: Sequence[NFModel], members: NDArray[np.integer], offered_mpps: Floats | None) -> None:
    """Refuse arrays that do not belong together, and loads that are none."""
    responses_of(models)
    shape = np.shape(members)
    if not models or len(shape) != 2 or (np.asarray(members) >= len(models)).any():
        raise InvalidValueError(
            f"servers of shape {shape} and {len(models)} models do not belong together",
            hint="needed: indices of the models, shape (servers, places), -1 for an empty place",
        )
    if offered_mpps is not None and (np.shape(offered_mpps) != shape or (np.asarray(offered_mpps) <= 0.0).any()):
        raise InvalidValueError(
            f"offered loads of shape {np.shape(offered_mpps)} for servers of shape {shape}, or a load not above 0 Mpps",
            hint="one load per place, NaN where the NF is saturated",
        )


def joint_vectors(
    models: Sequence[NFModel], members: NDArray[np.integer], found: Joint, names: tuple[str, ...]
) -> Floats:
    """Return every NF's core-level vector at its fixed point, shape ``(servers, places, len(names))``.

    NaN where an NF did not report a metric, and for instructions at less than full load, where polling adds to them.
    An NF alone answers with its solo vector.
    """
    members = np.asarray(members, dtype=np.int64)
    responses = responses_of(models)
    rates, polled = kinds(names)
    solo, weight, low, high = (part[members] for part in vector_tables(responses, names))
    inner, load = tables(responses), found.load[:, :, None]
    pressure = found.pressure * _stretch(found.load, responses[0])
    basis = pressure_basis(pressure, inner.scale[members], inner.limit[members])
    result = np.minimum(np.maximum(np.matmul(basis[:, :, None, :], weight)[:, :, 0, :], low), high)
    present = (members >= 0)[:, :, None]
    result = np.where(present.sum(axis=1, keepdims=True) == 1, solo, result)
    result = np.where(present, result, 0.0)
    result = np.where(rates, result * load, result)
    if "L3OCC" in names:
        held, most = names.index("L3OCC"), _llc_kib(models)
        total = np.nansum(result[:, :, held], axis=1, keepdims=True)
        result[:, :, held] *= np.minimum(1.0, most / np.maximum(total, _TINY))
    return np.where(polled & (load < 1.0) & (members >= 0)[:, :, None], np.nan, result)


def _llc_kib(models: Sequence[NFModel]) -> float:
    """Return the size of the cache; infinite where no model knows its machine."""
    return next((float(model.capacities.llc_kib) for model in models if model.capacities is not None), np.inf)


def _stretch(load: Floats, response: ServerResponse) -> Floats:
    """Return what multiplies each pressure at less than full load.

    What a cache holds depends on the order of accesses, not on their speed: an NF at half its speed beside others fares
    like one at full speed beside others twice as fast. Occupancy is no rate and stays.
    """
    rates, _ = kinds(response.pressure_names)
    return np.where(rates, 1.0 / np.maximum(load, _LEAST_LOAD)[:, :, None], 1.0)


class _Solver:
    """The rounds of one chunk of servers; places are in canonical order."""

    def __init__(self, models: Sequence[NFModel], members: NDArray[np.int64], offered: Floats) -> None:
        self.models, self.members, self.offered = models, members, offered
        self.present = members >= 0
        self.responses = responses_of(models)
        names = self.responses[0].pressure_names
        table = tables(self.responses)
        # an empty place answers 0 to everything
        here = self.present[:, :, None]
        self.start, self.scale = table.start[members] * here, table.scale[members]
        self.weight = table.weight[members] * here[:, :, :, None]
        self.low, self.high = table.low[members] * here, table.high[members] * here
        self.rates, _ = kinds(names)
        self.partial = np.isfinite(offered) & self.present
        if not self.partial.any():  # nobody's speed matters to anybody
            self.weight = np.ascontiguousarray(self.weight[:, :, :, :-1])
            self.low, self.high = self.low[:, :, :-1], self.high[:, :, :-1]
        self.held = names.index("L3OCC") if "L3OCC" in names else None
        known = next((model.capacities for model in models if model.capacities is not None), None)
        self.llc_kib = _llc_kib(models)
        caps = np.array([np.inf if known is None else known.limit(METRICS[name]) for name in names])
        self.limit: Floats = np.minimum(table.limit[members], caps)

    def solve(self, tries: Sequence[tuple[float, int]], coverage: float) -> Joint:
        """Run the tries and read every NF's throughput."""
        reference = np.maximum(self.start.max(axis=1, initial=0.0), _TINY)
        vector = self._within_cache(self.start.copy())
        count = len(self.members)
        step, ratio, taken = np.full(count, np.inf), np.full(count, np.nan), np.zeros(count, dtype=np.int64)
        still = np.ones(count, dtype=bool)
        for damping, rounds in tries:
            for _ in range(rounds):
                if not still.any():
                    break
                following = self._within_cache(vector + damping * (self._answer(vector) - vector))
                moved = (np.abs(following - vector).max(axis=1, initial=0.0) / reference).max(axis=1, initial=0.0)
                vector = following if count == 1 else np.where(still[:, None, None], following, vector)
                ratio = np.where(still, moved / np.maximum(step, _TINY), ratio)
                step = np.where(still, moved, step)
                taken += still
                still &= (moved > TOLERANCE * damping) & (taken < 10_000)
        return self._read(vector, still, taken, np.minimum(ratio, 1e9), step, coverage)

    def _within_cache(self, vector: Floats) -> Floats:
        """Scale occupancy down where all NFs together would hold more than the cache."""
        if self.held is not None:
            total = vector[:, :, self.held].sum(axis=1, keepdims=True)
            if (total > self.llc_kib).any():
                vector[:, :, self.held] *= np.minimum(1.0, self.llc_kib / np.maximum(total, _TINY))
        return vector

    def _answer(self, vector: Floats) -> Floats:
        """Return everybody's answer to everybody else."""
        pressure = vector.sum(axis=1, keepdims=True) - vector
        answer = self._under(pressure)
        if not self.partial.any():
            return answer
        load = self._load(answer[:, :, -1])[:, :, None]
        faster = self._under(pressure * np.where(self.rates, 1.0 / load, 1.0))
        scaled: Floats = faster[:, :, :-1] * np.where(self.rates, load, 1.0)
        return scaled

    def _load(self, possible_mpps: Floats) -> Floats:
        share: Floats = np.nan_to_num(self.offered, nan=np.inf) / np.maximum(possible_mpps, _TINY)
        return np.minimum(np.maximum(share, _LEAST_LOAD), 1.0)

    def _under(self, pressure: Floats) -> Floats:
        basis = pressure_basis(pressure, self.scale, self.limit)
        answer: Floats = np.matmul(basis[:, :, None, :], self.weight)[:, :, 0, :]
        kept: Floats = np.minimum(np.maximum(answer, self.low), self.high)
        return kept

    def _read(
        self,
        vector: Floats,
        still: NDArray[np.bool_],
        taken: NDArray[np.int64],
        ratio: Floats,
        step: Floats,
        share: float,
    ) -> Joint:
        pressure = np.maximum(vector.sum(axis=1, keepdims=True) - vector, 0.0) * self.present[:, :, None]
        alone = np.broadcast_to((self.present.sum(axis=1) == 1)[:, None], self.members.shape)
        mpps, width = np.zeros(self.members.shape), np.zeros(self.members.shape)
        solo = np.array([model.solo_mpps for model in self.models])[self.members]
        who = self.members[self.present]
        mpps[self.present] = read_mpps(self.responses, who, pressure[self.present])
        mpps = np.where(alone & self.present, solo, mpps)
        for number in np.unique(who):
            here = self.members == number
            calibration = self.responses[number].calibration
            width[here] = calibration.half_width_mpps(mpps[here], self.models[number].solo_mpps, share)
        width = np.where(alone, 0.0, width)
        load = np.where(self.present, self._load(mpps), 0.0)
        served = np.where(self.partial, np.fmin(mpps, self.offered), mpps)
        slack = np.maximum(mpps - served, 0.0)  # an interval of what is possible, cut off at what is offered
        bound = np.where(ratio < 1.0, step * ratio / np.maximum(1.0 - ratio, _TINY), np.inf)
        return Joint(pressure, load, served, np.maximum(width - slack, 0.0), ~still, taken, ratio, bound)
