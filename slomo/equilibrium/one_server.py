"""The equilibrium of one server; results equal those of `slomo.equilibrium.server`.

This module is for questions about a single server, most of which need one NF out of five; values per NF are therefore
plain numbers instead of arrays. Once the rounds are compiled, computing throughputs by the models takes as long as all
rounds, so throughputs that the rounds have already computed are reused.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from slomo.equilibrium.judgement import VerdictInputs, moved_by_each, verdict_inputs
from slomo.equilibrium.rounds import LEAST_LOAD, TINY, IterationState
from slomo.equilibrium.server import FixedPoints, joint_vectors
from slomo.equilibrium.settling import response_table
from slomo.models.base import Floats
from slomo.models.error_shape import NO_ERRORS
from slomo.models.interval_ends import interval_of_one
from slomo.models.neighbourhood import beside_loads, kinds_in
from slomo.models.nf_model import NFModel
from slomo.models.responses.arrivals import arrival_half_width_mpps


class OneServer:
    """The equilibrium of one server; results are computed only when needed.

    `models`: one per NF, all with a `response`. `offered_mpps`: offered load of each NF [Mpps]; None saturates it.
    Raises MissingMetricError and ConfigurationError as `slomo.equilibrium.server.solve_joint` does.
    """

    def __init__(self, models: Sequence[NFModel], offered_mpps: Sequence[float | None]) -> None:
        keys = [(model.workload.key, load or np.inf) for model, load in zip(models, offered_mpps, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        #: Models and loads in canonical order, and the place in this order of each given NF; methods take the place.
        self.models = [models[i] for i in order]
        self.offered = [offered_mpps[i] for i in order]
        self.place = [order.index(i) for i in range(len(order))]
        number: dict[NFModel, int] = {}
        numbers = tuple([number.setdefault(model, len(number)) for model in self.models])
        #: Kind of each NF's neighbourhood (`slomo.models.neighbourhood`).
        self.kinds = kinds_in(numbers)
        if any(is_loaded := [load is not None for load in self.offered]):
            self.kinds = tuple(beside_loads(np.array(self.kinds), np.array(is_loaded)).tolist())
        self._nfs = response_table(tuple(number))
        loads = None
        if self.offered.count(None) < len(order):
            loads = np.array([[np.inf if load is None else load for load in self.offered]])
        self._group = self._nfs.group(np.array([numbers]), loads)
        self.state: IterationState = self._nfs.settle(self._group)
        self.pressure = self.state.pressure
        #: Whether the rounds converged.
        self.converged = bool(self.state.status[0, 0] > 0.0)
        self._mpps: list[float] | None = None
        self._ends: dict[tuple[int, float], tuple[float, float]] = {}

    def pressure_on(self, place: int) -> Floats:
        """Return the pressure that the other NFs put on one NF, shape ``(pressures,)``."""
        pressure: Floats = self.pressure[0, place]
        return pressure

    def verdict_inputs(self, place: int) -> VerdictInputs:
        """Return what the verdict on an NF reads of its neighbours."""
        return verdict_inputs(self._nfs, self._group.members, self.state, 0, place)

    def possible_mpps(self, place: int) -> float:
        """Return the throughput that an NF would reach if it were saturated [Mpps]."""
        if len(self.models) == 1:
            return self.models[0].solo_mpps
        if self._mpps is None:
            if np.isnan(self.state.mpps[0, 0]):  # the rounds did not compute it
                self._group.read(self._nfs.responses, self.state)
            self._mpps = self.state.mpps[0].tolist()
        return self._mpps[place]

    def load_of(self, place: int) -> float:
        """Return an NF's served throughput divided by the throughput that it could reach."""
        offered = self.offered[place]
        return 1.0 if offered is None else min(max(offered / max(self.possible_mpps(place), TINY), LEAST_LOAD), 1.0)

    def throughput_mpps(self, place: int) -> float:
        """Return an NF's served throughput [Mpps]."""
        possible, offered = self.possible_mpps(place), self.offered[place]
        return possible if offered is None else min(possible, offered)

    def interval_mpps(self, place: int, coverage: float, window_s: float | None = None) -> tuple[float, float]:
        """Return the lower and upper bound of the interval of an NF's throughput [Mpps], as in `solve_joint`."""
        ends, offered = self.possible_ends_mpps(place, coverage), self.offered[place]
        if offered is None:
            return ends
        response = self.models[place].response
        assert response is not None
        scores, load = response.arrivals, self.load_of(place)
        spread = float(arrival_half_width_mpps(np.array([offered]), load, scores, coverage, window_s)[0])
        return max(min(ends[0], offered - spread), 0.0), min(ends[1], offered + spread)

    def possible_ends_mpps(self, place: int, coverage: float) -> tuple[float, float]:
        """Return both ends of the interval of the throughput that an NF would reach if it were saturated [Mpps]."""
        ends = self._ends.get((place, coverage))
        if ends is None:
            model, possible_mpps = self.models[place], self.possible_mpps(place)
            assert model.response is not None
            if len(self.models) > 1 or model.solo_is_carried:
                calibration, kind = model.response.calibration, self.kinds[place]
                ends = calibration.one_interval_mpps(possible_mpps, model.solo_mpps, coverage, kind)
            else:
                reach = model.alone_reach(coverage)
                ends = interval_of_one(possible_mpps, model.solo_mpps, NO_ERRORS, (-reach, reach))
            self._ends[place, coverage] = ends
        return ends

    @cached_property
    def fixed_point(self) -> FixedPoints:
        """State of the server after the iteration, in canonical order."""
        load = np.array([[self.load_of(place) for place in range(len(self.models))]])
        return FixedPoints(self.pressure, load, self.state.waiting)

    @cached_property
    def vectors(self) -> tuple[tuple[str, ...], Floats]:
        """Names of the counters, and the counters of all NFs in the equilibrium, in canonical order."""
        responses = self._nfs.responses
        names = tuple(dict.fromkeys(name for response in responses for name in response.profile.metric_names))
        vectors: Floats = joint_vectors(self._nfs.models, self._group.members, self.fixed_point, names)[0]
        return names, vectors

    @cached_property
    def moved(self) -> Floats:
        """How much data every NF moves past the cache, in canonical order."""
        return moved_by_each(self._nfs.models, self._group.members, self.fixed_point)
